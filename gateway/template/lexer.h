/* Lexer: cuts a template into data, tags and the tokens inside tags, with the white-space rules that chat templates are
 * written for (trim_blocks and lstrip_blocks on, one trailing newline dropped). One pass, one token at a time. */
#ifndef TEMPLATE_LEXER_H
#define TEMPLATE_LEXER_H

#include "arena.h"
#include "err.h"
#include "value.h"

enum token_kind {
    T_END,
    T_DATA,
    T_PRINT_BEGIN,
    T_PRINT_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_OP, /* the characters in op: '+', and two-character ones as OP2 */
};

#define OP2(a, b) ((a) | (b) << 8)

struct token {
    enum token_kind kind;
    unsigned op;
    uint32_t line, column;
    const char *p; /* T_NAME, T_DATA: in the source; T_STRING: decoded */
    size_t n;
    int64_t i;
    double f;
};

struct lexer {
    struct arena *arena;
    const char *s; /* newlines are \n */
    size_t n, at;
    enum { LEX_DATA, LEX_BLOCK, LEX_PRINT } state;
    unsigned brackets;
    uint32_t line;
    size_t line_start;       /* where the line begins, for columns */
    bool line_begins;        /* the token before ended a line, for lstrip */
    struct token after_data; /* tag that ended the data, kept for the next call */
    bool has_after_data;
};

/* Copies text into the arena. Errors: VT_E_PARAM naming the byte (not UTF-8), VT_E_NOMEM. */
int lexer_init(struct lexer *l, struct arena *a, const char *text, size_t n, struct vt_err *err);
int lexer_next(struct lexer *l, struct token *t, struct vt_err *err);

#endif
