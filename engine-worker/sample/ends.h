/* Ends of the sampler's chain: the draw itself, in its three kinds. Each returns the index of the chosen candidate, with the
 * candidates' probabilities at the draw in s->probs. */
#ifndef ENDS_H
#define ENDS_H

#include "cands.h"
#include "sampling.h"

uint32_t end_draw(struct cands *s, const struct vt_sampling *p, uint64_t position);
/* state: mu, the surprise in bits that the next token may have; 2 tau at the start. */
uint32_t end_mirostat(struct cands *s, const struct vt_sampling *p, uint64_t position, double *state);
/* state: the decayed sum of the probabilities of the chosen tokens; target / (1 - decay) at the start. */
uint32_t end_adaptive_p(struct cands *s, const struct vt_sampling *p, uint64_t position, double *state);

#endif
