/* Fetching one file: goes on where an earlier try ended, tries again when the network or the server fails, checks size,
 * SHA-256 and the first bytes, and gives the file its name when all is right. One thread. */
#ifndef PULL_FETCH_H
#define PULL_FETCH_H

#include "http.h"
#include "part.h"
#include "progress.h"

struct fetch_item {
    const char *url, *name;
    uint64_t size;      /* 0 = unknown */
    const char *sha256; /* hex, "" = unknown */
};

struct fetch {
    struct http http;
    struct progress progress;
    const char *dir;
    const char *token; /* NULL = none */
    unsigned retries;  /* without a byte of progress between them */
    bool force;        /* replace a file that is there and another one */
    bool reached;      /* some server has answered */
    uint64_t more;     /* bytes of other files that will follow, for the look at the disk */
};

struct fetch_result {
    uint64_t size;
    char sha256[65]; /* "" when a file that was there was taken by its size alone */
    bool checked;    /* against a sum that the hub or the caller named */
    bool there;      /* nothing was fetched */
};

enum http_outcome fetch_file(struct fetch *f, const struct fetch_item *item, struct fetch_result *out,
                             struct vt_err *err);

/* A short text, tried again in the same way; the sink's begin tells it to forget what came before. */
enum http_outcome fetch_text(struct fetch *f, const struct http_request *q, const struct http_sink *sink,
                             struct http_reply *r, struct vt_err *err);

/* Microseconds before try n (from 1): doubling from a second to a minute, or what the server asked for. */
uint64_t fetch_wait_us(unsigned n, int64_t retry_after_s);

#endif
