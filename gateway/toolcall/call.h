/* One tool call being read, byte by byte, in the form that a model was taught: a JSON object, an XML-like form, a name with
 * its arguments or with pairs of keys and values, Gemma's, or DeepSeek's. Each form is a file; what they share is here.
 *
 * A call is `named` as soon as it is sure that its name and the beginning of its arguments were read; from then on its
 * arguments (text of a JSON object) grow in args, valid so far at every moment. It is `whole` when they are complete. */
#ifndef CALL_H
#define CALL_H

#include "../http/buf.h"
#include "jscan.h"

#include <jansson.h>
#include <stdbool.h>

enum { CALL_NAME_MAX = 256 };

enum call_step {
    CALL_MORE,
    CALL_DONE, /* the call ends with this byte */
    CALL_BACK, /* it ended before this byte, which was not taken */
    CALL_BAD   /* this is no call; the byte was not taken */
};

enum call_form { CALL_JSON, CALL_XML, CALL_PLAIN, CALL_GEMMA, CALL_PAIRS, CALL_FENCED };

struct call {
    /* given */
    enum call_form form;
    const json_t *tools; /* of the request: an array, or NULL */
    bool
        strict; /* CALL_JSON: nothing marks the call, so it must be one of the tools and have no foreign keys */
    const char *quote; /* CALL_GEMMA: what strings stand between */
    /* made */
    char name[CALL_NAME_MAX + 1];
    size_t name_n;
    bool named, whole;
    struct buf args; /* the reader takes what is there and clears it */
    /* of the forms */
    uint8_t state;
    struct jscan json;
    struct buf text;  /* a key, a value, a mark in work */
    struct buf early; /* arguments that came before the name */
    size_t matched;
    bool has_name, has_args, comma, typed;
    uint8_t kind;                    /* what the value in work is of */
    unsigned depth;                  /* CALL_GEMMA */
    uint8_t object[JSCAN_DEPTH / 8]; /* the same */
};

void call_init(struct call *c, enum call_form form, const json_t *tools);
void call_fini(struct call *c);
bool call_failed(const struct call *c); /* out of memory */
enum call_step call_feed(struct call *c, char byte);
/* The answer is over, by a limit (cut) or by the model: true when what was read is a call all the same. */
bool call_end(struct call *c, bool cut);

/* The forms; call_feed chooses. */
enum call_step call_json_feed(struct call *c, char byte);
enum call_step call_xml_feed(struct call *c, char byte);
enum call_step call_plain_feed(struct call *c, char byte);
enum call_step call_gemma_feed(struct call *c, char byte);
enum call_step call_pairs_feed(struct call *c, char byte);
enum call_step call_fenced_feed(struct call *c, char byte);
/* CALL_PAIRS without the mark that closes it. */
bool call_pairs_end(struct call *c);
/* CALL_PLAIN whose name is known from elsewhere: its arguments follow. */
void call_plain_named(struct call *c, const char *name, size_t n);

/* Values without quotes (CALL_XML, CALL_PAIRS): the schema of the parameter says whether 3 is a number or a string; without one,
 * what reads as a number, truth value, object, array or null is that. text holds the key at the beginning and what is left of the
 * value at the end; the text of a VALUE_STRING may be handed on (escaped) before its end. */
enum { VALUE_ANY, VALUE_STRING, VALUE_BOOLEAN, VALUE_STRING_OR_NULL };
void call_value_begin(struct call *c);
void call_value_end(struct call *c);

/* The name is known and so are its first arguments. */
void call_announce(struct call *c);
/* One more byte of the name; false when it is too long or holds a control character. */
bool call_name_add(struct call *c, char byte);
/* The tool of that name, NULL when there is none; and the schema of one of its parameters. */
const json_t *call_tool(const json_t *tools, const char *name);
const json_t *call_parameter(const json_t *tools, const char *name, const char *key);

#endif
