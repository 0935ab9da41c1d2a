#include "child_priv.h"

#include "hash.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define WAITING_MAX  1000
#define POST_US      VT_MS(5)
#define HANDSHAKE_US VT_SEC(10) /* the listener waits for a dialer that is told later */
#define REJECT_US    VT_MS(200) /* time for a REJECT to leave before its socket is closed */

/* Limits of a link's kind, which is the first letter of its name. */
static struct vt_sock_opts limits(const char *path, uint32_t peer_pid)
{
    const char *base = strrchr(path, '/');
    char kind = base != NULL ? base[1] : 0;
    struct vt_sock_opts o = {.peer_uid = geteuid(), .peer_pid = (pid_t)peer_pid};
    o.max_frame = kind == 's' ? 1u << 20 : 8u << 20;
    o.queue = kind == 'd' ? 256 : kind == 'k' ? 64 : 16;
    return o;
}

static void tell_state(struct vt_link *l, unsigned state, const char *why)
{
    struct vt_enc *e = vt_child_begin(l->child, VT_F_LINK_STATE, 0);
    vt_enc_u64(e, VT_LINK_STATE_LINK, l->id);
    vt_enc_u64(e, VT_LINK_STATE_STATE, state);
    if (why != NULL)
        vt_enc_str(e, VT_KEY_TEXT, why);
    vt_child_send(l->child);
}

/* ---- frames that wait ---- */

void vt_wait_init(struct vt_wait_list *w)
{
    *w = (struct vt_wait_list){.tail = &w->first};
}

void vt_wait_fini(struct vt_wait_list *w)
{
    while (w->first != NULL) {
        struct vt_waiting *f = w->first;
        w->first = f->next;
        free(f);
    }
    vt_wait_init(w);
}

int vt_wait_keep(struct vt_wait_list *w, const uint8_t *buf, size_t len)
{
    struct vt_waiting *f = w->n < WAITING_MAX ? malloc(sizeof *f + len) : NULL;
    if (f == NULL)
        return -1;
    *f = (struct vt_waiting){.len = len};
    memcpy(f->bytes, buf, len);
    *w->tail = f;
    w->tail = &f->next;
    w->n++;
    return 0;
}

bool vt_wait_flush(struct vt_wait_list *w, struct vt_sock *s)
{
    while (w->first != NULL) {
        struct vt_waiting *f = w->first;
        if (vt_sock_send(s, f->bytes, f->len, NULL) < 0)
            return false;
        w->first = f->next;
        if (w->first == NULL)
            w->tail = &w->first;
        w->n--;
        free(f);
    }
    return true;
}

int vt_wait_send(struct vt_wait_list *w, struct vt_sock *s, const uint8_t *buf, size_t len,
                 struct vt_err *err)
{
    if (!vt_wait_flush(w, s))
        return vt_fail(err, VT_E_BUSY, "%u frames wait for the peer to read", w->n);
    return vt_sock_send(s, buf, len, err);
}

/* ---- end ---- */

static void close_socket(struct vt_link *l)
{
    l->recv_src = sd_event_source_disable_unref(l->recv_src);
    l->event_src = sd_event_source_disable_unref(l->event_src);
    l->timer = sd_event_source_disable_unref(l->timer);
    l->post_timer = sd_event_source_disable_unref(l->post_timer);
    vt_sock_close(l->sock);
    l->sock = NULL;
}

static void free_link(struct vt_link *l)
{
    close_socket(l);
    vt_wait_fini(&l->waiting);
    if (l->bulk != NULL)
        munmap(l->bulk, l->bulk_bytes);
    vt_enc_fini(&l->enc);
    free(l);
}

void vt_link_sweep(struct vt_child *c)
{
    struct vt_link **at = &c->links;
    while (*at != NULL) {
        struct vt_link *l = *at;
        if (!l->dead) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        free_link(l);
    }
}

static int on_sweep(sd_event_source *src, void *arg)
{
    vt_link_sweep(arg);
    return 0;
}

/* The link may be in use up the stack, so only its socket goes now; the rest when the loop turns. */
static void end_link(struct vt_link *l)
{
    struct vt_child *c = l->child;
    bool was_up = l->up;
    if (l->dead)
        return;
    l->dead = true;
    l->up = false;
    close_socket(l);
    if (was_up && c->ops->on_link_down != NULL)
        c->ops->on_link_down(c->arg, l);
    if (c->sweep_src == NULL)
        sd_event_add_defer(c->ev, &c->sweep_src, on_sweep, c);
    else
        sd_event_source_set_enabled(c->sweep_src, SD_EVENT_ONESHOT);
}

