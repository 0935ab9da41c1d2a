/* Transcript: what a request asked and every token id that came back, kept until the client has its end. From it a request
 * is resumed on another engine generation. Ids go in here before anything is made of them. One thread. */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct transcript_top {
    uint32_t id;
    float logprob;
};

struct transcript {
    uint32_t *prompt; /* owned */
    size_t n_prompt;
    size_t
        n_forced; /* last ids of the prompt that come back as the first ones emitted, for their log-probabilities */
    uint32_t *ids; /* emitted; owned */
    size_t n, cap;
    unsigned n_top; /* alternatives kept with each id */
    bool logprobs;
    float *lp;                  /* n, when logprobs */
    struct transcript_top *top; /* n * n_top, unused ones have logprob NAN */
};

/* Takes prompt (malloc'd). */
void transcript_init(struct transcript *t, uint32_t *prompt, size_t n_prompt, bool logprobs, unsigned n_top);
/* Emitted ids that are not the prompt's. */
size_t transcript_made(const struct transcript *t);
void transcript_fini(struct transcript *t);

/* Where a run of n ids that starts at position first belongs: returns how many of its ids are known already (n: all of
 * them), or -1 when there is a gap before it. */
int64_t transcript_known(const struct transcript *t, uint64_t first, size_t n);
/* One more id. -1: out of memory, nothing changed. lp is ignored without logprobs; top may be NULL. */
int transcript_push(struct transcript *t, uint32_t id, float lp, const struct transcript_top *top,
                    unsigned n_top);

#endif
