#include "view/diff.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

static struct diff_line *split(const char *s, size_t n, size_t *count, bool *ends)
{
    struct diff_line *v = NULL;
    size_t cap = 0;
    *count = 0;
    *ends = n == 0 || s[n - 1] == '\n';
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t len = nl ? (size_t)(nl - s) - at : n - at;
        v = mem_room(v, *count, &cap, sizeof *v);
        v[(*count)++] = (struct diff_line){s + at, len};
        at += len + 1;
    }
    return v;
}

static bool same(const struct diff *d, size_t i, size_t k)
{
    return d->old[i].n == d->new[k].n &&memcmp(d->old[i].s, d->new[k].s, d->old[i].n) == 0;
}

static void add_op(struct diff *d, char kind, size_t i, size_t k)
{
    d->op = mem_room(d->op, d->n, &d->cap, sizeof *d->op);
    d->op[d->n++] = (struct diff_op){kind, i, k};
}

static void replace(struct diff *d, size_t a0, size_t a1, size_t b0, size_t b1)
{
    for (size_t i = a0; i < a1; i++)
        add_op(d, '-', i, b0);
    for (size_t k = b0; k < b1; k++)
        add_op(d, '+', a1, k);
}

/* Walks the kept furthest points back from the end and notes what was passed, last first. */
static void walk_back(struct diff *d, int **trace, int far, size_t a0, size_t b0, int n, int m)
{
    struct diff_op *back = NULL;
    size_t n_back = 0, cap = 0;
    int x = n, y = m;
    for (int e = far; e >= 0; e--) {
        const int *v = trace[e] + e + 1; /* furthest x of the diagonals before step e */
        int k = x - y;
        bool down = k == -e || (k != e && v[k - 1] < v[k + 1]);
        int from_k = down ? k + 1 : k - 1;
        int from_x = e ? v[from_k] : 0, from_y = e ? from_x - from_k : 0;
        while (x > from_x && y > from_y) {
            x--;
            y--;
            back = mem_room(back, n_back, &cap, sizeof *back);
            back[n_back++] = (struct diff_op){' ', a0 + (size_t)x, b0 + (size_t)y};
        }
        if (e == 0)
            break;
        back = mem_room(back, n_back, &cap, sizeof *back);
        if (down)
            back[n_back++] = (struct diff_op){'+', a0 + (size_t)x, b0 + (size_t)--y};
        else
            back[n_back++] = (struct diff_op){'-', a0 + (size_t)--x, b0 + (size_t)y};
    }
    while (n_back)
        n_back--, add_op(d, back[n_back].kind, back[n_back].old_line, back[n_back].new_line);
    free(back);
}

static void middle(struct diff *d, size_t a0, size_t a1, size_t b0, size_t b1)
{
    int n = (int)(a1 - a0), m = (int)(b1 - b0), most = n + m < DIFF_FAR ? n + m : DIFF_FAR;
    int *v = mem_new((size_t)(2 * most + 3) * sizeof *v),
        **trace = mem_new((size_t)(most + 1) * sizeof *trace);
    int *mid = v + most + 1, found = -1;
    for (int e = 0; e <= most && found < 0; e++) {
        /* diagonals -e-1 … e+1 as they are before this step */
        trace[e] = mem_new((size_t)(2 * e + 3) * sizeof **trace);
        memcpy(trace[e], mid - e - 1, (size_t)(2 * e + 3) * sizeof **trace);
        for (int k = -e; k <= e; k += 2) {
            int x = k == -e || (k != e && mid[k - 1] < mid[k + 1]) ? mid[k + 1] : mid[k - 1] + 1;
            int y = x - k;
            while (x < n && y < m && x >= 0 && y >= 0 && same(d, a0 + (size_t)x, b0 + (size_t)y)) {
                x++;
                y++;
            }
            mid[k] = x;
            if (x >= n && y >= m) {
                found = e;
                break;
            }
        }
    }
    if (found >= 0)
        walk_back(d, trace, found, a0, b0, n, m);
    else
        replace(d, a0, a1, b0, b1);
    for (int e = 0; e <= most; e++)
        free(trace[e]);
    free(trace);
    free(v);
}

/* Within a change removals stand before additions, as people read them. */
static void order(struct diff *d)
{
    for (size_t i = 0; i < d->n;) {
        size_t end = i, n_plus = 0;
        while (end < d->n && d->op[end].kind != ' ')
            n_plus += d->op[end++].kind == '+';
        if (n_plus && n_plus < end - i) {
            struct diff_op *plus = mem_new(n_plus * sizeof *plus);
            size_t at = i, k = 0;
            for (size_t j = i; j < end; j++) {
                if (d->op[j].kind == '+')
                    plus[k++] = d->op[j];
                else
                    d->op[at++] = d->op[j];
            }
            memcpy(&d->op[at], plus, n_plus * sizeof *plus);
            free(plus);
        }
        i = end + (end == i);
    }
}

void diff_make(struct diff *d, const char *before, size_t n_before, const char *after, size_t n_after)
{
    memset(d, 0, sizeof *d);
    d->old = split(before ? before : "", n_before, &d->n_old, &d->old_ends);
    d->new = split(after ? after : "", n_after, &d->n_new, &d->new_ends);
    size_t head = 0, tail = 0;
    while (head < d->n_old && head < d->n_new && same(d, head, head))
        head++;
    while (tail < d->n_old - head && tail < d->n_new - head &&
           same(d, d->n_old - 1 - tail, d->n_new - 1 - tail))
        tail++;
    for (size_t i = 0; i < head; i++)
        add_op(d, ' ', i, i);
    if (d->n_old - head == tail || d->n_new - head == tail)
        replace(d, head, d->n_old - tail, head, d->n_new - tail);
    else
        middle(d, head, d->n_old - tail, head, d->n_new - tail);
    for (size_t i = 0; i < tail; i++)
        add_op(d, ' ', d->n_old - tail + i, d->n_new - tail + i);
    order(d);
}

void diff_free(struct diff *d)
{
    free(d->old);
    free(d->new);
    free(d->op);
    memset(d, 0, sizeof *d);
}