void vt_link_fail(struct vt_link *l, const struct vt_err *why)
{
    if (l->dead)
        return;
    vt_log(l->child->log, VT_LOG_WARNING, "link %08x to the %s ends: %s", l->id, l->peer_role, why->text);
    tell_state(l, 3, why->text);
    end_link(l);
}

void vt_link_close_all(struct vt_child *c)
{
    while (c->links != NULL) {
        struct vt_link *l = c->links;
        c->links = l->next;
        free_link(l);
    }
}

/* ---- handshake ---- */

static void come_up(struct vt_link *l)
{
    struct vt_child *c = l->child;
    l->up = true;
    sd_event_source_set_enabled(l->timer, SD_EVENT_OFF);
    tell_state(l, 2, NULL);
    if (c->ops->on_link_up != NULL)
        c->ops->on_link_up(c->arg, l, l->peer_role, l->bulk, l->bulk_bytes);
}

static void send_hello(struct vt_link *l)
{
    struct vt_child *c = l->child;
    struct vt_hello h = {.role = c->role,
                         .name = c->args.name,
                         .gen = c->args.gen,
                         .pid = (uint32_t)getpid(),
                         .caps = c->caps,
                         .nonce = l->nonce};
    if (vt_hello_pack(&l->enc, &h, l->id, NULL) == 0)
        vt_sock_send(l->sock, l->enc.buf, l->enc.len, NULL);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_link *l = arg;
    struct vt_err err;
    if (vt_mono(l->child->clock) >= l->deadline) {
        vt_fail(&err, VT_E_UNAVAILABLE, "no handshake in time");
        vt_link_fail(l, &err);
        return 0;
    }
    if (l->dial)
        send_hello(l);
    sd_event_source_set_time_relative(src, VT_MS(VT_HELLO_EVERY_MS));
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

/* Called when a refusal had its time to reach the other side. */
static int on_rejected(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_link *l = arg;
    end_link(l);
    return 0;
}

static void reject(struct vt_link *l, const struct vt_err *why)
{
    vt_log(l->child->log, VT_LOG_WARNING, "link %08x: %s", l->id, why->text);
    tell_state(l, 3, why->text);
    if (vt_reject_pack(&l->enc, why, l->id, NULL) == 0)
        vt_sock_send(l->sock, l->enc.buf, l->enc.len, NULL);
    l->recv_src = sd_event_source_disable_unref(l->recv_src);
    l->event_src = sd_event_source_disable_unref(l->event_src);
    l->timer = sd_event_source_disable_unref(l->timer);
    if (vt_timer(l->child->ev, &l->timer, REJECT_US, on_rejected, l) < 0)
        end_link(l);
}

static void take_hello(struct vt_link *l, const struct vt_frame *f)
{
    struct vt_err err;
    struct vt_hello want = {.role = l->peer_role, .pid = l->peer_pid, .nonce = l->nonce};
    if (l->dial)
        return;
    if (vt_hello_check(f, &want, &err) < 0) {
        if (!l->up)
            reject(l, &err);
        return;
    }
    /* Repeated by a peer that had no answer yet: the same answer. */
    if (vt_welcome_pack(&l->enc, NULL, 1000, (uint32_t)l->max_frame, l->id, NULL) == 0)
        vt_sock_send(l->sock, l->enc.buf, l->enc.len, NULL);
    if (!l->up)
        come_up(l);
}

static void take_reject(struct vt_link *l, const struct vt_frame *f)
{
    struct vt_err err;
    char text[400];
    vt_fail(&err, (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_BAD_FRAME), "refused: %s",
            vt_frame_str(f, VT_KEY_TEXT, text, sizeof text));
    vt_link_fail(l, &err);
}

/* ---- receiving ---- */

static void take_frame(struct vt_link *l, const struct vt_frame *f)
{
    struct vt_child *c = l->child;
    struct vt_err err;
    if (f->link != l->id) {
        c->stale++;
        return;
    }
    switch (f->type) {
    case VT_F_HELLO: take_hello(l, f); return;
    case VT_F_WELCOME:
        if (l->dial && !l->up)
            come_up(l);
        return;
    case VT_F_REJECT: take_reject(l, f); return;
    case VT_F_PING:
        vt_enc_u64(vt_link_begin(l, VT_F_PONG, f->id), VT_PONG_TOKEN, vt_frame_u64(f, VT_PING_TOKEN, 0));
        vt_link_send(l, NULL);
        return;
    default: break;
    }
    if (vt_frame_name(f->type)[0] == '?') {
        if (vt_unknown(c, f) < 0) {
            vt_fail(&err, VT_E_UNKNOWN, "frame type %02x must be understood and is not", f->type);
            vt_link_fail(l, &err);
        }
    } else if (!l->up) {
        c->stale++;
    } else if (c->ops->on_link != NULL) {
        c->ops->on_link(c->arg, l, f);
    }
}

static bool listens(const struct vt_link *l)
{
    return !l->dead && l->recv_src != NULL;
}

static bool take_bytes(void *arg, const uint8_t *buf, size_t len)
{
    struct vt_link *l = arg;
    struct vt_frame f;
    struct vt_err err;
    if (vt_frame_open(&f, buf, len, l->max_frame, &err) < 0) {
        vt_bad_frame(l->child, l->path, buf, len, &err);
        vt_link_fail(l, &err);
        return false;
    }
    take_frame(l, &f);
    vt_frame_close(&f);
    return listens(l);
}

static void drain(struct vt_link *l, int max)
{
    struct vt_err err;
    if (listens(l) && vt_sock_drain(l->sock, max, take_bytes, l) < 0) {
        vt_fail(&err, VT_E_IO, "socket broken");
        vt_link_fail(l, &err);
    }
}

static int on_recv(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    drain(arg, VT_DRAIN_MAX);
    return 0;
}

static int on_event(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct vt_link *l = arg;
    struct vt_err err;
    pid_t pid;
    uid_t uid;
    unsigned ev = vt_sock_events(l->sock, &pid, &uid);
    if (ev & VT_SOCK_REFUSED)
        vt_log(l->child->log, VT_LOG_WARNING, "link %08x: pid %d of uid %u is turned away, pid %u is due",
               l->id, (int)pid, (unsigned)uid, l->peer_pid);
    if ((ev & VT_SOCK_UP) && l->dial && !l->up)
        send_hello(l);
    if (ev & VT_SOCK_DOWN) {
        /* What the peer sent before its end is still there. */
        drain(l, INT_MAX);
        vt_fail(&err, VT_E_IO, "the other side is gone");
        vt_link_fail(l, &err);
    }
    return 0;
}

/* ---- opening ---- */

static int map_bulk(struct vt_link *l, const char *path, uint64_t bytes, struct vt_err *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return vt_fail_errno(err, VT_E_IO, "ring %s", path);
    bool good = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_size > 0 &&
                (uint64_t)st.st_size == bytes;
    void *p = good ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (p == MAP_FAILED)
        return vt_fail(err, VT_E_IO, "ring %s: not a file of %llu bytes of this user, or memory is short",
                       path, (unsigned long long)bytes);
    l->bulk = p;
    l->bulk_bytes = (size_t)bytes;
    return 0;
}

/* Sockets and rings lie beside the lifeline and nowhere else, whatever a frame says. */
static int check_path(const struct vt_child *c, const char *path, struct vt_err *err)
{
    size_t n = strlen(c->dir);
    if (strncmp(path, c->dir, n) != 0 || path[n] == 0 || strchr(path + n, '/') != NULL)
        return vt_fail(err, VT_E_PERM, "path %s is not beside the lifeline", path);
    return 0;
}

static int read_open(struct vt_link *l, const struct vt_frame *f, struct vt_err *err)
{
    char bulk[108];
    const uint8_t *nonce = vt_frame_bin_n(f, VT_LINK_OPEN_NONCE, VT_NONCE_LEN);
    uint64_t side = vt_frame_u64(f, VT_LINK_OPEN_SIDE, 2), pid = vt_frame_u64(f, VT_LINK_OPEN_PEER_PID, 0);
    vt_frame_str(f, VT_LINK_OPEN_PATH, l->path, sizeof l->path);
    vt_frame_str(f, VT_LINK_OPEN_PEER_ROLE, l->peer_role, sizeof l->peer_role);
    vt_frame_str(f, VT_LINK_OPEN_BULK_PATH, bulk, sizeof bulk);
    if (nonce == NULL || side > 1 || pid == 0 || pid > INT32_MAX)
        return vt_fail(err, VT_E_BAD_FRAME, "LINK_OPEN with a side, pid or nonce that cannot be");
    memcpy(l->nonce, nonce, sizeof l->nonce);
    l->dial = side == 1;
    l->peer_pid = (uint32_t)pid;
    if (check_path(l->child, l->path, err) < 0)
        return -1;
    if (bulk[0] == 0)
        return 0;
    return check_path(l->child, bulk, err) < 0
               ? -1
               : map_bulk(l, bulk, vt_frame_u64(f, VT_LINK_OPEN_BULK_BYTES, 0), err);
}

static int start(struct vt_link *l, struct vt_err *err)
{
    struct vt_child *c = l->child;
    struct vt_sock_opts o = limits(l->path, l->peer_pid);
    l->max_frame = o.max_frame;
    l->deadline = vt_mono(c->clock) + (l->dial ? VT_MS(VT_HELLO_MAX_MS) : HANDSHAKE_US);
    if ((l->dial ? vt_sock_dial : vt_sock_listen)(&l->sock, l->path, &o, err) < 0)
        return -1;
    if (sd_event_add_io(c->ev, &l->recv_src, vt_sock_recv_fd(l->sock), EPOLLIN, on_recv, l) < 0 ||
        sd_event_add_io(c->ev, &l->event_src, vt_sock_event_fd(l->sock), EPOLLIN, on_event, l) < 0 ||
        vt_timer(c->ev, &l->timer, VT_MS(VT_HELLO_EVERY_MS), on_timer, l) < 0)
        return vt_fail(err, VT_E_OS, "event sources for link %08x", l->id);
    return 0;
}

void vt_link_open(struct vt_child *c, const struct vt_frame *f)
{
    struct vt_err err;
    struct vt_link *l = calloc(1, sizeof *l);
    if (l == NULL) {
        vt_log(c->log, VT_LOG_ERR, "no memory for a link");
        return;
    }
    l->child = c;
    l->id = (uint32_t)vt_frame_u64(f, VT_LINK_OPEN_LINK, 0);
    vt_enc_init(&l->enc);
    vt_wait_init(&l->waiting);
    l->next = c->links;
    c->links = l;
    if (read_open(l, f, &err) < 0 || start(l, &err) < 0)
        vt_link_fail(l, &err);
    else if (!l->dial)
        tell_state(l, 1, NULL);
}

/* ---- use ---- */

struct vt_enc *vt_link_begin(struct vt_link *l, uint8_t type, uint64_t id)
{
    vt_enc_begin(&l->enc, type, id, l->id);
    return &l->enc;
}

static int end_frame(struct vt_link *l, struct vt_err *err)
{
    if (l->dead || l->sock == NULL)
        return vt_fail(err, VT_E_STALE_LINK, "link %08x is closed", l->id);
    return vt_enc_end(&l->enc, err);
}

int vt_link_send(struct vt_link *l, struct vt_err *err)
{
    return end_frame(l, err) < 0 ? -1 : vt_wait_send(&l->waiting, l->sock, l->enc.buf, l->enc.len, err);
}

int vt_link_send_frame(struct vt_link *l, const uint8_t *buf, size_t len, struct vt_err *err)
{
    if (l->dead || l->sock == NULL)
        return vt_fail(err, VT_E_STALE_LINK, "link %08x is closed", l->id);
    return vt_wait_send(&l->waiting, l->sock, buf, len, err);
}

static int on_post_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct vt_link *l = arg;
    if (vt_wait_flush(&l->waiting, l->sock))
        return 0;
    sd_event_source_set_time_relative(src, POST_US);
    return sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
}

