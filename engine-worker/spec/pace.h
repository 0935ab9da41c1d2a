/* Pace: how many ids one sequence may have guessed in a step, from how its last guesses did.
 *
 * A guess that was right throughout doubles the next one; a wrong one shortens it to what was right. Guesses that were wrong
 * from their first id on are followed by rests, each twice as long as the last, and have to agree longer with the text that they come from:
 * where guessing does not pay it becomes rare (one row in PACE_REST steps) and never stops for good.
 *
 * A value of the caller's; pure. */
#ifndef SPEC_PACE_H
#define SPEC_PACE_H

#include <stdint.h>

#define PACE_REST  64 /* steps of the longest rest */
#define PACE_FIRST 2  /* ids of the first guess */

struct pace {
    uint32_t length; /* of the next guess; 0: as PACE_FIRST */
    uint32_t rest;   /* steps without a guess */
    uint32_t again;  /* length of the next rest; 0: 1 */
};

/* Ids that may be guessed now, at most `most`; 0 takes one step off a rest. */
uint32_t pace_length(struct pace *p, uint32_t most);
/* Ids of the text's end that a guess has to agree with, at least `least`. */
uint32_t pace_agreement(const struct pace *p, uint32_t least);
/* A guess of n > 0 ids was verified, of which `right` were. */
void pace_told(struct pace *p, uint32_t n, uint32_t right);

#endif
