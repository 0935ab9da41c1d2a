/* The one gate that every string passes on its way to the screen, and the widths of what comes out.
 *
 * A text is UTF-8 that may be anything: bad bytes become U+FFFD. It is taken apart into grapheme clusters (Unicode 15,
 * UAX 29, by utf8proc) and each cluster into pieces, one for each cell group that is drawn. Where terminals disagree about
 * a width less is shown: a joined emoji is its first character, variation selectors and skin tones are dropped, a flag is
 * its two letters. Nothing here allocates; everything may be called from any thread. Columns are screen cells. */
#ifndef OFF_GATE_H
#define OFF_GATE_H

#include <stddef.h>
#include <stdint.h>

enum gate_show {
    GATE_RUNNING, /* controls, escape sequences, bidirectional and zero-width characters vanish */
    GATE_EXACT,   /* they are shown as codes: \x1b, \u202e; for whatever a person decides about */
};

#define GATE_BYTES  12 /* of one piece: a character and a few marks */
#define GATE_PIECES 10 /* of one cluster at most; what a longer one has more is not drawn */

struct piece {
    char bytes[GATE_BYTES];
    uint8_t n;     /* bytes used */
    uint8_t width; /* 1 or 2 */
};

struct cluster {
    struct piece piece[GATE_PIECES];
    uint8_t n;      /* pieces; 0: nothing is drawn */
    uint8_t width;  /* columns of all pieces */
    uint8_t symbol; /* a code that stands for what was there, not the text itself */
};

/* Columns of one code point by the table: 0, 1 or 2. */
int gate_cp_width(uint32_t cp);

/* Reads one code point of s[0..n), n > 0, into *cp. Returns its bytes; a bad byte is one U+FFFD. */
size_t gate_decode(const char *s, size_t n, uint32_t *cp);
/* Writes cp as UTF-8, at most 4 bytes; returns how many. A surrogate or a number beyond Unicode becomes U+FFFD. */
size_t gate_encode(uint32_t cp, char out[4]);

/* Takes the next cluster off s[0..n), n > 0. Returns the bytes it had, at least 1. Newline and tab are clusters without
 * pieces; the caller knows what they mean where it draws. In running text an escape sequence is one cluster without pieces. */
size_t gate_next(const char *s, size_t n, enum gate_show show, struct cluster *out);

/* Byte offset of the cluster border after `at`, or before it; stays at the ends. */
size_t gate_after(const char *s, size_t n, size_t at);
size_t gate_before(const char *s, size_t n, size_t at);

/* Columns of the whole text, newlines and tabs counting nothing. */
size_t gate_width(const char *s, size_t n, enum gate_show show);
/* Bytes of the longest head that is at most `columns` wide; *used gets its columns (may be NULL). */
size_t gate_fit(const char *s, size_t n, enum gate_show show, size_t columns, size_t *used);

#endif
