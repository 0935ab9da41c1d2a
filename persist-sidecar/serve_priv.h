/* Inside of serve.h: queues and peers, shared by serve.c (scheduling), answer.c (saves, finds, loads) and rows.c (small rows). */
#ifndef STORE_SERVE_PRIV_H
#define STORE_SERVE_PRIV_H

#include "frame.h"
#include "ring.h"
#include "serve.h"

struct job { /* one frame, opened; owns its bytes */
    struct job *next;
    struct vt_frame f;
    uint8_t *bytes;
};

struct jobs {
    struct job *head, **tail;
    size_t n;
};

struct peer {
    bool used, broken;
    uint32_t link;
    struct vt_ring ring;
    bool has_ring;
    struct jobs saves, reads;

    struct save *save;
    uint64_t save_id, save_heard_us;
    uint32_t pieces;

    struct store_plan plan; /* of the last CK_FIND */
    uint64_t plan_id;
    bool has_plan;

    struct load *load;
    uint64_t load_id;
    uint32_t load_credit, load_out; /* pieces that may be, are out */
    uint8_t *slot_out;              /* by ring slot: the engine has it (upper half) */

    uint8_t *pins; /* 32 x n_pins */
    size_t n_pins, cap_pins;
};

struct serve {
    struct serve_opts o;
    const struct serve_ops *ops;
    void *arg;
    struct store *s;
    struct peer peers[SERVE_PEERS];
    struct jobs writes;   /* salts and launches */
    struct jobs asks;     /* of ctl; wait until no save is open */
    struct {              /* a pass over every block for ctl */
        bool active, own; /* own: its pass has begun; one that was under way before is ended first */
        uint64_t id, blocks, bytes, bad; /* counters when it began */
        uint32_t link;
    } verify;
    struct vt_enc enc;
    size_t queued;
    unsigned turn; /* whose restore gets the next piece */
    uint64_t scrub_us;
    bool upkeep_due;
};

/* Sends what was encoded into v->enc. */
void serve_send(struct serve *v, uint32_t link);
/* Marks the peer broken and tells the owner. */
void serve_fail(struct serve *v, struct peer *p, const struct vt_err *why);
struct peer *serve_peer(struct serve *v, uint32_t link);

void jobs_init(struct jobs *q);
void jobs_put(struct jobs *q, struct job *j);
struct job *jobs_take(struct jobs *q); /* NULL when empty */
void job_free(struct job *j);

/* ---- answer.c ---- */
/* Only when no save is open anywhere and no transaction. */
void answer_begin(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_chunk(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_commit(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_find(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_load(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_ack(struct serve *v, struct peer *p, const struct vt_frame *f);
void answer_pin(struct serve *v, struct peer *p, const struct vt_frame *f, bool pin);
/* Ends the peer's save and tells it why (err NULL: says nothing). */
void answer_abort(struct serve *v, struct peer *p, const struct vt_err *err);
void answer_end_load(struct serve *v, struct peer *p, const struct vt_err *err);
/* One piece of the peer's restore; false when it has to wait for credit or has none. */
bool answer_load_step(struct serve *v, struct peer *p);
bool answer_can_load(const struct peer *p);

/* ---- rows.c ---- */
/* true: answered (a read was enough). */
bool rows_salt_read(struct serve *v, const struct vt_frame *f);
void rows_salt_write(struct serve *v, const struct vt_frame *f);
void rows_launch_last(struct serve *v, const struct vt_frame *f);
void rows_launch_put(struct serve *v, const struct vt_frame *f);
void rows_launch_end(struct serve *v, const struct vt_frame *f);

/* ---- ask.c ---- */
void ask_answer(struct serve *v, const struct vt_frame *f);
void ask_refuse(struct serve *v, const struct vt_frame *f, const struct vt_err *why);
/* One step of a pass that ctl asked for. 1: did something, 0: none is asked for, -1: the store reported damage. */
int ask_verify_step(struct serve *v, struct vt_err *err);
/* The pass cannot be ended. */
void ask_verify_fail(struct serve *v, const struct vt_err *why);

#endif
