#include "tools/shell.h"
#include "tools/shell_priv.h"

#include "util/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 24, MAX_PARTS = 200, MAX_HERE = 16 };

struct heredoc {
    char *end;
    bool tabs, quoted;
};

struct reader {
    const char *s;
    size_t n, at;
    struct shell_line *l;
    int depth;
    const char *why;
    struct heredoc here[MAX_HERE];
    size_t n_here;
};

static bool fail(struct reader *r, const char *why)
{
    if (!r->why)
        r->why = why;
    r->at = r->n;
    return false;
}

static char peek(const struct reader *r, size_t k)
{
    return r->at + k < r->n ? r->s[r->at + k] : 0;
}

static void read_list(struct reader *r, char close);

/* Reads what stands at the reader as a list of commands of its own, up to `close`. */
static void nested(struct reader *r, char close)
{
    size_t here = r->n_here;
    if (++r->depth > MAX_DEPTH) {
        fail(r, "it is nested too deeply");
        return;
    }
    read_list(r, close);
    if (r->n_here != here)
        fail(r, "a here-document begins within a group"); /* shells differ in where its body is */
    r->depth--;
}

static void read_other(struct reader *r, const char *s, size_t n)
{
    struct reader in = {.s = s, .n = n, .l = r->l, .depth = r->depth + 1};
    if (in.depth > MAX_DEPTH) {
        fail(r, "it is nested too deeply");
        return;
    }
    read_list(&in, 0);
    for (size_t i = 0; i < in.n_here; i++)
        free(in.here[i].end);
    if (in.why || in.n_here)
        fail(r, in.why ? in.why : "a here-document has no end");
}

static void read_backquote(struct reader *r)
{
    struct text t = {0};
    for (r->at++; r->at < r->n && r->s[r->at] != '`'; r->at++) {
        if (r->s[r->at] == '\\' && r->at + 1 < r->n && strchr("\\`$", r->s[r->at + 1]))
            r->at++;
        text_add(&t, r->s + r->at, 1);
    }
    if (r->at >= r->n) {
        fail(r, "a ` is not closed");
    } else if (r->n_here && memchr(text_str(&t), '\n', t.len)) {
        fail(r, "a here-document waits behind a `");
    } else {
        r->at++;
        read_other(r, text_str(&t), t.len);
    }
    text_free(&t);
}

static void read_dollar(struct reader *r);

/* ${NAME}, ${#NAME} or ${NAME-word} with POSIX's operators that set nothing; substitutions in the word are
 * commands. Shells disagree about quotes in it, and other forms run what a variable holds. */
static void read_braced(struct reader *r)
{
    static const char odd[] = "'\"`\\\n";
    size_t op;
    r->at += peek(r, 0) == '#';
    for (op = 0; isalnum((unsigned char)peek(r, op)) || peek(r, op) == '_';)
        op++;
    if (!op && peek(r, 0) && strchr("@*?$!", peek(r, 0)))
        op = 1;
    r->at += op;
    op = peek(r, 0) == ':';
    if (peek(r, 0) != '}' && !(peek(r, op) && strchr(op ? "-+?" : "-+?%#", peek(r, op)))) {
        fail(r, "it uses an expansion that is not read");
        return;
    }
    while (r->at < r->n && r->s[r->at] != '}') {
        if (strchr(odd, r->s[r->at]))
            fail(r, "it quotes within an expansion");
        else if (r->s[r->at] == '$')
            read_dollar(r);
        else
            r->at++;
    }
    if (r->at >= r->n)
        fail(r, "an expansion is not closed");
    else
        r->at++;
}

/* $((…)) of numbers. With names it may run what a variable holds, with more it may be a subshell. */
static void read_sum(struct reader *r)
{
    size_t n = strspn(r->s + r->at, "0123456789 +-*/%");
    r->at += n;
    if (peek(r, 0) != ')' || peek(r, 1) != ')')
        fail(r, "it computes with more than numbers");
    else
        r->at += 2;
}

static void read_dollar(struct reader *r)
{
    char c = peek(r, 1);
    if (c == '(' && peek(r, 2) == '(') {
        r->at += 3;
        read_sum(r);
    } else if (c == '(') {
        r->at += 2;
        nested(r, ')');
    } else if (c == '{') {
        r->at += 2;
        read_braced(r);
    } else if (c == '\'' || c == '"' || c == '[') {
        fail(r, "it quotes in a way that shells read differently");
    } else {
        r->at++;
        if (isalpha((unsigned char)c) || c == '_')
            while (isalnum((unsigned char)peek(r, 0)) || peek(r, 0) == '_')
                r->at++;
        else if (c && strchr("?$!#@*-0123456789", c))
            r->at++;
    }
}

