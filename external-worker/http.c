#include "http.h"

#include "link.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define CONNECT_MS 5000L

struct http {
    sd_event *ev;
    CURLM *multi;
    sd_event_source *timer;
    char base[512];
    struct curl_slist *headers;
    uint64_t bytes;
    struct transfer *first;
    bool inside; /* of a call of libcurl: what it calls back must not call it */
};

struct transfer {
    struct http *h;
    CURL *easy;
    const struct transfer_ops *ops;
    void *arg;
    char *body;
    char why[CURL_ERROR_SIZE];
    bool told_head, counts;
    struct transfer *next;
};

static void drop(struct transfer *t)
{
    struct transfer **p = &t->h->first;
    while (*p != t)
        p = &(*p)->next;
    *p = t->next;
    curl_multi_remove_handle(t->h->multi, t->easy);
    curl_easy_cleanup(t->easy);
    free(t->body);
    free(t);
}

static void tell_head(struct transfer *t)
{
    long status = 0;
    const char *type = NULL;
    if (t->told_head)
        return;
    t->told_head = true;
    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(t->easy, CURLINFO_CONTENT_TYPE, &type);
    t->ops->head(t->arg, (unsigned)status, type != NULL ? type : "application/octet-stream");
}

static size_t on_data(char *p, size_t size, size_t n, void *arg)
{
    struct transfer *t = arg;
    tell_head(t);
    if (!t->ops->data(t->arg, p, size * n))
        return CURL_WRITEFUNC_PAUSE;
    t->h->bytes += t->counts ? size * n : 0;
    return size * n;
}

/* Tells the ends of what is over; libcurl is not inside here, so that a receiver may start or cancel. */
static void reap(struct http *h)
{
    CURLMsg *m;
    int left;
    while ((m = curl_multi_info_read(h->multi, &left)) != NULL) {
        struct transfer *t = NULL;
        if (m->msg != CURLMSG_DONE)
            continue;
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        struct vt_err err;
        if (rc == CURLE_OK)
            tell_head(t);
        else
            vt_fail(&err, rc == CURLE_COULDNT_CONNECT ? VT_E_BOUNCING : VT_E_UNAVAILABLE, "%s",
                    t->why[0] != '\0' ? t->why : curl_easy_strerror(rc));
        const struct transfer_ops *ops = t->ops;
        void *arg = t->arg;
        drop(t);
        ops->end(arg, rc == CURLE_OK ? NULL : &err);
    }
}

static void act(struct http *h, curl_socket_t fd, int what)
{
    int running;
    h->inside = true;
    curl_multi_socket_action(h->multi, fd, what, &running);
    h->inside = false;
    reap(h);
}

static int on_io(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    int what = (revents & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0) |
               (revents & EPOLLOUT ? CURL_CSELECT_OUT : 0) | (revents & EPOLLERR ? CURL_CSELECT_ERR : 0);
    act(arg, fd, what);
    return 0;
}

static int on_time(sd_event_source *src, uint64_t usec, void *arg)
{
    act(arg, CURL_SOCKET_TIMEOUT, 0);
    return 0;
}

static int want_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct http *h = arg;
    sd_event_source *src = of_socket;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    if (what == CURL_POLL_REMOVE) {
        sd_event_source_disable_unref(src);
        curl_multi_assign(h->multi, fd, NULL);
    } else if (src != NULL) {
        sd_event_source_set_io_events(src, events);
    } else if (sd_event_add_io(h->ev, &src, fd, events, on_io, h) >= 0) {
        curl_multi_assign(h->multi, fd, src);
    }
    return 0;
}

static int want_time(CURLM *multi, long ms, void *arg)
{
    struct http *h = arg;
    if (ms < 0)
        return sd_event_source_set_enabled(h->timer, SD_EVENT_OFF) < 0 ? -1 : 0;
    sd_event_source_set_time_relative(h->timer, (uint64_t)ms * 1000u);
    return sd_event_source_set_enabled(h->timer, SD_EVENT_ONESHOT) < 0 ? -1 : 0;
}

int http_new(struct http **out, sd_event *ev, const char *base, const char *bearer, struct vt_err *err)
{
    struct http *h = calloc(1, sizeof *h);
    char line[600];
    if (h == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || (h->multi = curl_multi_init()) == NULL) {
        free(h);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    h->ev = ev;
    snprintf(h->base, sizeof h->base, "%s", base);
    if (sd_event_add_time_relative(ev, &h->timer, CLOCK_MONOTONIC, 0, 1000, on_time, h) < 0 ||
        sd_event_source_set_enabled(h->timer, SD_EVENT_OFF) < 0) {
        http_free(h);
        return vt_fail(err, VT_E_OS, "timer");
    }
    h->headers = curl_slist_append(NULL, "Content-Type: application/json");
    h->headers = curl_slist_append(h->headers, "Expect:"); /* no round trip before a body */
    if (bearer != NULL && bearer[0] != '\0') {
        snprintf(line, sizeof line, "Authorization: Bearer %.500s", bearer);
        h->headers = curl_slist_append(h->headers, line);
    }
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, want_socket);
    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, want_time);
    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h);
    *out = h;
    return 0;
}

void http_free(struct http *h)
{
    if (h == NULL)
        return;
    while (h->first != NULL)
        drop(h->first);
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    sd_event_source_disable_unref(h->timer);
    free(h);
}

int http_start(struct http *h, struct transfer **out, struct transfer_req *q, const struct transfer_ops *ops,
               void *arg, struct vt_err *err)
{
    char url[sizeof h->base + VT_PROXY_PATH_MAX];
    struct transfer *t = calloc(1, sizeof *t);
    if (t == NULL || (t->easy = curl_easy_init()) == NULL) {
        free(t);
        free(q->body);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    *t = (struct transfer){.h = h,
                           .easy = t->easy,
                           .ops = ops,
                           .arg = arg,
                           .body = q->body,
                           .counts = q->counts,
                           .next = h->first};
    h->first = t;
    snprintf(url, sizeof url, "%s%s", h->base, q->path);
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    curl_easy_setopt(t->easy, CURLOPT_PATH_AS_IS, 1L); /* what was let through is what is asked */
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->easy, CURLOPT_PROXY, ""); /* whatever the environment says */
    curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    /* On a connection that it has used before libcurl would send again by itself when the server dies. */
    curl_easy_setopt(t->easy, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(t->easy, CURLOPT_FORBID_REUSE, 1L);
    curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT, (long)q->timeout_s);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, h->headers);
    if (strcmp(q->method, "HEAD") == 0) {
        curl_easy_setopt(t->easy, CURLOPT_NOBODY,
                         1L); /* else it waits for the body that the length promises */
    } else {
        if (q->body != NULL || strcmp(q->method, "POST") == 0) {
            curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                             (curl_off_t)(q->body != NULL ? q->n_body : 0));
            curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, q->body != NULL ? q->body : "");
        }
        curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, q->method);
    }
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_ERRORBUFFER, t->why);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    if (out != NULL)
        *out = t;
    curl_multi_add_handle(h->multi, t->easy); /* begins from the loop: its timer is set */
    return 0;
}

void http_cancel(struct transfer *t)
{
    drop(t);
}

void http_continue(struct transfer *t)
{
    if (!t->h->inside)
        curl_easy_pause(t->easy, CURLPAUSE_CONT);
}

uint64_t http_bytes(const struct http *h)
{
    return h->bytes;
}
