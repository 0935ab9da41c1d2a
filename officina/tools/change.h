/* Edits of text: only the bytes that are meant change. Pure; any thread.
 *
 * Old text is looked for with line ends read as LF; what is common to old and new at both ends is left out
 * of the replacement, and each newline of the rest is written in the form of the newline in whose place it
 * comes, else of the line before it, else of the file's first. */
#ifndef OFF_CHANGE_H
#define OFF_CHANGE_H

#include "core/model.h"
#include "err.h"
#include "util/text.h"

struct change_spec {
    const char *old; /* or NULL: by lines */
    const char *new;
    bool all;
    long start, end; /* 1-based, inclusive; end = start - 1 inserts before start */
};

/* in → out (empty at first). *times: replacements. Errors (text for the model): not found, found more than
 * once (with the lines), no such lines, a binary file. */
int change_apply(const struct change_spec *c, const char *in, size_t len, struct text *out, int *times,
                 struct vt_err *err);
/* Fills added and removed of a change whose texts are there: lines by the longest common subsequence, or all
 * of the differing middle when that would cost too much. */
void change_count(struct file_change *c);
/* A new change with copies of both texts; before or after may be NULL. Words about line ends are put in
 * remark. */
struct file_change *change_new(const char *path, const char *before, size_t before_len, const char *after,
                               size_t after_len);
bool change_is_binary(const char *s, size_t n); /* a NUL in the first 8 KiB */
size_t change_lines(const char *s, size_t n);   /* lines, the last one without an end counts */

#endif
