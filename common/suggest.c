#include "suggest.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define MAX_WORD 63
#define MAX_HITS 3

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

unsigned vt_edit_distance(const char *a, const char *b)
{
    size_t na = strnlen(a, MAX_WORD + 1);
    size_t nb = strnlen(b, MAX_WORD + 1);
    if (na > MAX_WORD || nb > MAX_WORD)
        return UINT_MAX;
    unsigned d[MAX_WORD + 1][MAX_WORD + 1];
    for (size_t i = 0; i <= na; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= nb; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= na; i++) {
        for (size_t j = 1; j <= nb; j++) {
            unsigned replace = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, replace);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[na][nb];
}

/* A name counts as near when it shares the last part ("slots" for "engine.slots") or is a few edits away. */
static unsigned nearness(const char *word, const char *name)
{
    const char *wdot = strrchr(word, '.');
    const char *ndot = strrchr(name, '.');
    const char *wlast = wdot != NULL ? wdot + 1 : word;
    const char *nlast = ndot != NULL ? ndot + 1 : name;
    unsigned d = vt_edit_distance(word, name);
    if (ndot != NULL) {
        unsigned last = vt_edit_distance(wlast, nlast);
        size_t tail = strlen(wlast);
        if (last <= tail / 3 && last + 1 < d)
            d = last + 1;
    }
    size_t limit = strlen(word) / 3 + 1;
    return d <= limit ? d : UINT_MAX;
}

const char *vt_suggest(const char *word, const char *const *names, size_t n, char *out, size_t size)
{
    const char *hit[MAX_HITS];
    unsigned dist[MAX_HITS];
    int hits = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned d = nearness(word, names[i]);
        if (d == UINT_MAX)
            continue;
        int at = hits;
        while (at > 0 && dist[at - 1] > d)
            at--;
        if (at >= MAX_HITS)
            continue;
        int last = hits < MAX_HITS ? hits : MAX_HITS - 1;
        for (int k = last; k > at; k--) {
            hit[k] = hit[k - 1];
            dist[k] = dist[k - 1];
        }
        hit[at] = names[i];
        dist[at] = d;
        if (hits < MAX_HITS)
            hits++;
    }
    while (hits > 1 && dist[hits - 1] > dist[0] + 1)
        hits--; /* a clear winner stands alone */
    out[0] = '\0';
    size_t len = 0;
    for (int i = 0; i < hits && len < size; i++) {
        const char *before = i == 0 ? "; did you mean " : i == hits - 1 ? " or " : ", ";
        int w = snprintf(out + len, size - len, "%s%s%s", before, hit[i], i == hits - 1 ? "?" : "");
        if (w < 0)
            break;
        len += (size_t)w;
    }
    return out;
}
