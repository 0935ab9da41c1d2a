#include "view/lexer.h"
#include "view/languages.h"

#include <ctype.h>
#include <string.h>

/* States between lines. */
enum { PLAIN, IN_BLOCK, IN_TRIPLE, IN_RAW, IN_FENCE };

static bool same(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && strncasecmp(s, word, n) == 0;
}

static bool listed(const char *const *names, const char *s, size_t n)
{
    for (; *names; names++)
        if (same(s, n, *names))
            return true;
    return false;
}

const struct language *lexer_named(const char *name, size_t n)
{
    size_t len = 0; /* "c title=x" and "rust,ignore" name c and rust */
    while (len < n && !strchr(" ,\t{", name[len]))
        len++;
    for (size_t i = 0; len && i < n_languages; i++)
        if (listed(languages[i].names, name, len))
            return &languages[i];
    return NULL;
}

const struct language *lexer_of_path(const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    for (size_t i = 0; i < n_languages; i++)
        if (listed(languages[i].names, base, strlen(base)))
            return &languages[i];
    return dot && dot[1] ? lexer_named(dot + 1, strlen(dot + 1)) : NULL;
}

static bool word_start(unsigned char c)
{
    return isalpha(c) || c == '_' || c >= 0x80;
}

static bool word_char(unsigned char c)
{
    return isalnum(c) || c == '_' || c >= 0x80;
}

static bool starts(const char *s, size_t n, const char *head)
{
    size_t len = head ? strlen(head) : 0;
    return len && n >= len && memcmp(s, head, len) == 0;
}

/* Is s one of the words of a list like " if else "? */
static bool in_words(const char *words, const char *s, size_t n, bool fold)
{
    char buf[34];
    if (!words || n > 31)
        return false;
    buf[0] = ' ';
    for (size_t i = 0; i < n; i++)
        buf[i + 1] = fold ? (char)tolower((unsigned char)s[i]) : s[i];
    buf[n + 1] = ' ';
    buf[n + 2] = '\0';
    return strstr(words, buf) != NULL;
}

static void paint(uint8_t *role, size_t from, size_t to, enum role r)
{
    memset(role + from, r, to - from);
}

/* End of what the state is inside of, or n; the state is left when the end is on this line. */
static size_t finish(struct lexer *lx, const char *s, size_t n, size_t at, const char *end)
{
    size_t len = strlen(end);
    for (size_t i = at; i + len <= n; i++) {
        if (memcmp(s + i, end, len) == 0) {
            lx->state = PLAIN;
            return i + len;
        }
    }
    return n;
}

static size_t string_end(const struct language *l, const char *s, size_t n, size_t at)
{
    char quote = s[at++];
    for (; at < n; at++) {
        if (s[at] == '\\' && !(l->flags & LANG_NO_ESCAPE))
            at++;
        else if (s[at] == quote)
            return at + 1;
    }
    return n;
}

static size_t number_end(const char *s, size_t n, size_t at)
{
    while (at < n && (word_char((unsigned char)s[at]) || s[at] == '.' ||
                      ((s[at] == '+' || s[at] == '-') && (s[at - 1] == 'e' || s[at - 1] == 'E'))))
        at++;
    return at;
}

/* A word: keyword, type, called function, or nothing. */
static size_t word(const struct language *l, const char *s, size_t n, size_t at, uint8_t *role)
{
    size_t end = at + 1;
    while (end < n && (word_char((unsigned char)s[end]) || (l->flags & LANG_DASH && s[end] == '-')))
        end++;
    size_t next = end;
    while (next < n && s[next] == ' ')
        next++;
    bool fold = l->flags & LANG_FOLD;
    if (in_words(l->keywords, s + at, end - at, fold))
        paint(role, at, end, ROLE_KEYWORD);
    else if (in_words(l->types, s + at, end - at, fold))
        paint(role, at, end, ROLE_TYPE);
    else if (l->flags & LANG_CALLS && next < n && s[next] == '(')
        paint(role, at, end, ROLE_FUNCTION);
    else if (l->flags & LANG_KEYS && next < n && (s[next] == ':' || s[next] == '=') &&
             (next + 1 >= n || s[next + 1] != '='))
        paint(role, at, end, ROLE_TYPE);
    return end;
}

static bool comment_here(const struct language *l, const char *s, size_t n, size_t at)
{
    for (int i = 0; i < 2; i++) {
        if (!starts(s + at, n - at, l->line[i]))
            continue;
        if (!(l->flags & LANG_SPACED) || at == 0 || isspace((unsigned char)s[at - 1]))
            return true;
    }
    return false;
}

