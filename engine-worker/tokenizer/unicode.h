/* Unicode: decoding of UTF-8 that may be invalid, the classes that pre-tokenizers ask about, and NFC.
 *
 * A byte that is no part of a valid sequence is one character of its own: it has the class of U+FFFD (a symbol) and keeps
 * its value, so that nothing is lost. Pure functions; any thread. */
#ifndef TOKENIZER_UNICODE_H
#define TOKENIZER_UNICODE_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories folded to what patterns name, one bit each. */
enum {
    U_LU = 1,
    U_LL = 2,
    U_LT = 4,
    U_LM = 8,
    U_LO = 16,
    U_L = 31,
    U_M = 32,
    U_N = 64,
    U_P = 128,
    U_S = 256,
    U_SP = 512, /* White_Space */
    U_NL = 1024 /* CR and LF; these are U_SP as well */
};

/* Decodes the character at s (n >= 1 bytes left) and returns its length. An invalid byte: length 1, *cp = U8_BAD. */
#define U8_BAD 0xFFFFFFFFu
size_t u8_decode_long(const uint8_t *s, size_t n, uint32_t *cp);
static inline size_t u8_decode(const uint8_t *s, size_t n, uint32_t *cp)
{
    if (s[0] < 0x80) {
        *cp = s[0];
        return 1;
    }
    return u8_decode_long(s, n, cp);
}
/* Writes cp (< 0x110000) and returns its length; out has room for 4. */
size_t u8_encode(uint32_t cp, uint8_t *out);

extern const uint16_t u_ascii_class[128];
unsigned u_class_wide(uint32_t cp);
static inline unsigned u_class(uint32_t cp)
{
    return cp < 128 ? u_ascii_class[cp] : u_class_wide(cp);
}

/* False when NFC leaves the text as it is. */
bool u_nfc_changes(const uint8_t *s, size_t n);
/* NFC of the valid stretches; invalid bytes stay. *out is malloc'd (at least 1 byte). Linear in n for every input. */
int u_nfc(const uint8_t *s, size_t n, uint8_t **out, size_t *out_n, struct vt_err *err);

#endif
