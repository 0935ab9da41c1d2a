/* Which lines of which files the model has been shown, by their hashes: the guard of line edits and of
 * replacing a file. A line counts while the file still has the same bytes there. One thread. */
#ifndef OFF_SEEN_H
#define OFF_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seen;

struct seen *seen_new(void);
void seen_free(struct seen *s);
void seen_clear(struct seen *s);
/* Lines first … first + count - 1 of the content were shown. */
void seen_show(struct seen *s, const char *path, const char *content, size_t len, long first, long count);
/* All lines from first to last are shown and as they were; last < 0: to the end. Fills *bad with the first
 * line that is not. */
bool seen_has(const struct seen *s, const char *path, const char *content, size_t len, long first, long last,
              long *bad);
/* An own change: lines common at both ends keep what is known (moved), those between are known as written. */
void seen_changed(struct seen *s, const char *path, const char *before, size_t n, const char *after,
                  size_t m);

/* For the store: one hash a line, 0 where it was not shown. */
typedef void (*seen_sink)(void *arg, const char *path, const uint64_t *lines, size_t n);
/* Every file that changed since the last call. */
void seen_changes(struct seen *s, seen_sink sink, void *arg);
void seen_put(struct seen *s, const char *path, const uint64_t *lines, size_t n);

#endif
