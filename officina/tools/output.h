/* A command's output: cleaned line by line (progress lines reduced to their last state, control sequences
 * removed, bytes that are no UTF-8 replaced and counted, secrets redacted), kept whole in a file, and cut
 * for the model at lines. One thread. */
#ifndef OFF_OUTPUT_H
#define OFF_OUTPUT_H

#include "err.h"
#include "util/text.h"

#include <stdbool.h>
#include <stdint.h>

struct output;

/* dir: the folder of stored outputs, made when missing. limit: bytes that the model gets at most. */
struct output *output_new(const char *dir, size_t limit, struct vt_err *err);
/* Stored outputs of dir are removed, the oldest first, until they are at most `files` and together at most `bytes`; those with
 * numbers from `first` on stay whatever they are. Returns the largest number there was, 0: none. output_new() does it with the
 * bounds below. */
int64_t output_tidy(const char *dir, uint64_t bytes, size_t files, int64_t first);
#define OUTPUTS_BYTES  (UINT64_C(1) << 30)
#define OUTPUTS_FILES  4000
#define OUTPUTS_SPARED 200 /* the newest */
/* Removes the file unless output_result() has named it. */
void output_free(struct output *o);
void output_add(struct output *o, const char *bytes, size_t n);
int64_t output_lines(const struct output *o);
/* Ends the last line and appends what the model gets: all of it, or 40 % from the start and 60 % from the
 * end with the number of the stored file between. Returns that number, 0 when nothing was left out. */
int64_t output_result(struct output *o, struct text *out);
/* What came since the last look, at most limit bytes of it (the newest). */
void output_news(struct output *o, struct text *out);

/* The limit for a context of `window` tokens (UNKNOWN: no window): the smaller of 30,000 bytes and 8 % of
 * it. */
size_t output_limit(int64_t window);
/* One text cleaned in one piece, for results that do not come from a program. */
void output_clean(const char *s, size_t n, struct text *out);

#endif
