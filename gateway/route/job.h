/* Job: one sequence that an engine generates for one client, over however many engine generations that takes. */
#ifndef JOB_H
#define JOB_H

#include "../http/error.h"
#include "../stream/transcript.h"
#include "sampling.h"

#include <stdbool.h>
#include <stdint.h>

struct router;
struct engine;
struct vt_link;

enum job_why {
    JOB_EOS,     /* the model ended its turn */
    JOB_LENGTH,  /* max_new, or the window is full */
    JOB_STOPPED, /* its owner had enough (job_stop) */
    JOB_FAILED,  /* err says why */
};

struct job_ops {
    void (*accepted)(void *arg);                                /* once: an engine has taken it */
    void (*progress)(void *arg, uint32_t done, uint32_t total); /* prompt evaluation */
    void (*tokens)(void *arg, size_t from); /* the transcript has grown, from is the first new id */
    /* Of a job that pools: vectors `first` and following, f32le, dim numbers each. -1: they make no sense. They may come again. */
    int (*vectors)(void *arg, uint64_t first, size_t n, size_t dim, const uint8_t *values);
    void (*done)(void *arg, enum job_why why,
                 const struct api_err *err); /* once; the job may be freed in it */
};

enum job_state {
    JOB_HELD,      /* no engine has it; none has had it */
    JOB_SUBMITTED, /* sent, no answer yet */
    JOB_RUNNING,   /* accepted */
    JOB_PARKED,    /* its engine went away: waits for the next one */
    JOB_ATTACHING, /* its link went away, its engine did not */
    JOB_STOPPING,  /* cancel sent on behalf of the owner, DONE is awaited for its figures */
    JOB_OVER,
};

struct job {
    /* set by the owner before router_start */
    const struct job_ops *ops;
    void *arg;
    struct transcript tr;
    struct vt_sampling sampling; /* its arrays are borrowed for the job's life */
    uint32_t max_new;            /* behind the prompt */
    int32_t slot;                /* -1: any */
    unsigned pool;               /* as in SUBMIT: vectors are wanted, no ids; 0: ids */
    bool reuse;
    const uint8_t *grammar; /* borrowed for the job's life; NULL: none */
    size_t n_grammar;
    const char *label; /* for the log: the answer's id */

    /* the router's */
    struct router *router;
    uint8_t rid[16];
    uint64_t handle;
    enum job_state state;
    struct vt_link *link;
    uint32_t link_id; /* also after the link is gone */
    char engine[65];
    uint64_t engine_gen;
    unsigned attempts, resumes;
    bool told_accepted;
    bool turned_away;           /* an engine takes nothing now: until retry_at, or until something changes */
    bool client_slow;           /* parked for a client that does not read: goes on when it has read */
    unsigned park_why;          /* PARKED's, until its DONE */
    uint64_t retry_at;          /* not submitted before; 0: at once */
    uint64_t granted, received; /* credit of the present submit */
    bool credit_due;
    uint8_t sha[32];   /* of the prompt that was asked for */
    bool suspect;      /* in flight at a crash: it runs when its turn comes (blame.h) */
    bool cleared;      /* it got past the place of that crash */
    bool unjudged;     /* interrupted; whether it may be resumed is looked at when the reason is known */
    size_t suspect_at; /* ids that it had then */
    uint64_t created_us, held_us, accepted_us, first_us, last_us, ended_us;
    uint64_t seed;
    double sampler_state; /* after the last id of the transcript; NAN: none */
    uint32_t on_slot, reused, resume_reused, queue_pos;
    uint64_t queue_us, prefill_us, decode_us; /* as the engine measured them; 0 = unknown */
    uint32_t drafted, draft_accepted;
    struct job *prev, *next;
};

#endif
