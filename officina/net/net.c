#include "net/net.h"

#include "net/sse.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <time.h>

#define REPLY_LARGEST (32u * 1024u * 1024u)
#define ERROR_LARGEST 65536
#define CONNECT_MS    3000
#define ASK_MS        2000
#define SLOT_MS       60000
#define KEY_ROOM      16384

struct transfer {
    struct net *n;
    struct transfer *next;
    CURL *curl;
    struct curl_slist *headers;
    int64_t id;
    char *path, *body;
    bool stream, opened, dropped;
    struct sse sse;
    struct text in; /* of a short request, or of a refusal */
    double retry_after;
};

struct watch {
    curl_socket_t fd;
    short events;
};

struct net {
    CURLM *multi;
    event_sink sink;
    void *arg;
    char *base;
    char *secret; /* "Authorization: Bearer …" in locked memory */
    struct transfer *list;
    struct watch *watch;
    size_t n_watch, cap_watch;
    uint64_t timer; /* ms of the monotonic clock; 0: none */
};

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *unused)
{
    struct net *n = arg;
    size_t i = 0;
    while (i < n->n_watch && n->watch[i].fd != fd)
        i++;
    if (what == CURL_POLL_REMOVE) {
        if (i < n->n_watch)
            n->watch[i] = n->watch[--n->n_watch];
        return 0;
    }
    if (i == n->n_watch) {
        n->watch = mem_room(n->watch, n->n_watch, &n->cap_watch, sizeof *n->watch);
        n->n_watch++;
    }
    n->watch[i].fd = fd;
    n->watch[i].events =
        (short)(((what & CURL_POLL_IN) != 0 ? POLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? POLLOUT : 0));
    return 0;
}

static int on_timer(CURLM *multi, long ms, void *arg)
{
    struct net *n = arg;
    n->timer = ms < 0 ? 0 : now_ms() + (uint64_t)ms + 1;
    return 0;
}

