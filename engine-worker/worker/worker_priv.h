/* The inside of worker.c, orders.c and report.c. */
#ifndef WORKER_WORKER_PRIV_H
#define WORKER_WORKER_PRIV_H

#include "checkpoint.h"
#include "drafting.h"
#include "keep.h"
#include "requests.h"
#include "worker.h"

enum worker_state { W_STARTING, W_LOADING, W_WAIT_STORE, W_RESTORING, W_SELFTEST, W_READY, W_FAILED };

/* An ORDER drain, stop or park_all that is being carried out. */
struct drain {
    unsigned verb; /* 0: none */
    uint64_t id, deadline, park_at;
    bool parked, saving;
    enum ckpt_reason reason;
};

struct worker {
    sd_event *ev;
    struct vt_child_args args;
    struct vt_config *cfg;
    struct vt_clock clock;
    struct vt_log *log;
    struct vt_child *child;
    const struct eng_ops *ops;
    struct worker_faults faults;
    bool needs_model;

    struct keep *keep; /* NULL: no vault is wanted */
    struct compute *compute;
    struct requests *requests;
    struct checkpoint *checkpoint;
    struct vt_link *gateway, *store;
    sd_event_source *events_src, *tick_src, *pump_src;

    enum worker_state state;
    unsigned level; /* memory pressure */
    bool quiesced;
    struct drain drain;
    uint64_t process_us; /* from fork to WELCOME */
    uint64_t state_since, second_at, phase_at, stuck_since, stuck_sent, useless_told, canary_id;
    bool canary_asked;
    int exit_code;

    /* rates over the last seconds */
    struct eng_counters then;
    struct drafting drafting;
    uint64_t vram_free, vram_at; /* last reading of the device, and when */
    uint64_t then_at;
    double prompt_rate, predicted_rate;
};

/* report.c */
void report_load(struct worker *w);
void report_ready(struct worker *w);
void report_counters(struct worker *w);
void report_slots(struct worker *w, uint64_t id);

/* orders.c */
void orders_take(struct worker *w, const struct vt_frame *f);
void orders_tick(struct worker *w);
void orders_canary(struct worker *w, const struct event *ev);
void slot_op_take(struct worker *w, const struct vt_frame *f);
void slot_op_erased(struct worker *w, const struct event *ev);
/* Admission follows from state, orders and memory level. */
void orders_admission(struct worker *w);

/* The process has to end with this error. */
void worker_fatal(struct worker *w, const struct vt_err *err);
void worker_exit(struct worker *w, int code);
/* Sends what can be sent and arms the timer for the rest. */
void worker_pump(struct worker *w);

#endif