static void expansion(struct reader *r, struct text *w)
{
    size_t from = r->at;
    if (r->s[r->at] == '`')
        read_backquote(r);
    else
        read_dollar(r);
    text_add(w, r->s + from, (r->at < r->n ? r->at : r->n) - from);
}

static void double_quoted(struct reader *r, struct text *w, bool *dynamic)
{
    for (r->at++; r->at < r->n && r->s[r->at] != '"';) {
        char c = r->s[r->at];
        if (c == '`' || (c == '\\' && peek(r, 1) == '\n') || (c == '\n' && r->n_here)) {
            fail(r, "it quotes in a way that shells read differently");
        } else if (c == '$') {
            *dynamic = true;
            expansion(r, w);
        } else if (c == '\\' && peek(r, 1) && strchr("$`\"\\", peek(r, 1))) {
            text_add(w, r->s + r->at + 1, 1);
            r->at += 2;
        } else {
            text_add(w, r->s + r->at++, 1);
        }
    }
    if (r->at >= r->n)
        fail(r, "a \" is not closed");
    else
        r->at++;
}

/* One word; false when none stands here. */
static bool read_word(struct reader *r, struct text *w, bool *dynamic, bool *quoted)
{
    size_t from = r->at;
    *dynamic = *quoted = false;
    while (r->at < r->n && !strchr(" \t\n;&|()<>", r->s[r->at])) {
        char c = r->s[r->at];
        if (!c || c == '\r')
            return fail(r, "it holds control characters");
        if (c == '\'') {
            const char *q = memchr(r->s + r->at + 1, '\'', r->n - r->at - 1);
            if (!q)
                return fail(r, "a ' is not closed");
            if (r->n_here && memchr(r->s + r->at, '\n', (size_t)(q - r->s) - r->at))
                return fail(r, "a here-document waits behind a '");
            text_add(w, r->s + r->at + 1, (size_t)(q - r->s) - r->at - 1);
            r->at = (size_t)(q - r->s) + 1;
            *quoted = true;
        } else if (c == '"') {
            *quoted = true;
            double_quoted(r, w, dynamic);
        } else if (c == '\\') {
            if (r->at + 1 >= r->n)
                return fail(r, "it ends with a \\");
            if (peek(r, 1) == '\n') /* taken out before words are seen: it may join operators */
                return fail(r, "it breaks a line within a word");
            text_add(w, r->s + r->at + 1, 1);
            *quoted = true;
            r->at += 2;
        } else if (c == '$' || c == '`') {
            *dynamic = true;
            expansion(r, w);
        } else {
            *dynamic = *dynamic || strchr("*?[{", c) != NULL || (c == '~' && w->len == 0);
            text_add(w, r->s + r->at++, 1);
        }
    }
    return r->at > from && !r->why;
}

static void part_free(struct shell_part *p)
{
    for (size_t i = 0; i < p->argc; i++)
        free(p->argv[i]);
    for (size_t i = 0; i < p->n_redirects; i++)
        free(p->redirects[i].target);
    free(p->argv);
    free(p->dynamic);
    free(p->redirects);
    free(p->text);
    free(p->sets);
}

void shell_add_word(struct shell_part *p, char *word, bool dynamic)
{
    p->argv = mem_grow(p->argv, (p->argc + 2) * sizeof *p->argv);
    p->dynamic = mem_grow(p->dynamic, (p->argc + 1) * sizeof *p->dynamic);
    p->argv[p->argc] = word;
    p->dynamic[p->argc++] = dynamic;
    p->argv[p->argc] = NULL;
}

static bool sets_danger(const char *word, size_t n)
{
    static const char *const whole[] = {"PATH",
                                        "IFS",
                                        "ENV",
                                        "BASH_ENV",
                                        "SHELLOPTS",
                                        "BASHOPTS",
                                        "PAGER",
                                        "EDITOR",
                                        "VISUAL",
                                        "SHELL",
                                        "NODE_OPTIONS",
                                        "RUBYOPT",
                                        "MAKEFLAGS",
                                        "CC",
                                        "CXX",
                                        "LESSOPEN",
                                        "MANPAGER",
                                        "HOME",
                                        "PS4",
                                        "PROMPT_COMMAND",
                                        "XDG_CONFIG_HOME",
                                        "RIPGREP_CONFIG_PATH"};
    static const char *const begin[] = {"LD_",        "GIT_",  "PYTHON", "PERL",
                                        "BASH_FUNC_", "RUSTC", "CARGO",  "npm_"};
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strlen(whole[i]) == n && memcmp(word, whole[i], n) == 0)
            return true;
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (n >= strlen(begin[i]) && memcmp(word, begin[i], strlen(begin[i])) == 0)
            return true;
    return false;
}

