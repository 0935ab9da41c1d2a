#include "tools/wild.h"

#include <string.h>

/* One [class] against c; *end behind its bracket, or NULL when it never closes and is an ordinary `[`. */
static bool class_has(const char *p, char c, const char **end)
{
    bool not = p[1] == '!' || p[1] == '^', found = false;
    const char *q = p + 1 + not, *first = q;
    for (; *q && (*q != ']' || q == first); q++) {
        unsigned char lo = (unsigned char)*q, hi = lo, x = (unsigned char)c;
        if (q[1] == '-' && q[2] && q[2] != ']') {
            hi = (unsigned char)q[2];
            q += 2;
        }
        found = found || (x >= lo && x <= hi);
    }
    *end = *q ? q + 1 : NULL;
    return found != not &&c != '/';
}

/* Matches one element that is no star; *next behind it. */
static bool one(const char *p, char c, const char **next)
{
    const char *end;
    if (*p == '[') {
        bool has = class_has(p, c, &end);
        if (end) {
            *next = end;
            return has;
        }
    }
    if (*p == '?') {
        *next = p + 1;
        return c != '/';
    }
    if (*p == '\\' && p[1])
        p++;
    *next = p + 1;
    return *p == c;
}

/* Backtracking to the newest `*` and the newest `**` only, which is enough: an earlier star could not do
 * better. */
bool wild_path(const char *p, const char *s)
{
    const char *star_p = NULL, *star_s = NULL, *deep_p = NULL, *deep_s = NULL, *next, *start = s;
    for (;;) {
        if (p[0] == '*' && p[1] == '*') {
            while (*p == '*')
                p++;
            deep_p = p;
            deep_s = s;
            star_p = NULL;
            if (*p == '/' && (s == start || s[-1] == '/'))
                p++; /* the component may be nothing; backtracking tries the slash itself */
            continue;
        }
        if (*p == '*') {
            star_p = ++p;
            star_s = s;
            continue;
        }
        if (!*p && !*s)
            return true;
        if (*p && *s && one(p, *s, &next)) {
            p = next;
            s++;
            continue;
        }
        if (star_p && *star_s && *star_s != '/') {
            p = star_p;
            s = ++star_s;
        } else if (deep_p && *deep_s) {
            p = deep_p;
            s = ++deep_s;
            star_p = NULL;
        } else {
            return false;
        }
    }
}

static bool wild_any(const char *p, const char *s)
{
    const char *star_p = NULL, *star_s = NULL;
    for (;;) {
        if (*p == '*') {
            star_p = ++p;
            star_s = s;
        } else if (*p == *s) {
            if (!*s)
                return true;
            p++;
            s++;
        } else if (star_p && *star_s) {
            p = star_p;
            s = ++star_s;
        } else {
            return false;
        }
    }
}

bool wild_rule(const char *pattern, const char *text)
{
    size_t n = strlen(pattern);
    if (n > 2 && strcmp(pattern + n - 2, " *") == 0 && strlen(text) == n - 2 &&
        strncmp(pattern, text, n - 2) == 0)
        return true;
    return wild_any(pattern, text);
}
