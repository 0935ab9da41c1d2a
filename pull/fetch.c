#include "fetch.h"

#include "hash.h"
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define RETRY_AFTER_MAX_S 600

struct job {
    struct fetch *f;
    const struct fetch_item *item;
    struct part part;
    struct part_origin origin; /* of the answer that is being read */
    uint64_t asked_from;
    uint64_t total; /* 0 = unknown */
    bool over;      /* the part is of something else: begin again */
    uint8_t head[4];
};

static int note(struct job *j, const char *text)
{
    progress_clear(&j->f->progress);
    if (!j->f->progress.quiet)
        fprintf(stderr, "%s: %s\n", j->item->name, text);
    return 0;
}

/* ---- the answer ---- */

static uint64_t total_of(const struct http_reply *r)
{
    if (r->status == 206)
        return r->range_size > 0 ? (uint64_t)r->range_size : 0;
    return r->length > 0 ? (uint64_t)r->length : 0;
}

static int check_size(const struct job *j, const struct http_reply *r, struct vt_err *err)
{
    const uint64_t linked = r->linked_size > 0 ? (uint64_t)r->linked_size : 0;
    const uint64_t want = j->item->size ? j->item->size : linked;
    if (want && j->total && want != j->total)
        return vt_fail(err, VT_E_CORRUPT, "%s: the server offers %llu bytes, the hub's listing says %llu",
                       j->item->name, (unsigned long long)j->total, (unsigned long long)want);
    return 0;
}

static void origin_of(const struct job *j, const struct http_reply *r, struct part_origin *o)
{
    uint8_t digest[VT_SHA256_LEN];
    *o = (struct part_origin){.size = j->total};
    vt_sha256(j->item->url, strlen(j->item->url), digest);
    vt_hex(digest, sizeof digest, o->url);
    memcpy(o->etag, r->etag, sizeof o->etag);
    memcpy(o->modified, r->modified, sizeof o->modified);
    snprintf(o->sha256, sizeof o->sha256, "%s", j->item->sha256[0] ? j->item->sha256 : r->linked_sha);
}

/* Whether what was asked for with a range still is the content of which the part is there. */
static bool same_content(const struct part_origin *a, const struct part_origin *b)
{
    if (a->size != b->size && a->size && b->size)
        return false;
    if (a->sha256[0] && b->sha256[0])
        return strcasecmp(a->sha256, b->sha256) == 0;
    if (a->etag[0] || b->etag[0])
        return strcmp(a->etag, b->etag) == 0;
    return a->modified[0] && strcmp(a->modified, b->modified) == 0;
}

static int on_begin(void *ctx, const struct http_reply *r, struct vt_err *err)
{
    struct job *j = ctx;
    struct part *p = &j->part;
    struct part_origin o;
    j->total = total_of(r);
    if (check_size(j, r, err))
        return -1;
    origin_of(j, r, &o);
    bool drop = p->have > 0;
    if (r->status == 206) {
        if (r->range_from != (int64_t)j->asked_from)
            return vt_fail(err, VT_E_UNAVAILABLE, "%s: the server sent another range than was asked for",
                           j->item->name);
        j->over = !same_content(&p->origin, &o);
        if (j->over)
            return vt_fail(err, VT_E_UNAVAILABLE, "%s: the file has changed on the server", j->item->name);
        drop = false;
    } else if (drop) {
        note(j, same_content(&p->origin, &o) ? "the server gives whole files only; beginning again"
                                             : "the file has changed on the server; beginning again");
    }
    if (part_start(p, &o, drop, err))
        return -1;
    j->origin = o;
    progress_begin(&j->f->progress, j->item->name, p->have);
    return j->total ? part_room(p, j->total - p->have + j->f->more, err) : 0;
}

static int check_head(struct job *j, const uint8_t *s, size_t n, struct vt_err *err)
{
    for (size_t i = 0; i < n && j->part.have + i < 4; i++)
        j->head[j->part.have + i] = s[i];
    const uint64_t known = j->part.have + n < 4 ? j->part.have + n : 4;
    if (j->part.have >= 4 || memcmp(j->head, "GGUF", known) == 0)
        return 0;
    char shown[5] = "....";
    for (uint64_t i = 0; i < known; i++)
        shown[i] = j->head[i] >= 32 && j->head[i] < 127 ? (char)j->head[i] : '.';
    shown[known] = '\0';
    return vt_fail(err, VT_E_PAYLOAD, "%s: what the server sends is no GGUF file (it begins with \"%s\")",
                   j->item->name, shown);
}

static int on_data(void *ctx, const uint8_t *s, size_t n, struct vt_err *err)
{
    struct job *j = ctx;
    if (check_head(j, s, n, err))
        return -1;
    if (j->total && j->part.have + n > j->total)
        return vt_fail(err, VT_E_CORRUPT, "%s: the server sends more than the %llu bytes it named",
                       j->item->name, (unsigned long long)j->total);
    return part_write(&j->part, s, n, err);
}

