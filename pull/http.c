#include "http.h"

#include "build_id.h"
#include "source.h"

#include <ctype.h>
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

struct transfer {
    const struct http *h;
    const struct http_sink *sink;
    struct http_reply *r;
    struct vt_err *err;
    bool begun, sink_failed;
};

/* ---- headers ---- */

static void forget(struct http_reply *r)
{
    r->status = 0;
    r->length = r->range_from = r->range_size = r->retry_after_s = -1;
    r->etag[0] = r->modified[0] = r->hub_error[0] = '\0';
}

static int64_t number(const char *s)
{
    char *end;
    if (!isdigit((unsigned char)*s))
        return -1;
    const long long v = strtoll(s, &end, 10);
    return *end == '\0' || *end == '/' || *end == '-' ? v : -1;
}

/* Seconds, or a date. */
static int64_t retry_after(const char *s)
{
    const int64_t n = number(s);
    const time_t at = n < 0 ? curl_getdate(s, NULL) : -1;
    if (at < 0)
        return n;
    const time_t now = time(NULL);
    return at > now ? (int64_t)(at - now) : 0;
}

/* "bytes 5-9/10" or "bytes * /10" (without the blank) */
static void content_range(struct http_reply *r, const char *s)
{
    if (strncasecmp(s, "bytes ", 6) != 0)
        return;
    s += 6;
    const char *slash = strchr(s, '/');
    r->range_from = number(s);
    r->range_size = slash ? number(slash + 1) : -1;
}

static void copy(char *out, size_t size, const char *s)
{
    if (strlen(s) < size)
        memcpy(out, s, strlen(s) + 1);
}

static void linked_etag(struct http_reply *r, const char *s)
{
    const size_t quote = s[0] == '"', n = strspn(s + quote, "0123456789abcdefABCDEF");
    if (n != 64)
        return;
    for (size_t i = 0; i < 64; i++)
        r->linked_sha[i] = (char)tolower((unsigned char)s[quote + i]);
    r->linked_sha[64] = '\0';
}

void http_header(struct http_reply *r, const char *line, size_t n)
{
    char text[512];
    while (n > 0 && isspace((unsigned char)line[n - 1]))
        n--;
    if (n >= sizeof text)
        return;
    memcpy(text, line, n);
    text[n] = '\0';
    if (strncmp(text, "HTTP/", 5) == 0) {
        forget(r);
        const char *blank = strchr(text, ' ');
        r->status = blank ? strtol(blank + 1, NULL, 10) : 0;
        return;
    }
    char *value = strchr(text, ':');
    if (!value)
        return;
    *value++ = '\0';
    value += strspn(value, " \t");
    if (strcasecmp(text, "Content-Length") == 0)
        r->length = number(value);
    else if (strcasecmp(text, "Content-Range") == 0)
        content_range(r, value);
    else if (strcasecmp(text, "ETag") == 0 && value[0] == '"')
        copy(r->etag, sizeof r->etag, value);
    else if (strcasecmp(text, "Last-Modified") == 0)
        copy(r->modified, sizeof r->modified, value);
    else if (strcasecmp(text, "X-Linked-Etag") == 0)
        linked_etag(r, value);
    else if (strcasecmp(text, "X-Linked-Size") == 0)
        r->linked_size = number(value);
    else if (strcasecmp(text, "Retry-After") == 0)
        r->retry_after_s = retry_after(value);
    else if (strcasecmp(text, "X-Error-Code") == 0)
        copy(r->hub_error, sizeof r->hub_error, value);
}

/* ---- calls of the library ---- */

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
    const struct transfer *t = ctx;
    http_header(t->r, line, size * n);
    return size * n;
}

static bool has_content(const struct http_reply *r)
{
    return r->status == 200 || r->status == 206;
}

static int begin(struct transfer *t)
{
    if (t->begun)
        return 0;
    t->begun = true;
    t->sink_failed = t->sink->begin(t->sink->ctx, t->r, t->err) != 0;
    return t->sink_failed ? -1 : 0;
}

static size_t on_data(char *s, size_t size, size_t n, void *ctx)
{
    struct transfer *t = ctx;
    if (!has_content(t->r))
        return size * n; /* the page of an error */
    if (begin(t))
        return 0;
    t->sink_failed = t->sink->data(t->sink->ctx, (const uint8_t *)s, size * n, t->err) != 0;
    return t->sink_failed ? 0 : size * n;
}

static int on_tick(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d)
{
    const struct transfer *t = ctx;
    if (t->sink->tick)
        t->sink->tick(t->sink->ctx);
    return t->h->stop && *t->h->stop;
}

int http_init(struct http *h, const volatile sig_atomic_t *stop, struct vt_err *err)
{
    *h = (struct http){.stop = stop, .stall_s = 60};
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        h->curl = curl_easy_init();
    return h->curl ? 0 : vt_fail(err, VT_E_INTERNAL, "libcurl does not start");
}

void http_fini(struct http *h)
{
    curl_easy_cleanup(h->curl);
    curl_global_cleanup();
    h->curl = NULL;
}

static bool may_carry_token(const char *url)
{
    if (strncmp(url, "https://", 8) == 0)
        return true;
    const char *host = url + strlen("http://");
    const size_t n = strcspn(host, ":/");
    return (n == 9 && (strncmp(host, "127.0.0.1", 9) == 0 || strncmp(host, "localhost", 9) == 0));
}

