#include "links.h"

#include "child.h"
#include "events.h"
#include "routes.h"

#include "hash.h"
#include "ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_LINKS    (2 * SUP_CHILDREN)
#define SETUP_US     VT_SEC(8) /* from minting to up */
#define RETRY_US     VT_MS(300)
#define RETRY_MAX_US VT_SEC(10)

enum link_state { LINK_MINTED, LINK_LISTENING, LINK_UP };

struct one {
    uint32_t id; /* 0: free */
    char kind;
    struct child *listener, *dialer;
    uint32_t listener_gen, dialer_gen;
    enum link_state state;
    bool listener_up, dialer_up;
    uint64_t minted_at;
    uint8_t nonce[VT_NONCE_LEN];
    char path[108], bulk[108]; /* bulk: "" when there is none */
    bool bulk_named;           /* its file still has a name */
};

/* A pair that fails again and again is tried more and more slowly. */
struct pair {
    char kind;
    const struct child *listener, *dialer;
    unsigned failures;
    uint64_t not_before;
};

struct links {
    struct one one[MAX_LINKS];
    struct pair pair[MAX_LINKS];
};

int links_open(struct sup *s, struct vt_err *err)
{
    s->links = calloc(1, sizeof *s->links);
    return s->links != NULL ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
}

static void forget_bulk(struct one *l)
{
    if (l->bulk_named)
        unlink(l->bulk);
    l->bulk_named = false;
}

static void end(struct one *l)
{
    unlink(l->path);
    forget_bulk(l);
    memset(l, 0, sizeof *l);
}

void links_close(struct sup *s)
{
    if (s->links == NULL)
        return;
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        if (s->links->one[i].id != 0)
            end(&s->links->one[i]);
    }
    free(s->links);
    s->links = NULL;
}

static struct pair *pair_of(struct links *l, char kind, const struct child *listener,
                            const struct child *dialer)
{
    struct pair *free_one = NULL;
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        struct pair *p = &l->pair[i];
        if (p->kind == kind && p->listener == listener && p->dialer == dialer)
            return p;
        if (p->kind == 0 && free_one == NULL)
            free_one = p;
    }
    if (free_one != NULL)
        *free_one = (struct pair){.kind = kind, .listener = listener, .dialer = dialer};
    return free_one;
}

static struct one *find(struct links *l, char kind, const struct child *listener, const struct child *dialer)
{
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        struct one *o = &l->one[i];
        if (o->id != 0 && o->kind == kind && o->listener == listener && o->dialer == dialer)
            return o;
    }
    return NULL;
}

static struct one *by_id(struct links *l, uint32_t id)
{
    for (unsigned i = 0; i < MAX_LINKS && id != 0; i++) {
        if (l->one[i].id == id)
            return &l->one[i];
    }
    return NULL;
}

/* Leaving as told, or dead and not yet reaped: its links end before its pidfd is looked at. */
static bool is_ending(const struct child *c)
{
    siginfo_t si = {0};
    if (c->ordered || c->pid == 0)
        return true;
    return waitid((idtype_t)3 /* P_PIDFD */, (id_t)c->pidfd, &si, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           si.si_pid != 0;
}

static void failed(struct sup *s, struct one *l, const char *why)
{
    struct pair *p = pair_of(s->links, l->kind, l->listener, l->dialer);
    if (is_ending(l->listener) || is_ending(l->dialer)) {
        end(l); /* its end is the event, and comes next */
        return;
    }
    event_text(s, EVENT_LINK, l->listener, VT_LOG_WARNING, "link %c.%08x to %s ended: %s", l->kind, l->id,
               l->dialer->name, why);
    if (p != NULL) {
        uint64_t wait = RETRY_US << (p->failures < 5 ? p->failures : 5);
        p->failures++;
        p->not_before = sup_now(s) + (wait < RETRY_MAX_US ? wait : RETRY_MAX_US);
    }
    end(l);
    routes_changed(s);
}

static void send_open(struct one *l, struct child *to, const struct child *peer, unsigned side)
{
    struct vt_enc *e = child_begin(to, VT_F_LINK_OPEN, 0);
    vt_enc_u64(e, VT_LINK_OPEN_LINK, l->id);
    vt_enc_str(e, VT_LINK_OPEN_PATH, l->path);
    vt_enc_u64(e, VT_LINK_OPEN_SIDE, side);
    vt_enc_str(e, VT_LINK_OPEN_PEER_ROLE, peer->info->role);
    vt_enc_u64(e, VT_LINK_OPEN_PEER_PID, (uint64_t)peer->pid);
    vt_enc_bin(e, VT_LINK_OPEN_NONCE, l->nonce, sizeof l->nonce);
    if (l->bulk[0] != '\0') {
        vt_enc_str(e, VT_LINK_OPEN_BULK_PATH, l->bulk);
        vt_enc_u64(e, VT_LINK_OPEN_BULK_BYTES, vt_ring_bytes(VT_RING_SLOTS, VT_RING_SLOT_SIZE));
    }
    child_send(to);
}

static int make_ring(struct sup *s, struct one *l, struct vt_err *err)
{
    snprintf(l->bulk, sizeof l->bulk, "%s/b.%08x", s->dir.in, l->id);
    if (vt_ring_create(l->bulk, l->id, VT_RING_SLOTS, VT_RING_SLOT_SIZE, err) < 0)
        return -1;
    l->bulk_named = true;
    if (s->run_uid != geteuid() && chown(l->bulk, s->run_uid, s->run_gid) < 0)
        return vt_fail_errno(err, VT_E_OS, "%s", l->bulk);
    return 0;
}

static void mint(struct sup *s, char kind, struct child *listener, struct child *dialer)
{
    struct pair *p = pair_of(s->links, kind, listener, dialer);
    struct one *l = NULL;
    for (unsigned i = 0; i < MAX_LINKS && l == NULL; i++) {
        if (s->links->one[i].id == 0)
            l = &s->links->one[i];
    }
    if (l == NULL || p == NULL || sup_now(s) < p->not_before)
        return;
    *l = (struct one){.id = s->next_link++,
                      .kind = kind,
                      .listener = listener,
                      .dialer = dialer,
                      .listener_gen = listener->gen,
                      .dialer_gen = dialer->gen,
                      .minted_at = sup_now(s)};
    snprintf(l->path, sizeof l->path, "%s/%c.%08x", s->dir.in, kind, l->id);
    vt_random(l->nonce, sizeof l->nonce);
    struct vt_err err;
    if (kind == 'k' && make_ring(s, l, &err) < 0) {
        failed(s, l, err.text);
        return;
    }
    send_open(l, listener, dialer, 0);
}

static bool may_talk(const struct child *c)
{
    return c->pid != 0 && c->welcomed && c->life != NULL && c->killed_for == CLASS_NONE;
}

static void want(struct sup *s, char kind, struct child *listener, struct child *dialer)
{
    struct one *l = find(s->links, kind, listener, dialer);
    if (l == NULL) {
        mint(s, kind, listener, dialer);
        return;
    }
    if (l->state != LINK_UP && sup_now(s) - l->minted_at > SETUP_US)
        failed(s, l, "its ends did not shake hands in time");
}

void links_want(struct sup *s)
{
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    struct child *store = sup_role(s, ROLE_STORE);
    if (s->stopping)
        return;
    for (unsigned i = 0; i < s->n_children; i++) {
        struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE || !may_talk(c))
            continue;
        bool loading = c->state == VT_CHILD_LOADING, ready = c->state == VT_CHILD_READY;
        if (!sup_external(s->cfg) && store != NULL && store->state == VT_CHILD_READY && may_talk(store) &&
            (loading || ready))
            want(s, 'k', store, c);
        if (gw != NULL && gw->state == VT_CHILD_READY && may_talk(gw) && ready)
            want(s, 'd', c, gw);
    }
}

