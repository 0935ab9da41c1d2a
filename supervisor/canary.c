#include "canary.h"

#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EVERY_US  VT_SEC(4) /* two misses and a round on the new socket end before the duty is overdue */
#define WITHIN_US VT_SEC(2) /* tele speaks once a second */
#define AGAIN_US  VT_MS(100)
#define MISSES    2 /* one may be a busy machine's fault */

/* Protocol numbers of the scalability protocols' wire header. */
#define PROTO_REQ 0x30
#define PROTO_SUB 0x21

struct canary {
    struct sup *s;
    enum canary_kind kind;
    canary_fn heard;
    char path[108];
    int fd;       /* -1: between rounds */
    bool greeted; /* our request is out */
    unsigned misses;
    bool made_anew; /* the last verdict was "deaf" */
    uint8_t in[512];
    size_t n_in;
    sd_event_source *io, *timer;
};

static void end_round(struct canary *c, bool heard)
{
    c->io = sd_event_source_disable_unref(c->io);
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->misses = heard ? 0 : c->misses + 1;
    bool open = c->misses > 0 && c->misses < MISSES;
    bool hurry =
        open || (!heard && !c->made_anew); /* a socket that stays deaf is not made anew ten times a second */
    sd_event_source_set_time_relative(c->timer, hurry ? AGAIN_US : EVERY_US);
    sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
    if (open)
        return;
    c->made_anew = !heard;
    c->misses = 0;
    c->heard(c->s, c->kind, heard);
}

static void put_be(uint8_t *p, uint64_t v, int bytes)
{
    for (int i = bytes - 1; i >= 0; i--, v >>= 8)
        p[i] = (uint8_t)v;
}

/* One message: type 1, 64-bit length, then for a request its id with the top bit set, then the frame. */
static bool send_ping(struct canary *c)
{
    struct vt_enc e;
    uint8_t nonce[16], out[256];
    vt_random(nonce, sizeof nonce);
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_CTL_REQ, 0, 0);
    vt_enc_str(&e, VT_CTL_REQ_VERB, "ping");
    vt_enc_bin(&e, VT_CTL_REQ_NONCE, nonce, sizeof nonce);
    bool ok = vt_enc_end(&e, NULL) == 0 && e.len + 13 <= sizeof out;
    if (ok) {
        out[0] = 1;
        put_be(out + 1, e.len + 4, 8);
        put_be(out + 9, 0x80000001u, 4);
        memcpy(out + 13, e.buf, e.len);
        ok = send(c->fd, out, e.len + 13, MSG_NOSIGNAL) == (ssize_t)e.len + 13;
    }
    vt_enc_fini(&e);
    return ok;
}

/* 8 bytes of greeting, then at least the head of a whole message. */
static int look(struct canary *c)
{
    if (c->n_in < 8)
        return 0;
    if (memcmp(c->in, "\0SP\0", 4) != 0)
        return -1;
    if (!c->greeted) {
        c->greeted = true;
        if (c->kind == CANARY_CTL && !send_ping(c))
            return -1;
    }
    if (c->n_in < 8 + 9 + 1)
        return 0;
    return c->in[8] == 1 ? 1 : -1;
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct canary *c = arg;
    ssize_t n = recv(fd, c->in + c->n_in, sizeof c->in - c->n_in, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n > 0)
        c->n_in += (size_t)n;
    int seen = n > 0 ? look(c) : -1;
    if (seen != 0)
        end_round(c, seen > 0);
    return 0;
}

static bool begin_round(struct canary *c)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint8_t hello[8] = {0, 'S', 'P', 0, 0, c->kind == CANARY_CTL ? PROTO_REQ : PROTO_SUB, 0, 0};
    c->n_in = 0;
    c->greeted = false;
    snprintf(a.sun_path, sizeof a.sun_path, "%s", c->path);
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return c->fd >= 0 && connect(c->fd, (struct sockaddr *)&a, sizeof a) == 0 &&
           send(c->fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello &&
           sd_event_add_io(c->s->ev, &c->io, c->fd, EPOLLIN, on_io, c) >= 0;
}

/* Between rounds: begin one. In a round: its time is over. */
static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct canary *c = arg;
    if (c->fd >= 0 || !begin_round(c)) {
        end_round(c, false);
        return 0;
    }
    sd_event_source_set_time_relative(c->timer, WITHIN_US);
    return sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

int canary_open(struct canary **out, struct sup *s, enum canary_kind kind, const char *path, canary_fn heard,
                struct vt_err *err)
{
    struct canary *c = calloc(1, sizeof *c);
    if (c == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    *c = (struct canary){.s = s, .kind = kind, .heard = heard, .fd = -1};
    snprintf(c->path, sizeof c->path, "%s", path);
    if (sd_event_add_time_relative(s->ev, &c->timer, CLOCK_MONOTONIC, EVERY_US, 10000, on_timer, c) < 0) {
        free(c);
        return vt_fail(err, VT_E_OS, "event source for the canary");
    }
    *out = c;
    return 0;
}

void canary_close(struct canary *c)
{
    if (c == NULL)
        return;
    sd_event_source_disable_unref(c->io);
    sd_event_source_disable_unref(c->timer);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}