static void on_tick(void *ctx)
{
    struct job *j = ctx;
    if (j->part.have)
        progress_show(&j->f->progress, j->part.have, j->total);
}

/* ---- tries ---- */

static enum http_outcome get(struct fetch *f, const struct http_request *q, const struct http_sink *sink,
                             struct http_reply *r, struct vt_err *err)
{
    const enum http_outcome out = http_get(&f->http, q, sink, r, err);
    f->reached = f->reached || !r->unreachable;
    return out;
}

uint64_t fetch_wait_us(unsigned n, int64_t retry_after_s)
{
    if (retry_after_s >= 0)
        return VT_SEC(retry_after_s);
    const uint64_t s = n > 6 ? 60 : 1ull << (n - 1);
    return VT_SEC(s > 60 ? 60 : s);
}

static bool pause_us(const struct fetch *f, uint64_t us)
{
    const struct vt_clock clock = vt_clock_real();
    const uint64_t end = vt_mono(&clock) + us;
    while (vt_mono(&clock) < end) {
        if (f->http.stop && *f->http.stop)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    return true;
}

/* Only bytes of which it is known what they are of can be continued. */
static bool can_continue(const struct job *j)
{
    const struct part_origin *o = &j->part.origin;
    struct http_reply nothing = {.etag = ""};
    struct part_origin mine;
    origin_of(j, &nothing, &mine);
    /* the same content may have got another address: the hub's names the newest commit */
    if (j->part.have > 0 && o->sha256[0] && strcasecmp(o->sha256, j->item->sha256) == 0)
        return true;
    return j->part.have > 0 && strcmp(o->url, mine.url) == 0 &&
           (o->etag[0] || o->modified[0] || o->sha256[0]);
}

static enum http_outcome one_try(struct job *j, struct http_reply *r, struct vt_err *err)
{
    const struct http_sink sink = {on_begin, on_data, on_tick, j};
    struct part *p = &j->part;
    const char *validator = p->origin.etag[0] ? p->origin.etag : p->origin.modified;
    struct http_request q = {.url = j->item->url, .token = j->f->token};
    j->over = false;
    j->total = 0;
    if (can_continue(j)) {
        q.from = p->have;
        q.if_range = validator[0] ? validator : NULL;
    }
    j->asked_from = q.from;
    enum http_outcome out = get(j->f, &q, &sink, r, err);
    if (r->status == 416 && q.from) {
        /* all is there already, or the file is another one now */
        if (r->range_size == (int64_t)p->have && (!p->origin.size || p->origin.size == p->have)) {
            j->origin = p->origin;
            j->total = p->have;
            return HTTP_OK;
        }
        j->over = true;
    }
    if (j->over) {
        note(j, "the file has changed on the server; beginning again");
        return part_start(p, &(struct part_origin){.size = 0}, true, err) ? HTTP_FATAL : HTTP_RETRY;
    }
    if (out == HTTP_OK && j->total && p->have < j->total) {
        vt_fail(err, VT_E_UNAVAILABLE, "%s: the server ended after %llu of %llu bytes", j->item->name,
                (unsigned long long)p->have, (unsigned long long)j->total);
        out = HTTP_RETRY;
    }
    return out;
}

static bool is_whole(const struct job *j)
{
    return j->part.have > 0 && j->part.origin.size == j->part.have && can_continue(j);
}

/* After try number `fails` without progress: HTTP_OK to try again, else what to end with. A server that was never reached
 * has a wrong name or is down; only one that was there before is waited for. */
static enum http_outcome before_retry(struct fetch *f, const char *what, unsigned fails,
                                      const struct http_reply *r, struct vt_err *err)
{
    const int64_t retry_after_s = r->retry_after_s;
    if (!f->reached) {
        vt_fail_prefix(err, "%s", what);
        return HTTP_RETRY;
    }
    if (retry_after_s > RETRY_AFTER_MAX_S) {
        vt_fail_prefix(err, "the server asks to wait for %lld s; try again then", (long long)retry_after_s);
        return HTTP_RETRY;
    }
    if (fails > f->retries)
        return HTTP_RETRY;
    const uint64_t us = fetch_wait_us(fails, retry_after_s);
    progress_clear(&f->progress);
    if (!f->progress.quiet)
        fprintf(stderr, "%s: %s; trying again in %.0f s\n", what, err->text, (double)us / 1e6);
    if (pause_us(f, us))
        return HTTP_OK;
    vt_fail(err, VT_E_CANCELLED, "interrupted");
    return HTTP_STOPPED;
}

enum http_outcome fetch_text(struct fetch *f, const struct http_request *q, const struct http_sink *sink,
                             struct http_reply *r, struct vt_err *err)
{
    for (unsigned fails = 1;; fails++) {
        enum http_outcome out = get(f, q, sink, r, err);
        if (out == HTTP_RETRY)
            out = before_retry(f, "listing", fails, r, err);
        else
            return out;
        if (out != HTTP_OK)
            return out;
    }
}

static enum http_outcome transfer(struct job *j, struct vt_err *err)
{
    struct http_reply r;
    if (is_whole(j)) { /* a run before ended between the last byte and the check */
        j->origin = j->part.origin;
        return HTTP_OK;
    }
    for (unsigned fails = 0;;) {
        const uint64_t before = j->part.have;
        const enum http_outcome out = one_try(j, &r, err);
        if (out != HTTP_RETRY)
            return out;
        if (j->over && fails++ == 0)
            continue; /* at once, but only once */
        fails = j->part.have > before ? 1 : fails + 1;
        const enum http_outcome go = before_retry(j->f, j->item->name, fails, &r, err);
        if (go != HTTP_OK)
            return go;
    }
}

/* ---- checks ---- */

static int on_hash(void *ctx, uint64_t done)
{
    struct job *j = ctx;
    progress_show(&j->f->progress, done, j->total);
    return j->f->http.stop && *j->f->http.stop;
}

static int sum_of(struct job *j, const char *name, uint64_t size, char hex[65], struct vt_err *err)
{
    char what[300];
    snprintf(what, sizeof what, "checking %s", j->item->name);
    j->total = size;
    progress_begin(&j->f->progress, what, 0);
    return part_sha256(&j->part, name, hex, on_hash, j, err);
}

static enum http_outcome check_and_place(struct job *j, struct fetch_result *out, struct vt_err *err)
{
    const char *want = j->item->sha256[0] ? j->item->sha256 : j->origin.sha256;
    out->size = j->part.have;
    if (j->part.have < 4) {
        vt_fail(err, VT_E_PAYLOAD, "%s: what the server sends is no GGUF file (%llu bytes)", j->item->name,
                (unsigned long long)j->part.have);
        part_remove(&j->part);
        return HTTP_FATAL;
    }
    if (sum_of(j, NULL, j->part.have, out->sha256, err))
        return err->code == VT_E_CANCELLED ? HTTP_STOPPED : HTTP_FATAL;
    out->checked = want[0] != '\0';
    if (out->checked && strcasecmp(want, out->sha256) != 0) {
        vt_fail(err, VT_E_CORRUPT, "%s: the SHA-256 is %s, but %s was expected; the file was thrown away",
                j->item->name, out->sha256, want);
        part_remove(&j->part);
        return HTTP_FATAL;
    }
    return part_place(&j->part, err) ? HTTP_FATAL : HTTP_OK;
}

/* A file of that name is there. HTTP_OK: it is the one; HTTP_RETRY: it may be replaced. */
static enum http_outcome look_at_finished(struct job *j, uint64_t size, struct fetch_result *out,
                                          struct vt_err *err)
{
    *out = (struct fetch_result){.size = size, .there = true};
    const char *other = NULL;
    if (j->item->size && j->item->size != size)
        other = "has another size";
    else if (j->item->sha256[0] == '\0')
        return j->f->force ? HTTP_RETRY : HTTP_OK;
    else if (sum_of(j, j->item->name, size, out->sha256, err))
        return err->code == VT_E_CANCELLED ? HTTP_STOPPED : HTTP_FATAL;
    else if (strcasecmp(out->sha256, j->item->sha256) != 0)
        other = "has another SHA-256";
    out->checked = other == NULL;
    if (!other)
        return HTTP_OK;
    if (j->f->force)
        return HTTP_RETRY;
    vt_fail(err, VT_E_CLOBBER,
            "%s is there already and %s; use --force to replace it, or --name to keep both", j->item->name,
            other);
    return HTTP_FATAL;
}

enum http_outcome fetch_file(struct fetch *f, const struct fetch_item *item, struct fetch_result *out,
                             struct vt_err *err)
{
    struct job j = {.f = f, .item = item};
    uint64_t size;
    *out = (struct fetch_result){.size = 0};
    if (part_open(&j.part, f->dir, item->name, err))
        return HTTP_FATAL;
    enum http_outcome rc = HTTP_RETRY;
    if (part_finished(&j.part, &size)) {
        rc = look_at_finished(&j, size, out, err);
        if (rc == HTTP_OK)
            part_remove(&j.part);
    }
    if (rc == HTTP_RETRY) {
        *out = (struct fetch_result){.size = 0};
        rc = transfer(&j, err);
        if (rc == HTTP_OK)
            rc = check_and_place(&j, out, err);
    }
    progress_clear(&f->progress);
    if (j.part.fd >= 0 && j.part.have == 0)
        part_remove(&j.part); /* nothing to keep */
    part_close(&j.part);
    return rc;
}