int vt_link_post(struct vt_link *l, struct vt_err *err)
{
    struct vt_err why;
    if (end_frame(l, err) < 0)
        return -1;
    if (vt_wait_send(&l->waiting, l->sock, l->enc.buf, l->enc.len, &why) == 0)
        return 0;
    if (why.code != VT_E_BUSY)
        return vt_fail(err, why.code, "%s", why.text);
    if (vt_wait_keep(&l->waiting, l->enc.buf, l->enc.len) < 0)
        return vt_fail(err, VT_E_BUSY, "the peer of link %08x does not read", l->id);
    if (l->post_timer == NULL)
        return vt_timer(l->child->ev, &l->post_timer, POST_US, on_post_timer, l) < 0
                   ? vt_fail(err, VT_E_NOMEM, "no timer for link %08x", l->id)
                   : 0;
    sd_event_source_set_time_relative(l->post_timer, POST_US);
    sd_event_source_set_enabled(l->post_timer, SD_EVENT_ONESHOT);
    return 0;
}

pid_t vt_link_peer(const struct vt_link *l)
{
    return (pid_t)l->peer_pid;
}

uint32_t vt_link_id(const struct vt_link *l)
{
    return l->id;
}

void *vt_link_user(const struct vt_link *l)
{
    return l->user;
}

void vt_link_set_user(struct vt_link *l, void *user)
{
    l->user = user;
}
