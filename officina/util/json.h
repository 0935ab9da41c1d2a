/* Short words for jansson, and what the wire needs beyond it. One thread. */
#ifndef OFF_JSON_H
#define OFF_JSON_H

#include "util/text.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Strict: one value of any kind, nothing behind it, no duplicate keys, at most 64 levels. NULL with where and what in
 * why (may be NULL). */
json_t *js_parse(const char *bytes, size_t n, char *why, size_t size);
/* Fields of an object; the default when absent or of another type. */
const char *js_str(const json_t *o, const char *key); /* NULL */
int64_t js_int(const json_t *o, const char *key, int64_t dflt);
double js_num(const json_t *o, const char *key, double dflt);
bool js_bool(const json_t *o, const char *key, bool dflt);
/* Sets key to s, or leaves it away when s is NULL. Bytes that are no UTF-8 become U+FFFD. */
void js_set_str(json_t *o, const char *key, const char *s);
void js_set_strn(json_t *o, const char *key, const char *s, size_t n);
void js_set_int(json_t *o, const char *key, int64_t v);
/* Compact, keys in the order in which they were set; takes the reference. Caller frees. */
char *js_dump(json_t *o);
/* Appends s as a JSON string with quotes; bytes that are no UTF-8 become U+FFFD. */
void js_quote(struct text *t, const char *s, size_t n);
/* A copy of s in which bad UTF-8 is U+FFFD. Caller frees. */
char *utf8_mend(const char *s, size_t n);

#endif
