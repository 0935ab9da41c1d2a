#include "view/pipes.h"

#include <string.h>

static size_t line_bytes(const char *s, size_t n)
{
    const char *nl = memchr(s, '\n', n);
    return nl ? (size_t)(nl - s) : n;
}

bool pipes_dashes(const char *s, size_t n)
{
    bool dash = false, pipe = false;
    for (size_t i = 0; i < n; i++) {
        dash |= s[i] == '-';
        pipe |= s[i] == '|';
        if (!strchr("-|: \t\r", s[i]) || s[i] == '\0')
            return false;
    }
    return dash && pipe;
}

static bool is_row(const char *s, size_t n)
{
    size_t indent = 0;
    while (indent < n && s[indent] == ' ')
        indent++;
    return indent < 4 && memchr(s, '|', n) != NULL;
}

size_t pipes_table(const char *s, size_t n)
{
    size_t head = line_bytes(s, n);
    if (head == n || !is_row(s, head) || pipes_dashes(s, head))
        return 0;
    size_t at = head + 1, dashes = line_bytes(s + at, n - at);
    if (!pipes_dashes(s + at, dashes))
        return 0;
    at += dashes;
    while (at < n) { /* at a line's end */
        size_t next = line_bytes(s + at + 1, n - at - 1);
        if (!is_row(s + at + 1, next))
            return at + 1;
        at += 1 + next;
    }
    return n;
}

bool pipes_cell(const char **at, const char *end, const char **cell, size_t *n)
{
    const char *p = *at;
    while (p < end && strchr(" \t\r", *p))
        p++;
    if (p >= end)
        return false;
    const char *start = p;
    bool code = false;
    for (; p < end && (*p != '|' || code); p++) {
        if (*p == '`')
            code = !code;
        else if (*p == '\\' && p + 1 < end)
            p++;
    }
    if (code) { /* a lone backtick hides nothing */
        for (p = start; p < end && *p != '|'; p++)
            if (*p == '\\' && p + 1 < end)
                p++;
    }
    *at = p < end ? p + 1 : end;
    while (p > start && strchr(" \t\r", p[-1]))
        p--;
    *cell = start;
    *n = (size_t)(p - start);
    return true;
}
