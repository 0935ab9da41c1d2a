/* Vectors: an embedding from the numbers of an engine to the text of an answer. */
#ifndef API_VECTORS_H
#define API_VECTORS_H

#include "../http/buf.h"

#include <stddef.h>

/* Scales v, [n], as embd_normalize says: -1 not at all; 0 so that the largest magnitude is 32760; 1 by the sum of
 * magnitudes; p by the p-norm, 2 the usual one. A vector of zeros stays. */
void vector_normalize(float *v, size_t n, int p);
/* v as a JSON array, so that each number reads back as the same float. */
void vector_json(struct buf *out, const float *v, size_t n);
/* v as a JSON string: base64 of little-endian floats. */
void vector_base64(struct buf *out, const float *v, size_t n);

#endif
