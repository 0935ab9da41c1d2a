/* Tables of the languages that the line lexers know. */
#ifndef OFF_LANGUAGES_H
#define OFF_LANGUAGES_H

#include <stddef.h>

enum {
    LANG_CALLS = 1,     /* a word before ( is a function */
    LANG_HASH = 2,      /* # at the start of a line is a directive */
    LANG_TRIPLE = 4,    /* strings in three quotes go over lines */
    LANG_BACKTICK = 8,  /* strings in backticks go over lines */
    LANG_LIFETIME = 16, /* ' may begin a lifetime */
    LANG_DOLLAR = 32,   /* $word is a variable */
    LANG_KEYS = 64,     /* a word or string before : or = is a key */
    LANG_FOLD = 128,    /* words in any case */
    LANG_DASH = 256,    /* words may hold dashes */
    LANG_SPACED = 512,  /* a comment begins only behind a blank */
    LANG_NO_ESCAPE = 1024,
    LANG_DIFF = 2048,
    LANG_MARKDOWN = 4096,
};

struct language {
    const char *names[12];         /* names, endings and file names; NULL ends */
    const char *line[2];           /* what begins a comment up to the line's end */
    const char *block, *block_end; /* a comment over lines, or NULL */
    const char *quotes;            /* what begins a string */
    const char *keywords, *types;  /* " a b c " */
    unsigned flags;
};

extern const struct language languages[];
extern const size_t n_languages;

#endif