static void code_line(struct lexer *lx, const char *s, size_t n, uint8_t *role)
{
    const struct language *l = lx->lang;
    size_t at = 0;
    const char *inside = lx->state == IN_BLOCK    ? l->block_end
                         : lx->state == IN_TRIPLE ? "\"\"\""
                         : lx->state == IN_RAW    ? "`"
                                                  : NULL;
    if (inside) {
        enum role r = lx->state == IN_BLOCK ? ROLE_COMMENT : ROLE_STRING;
        at = finish(lx, s, n, 0, inside);
        paint(role, 0, at, r);
    }
    while (at < n) {
        size_t end = at + 1;
        unsigned char c = (unsigned char)s[at];
        if (comment_here(l, s, n, at)) {
            paint(role, at, n, ROLE_COMMENT);
            return;
        }
        if (starts(s + at, n - at, l->block)) {
            lx->state = IN_BLOCK;
            end = finish(lx, s, n, at + strlen(l->block), l->block_end);
            paint(role, at, end, ROLE_COMMENT);
        } else if (l->flags & LANG_TRIPLE && starts(s + at, n - at, "\"\"\"")) {
            lx->state = IN_TRIPLE;
            end = finish(lx, s, n, at + 3, "\"\"\"");
            paint(role, at, end, ROLE_STRING);
        } else if (l->flags & LANG_BACKTICK && c == '`') {
            lx->state = IN_RAW;
            end = finish(lx, s, n, at + 1, "`");
            paint(role, at, end, ROLE_STRING);
        } else if (c && l->quotes && strchr(l->quotes, c)) {
            end = string_end(l, s, n, at);
            size_t next = end;
            while (next < n && s[next] == ' ')
                next++;
            bool key = l->flags & LANG_KEYS && next < n && s[next] == ':';
            paint(role, at, end, key ? ROLE_TYPE : ROLE_STRING);
        } else if (c == '\'' && l->flags & LANG_LIFETIME) { /* 'a' is a character, 'a a lifetime */
            end = at + 2 < n && s[at + 1] != '\\' && s[at + 2] != '\'' ? at + 1 : string_end(l, s, n, at);
            paint(role, at, end, ROLE_STRING);
        } else if (l->flags & LANG_HASH && c == '#' && strspn(s, " \t") == at) {
            while (end < n && (s[end] == ' ' || word_char((unsigned char)s[end])) &&
                   !(s[end] == ' ' && end > at + 1))
                end++;
            paint(role, at, end, ROLE_KEYWORD);
        } else if (l->flags & LANG_DOLLAR && c == '$' && at + 1 < n) {
            if (s[at + 1] == '{' || s[at + 1] == '(') {
                end = at + 2;
            } else {
                while (end < n && word_char((unsigned char)s[end]))
                    end++;
            }
            paint(role, at, end, ROLE_TYPE);
        } else if (isdigit(c)) {
            end = number_end(s, n, at + 1);
            paint(role, at, end, ROLE_NUMBER);
        } else if (word_start(c)) {
            end = word(l, s, n, at, role);
        }
        at = end;
    }
}

static void diff_line(const char *s, size_t n, uint8_t *role)
{
    enum role r = ROLE_TEXT;
    if (starts(s, n, "+++") || starts(s, n, "---") || starts(s, n, "diff ") || starts(s, n, "index "))
        r = ROLE_SILVER;
    else if (n && s[0] == '+')
        r = ROLE_ADDED;
    else if (n && s[0] == '-')
        r = ROLE_REMOVED;
    else if (starts(s, n, "@@"))
        r = ROLE_KEYWORD;
    paint(role, 0, n, r);
}

static void markdown_line(struct lexer *lx, const char *s, size_t n, uint8_t *role)
{
    size_t at = 0;
    while (at < n && at < 3 && s[at] == ' ')
        at++;
    bool fence = starts(s + at, n - at, "```") || starts(s + at, n - at, "~~~");
    if (lx->state == IN_FENCE || fence) {
        if (fence)
            lx->state = lx->state == IN_FENCE ? PLAIN : IN_FENCE;
        paint(role, 0, n, ROLE_STRING);
        return;
    }
    if (at < n && s[at] == '#')
        paint(role, 0, n, ROLE_KEYWORD);
    else if (at < n && s[at] == '>')
        paint(role, 0, n, ROLE_COMMENT);
    else if (at + 1 < n && strchr("-*+", s[at]) && s[at + 1] == ' ')
        paint(role, at, at + 1, ROLE_KEYWORD);
    for (; at < n; at++) {
        if (s[at] != '`')
            continue;
        const char *close = memchr(s + at + 1, '`', n - at - 1);
        size_t end = close ? (size_t)(close - s) + 1 : n;
        paint(role, at, end, ROLE_STRING);
        at = end - 1;
    }
}

void lexer_line(struct lexer *lx, const char *line, size_t n, uint8_t *role)
{
    paint(role, 0, n, ROLE_TEXT);
    if (!lx->lang || n == 0)
        return;
    if (lx->lang->flags & LANG_DIFF)
        diff_line(line, n, role);
    else if (lx->lang->flags & LANG_MARKDOWN)
        markdown_line(lx, line, n, role);
    else
        code_line(lx, line, n, role);
}
