#include "ctl.h"

#include "ctl_verbs.h"
#include "duties.h"
#include "events.h"

#include "sock_ctl.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define REPLIES     256
#define REPLY_US    VT_SEC(60)
#define RATE        50 /* calls a second for each uid */
#define RATE_SLOTS  16
#define ADMIN_US    VT_SEC(60)
#define ADMIN_GROUP "vitriol-admin"

/* The reply to a request that acted: a redelivered request is answered, not repeated. */
struct reply {
    uint8_t nonce[16];
    uint64_t at; /* 0: free */
    uint8_t *buf;
    size_t len;
};

struct caller {
    uid_t uid;
    bool used, admin;
    uint64_t looked_up, second;
    unsigned calls;
};

struct ctl {
    struct vt_rep *rep;
    struct vt_enc enc;
    sd_event_source *src;
    struct reply replies[REPLIES];
    unsigned n_replies;
    struct caller callers[RATE_SLOTS];
    unsigned n_callers;
    uint64_t relistens;
};

/* ---- who may what ---- */

static struct caller *caller_of(struct ctl *c, uid_t uid)
{
    for (unsigned i = 0; i < RATE_SLOTS; i++) {
        if (c->callers[i].used && c->callers[i].uid == uid)
            return &c->callers[i];
    }
    struct caller *k = &c->callers[c->n_callers++ % RATE_SLOTS];
    *k = (struct caller){.uid = uid, .used = true};
    return k;
}

static bool in_admin_group(uid_t uid)
{
    struct passwd pw, *found = NULL;
    struct group gr, *group = NULL;
    char a[4096], b[4096];
    gid_t list[256];
    int n = 256;
    if (getgrnam_r(ADMIN_GROUP, &gr, a, sizeof a, &group) != 0 || group == NULL ||
        getpwuid_r(uid, &pw, b, sizeof b, &found) != 0 || found == NULL ||
        getgrouplist(found->pw_name, found->pw_gid, list, &n) < 0)
        return false;
    for (int i = 0; i < n; i++) {
        if (list[i] == group->gr_gid)
            return true;
    }
    return false;
}

static bool is_our_child(const struct sup *s, pid_t pid)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        if (pid > 0 && s->child[i].pid == pid)
            return true;
    }
    return false;
}

static bool may_act(struct sup *s, const struct ctl_caller *who)
{
    if (is_our_child(s, who->pid))
        return false;
    if (who->uid == 0 || who->uid == geteuid())
        return true;
    struct caller *k = caller_of(s->ctl, who->uid);
    if (k->looked_up == 0 || sup_now(s) - k->looked_up > ADMIN_US) {
        k->admin = in_admin_group(who->uid);
        k->looked_up = sup_now(s);
    }
    return k->admin;
}

static bool too_fast(struct sup *s, uid_t uid)
{
    struct caller *k = caller_of(s->ctl, uid);
    uint64_t second = sup_now(s) / 1000000u;
    if (k->second != second) {
        k->second = second;
        k->calls = 0;
    }
    return ++k->calls > RATE;
}

/* ---- replies ---- */

static struct reply *cached(struct sup *s, const uint8_t nonce[16])
{
    for (unsigned i = 0; i < REPLIES; i++) {
        struct reply *r = &s->ctl->replies[i];
        if (r->at != 0 && sup_now(s) - r->at < REPLY_US && memcmp(r->nonce, nonce, 16) == 0)
            return r;
    }
    return NULL;
}

static void keep(struct sup *s, const uint8_t nonce[16], const uint8_t *buf, size_t len)
{
    struct reply *r = &s->ctl->replies[s->ctl->n_replies++ % REPLIES];
    free(r->buf);
    *r = (struct reply){.buf = malloc(len), .len = len};
    if (r->buf == NULL)
        return;
    memcpy(r->buf, buf, len);
    memcpy(r->nonce, nonce, 16);
    r->at = sup_now(s);
}

static void answer_error(struct vt_enc *e, uint64_t id, const struct vt_err *err)
{
    vt_enc_begin(e, VT_F_CTL_REP, id, 0);
    vt_enc_u64(e, VT_CTL_REP_OK, 0);
    vt_enc_err(e, err);
}

static int run(struct sup *s, const struct vt_frame *f, const struct ctl_caller *who, const struct verb *v,
               struct vt_enc *e, struct vt_err *err)
{
    if (v->class != VERB_READ && !may_act(s, who))
        return vt_fail(err, VT_E_PERM,
                       "%s is for root, the service user and members of the group " ADMIN_GROUP, v->name);
    vt_enc_begin(e, VT_F_CTL_REP, f->id, 0);
    vt_enc_u64(e, VT_CTL_REP_OK, 1);
    return v->run(s, vt_frame_map(f, VT_CTL_REQ_ARGS), e, err);
}

