/* Drafting: whether guessed tokens do what they are for, from the engine's counters.
 *
 * Poor: of what was guessed in a span of time too little came out so. Blind: many guesses came out so and none was refuted. A text that
 * copies is guessed right for pages, but the engine makes one guess in some hundreds wrong on purpose; if that one is not refuted
 * either, right and wrong are not told apart: a head that is wired to what it should foretell, or a comparison that
 * compares nothing. Each is told once, and again when it was otherwise in between. Pure; one thread. */
#ifndef WORKER_DRAFTING_H
#define WORKER_DRAFTING_H

#include "config.h"
#include "engine.h"

/* Guesses without one that is refuted, before that is an alarm: four times what lies between two wrong ones. */
#define DRAFTING_BLIND 1024
/* Fewer guesses in a span say nothing. */
#define DRAFTING_LEAST 64

struct drafting {
    uint64_t from_us, drafted, accepted; /* where the span began */
    uint64_t refuted, since;             /* refuted when it moved last; accepted then */
    bool poor, blind;
};

enum drafting_verdict { DRAFTING_FINE, DRAFTING_POOR, DRAFTING_BLINDLY };

/* What is to be told now, as text. */
enum drafting_verdict drafting_judge(struct drafting *d, const struct eng_counters *c, uint64_t floor_pct,
                                     uint64_t span_us, uint64_t now, char *text, size_t size);
/* For the fingerprint: "none", "ngram:8". */
void drafting_name(const struct vt_config *cfg, char *out, size_t size);

#endif
