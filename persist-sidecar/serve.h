/* The conversation: frames in, steps of work, frames out. Knows no socket and no thread, so that tests and the fuzzer drive
 * it directly. One thread.
 *
 * Order of work: lookups and restores first, one piece at a time; then the one open save; other writes (salts, launches,
 * another engine's save, upkeep) only while no transaction is open. */
#ifndef STORE_SERVE_H
#define STORE_SERVE_H

#include "store.h"

#define SERVE_PEERS 64

struct serve;

struct serve_ops {
    /* A whole frame for a link (or the lifeline); valid during the call. */
    void (*send)(void *arg, uint32_t link, const uint8_t *frame, size_t len);
    /* The peer broke the protocol: its link is to be closed. serve_link_down has to follow. */
    void (*fail)(void *arg, uint32_t link, const struct vt_err *why);
};

struct serve_opts {
    struct store_opts store;
    uint64_t ck_idle_us; /* a save without a frame for this long is rolled back */
};

/* Opens the store. ops and arg are borrowed. */
int serve_new(struct serve **out, const struct serve_opts *o, const struct serve_ops *ops, void *arg,
              struct vt_err *err);
/* clean: ends in order, with the clean mark. */
void serve_free(struct serve *v, bool clean);

/* An engine's link. base: the ring's mapping, borrowed until serve_link_down; NULL: no bulk. Wrong rings fail the link. */
void serve_link_up(struct serve *v, uint32_t link, void *base, size_t bytes);
void serve_link_down(struct serve *v, uint32_t link);
/* One frame of a link or of the lifeline (launch frames); copied. Undecodable: the link fails. */
void serve_frame(struct serve *v, const uint8_t *frame, size_t len);

enum serve_did { SERVE_NOTHING, SERVE_WORK, SERVE_BROKEN };
/* One step. BROKEN: the database is lost (err says why) and could not be made anew. */
enum serve_did serve_step(struct serve *v, struct vt_err *err);
/* Upkeep when serve_step had nothing to do: one step. */
enum serve_did serve_upkeep(struct serve *v, struct vt_err *err);
/* Microseconds until serve_step or serve_upkeep is to be called again although nothing came in. */
uint64_t serve_wait_us(const struct serve *v);
/* Ends what can be ended: takes every queued frame, gives up what waits for more. */
void serve_flush(struct serve *v);

struct store *serve_store(struct serve *v);
size_t serve_queued(const struct serve *v);
/* 0 idle, 3 a save is open, 4 a restore is open (numbers of BEAT's op). */
unsigned serve_op(const struct serve *v);

#endif