/* NAME=value at the head of a command; 0 when the word is none, else the length of its name. */
size_t shell_assigns(const char *w)
{
    size_t k = 0;
    while (isalnum((unsigned char)w[k]) || w[k] == '_')
        k++;
    return k && !isdigit((unsigned char)w[0]) && w[k] == '=' ? k : 0;
}

void shell_assign(struct shell_part *p, const char *w, size_t name)
{
    if (!p->sets && sets_danger(w, name))
        p->sets = mem_dupn(w, name);
}

static bool read_redirect(struct reader *r, struct shell_part *p)
{
    char c = r->s[r->at++];
    bool writes = c == '>', dup = false, dynamic, quoted;
    struct text w = {0};
    if (c == '<' && peek(r, 0) == '<') {
        r->at++;
        if (peek(r, 0) == '<')
            return fail(r, "it uses <<<, which sh does not have");
        bool tabs = peek(r, 0) == '-';
        r->at += tabs;
        while (peek(r, 0) == ' ' || peek(r, 0) == '\t')
            r->at++;
        if (!read_word(r, &w, &dynamic, &quoted) || dynamic || r->n_here == MAX_HERE) {
            text_free(&w);
            return fail(r, "a here-document has no name");
        }
        r->here[r->n_here++] = (struct heredoc){text_take(&w), tabs, quoted};
        return true;
    }
    if (peek(r, 0) == '(')
        return fail(r, "it uses <( or >(, which sh does not have");
    if (peek(r, 0) == '&') {
        dup = true;
        r->at++;
    } else if (peek(r, 0) == '>' || (c == '>' && peek(r, 0) == '|') || (c == '<' && peek(r, 0) == '>')) {
        writes = true;
        r->at++;
    }
    while (peek(r, 0) == ' ' || peek(r, 0) == '\t')
        r->at++;
    if (peek(r, 0) == '#' || !read_word(r, &w, &dynamic, &quoted)) {
        text_free(&w);
        return fail(r, "a redirection has no target");
    }
    const char *t = text_str(&w);
    if (dup && !dynamic && (strcmp(t, "-") == 0 || strspn(t, "0123456789") == strlen(t))) {
        text_free(&w);
        return true;
    }
    p->redirects = mem_grow(p->redirects, (p->n_redirects + 1) * sizeof *p->redirects);
    p->redirects[p->n_redirects++] = (struct shell_redirect){text_take(&w), writes || dup, dynamic};
    return true;
}

static void finish_part(struct reader *r, struct shell_part *p, size_t from)
{
    size_t to = r->at < r->n ? r->at : r->n;
    while (to > from && isspace((unsigned char)r->s[to - 1]))
        to--;
    if ((!p->argc && !p->n_redirects && !p->sets) || r->why) {
        part_free(p);
        return;
    }
    if (r->l->n >= MAX_PARTS) {
        part_free(p);
        fail(r, "it has too many commands");
        return;
    }
    p->text = mem_dupn(r->s + from, to - from);
    r->l->parts = mem_room(r->l->parts, r->l->n, &r->l->cap, sizeof *r->l->parts);
    r->l->parts[r->l->n++] = *p;
}

/* Bodies of here-documents that the line just ended has announced. */
static void read_heredocs(struct reader *r)
{
    for (size_t i = 0; i < r->n_here; i++) {
        struct heredoc *h = &r->here[i];
        size_t from = r->at;
        bool found = false;
        while (!found && r->at < r->n) {
            const char *line = r->s + r->at, *nl = memchr(line, '\n', r->n - r->at);
            size_t k = nl ? (size_t)(nl - line) : r->n - r->at, skip = 0;
            while (h->tabs && skip < k && line[skip] == '\t')
                skip++;
            found = k - skip == strlen(h->end) && memcmp(line + skip, h->end, k - skip) == 0;
            if (!h->quoted && !found &&
                (memchr(line, '`', k) || memmem(line, k, "$(", 2) || memmem(line, k, "${", 2) ||
                 memmem(line, k, "$[", 2) || (k && line[k - 1] == '\\')))
                fail(r, "a here-document holds commands");
            r->at += k + (nl != NULL);
        }
        if (!found && !r->why)
            fail(r, from >= r->n ? "a here-document has no body" : "a here-document has no end");
        free(h->end);
    }
    r->n_here = 0;
}

static bool reserved(const char *w)
{
    static const char *const words[] = {"if",    "then", "else", "elif", "fi", "while",
                                        "until", "do",   "done", "!",    "{",  "}"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(w, words[i]) == 0)
            return true;
    return false;
}

