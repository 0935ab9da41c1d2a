/* Router: engines, their links and the jobs on them. It decides what is submitted, held, resumed or refused, so that the
 * death of an engine is a pause for its clients. All on the loop's thread; it never waits. */
#ifndef ROUTER_H
#define ROUTER_H

#include "blame.h"
#include "clock.h"
#include "frame.h"
#include "job.h"
#include "link.h"
#include "log.h"

enum { ROUTER_MAX_ENGINES = 16, ROUTER_CREDIT = 256, ROUTER_LOW_WATER = 64 };

struct engine {
    char name[65];
    uint64_t gen;
    uint32_t link_id;
    unsigned state; /* enum vt_child_state */
    bool wanted;    /* it is started again when it ends */
    uint32_t window, slots, modalities, retry_ms, permille;
    char model[128], fp[96], profile[128];
    struct {
        uint32_t tokens;                     /* filled when the shape was measured; 0: never */
        uint64_t decode_milli, prompt_milli; /* thousandths of tokens a second, there and on the way */
        int64_t at;                          /* wall seconds */
    } depth;
    uint64_t retry_from;  /* when retry_ms was said */
    struct vt_link *link; /* up, and the one that link_id names */
};

struct router_rules { /* from the configuration */
    unsigned queue_max, hold_s, resume_attempts, resume_max_age_s;
    bool resume;
    uint32_t window, slots; /* as configured, until an engine says */
};

/* An exchange beside jobs: slots, slot files. */
struct router_ask {
    void (*done)(void *arg, const struct vt_frame *f,
                 const struct api_err *err); /* once; one of the two is NULL */
    void *arg;
};

struct router {
    struct vt_clock clock;
    struct vt_log *log;
    struct router_rules rules;
    struct engine engines[ROUTER_MAX_ENGINES];
    unsigned n_engines;
    struct vt_link *links[ROUTER_MAX_ENGINES]; /* up */
    unsigned n_links;
    struct job *first, *last; /* all jobs that are not over, oldest first */
    uint64_t next_handle;
    bool routed, ever_ready, hold, closed;
    bool stopping; /* the appliance ends: what runs may end well, nothing new is taken */
    struct {
        struct vt_link *link; /* NULL: free */
        uint64_t id, deadline;
        struct router_ask ask;
    } asks[64];
    struct {
        struct vt_link *link;
        uint64_t handle;
        uint8_t why;
    } cancels[256]; /* not sent yet: the link's queue was full */
    unsigned n_cancels;
    struct blame blame;
    uint64_t held_total, resumed_total, interrupted_total;
    uint64_t token_frames;
};

void router_init(struct router *r, const struct vt_clock *clock, struct vt_log *log,
                 const struct router_rules *rules);

/* What the lifeline says. */
void router_routes(struct router *r, const struct vt_frame *f);
void router_interrupted(struct router *r, const struct vt_frame *f);
void router_hold(struct router *r, const struct vt_frame *f);
/* What the links say. */
void router_link_up(struct router *r, struct vt_link *l);
void router_link_down(struct router *r, struct vt_link *l); /* again: nothing */
void router_frame(struct router *r, struct vt_link *l, const struct vt_frame *f);
/* Several times a second: timeouts, and what a full queue had put off. */
void router_tick(struct router *r);

/* May n more jobs come in now? 0, or why not (429, 503). */
int router_admit(struct router *r, unsigned n, struct api_err *e);
/* Takes a job on; from here on its ops are called, never inside this call. */
void router_start(struct router *r, struct job *j);
/* The client reads: everything received so far has left us. */
void job_drained(struct job *j);
/* The owner has enough: no more tokens, then done(JOB_STOPPED). */
void job_stop(struct job *j);
/* The client is gone: no call of ops follows. */
void job_cancel(struct job *j);
/* Every job ends with this error (orphaned gateway, shutdown). */
void router_fail_all(struct router *r, const struct api_err *e);

/* A question to the engine that serves slots; -1: none is there (e). */
int router_slots(struct router *r, const struct router_ask *ask, struct api_err *e);
int router_slot_op(struct router *r, uint32_t slot, unsigned verb, const char *name,
                   const struct router_ask *ask, struct api_err *e);
/* Forget the questions of this arg. */
void router_forget(struct router *r, const void *arg);

/* State as seen by clients. */
const struct engine *router_ready(const struct router *r); /* one that takes requests, or NULL */
bool router_loading(const struct router *r);               /* nothing was ever ready and something loads */
uint32_t router_window(const struct router *r);
uint32_t router_n_slots(const struct router *r);
/* Why there is no service, with the time until it comes back. */
int router_unavailable(const struct router *r, struct api_err *e);
unsigned router_open_jobs(const struct router *r, unsigned *held, uint64_t *oldest_us);

#endif