struct net *net_open(event_sink sink, void *arg, struct vt_err *err)
{
    struct net *n = mem_new(sizeof *n);
    curl_global_init(CURL_GLOBAL_DEFAULT);
    n->sink = sink;
    n->arg = arg;
    n->multi = curl_multi_init();
    n->secret = mmap(NULL, KEY_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n->multi == NULL || n->secret == MAP_FAILED) {
        vt_fail(err, VT_E_NOMEM, "out of memory");
        if (n->multi != NULL)
            curl_multi_cleanup(n->multi);
        free(n);
        return NULL;
    }
    mlock(n->secret, KEY_ROOM); /* where the limit forbids it, the key is in plain memory */
    madvise(n->secret, KEY_ROOM, MADV_DONTDUMP);
    curl_multi_setopt(n->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(n->multi, CURLMOPT_SOCKETDATA, n);
    curl_multi_setopt(n->multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(n->multi, CURLMOPT_TIMERDATA, n);
    return n;
}

static void transfer_free(struct transfer *t)
{
    curl_multi_remove_handle(t->n->multi, t->curl);
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
    sse_free(&t->sse);
    text_free(&t->in);
    free(t->path);
    free(t->body);
    free(t);
}

static void unlink_transfer(struct net *n, struct transfer *t)
{
    struct transfer **at = &n->list;
    while (*at != NULL && *at != t)
        at = &(*at)->next;
    if (*at != NULL)
        *at = t->next;
}

void net_close(struct net *n)
{
    if (n == NULL)
        return;
    while (n->list != NULL) {
        struct transfer *t = n->list;
        n->list = t->next;
        transfer_free(t);
    }
    curl_multi_cleanup(n->multi);
    explicit_bzero(n->secret, KEY_ROOM);
    munmap(n->secret, KEY_ROOM);
    free(n->watch);
    free(n->base);
    free(n);
    curl_global_cleanup();
}

int net_use(struct net *n, const struct coupling *c, struct vt_err *err)
{
    char *key;
    if (coupling_key(c, &key, err) < 0)
        return -1;
    explicit_bzero(n->secret, KEY_ROOM);
    if (key != NULL)
        snprintf(n->secret, KEY_ROOM, "Authorization: Bearer %s", key);
    if (key != NULL)
        explicit_bzero(key, strlen(key));
    free(key);
    free(n->base);
    n->base = mem_dup(c->base_url);
    for (struct transfer *t = n->list; t != NULL; t = t->next)
        t->dropped = true;
    return 0;
}

static long status_of(const struct transfer *t)
{
    long status = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

static void on_data(void *arg, const char *data, size_t len)
{
    struct transfer *t = arg;
    const struct event e = {.kind = EV_STREAM_DATA, .id = t->id, .text = data, .len = len};
    if (!t->dropped)
        t->n->sink(t->n->arg, &e);
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    size_t len = size * count;
    if (t->dropped)
        return 0;
    if (t->stream && status_of(t) == 200) {
        if (!t->opened) {
            const struct event e = {.kind = EV_STREAM_OPEN, .id = t->id, .n = 200};
            t->opened = true;
            t->n->sink(t->n->arg, &e);
        }
        sse_feed(&t->sse, bytes, len, on_data, t);
        return t->dropped ? 0 : len;
    }
    if (t->in.len + len > (t->stream ? ERROR_LARGEST : REPLY_LARGEST))
        return 0;
    text_add(&t->in, bytes, len);
    return len;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *arg)
{
    struct transfer *t = arg;
    static const char name[] = "retry-after:";
    if (size * count > sizeof name && size * count < 64 && strncasecmp(bytes, name, sizeof name - 1) == 0) {
        char value[64];
        snprintf(value, sizeof value, "%.*s", (int)(size * count - sizeof name + 1), bytes + sizeof name - 1);
        double v = strtod(value, NULL);
        t->retry_after = v > 0 && v < 3600 ? v : 0;
    }
    return size * count;
}

static struct transfer *start(struct net *n, int64_t id, const char *path, const char *body, bool stream)
{
    struct transfer *t = mem_new(sizeof *t);
    struct text url = {0};
    t->n = n;
    t->id = id;
    t->stream = stream;
    t->path = mem_dup(path);
    t->body = mem_dup(body);
    t->curl = curl_easy_init();
    if (t->curl == NULL)
        abort();
    text_printf(&url, "%s%s", n->base != NULL ? n->base : "http://127.0.0.1:1", path);
    curl_easy_setopt(t->curl, CURLOPT_URL, text_str(&url));
    text_free(&url);
    curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "officina");
    if (!stream)
        curl_easy_setopt(t->curl, CURLOPT_TIMEOUT_MS,
                         (long)(strncmp(path, "/slots/", 7) == 0 ? SLOT_MS : ASK_MS));
    if (n->secret[0] != '\0')
        t->headers = curl_slist_append(t->headers, n->secret);
    if (t->body != NULL) {
        t->headers = curl_slist_append(t->headers, "Content-Type: application/json");
        t->headers = curl_slist_append(t->headers, "Expect:");
        curl_easy_setopt(t->curl, CURLOPT_POSTFIELDS, t->body);
        curl_easy_setopt(t->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(t->body));
    }
    curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, t->headers);
    t->next = n->list;
    n->list = t;
    curl_multi_add_handle(n->multi, t->curl);
    return t;
}

void net_send(struct net *n, int64_t id, const char *body)
{
    start(n, id, "/v1/chat/completions", body, true);
}

void net_ask(struct net *n, int64_t id, const char *path, const char *body)
{
    start(n, id, path, body, false);
}

void net_drop(struct net *n, int64_t id)
{
    for (struct transfer *t = n->list; t != NULL; t = t->next)
        if (t->id == id)
            t->dropped =
                true; /* freed from net_work(): this may be called from within one of its callbacks */
    n->timer = now_ms();
}

static void done(struct net *n, struct transfer *t, CURLcode code)
{
    long status = status_of(t);
    /* An event without its empty line at the end of the stream. */
    if (t->stream && status == 200 && code == CURLE_OK)
        sse_feed(&t->sse, "\n\n", 2, on_data, t);
    unlink_transfer(n, t);
    if (!t->dropped) {
        struct event e = {
            .kind = t->stream ? EV_STREAM_END : EV_REPLY, .id = t->id, .n = status, .x = t->retry_after};
        e.name = t->path;
        e.text = text_str(&t->in);
        e.len = t->in.len;
        if (t->stream) {
            e.m = code != CURLE_OK;
            if (status == 0 || status == 200) {
                e.text = code != CURLE_OK ? curl_easy_strerror(code) : "";
                e.len = strlen(e.text);
            }
        } else if (code != CURLE_OK) {
            e.n = 0;
        }
        n->sink(n->arg, &e);
    }
    transfer_free(t);
}

size_t net_poll(struct net *n, struct pollfd *fds, size_t max)
{
    size_t k = 0;
    for (; k < n->n_watch && k < max; k++)
        fds[k] = (struct pollfd){.fd = n->watch[k].fd, .events = n->watch[k].events};
    return k;
}

int net_timeout(const struct net *n)
{
    if (n->timer == 0)
        return -1;
    uint64_t now = now_ms();
    return n->timer <= now ? 0 : (int)(n->timer - now);
}

void net_work(struct net *n, const struct pollfd *fds, size_t count)
{
    int running;
    for (struct transfer *t = n->list, *next; t != NULL; t = next) {
        next = t->next;
        if (!t->dropped)
            continue;
        unlink_transfer(n, t);
        transfer_free(t);
    }
    for (size_t i = 0; i < count; i++) {
        int what = ((fds[i].revents & (POLLIN | POLLHUP)) != 0 ? CURL_CSELECT_IN : 0) |
                   ((fds[i].revents & POLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                   ((fds[i].revents & POLLERR) != 0 ? CURL_CSELECT_ERR : 0);
        if (what != 0)
            curl_multi_socket_action(n->multi, fds[i].fd, what, &running);
    }
    if (n->timer != 0 && n->timer <= now_ms()) {
        n->timer = 0;
        curl_multi_socket_action(n->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    }
    CURLMsg *msg;
    int left;
    while ((msg = curl_multi_info_read(n->multi, &left)) != NULL) {
        if (msg->msg != CURLMSG_DONE)
            continue;
        char *p = NULL;
        CURLcode code = msg->data.result;
        curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE, &p);
        done(n, (struct transfer *)(void *)p, code);
    }
}