static void answer_frame(struct sup *s, const struct vt_frame *f, const struct ctl_caller *who,
                         struct vt_enc *e)
{
    char name[64];
    char hint[256];
    struct vt_err err;
    const uint8_t *nonce = vt_frame_bin_n(f, VT_CTL_REQ_NONCE, 16);
    vt_frame_str(f, VT_CTL_REQ_VERB, name, sizeof name);
    const struct verb *v = verb_find(name);
    int rc = -1;
    if (f->type != VT_F_CTL_REQ)
        vt_fail(&err, VT_E_UNKNOWN, "ctl takes CTL_REQ, not frame type 0x%02x", f->type);
    else if (nonce == NULL)
        vt_fail(&err, VT_E_BAD_FRAME, "the nonce must have 16 bytes");
    else if (v == NULL)
        vt_fail(&err, VT_E_UNKNOWN, "unknown verb %s%s", name, verb_suggest(name, hint, sizeof hint));
    else
        rc = run(s, f, who, v, e, &err);
    if (rc < 0)
        answer_error(e, f->id, &err);
}

void ctl_answer(struct sup *s, const uint8_t *buf, size_t len, const struct ctl_caller *who, struct vt_enc *e)
{
    struct vt_frame f;
    struct vt_err err;
    if (vt_frame_open(&f, buf, len, VT_CTL_MAX_FRAME, &err) < 0) {
        answer_error(e, 0, &err);
        return;
    }
    if (too_fast(s, who->uid)) {
        vt_fail(&err, VT_E_LIMIT, "more than %d calls in a second", RATE);
        answer_error(e, f.id, &err);
    } else {
        answer_frame(s, &f, who, e);
    }
    vt_frame_close(&f);
}

/* ---- the socket ---- */

/* Looks for a kept reply; only requests that act are kept. */
static const struct reply *redelivered(struct sup *s, const uint8_t *buf, size_t len, uint8_t nonce[16],
                                       bool *acts)
{
    struct vt_frame f;
    char name[64];
    *acts = false;
    if (vt_frame_open(&f, buf, len, VT_CTL_MAX_FRAME, NULL) < 0)
        return NULL;
    const uint8_t *n = vt_frame_bin_n(&f, VT_CTL_REQ_NONCE, 16);
    const struct verb *v = verb_find(vt_frame_str(&f, VT_CTL_REQ_VERB, name, sizeof name));
    if (f.type == VT_F_CTL_REQ && n != NULL && v != NULL && v->class != VERB_READ) {
        *acts = true;
        memcpy(nonce, n, 16);
    }
    vt_frame_close(&f);
    return *acts ? cached(s, nonce) : NULL;
}

static void serve(struct sup *s, const struct vt_rep_call *call)
{
    struct ctl *c = s->ctl;
    struct vt_err err;
    struct ctl_caller who = {.uid = call->uid, .gid = call->gid, .pid = call->pid};
    uint8_t nonce[16];
    bool acts;
    const struct reply *old = redelivered(s, call->buf, call->len, nonce, &acts);
    if (old != NULL) {
        vt_rep_reply(c->rep, call->ctx, old->buf, old->len, NULL);
        return;
    }
    ctl_answer(s, call->buf, call->len, &who, &c->enc);
    if (vt_enc_end(&c->enc, &err) < 0) {
        vt_log(s->log, VT_LOG_ERR, "ctl: reply: %s", err.text);
        answer_error(&c->enc, 0, &err);
        if (vt_enc_end(&c->enc, NULL) < 0)
            c->enc.len = 0;
    }
    if (acts)
        keep(s, nonce, c->enc.buf, c->enc.len);
    if (vt_rep_reply(c->rep, call->ctx, c->enc.buf, c->enc.len, &err) < 0)
        vt_log(s->log, VT_LOG_WARNING, "ctl: %s", err.text);
}

static int on_call(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct sup *s = arg;
    struct vt_rep_call call;
    while (vt_rep_next(s->ctl->rep, &call) == 1)
        serve(s, &call);
    return 0;
}

int ctl_new(struct sup *s, struct vt_err *err)
{
    s->ctl = calloc(1, sizeof *s->ctl);
    if (s->ctl == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    vt_enc_init(&s->ctl->enc);
    return 0;
}

int ctl_open(struct sup *s, struct vt_err *err)
{
    if (ctl_new(s, err) < 0)
        return -1;
    if (vt_rep_listen(&s->ctl->rep, s->dir.ctl, 0660, err) < 0)
        return -1;
    if (sd_event_add_io(s->ev, &s->ctl->src, vt_rep_fd(s->ctl->rep), EPOLLIN, on_call, s) < 0)
        return vt_fail(err, VT_E_OS, "event source for ctl");
    return 0;
}

void ctl_close(struct sup *s)
{
    if (s->ctl == NULL)
        return;
    sd_event_source_disable_unref(s->ctl->src);
    vt_rep_close(s->ctl->rep);
    vt_enc_fini(&s->ctl->enc);
    for (unsigned i = 0; i < REPLIES; i++)
        free(s->ctl->replies[i].buf);
    free(s->ctl);
    s->ctl = NULL;
}

int ctl_relisten(struct sup *s, struct vt_err *err)
{
    s->ctl->relistens++;
    return vt_rep_relisten(s->ctl->rep, err);
}

uint64_t ctl_relistens(const struct sup *s)
{
    return s->ctl != NULL ? s->ctl->relistens : 0;
}
