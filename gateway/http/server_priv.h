/* Between the files of the server. */
#ifndef HTTP_SERVER_PRIV_H
#define HTTP_SERVER_PRIV_H

#include "clock.h"
#include "framing.h"
#include "server.h"

#include <microhttpd.h>

enum {
    HTTP_OUT_KEEP = 16384, /* buffer of an idle stream, and the library's piece of one */
    HTTP_GRACE_US = 1000000
};

enum req_state { R_HEAD, R_BODY, R_HANDED, R_REPLY, R_STREAM };

struct http_req {
    struct http_server *s;
    struct MHD_Connection *c;
    const char *method, *path;
    char *target; /* owned */
    enum req_state state;
    struct buf body;
    size_t discarded;
    bool too_large, early, queued, suspended, ended, broken, oom;
    int tag;
    unsigned status;
    struct MHD_Response *resp;
    struct buf out;
    size_t out_at;
    uint64_t last_write;
    struct http_claim claim;
    bool claimed;
    struct http_conn *conn;
    struct {
        char *name, *value;
    } head[8];
    unsigned n_head;
    struct http_req *prev, *next;
};

/* The library's edge-triggered loop misses an end that arrives together with data, and looks at nothing while a request
 * is suspended: every connection is watched from here too. */
struct http_conn {
    struct http_server *s;
    int fd;
    struct http_req *req; /* the present one */
    char *target;         /* of the request whose line was read, until that begins */
    bool hung;            /* the peer has closed its side */
    sd_event_source *io, *timer;
    /* guard.c */
    struct framing framing;
    uint64_t read_to, begun; /* bytes of the stream; requests that the library has handed over */
    bool due, refused;       /* malformed: an answer is to be given; was given */
};

struct http_daemon {
    struct http_server *s;
    struct MHD_Daemon *d;
    sd_event_source *io;
    bool quiet;
};

struct http_server {
    sd_event *ev;
    struct http_daemon *daemons;
    int n_daemons;
    sd_event_source *kick, *timer;
    struct http_limits lim;
    const struct http_ops *ops;
    void *arg;
    struct vt_log *log;
    struct vt_clock clock;
    struct http_req *reqs;
    int news; /* epoll of all connections */
    char *peek;
};

/* Out of the loop's sight until http_wake; only from inside the library's calls. */
void http_sleep(struct http_req *r);
void http_wake(struct http_req *r);
/* guard.c: 0, or -1 */
int guard_init(struct http_server *s);
void guard_fini(struct http_server *s);
int guard_watch(struct http_conn *n);
void guard_look(struct http_server *s); /* before each run of the library */
/* The malformed part comes next: all before it is answered. */
bool guard_due(const struct http_conn *n);
void guard_refuse(struct http_conn *n);
/* Looks after a connection whose peer has closed its side. */
void http_arm(struct http_conn *n, uint64_t after_us);

#endif
