/* Guard: reads along what connections receive, before the library takes it, and answers malformed requests itself: the
 * library's own answer to them is a page of HTML that nothing can change.
 *
 * Before the library runs, each connection with news is peeked at. How much of a stream the library has taken is known from
 * the kernel (bytes received, less those that wait), so each byte goes through the framing once, in order. Should the library
 * have read bytes that came between the look and its run, the guard gives that connection up: then its page is what a client
 * gets, and a request of two lengths a closed connection. */
#include "server_priv.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PEEK = 4 << 20, EVENTS = 64, TRIES = 4 };

int guard_init(struct http_server *s)
{
    s->peek = malloc(PEEK);
    s->news = epoll_create1(EPOLL_CLOEXEC);
    return s->peek && s->news >= 0 ? 0 : -1;
}

void guard_fini(struct http_server *s)
{
    free(s->peek);
    if (s->news >= 0)
        close(s->news);
}

int guard_watch(struct http_conn *n)
{
    struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.ptr = n};
    return epoll_ctl(n->s->news, EPOLL_CTL_ADD, n->fd, &e);
}

/* ---- the answer ---- */

static void send_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k <= 0)
            return; /* nothing else is under way, so this fits; or nobody is there */
        p += k;
        n -= (size_t)k;
    }
}

/* What still comes is thrown away, or the closing would make the peer lose the answer. */
static void drain(struct http_conn *n)
{
    while (recv(n->fd, n->s->peek, PEEK, MSG_DONTWAIT) > 0)
        ;
}

void guard_refuse(struct http_conn *n)
{
    char head[256];
    size_t len = 0;
    const unsigned status = n->framing.status;
    char *body = n->s->ops->malformed(n->s->arg, status, n->framing.why, &len);
    const int k = snprintf(head, sizeof head,
                           "HTTP/1.1 %u %s\r\nContent-Type: application/json; charset=utf-8\r\n"
                           "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                           status, MHD_get_reason_phrase_for(status), len);
    n->refused = true;
    n->due = false;
    send_all(n->fd, head, (size_t)k);
    send_all(n->fd, body, len);
    free(body);
    shutdown(n->fd, SHUT_WR); /* whatever the library has to say goes nowhere */
    drain(n);
    http_arm(n, HTTP_GRACE_US);
    if (n->req)
        n->req->broken = true;
}

bool guard_due(const struct http_conn *n)
{
    return n->due && n->begun == n->framing.heads;
}

/* ---- reading along ---- */

/* Bytes that the kernel has taken for us. */
static bool received(int fd, uint64_t *n)
{
    struct tcp_info i;
    socklen_t len = sizeof i;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &len) ||
        len < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof i.tcpi_bytes_received)
        return false;
    const bool fin =
        i.tcpi_state != 1 /* established */ && i.tcpi_state != 4 && i.tcpi_state != 5 /* we closed */;
    *n = i.tcpi_bytes_received - (fin && i.tcpi_bytes_received > 0 ? 1 : 0); /* the end counts as a byte */
    return true;
}

/* What waits, and its place in the stream. False: it cannot be said. */
static bool peek(struct http_conn *n, uint64_t *place, size_t *len)
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t before, after;
        if (!received(n->fd, &before))
            return false;
        const ssize_t k = recv(n->fd, n->s->peek, PEEK, MSG_PEEK | MSG_DONTWAIT);
        *len = k > 0 ? (size_t)k : 0;
        if (*len == PEEK || !received(n->fd, &after))
            return false;
        *place = after - *len;
        if (before == after && *len <= after)
            return true;
    }
    return false;
}

/* True when there is something to be looked at behind what needs no look. */
static bool skip(struct http_conn *n)
{
    uint64_t have, blind = framing_blind(&n->framing);
    if (!received(n->fd, &have) || have <= n->read_to)
        return false;
    have -= n->read_to;
    blind = blind < have ? blind : have;
    framing_skip(&n->framing, blind);
    n->read_to += blind;
    return blind < have;
}

static void look(struct http_conn *n)
{
    uint64_t place;
    size_t len;
    if (n->refused) {
        drain(n);
        return;
    }
    if (n->framing.state >= FRAMING_LAST || !skip(n))
        return;
    if (!peek(n, &place, &len) || place > n->read_to || place + len < n->read_to) {
        n->framing.state = FRAMING_LAST;
        return;
    }
    const size_t old = (size_t)(n->read_to - place);
    n->read_to = place + len;
    if (framing_feed(&n->framing, n->s->peek + old, len - old))
        return;
    const struct http_req *r = n->req;
    n->due = !(r && r->queued && n->framing.in_body); /* then it has its answer */
    if (guard_due(n) && (n->framing.in_body ? r && r->state == R_BODY : !r))
        guard_refuse(n);
}

void guard_look(struct http_server *s)
{
    struct epoll_event ev[EVENTS];
    int k;
    do {
        k = epoll_wait(s->news, ev, EVENTS, 0);
        for (int i = 0; i < k; i++)
            look(ev[i].data.ptr);
    } while (k == EVENTS);
}
