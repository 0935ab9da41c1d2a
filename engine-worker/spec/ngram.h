/* N-gram drafts: what may come next, guessed from the text itself without a model. The newest ids are looked up among the
 * older ones; what stood behind them there is the draft. A text that quotes itself (an edit of code, a summary, a table)
 * is guessed well, another one is not guessed at all.
 *
 * An index holds the newest place of every run of NGRAM_LEAST ids and, for each place, the one before it with the same run, so
 * that a look-up reads a few places whatever the text's length. Of those places the one wins that agrees longest with the
 * text's end; of equals the newest.
 *
 * After: prompt lookup decoding (A. Saxena 2023); reference decoding, Yang et al. 2023 (arXiv:2304.04487). A guess is right
 * or wrong, never a distribution: whoever verifies it draws as ever and compares.
 *
 * One thread. Only ids that were told are in the index, so there is nothing to take back after a wrong guess. */
#ifndef SPEC_NGRAM_H
#define SPEC_NGRAM_H

#include "err.h"

#include <stddef.h>
#include <stdint.h>

#define NGRAM_LEAST 3  /* ids that have to agree */
#define NGRAM_LONG  64 /* no more are compared */

struct ngram;

/* For texts of up to cap ids. */
int ngram_new(struct ngram **out, uint32_t cap, struct vt_err *err);
void ngram_free(struct ngram *g); /* NULL is fine */
size_t ngram_bytes(uint32_t cap);
/* The next text is another one. */
void ngram_clear(struct ngram *g);
/* A guess of up to `most` ids behind items[0..n), n <= cap, into out; at least `least` ids (NGRAM_LEAST or more) of the text's
 * end agree with the place that it comes from. What earlier calls since ngram_clear were given has to be the beginning of
 * items. Returns how many ids; 0: no guess. */
uint32_t ngram_draft(struct ngram *g, const uint32_t *items, uint32_t n, uint32_t least, uint32_t most,
                     uint32_t *out);

#endif