static void came_up(struct sup *s, struct one *l)
{
    struct pair *p = pair_of(s->links, l->kind, l->listener, l->dialer);
    l->state = LINK_UP;
    if (l->kind == 'd')
        l->listener->data_link = l->id;
    if (p != NULL)
        p->failures = 0;
    forget_bulk(l); /* both ends have mapped it */
    vt_log(s->log, VT_LOG_INFO, "link %c.%08x: %s and %s are connected", l->kind, l->id, l->listener->name,
           l->dialer->name);
    routes_changed(s);
}

void links_state(struct sup *s, struct child *c, const struct vt_frame *f)
{
    struct one *l = by_id(s->links, (uint32_t)vt_frame_u64(f, VT_LINK_STATE_LINK, 0));
    bool listener = l != NULL && l->listener == c && l->listener_gen == c->gen;
    bool dialer = l != NULL && l->dialer == c && l->dialer_gen == c->gen;
    char why[200];
    if (!listener && !dialer)
        return; /* of a link that has ended meanwhile */
    switch (vt_frame_u64(f, VT_LINK_STATE_STATE, 0)) {
    case 1:
        if (!listener || l->state != LINK_MINTED)
            return;
        l->state = LINK_LISTENING;
        if (may_talk(l->dialer) && l->dialer->gen == l->dialer_gen)
            send_open(l, l->dialer, l->listener, 1);
        return;
    case 2:
        l->listener_up = l->listener_up || listener;
        l->dialer_up = l->dialer_up || dialer;
        if (l->listener_up && l->dialer_up && l->state == LINK_LISTENING)
            came_up(s, l);
        return;
    default: {
        char text[256];
        vt_frame_str(f, VT_KEY_TEXT, why, sizeof why);
        snprintf(text, sizeof text, "%s says: %s", c->name, why[0] != '\0' ? why : "down");
        failed(s, l, text);
        return;
    }
    }
}

void links_child_gone(struct sup *s, const struct child *c)
{
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        struct one *l = &s->links->one[i];
        if (l->id != 0 && (l->listener == c || l->dialer == c))
            end(l);
    }
    for (unsigned i = 0; i < MAX_LINKS; i++) {
        struct pair *p = &s->links->pair[i];
        if (p->kind != 0 && (p->listener == c || p->dialer == c))
            p->failures = 0, p->not_before = 0; /* the next generation is not to blame */
    }
}

uint32_t links_up(const struct sup *s, char kind, const struct child *c)
{
    for (unsigned i = 0; s->links != NULL && i < MAX_LINKS; i++) {
        const struct one *l = &s->links->one[i];
        if (l->id != 0 && l->kind == kind && l->state == LINK_UP && (l->listener == c || l->dialer == c))
            return l->id;
    }
    return 0;
}

bool links_at(const struct sup *s, unsigned i, struct link_view *v)
{
    static const char *const names[] = {"minted", "listening", "up"};
    for (unsigned k = 0; k < MAX_LINKS; k++) {
        const struct one *l = &s->links->one[k];
        if (l->id == 0 || i-- != 0)
            continue;
        *v = (struct link_view){l->id, l->kind, l->listener->name, l->dialer->name, names[l->state]};
        return true;
    }
    return false;
}