/* `for x in words`, all on one line: the words hold no command but in substitutions. */
static void read_for(struct reader *r)
{
    bool dynamic, quoted;
    for (size_t n = 0; n < 2 || (r->at < r->n && !strchr(";\n", r->s[r->at]));) {
        struct text w = {0};
        if (peek(r, 0) == ' ' || peek(r, 0) == '\t') {
            r->at++;
            continue;
        }
        bool ok = peek(r, 0) != '#' && read_word(r, &w, &dynamic, &quoted);
        const char *s = text_str(&w);
        if (n == 0)
            ok = ok && !dynamic && !quoted && !sets_danger(s, w.len);
        else if (n == 1)
            ok = ok && !dynamic && !quoted && strcmp(s, "in") == 0;
        text_free(&w);
        if (!ok) {
            fail(r, "a for loop that cannot be read");
            return;
        }
        n++;
    }
}

/* A simple command, or the words of a compound one that stand before it. Ends at an operator. */
static void read_simple(struct reader *r)
{
    struct shell_part p = {0};
    size_t from = r->at;
    while (r->at < r->n && !strchr("\n;&|()", r->s[r->at])) {
        char c = r->s[r->at];
        struct text w = {0};
        bool dynamic, quoted;
        if (c == ' ' || c == '\t') {
            r->at++;
            continue;
        }
        if (c == '\\' && peek(r, 1) == '\n' && r->at && strchr(" \t", r->s[r->at - 1])) {
            r->at += 2; /* between words; within one it is refused */
            continue;
        }
        if (c == '#') {
            while (r->at < r->n && r->s[r->at] != '\n')
                r->at++;
            break;
        }
        size_t digits = strspn(r->s + r->at, "0123456789");
        if (digits && strchr("<>", peek(r, digits)) && peek(r, digits))
            r->at += digits;
        if (peek(r, 0) == '<' || peek(r, 0) == '>') {
            if (!read_redirect(r, &p))
                break;
            continue;
        }
        if (!read_word(r, &w, &dynamic, &quoted)) {
            text_free(&w);
            break;
        }
        const char *s = text_str(&w);
        size_t name = p.argc ? 0 : shell_assigns(s);
        if (!p.argc && !quoted && !dynamic &&
            (strcmp(s, "case") == 0 || strcmp(s, "function") == 0 || strcmp(s, "select") == 0))
            fail(r, "it uses a form that is not read (case, function)");
        else if (!p.argc && !quoted && strcmp(s, "for") == 0)
            read_for(r);
        else if (!p.argc && !quoted && (reserved(s) || (dynamic && strcmp(s, "{") == 0)))
            from = r->at;
        else if (name)
            shell_assign(&p, s, name);
        else {
            shell_add_word(&p, text_take(&w), dynamic);
            continue;
        }
        text_free(&w);
    }
    if (peek(r, 0) == '(' && p.argc)
        fail(r, "it defines a function, or has a ( where none can be");
    while (from < r->at && isspace((unsigned char)r->s[from]))
        from++;
    finish_part(r, &p, from);
}

static void read_list(struct reader *r, char close)
{
    while (r->at < r->n && !r->why) {
        char c = r->s[r->at];
        if (c == '\n') {
            r->at++;
            if (close && r->n_here)
                fail(r, "a here-document waits behind a group");
            else
                read_heredocs(r);
        } else if (c == close && close) {
            r->at++;
            return;
        } else if (c == '(') {
            r->at++;
            nested(r, ')');
        } else if (c == ')') {
            fail(r, "a ) without its (");
        } else if (strchr(" \t;&|", c) && c) {
            r->at++;
        } else {
            read_simple(r);
        }
    }
    if (close && !r->why)
        fail(r, "a ( is not closed");
}

static void read_text(void *arg, const char *s)
{
    read_other(arg, s, strlen(s));
}

void shell_read(struct shell_line *l, const char *command)
{
    struct reader r = {.s = command, .n = strlen(command), .l = l};
    memset(l, 0, sizeof *l);
    if (r.n > 64 << 10)
        r.why = "it is longer than 64 KiB";
    else
        read_list(&r, 0);
    if (r.n_here && !r.why)
        r.why = "a here-document has no body";
    for (size_t i = 0; i < r.n_here; i++)
        free(r.here[i].end);
    for (size_t i = 0; i < l->n && !r.why; i++) /* the list grows by what wrappers run */
        shell_unwrap(l, i, read_text, &r);
    l->why = r.why ? r.why : l->why;
}

void shell_free(struct shell_line *l)
{
    for (size_t i = 0; i < l->n; i++)
        part_free(&l->parts[i]);
    free(l->parts);
    memset(l, 0, sizeof *l);
}

char *shell_words(const struct shell_part *p)
{
    struct text t = {0};
    for (size_t i = 0; i < p->argc; i++) {
        text_puts(&t, i ? " " : "");
        text_puts(&t, p->argv[i]);
    }
    return text_take(&t);
}