static void set_up(struct http *h, const struct http_request *q, struct transfer *t, const char *range,
                   const struct curl_slist *headers)
{
    CURL *c = h->curl;
    const bool tls = strncmp(q->url, "https:", 6) == 0;
    curl_easy_reset(c);
    curl_easy_setopt(c, CURLOPT_URL, q->url);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, tls ? "https" : "http,https");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "vitriol/" VT_BUILD_ID);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, 30L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, (long)h->stall_s);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 262144L);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_tick);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, t);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    if (range)
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    if (headers)
        curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    if (q->token && may_carry_token(q->url)) {
        curl_easy_setopt(c, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(c, CURLOPT_XOAUTH2_BEARER, q->token);
    }
}

/* ---- what came of it ---- */

static enum http_outcome judge_status(const struct http_request *q, const struct http_reply *r,
                                      struct vt_err *err)
{
    char url[SOURCE_URL_MAX];
    source_shown(q->url, url, sizeof url);
    if ((r->status == 401 || r->status == 403) && r->led_on && !r->hub_error[0]) {
        /* Addresses that a hub leads to are signed and hold for a while: the next try gets a fresh one. */
        vt_fail(err, VT_E_UNAVAILABLE, "%.300s: the address that it led to is refused there (status %ld)",
                url, r->status);
        return HTTP_RETRY;
    }
    switch (r->status) {
    case 200:
    case 206: return HTTP_OK;
    case 401:
    case 403:
        vt_fail(err, VT_E_CREDENTIALS,
                "%.300s: %s (%ld%s%s). Accept the model's terms on its page, then set HF_TOKEN or put a "
                "token into "
                "~/.cache/huggingface/token",
                url, q->token ? "the token gives no access" : "access needs a token", r->status,
                r->hub_error[0] ? ", " : "", r->hub_error);
        return HTTP_FATAL;
    case 404:
    case 410:
        vt_fail(err, VT_E_NO_INPUT,
                "%.300s: there is no such file (%ld); check owner, repository and file name", url, r->status);
        return HTTP_FATAL;
    case 416:
        vt_fail(err, VT_E_PAYLOAD, "%.300s: the file is shorter than the part that is here", url);
        return HTTP_FATAL;
    case 408:
    case 425:
    case 429: break;
    default:
        if (r->status < 500) {
            vt_fail(err, VT_E_UNAVAILABLE, "%.300s: the server refuses (status %ld)", url, r->status);
            return HTTP_FATAL;
        }
    }
    vt_fail(err, VT_E_UNAVAILABLE, "%.300s: the server is busy (status %ld)", url, r->status);
    return HTTP_RETRY;
}

static enum http_outcome judge(const struct transfer *t, const struct http_request *q, CURLcode rc,
                               const char *detail)
{
    char url[SOURCE_URL_MAX];
    source_shown(q->url, url, sizeof url);
    if (t->sink_failed)
        return HTTP_FATAL;
    switch (rc) {
    case CURLE_OK: return judge_status(q, t->r, t->err);
    case CURLE_ABORTED_BY_CALLBACK: vt_fail(t->err, VT_E_CANCELLED, "interrupted"); return HTTP_STOPPED;
    case CURLE_OUT_OF_MEMORY: vt_fail(t->err, VT_E_NOMEM, "no memory for the transfer"); return HTTP_FATAL;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_CONNECT: t->r->unreachable = t->r->status == 0; __attribute__((fallthrough));
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        vt_fail(t->err, VT_E_UNAVAILABLE, "%.250s: %.150s", url, detail[0] ? detail : curl_easy_strerror(rc));
        return HTTP_RETRY;
    default:
        vt_fail(t->err, VT_E_UNAVAILABLE, "%.250s: %.150s", url, detail[0] ? detail : curl_easy_strerror(rc));
        return HTTP_FATAL;
    }
}

enum http_outcome http_get(struct http *h, const struct http_request *q, const struct http_sink *sink,
                           struct http_reply *r, struct vt_err *err)
{
    struct transfer t = {h, sink, r, err, false, false};
    char range[40] = "", condition[200], detail[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    *r = (struct http_reply){.linked_size = -1};
    forget(r);
    if (q->from) {
        snprintf(range, sizeof range, "%llu-", (unsigned long long)q->from);
        if (q->if_range) {
            snprintf(condition, sizeof condition, "If-Range: %s", q->if_range);
            headers = curl_slist_append(NULL, condition);
            if (!headers) {
                vt_fail(err, VT_E_NOMEM, "no memory for the transfer");
                return HTTP_FATAL;
            }
        }
    }
    set_up(h, q, &t, q->from ? range : NULL, headers);
    curl_easy_setopt(h->curl, CURLOPT_ERRORBUFFER, detail);
    CURLcode rc = curl_easy_perform(h->curl);
    long hops = 0;
    r->led_on = curl_easy_getinfo(h->curl, CURLINFO_REDIRECT_COUNT, &hops) == CURLE_OK && hops > 0;
    if (rc == CURLE_OK && has_content(r) && begin(&t))
        rc = CURLE_WRITE_ERROR;
    const enum http_outcome out = judge(&t, q, rc, detail);
    curl_easy_reset(h->curl); /* it points into this frame */
    curl_slist_free_all(headers);
    return out;
}
