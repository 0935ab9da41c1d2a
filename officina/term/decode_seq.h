/* Meaning of whole sequences; decode.c finds where they begin and end. Each returns false for one that is not known. */
#ifndef OFF_DECODE_SEQ_H
#define OFF_DECODE_SEQ_H

#include "term/decode.h"

/* s[0..n): what stands behind "ESC [", its final byte last. */
bool decode_csi(const char *s, size_t n, struct term_event *ev);
/* Behind "ESC O". */
bool decode_ss3(const char *s, size_t n, struct term_event *ev);
/* The byte behind "ESC [ [" of the Linux console. */
bool decode_linux(char c, struct term_event *ev);
/* Behind "ESC ": the introducer (']', 'P', …) and the string, without its end. */
bool decode_osc(const char *s, size_t n, struct term_event *ev);

#endif
