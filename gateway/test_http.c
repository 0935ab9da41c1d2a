/* The HTTP client of the tests: raw, so that what is on the wire can be looked at. */
#include "test_boss.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

int http_dial(struct boss *b)
{
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(b->port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

void http_send(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    char head[2048];
    size_t n = body ? strlen(body) : 0;
    int k = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n%s\r\n", method,
                     path, n, headers ? headers : "");
    assert_int_equal(send(fd, head, (size_t)k, MSG_NOSIGNAL), k);
    for (size_t at = 0; at < n;) {
        ssize_t w = send(fd, body + at, n - at, MSG_NOSIGNAL);
        if (w <= 0)
            break;
        at += (size_t)w;
    }
}

/* The body so far: chunk frames taken out. True at its end. */
static bool decode(const char *raw, size_t n, struct reply *r)
{
    const char *split = memmem(raw, n, "\r\n\r\n", 4);
    if (!split)
        return false;
    size_t h = (size_t)(split - raw) + 4, at = h;
    free(r->head);
    free(r->body);
    r->head = strndup(raw, h);
    r->body = calloc(1, n - h + 1);
    r->n = 0;
    r->status = atoi(raw + 9);
    const char *cl = strcasestr(r->head, "Content-Length: ");
    if (cl) {
        r->n = n - h;
        memcpy(r->body, raw + h, r->n);
        return r->n >= (size_t)atoll(cl + 16);
    }
    while (at < n) {
        char *end;
        unsigned long k = strtoul(raw + at, &end, 16);
        size_t start = (size_t)(end - raw) + 2;
        if (start > n)
            return false;
        if (k == 0)
            return start + 2 <= n;
        size_t have = n - start < k ? n - start : k;
        memcpy(r->body + r->n, raw + start, have);
        r->n += have;
        at = start + k + 2;
    }
    return false;
}

void http_read(struct boss *b, int fd, struct reply *r, const char *until, int ms)
{
    for (uint64_t end = test_ms() + (uint64_t)ms * BOSS_PATIENCE; test_ms() < end;) {
        if (r->raw_cap - r->raw_n < 65536) {
            r->raw_cap = r->raw_cap * 2 + 131072;
            r->raw = realloc(r->raw, r->raw_cap);
            assert_non_null(r->raw);
        }
        ssize_t k = recv(fd, r->raw + r->raw_n, r->raw_cap - r->raw_n, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN))
            return;
        if (k > 0) {
            r->raw_n += (size_t)k;
            r->complete = decode(r->raw, r->raw_n, r);
            if (r->complete || (until && r->body && strstr(r->body, until)))
                return;
            continue;
        }
        struct pollfd p = {.fd = fd, .events = POLLIN};
        boss_turn(b);
        poll(&p, 1, 1);
    }
}

void http_call(struct boss *b, struct reply *r, const char *method, const char *path, const char *headers,
               const char *body)
{
    int fd = http_dial(b);
    http_send(fd, method, path, headers, body);
    http_read(b, fd, r, NULL, 10000);
    close(fd);
}

void reply_free(struct reply *r)
{
    free(r->head);
    free(r->body);
    free(r->raw);
    *r = (struct reply){0};
}

json_t *reply_json(const struct reply *r)
{
    json_error_t e;
    json_t *v = json_loadb(r->body, r->n, 0, &e);
    if (!v)
        fail_msg("%s in %s", e.text, r->body);
    return v;
}

const char *error_type(const struct reply *r, char *out, size_t size)
{
    json_t *v = reply_json(r), *e = json_object_get(v, "error");
    assert_int_equal(json_integer_value(json_object_get(e, "code")), r->status);
    assert_non_null(json_object_get(e, "param"));
    snprintf(out, size, "%s", json_string_value(json_object_get(e, "type")));
    json_decref(v);
    return out;
}

static void take_event(struct told *t, const char *s, size_t n)
{
    json_error_t e;
    if (n >= 6 && memcmp(s, "[DONE]", 6) == 0) {
        t->done = true;
        return;
    }
    assert_false(t->done);
    json_t *v = json_loadb(s, n, 0, &e);
    if (!v)
        fail_msg("%s: %.*s", e.text, (int)n, s);
    t->events++;
    t->error |= json_object_get(v, "error") != NULL;
    if (json_object_get(v, "usage")) {
        t->usage = true;
        t->usage_tokens =
            (int)json_integer_value(json_object_get(json_object_get(v, "usage"), "completion_tokens"));
    }
    json_t *c = json_array_get(json_object_get(v, "choices"), 0), *d = json_object_get(c, "delta");
    const char *text = json_string_value(json_object_get(d, "content"));
    const char *think = json_string_value(json_object_get(d, "reasoning_content"));
    const char *fin = json_string_value(json_object_get(c, "finish_reason"));
    json_t *call = json_object_get(json_array_get(json_object_get(d, "tool_calls"), 0), "function");
    if (json_string_value(json_object_get(call, "name")))
        strcat(t->name, json_string_value(json_object_get(call, "name")));
    if (json_string_value(json_object_get(call, "arguments")))
        strcat(t->calls, json_string_value(json_object_get(call, "arguments")));
    if (text) {
        size_t k = json_string_length(json_object_get(d, "content"));
        memcpy(t->text + t->n, text, k);
        t->n += k;
    }
    if (think)
        strcat(t->reasoning, think);
    if (fin)
        snprintf(t->finish, sizeof t->finish, "%s", fin);
    json_decref(v);
}

void read_stream(const struct reply *r, struct told *t)
{
    memset(t, 0, sizeof *t);
    for (const char *p = r->body, *end = r->body + r->n; p < end;) {
        const char *stop = memmem(p, (size_t)(end - p), "\n\n", 2);
        if (!stop)
            break;
        if (strncmp(p, "data: ", 6) == 0)
            take_event(t, p + 6, (size_t)(stop - p - 6));
        else
            assert_true(*p == ':');
        p = stop + 2;
    }
}

void check_stream(const struct reply *r, const char *text)
{
    struct told t;
    assert_int_equal(r->status, 200);
    assert_true(r->complete);
    read_stream(r, &t);
    assert_string_equal(t.text, text);
    assert_string_equal(t.finish, "stop");
    assert_true(t.done);
    assert_false(t.error);
}
