/* The scripted gateway's state and its parts: conn.c (bytes of one connection), answer.c (chat requests),
 * routes.c (all others), scripted_gateway.c (main). Connections have a thread each; `lock` guards everything
 * but a thread's own conn. */
#ifndef OFF_TEST_GATE_H
#define OFF_TEST_GATE_H

#include "script.h"

#include <pthread.h>
#include <stdint.h>

#define GATE_SLOTS 8
#define GATE_FILES 64

struct gate {
    pthread_mutex_t lock;
    struct script script;
    const char *record; /* folder for requests, log and verdict; NULL: none */
    char addr[16];
    int port, listener, log;
    uint64_t start; /* monotonic microseconds */

    size_t block; /* the next one to play */
    unsigned requests, calls, boot;
    char *last_prompt, *last_body;
    bool again; /* the next request must be last_body */
    bool end_think;
    json_t *problems;

    char *slots[GATE_SLOTS]; /* prompt that a slot holds, or NULL */
    bool busy[GATE_SLOTS];
    struct {
        char *name, *prompt;
    } files[GATE_FILES]; /* saved slots */

    char *health; /* ok, loading, draining, bouncing, down */
    double eta;
    json_t *series; /* name → number, for /metrics */
    int conns[256]; /* open connections, -1: free */
};

/* ---- conn.c ---- */

struct conn {
    int fd;
    long budget; /* bytes of a stream that are still sent; -1: all */
    bool chunked, broken;
};

struct request {
    char method[8], path[512];
    char *body;
    size_t len;
};

/* Reads one request; 0, or -1 when the client left or sent what is no request. Free body. */
int conn_read(struct conn *c, struct request *r);
void conn_reply(struct conn *c, int status, const char *type, const char *head, const char *body);
void conn_json(struct conn *c, int status, const char *head, json_t *o); /* takes o */
void conn_error(struct conn *c, int status, const char *head, const char *message);
void conn_stream_begin(struct conn *c);
void conn_stream(struct conn *c, const char *bytes, size_t n); /* obeys budget */
void conn_event(struct conn *c, json_t *o);                    /* "data: …"; takes o */
void conn_stream_end(struct conn *c);
void conn_reset(struct conn *c);
bool conn_gone(struct conn *c); /* the client has closed */

/* ---- answer.c ---- */

void answer_chat(struct gate *g, struct conn *c, const struct request *r);

/* ---- routes.c ---- */

void route(struct gate *g, struct conn *c, const struct request *r);
void gate_health(struct gate *g, const struct step *s);    /* lock is held */
void gate_telemetry(struct gate *g, const struct step *s); /* lock is held */
void gate_count(struct gate *g, const char *series, double more);
const char *gate_option(const struct gate *g, const char *name, const char *dflt);

/* ---- scripted_gateway.c ---- */

void gate_problem(struct gate *g, const char *text); /* lock is held; writes the verdict */
void gate_verdict(struct gate *g);                   /* lock is held */
void gate_log(struct gate *g, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void gate_listen(struct gate *g, bool on); /* lock is held */
void gate_sleep(double ms);
uint64_t gate_now(void);

#endif
