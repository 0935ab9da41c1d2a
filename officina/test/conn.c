#include "gate.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_HEAD = 64 << 10, MAX_BODY = 64 << 20 };

static size_t body_length(const char *head)
{
    const char *p = strcasestr(head, "\r\ncontent-length:");
    return p ? strtoul(p + 17, NULL, 10) : 0;
}

int conn_read(struct conn *c, struct request *r)
{
    char *buf = malloc(MAX_HEAD + 1);
    size_t n = 0;
    memset(r, 0, sizeof *r);
    for (;;) {
        ssize_t k = n < MAX_HEAD ? read(c->fd, buf + n, MAX_HEAD - n) : 0;
        if (k <= 0) {
            free(buf);
            return -1;
        }
        n += (size_t)k;
        buf[n] = 0;
        if (strstr(buf, "\r\n\r\n"))
            break;
    }
    char *end = strstr(buf, "\r\n\r\n");
    end[2] = 0;
    size_t len = body_length(buf), have = n - (size_t)(end + 4 - buf);
    if (sscanf(buf, "%7s %511s", r->method, r->path) != 2 || len > MAX_BODY) {
        free(buf);
        return -1;
    }
    if (strcasestr(buf, "\r\nexpect: 100-continue") &&
        send(c->fd, "HTTP/1.1 100 Continue\r\n\r\n", 25, MSG_NOSIGNAL) < 0)
        c->broken = true;
    r->body = malloc(len + 1);
    r->len = len;
    have = have < len ? have : len;
    memcpy(r->body, end + 4, have);
    free(buf);
    while (have < len) {
        ssize_t k = read(c->fd, r->body + have, len - have);
        if (k <= 0) {
            free(r->body);
            r->body = NULL;
            return -1;
        }
        have += (size_t)k;
    }
    r->body[len] = 0;
    return 0;
}

static void put(struct conn *c, const char *bytes, size_t n)
{
    while (n && !c->broken) {
        ssize_t k = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (k <= 0) {
            c->broken = true;
            return;
        }
        bytes += k;
        n -= (size_t)k;
    }
}

static const char *reason(int status)
{
    switch (status) {
    case 200: return "OK";
    case 400: return "Bad Request";
    case 404: return "Not Found";
    case 429: return "Too Many Requests";
    case 500: return "Internal Server Error";
    case 501: return "Not Implemented";
    case 503: return "Service Unavailable";
    default: return "Status";
    }
}

void conn_reply(struct conn *c, int status, const char *type, const char *head, const char *body)
{
    char top[512];
    int n =
        snprintf(top, sizeof top,
                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\n",
                 status, reason(status), type, strlen(body), head ? head : "");
    put(c, top, (size_t)n);
    put(c, body, strlen(body));
}

void conn_json(struct conn *c, int status, const char *head, json_t *o)
{
    char *s = json_dumps(o, JSON_COMPACT);
    conn_reply(c, status, "application/json; charset=utf-8", head, s ? s : "{}");
    free(s);
    json_decref(o);
}

void conn_error(struct conn *c, int status, const char *head, const char *message)
{
    const char *type = status == 503  ? "unavailable_error"
                       : status < 500 ? "invalid_request_error"
                                      : "server_error";
    conn_json(c, status, head,
              json_pack("{s:{s:i, s:s, s:s}}", "error", "code", status, "message", message, "type", type));
}

void conn_stream_begin(struct conn *c)
{
    static const char head[] =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    put(c, head, sizeof head - 1);
    c->chunked = true;
}

void conn_stream(struct conn *c, const char *bytes, size_t n)
{
    char top[32];
    bool cut = c->budget >= 0 && (long)n >= c->budget;
    if (cut)
        n = (size_t)c->budget;
    if (n) {
        put(c, top, (size_t)snprintf(top, sizeof top, "%zx\r\n", n));
        put(c, bytes, n);
        put(c, "\r\n", 2);
    }
    if (c->budget > 0)
        c->budget -= (long)n;
    if (cut)
        conn_reset(c);
}

void conn_event(struct conn *c, json_t *o)
{
    char *s = json_dumps(o, JSON_COMPACT), *line = NULL;
    int n = asprintf(&line, "data: %s\n\n", s);
    if (n > 0)
        conn_stream(c, line, (size_t)n);
    free(line);
    free(s);
    json_decref(o);
}

void conn_stream_end(struct conn *c)
{
    put(c, "0\r\n\r\n", 5);
}

void conn_reset(struct conn *c)
{
    if (c->broken)
        return;
    gate_sleep(20); /* what was sent arrives before the reset does */
    struct linger hard = {1, 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    c->broken = true;
}

bool conn_gone(struct conn *c)
{
    struct pollfd p = {c->fd, POLLIN | POLLRDHUP, 0};
    return c->broken || (poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)));
}
