/* Steps of the sampler's chain that shorten or rescale the list of candidates. All of them leave at least one. */
#ifndef STEPS_H
#define STEPS_H

#include "cands.h"
#include "sampling.h"

void step_top_k(struct cands *s, const struct vt_sampling *p);
void step_top_p(struct cands *s, const struct vt_sampling *p);
void step_min_p(struct cands *s, const struct vt_sampling *p);
int step_typical_p(struct cands *s, const struct vt_sampling *p); /* -1: out of memory, nothing changed */
void step_top_n_sigma(struct cands *s, const struct vt_sampling *p);
void step_xtc(struct cands *s, const struct vt_sampling *p, uint64_t position);
void step_temperature(struct cands *s, const struct vt_sampling *p);

#endif
