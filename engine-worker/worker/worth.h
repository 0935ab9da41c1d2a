/* Worth: do restores pay? A save and a restore can both report success and every token be evaluated again all the same; what a
 * restore was worth is known only when a request has gone on from it. Tokens and microseconds are counted here: what came back
 * and what that took, what requests really reused of it, and whether evaluating that much would have taken longer. Pure; one
 * thread. */
#ifndef WORKER_WORTH_H
#define WORKER_WORTH_H

#include <stdbool.h>
#include <stdint.h>

#define WORTH_ENOUGH 4  /* restores that a request has followed, before the sum is judged */
#define WORTH_MANY   32 /* so many, and what was before counts half */

struct worth_sum {
    uint64_t restored, spent_us; /* tokens and time of all restores */
    uint64_t followed;           /* of them, those that a request has followed */
    uint64_t offered, reused;    /* tokens: of those, and what their requests reused */
};

struct worth {
    struct worth_sum total, recent; /* recent: what is judged */
    uint64_t useless;               /* requests that went on behind all of it and found little */
    bool poor;                      /* the last judgement */
};

void worth_restored(struct worth *w, uint32_t tokens, uint64_t us);
/* The first request where `offered` tokens were restored: its prompt of n_ids begins with `same` of them, and `reused` tokens were
 * not evaluated. False: it goes on behind all of it, and yet lacks more than `slack` tokens. */
bool worth_followed(struct worth *w, uint32_t offered, uint32_t same, uint64_t n_ids, uint32_t reused,
                    uint32_t slack);
/* Judges the sum, at what a token takes to evaluate. True: it has just become poor. */
bool worth_turns_poor(struct worth *w, double us_per_token);

#endif
