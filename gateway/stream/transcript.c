#include "transcript.h"

#include <math.h>
#include <stdlib.h>

void transcript_init(struct transcript *t, uint32_t *prompt, size_t n_prompt, bool logprobs, unsigned n_top)
{
    *t = (struct transcript){
        .prompt = prompt, .n_prompt = n_prompt, .logprobs = logprobs, .n_top = logprobs ? n_top : 0};
}

void transcript_fini(struct transcript *t)
{
    free(t->prompt);
    free(t->ids);
    free(t->lp);
    free(t->top);
    *t = (struct transcript){0};
}

size_t transcript_made(const struct transcript *t)
{
    return t->n > t->n_forced ? t->n - t->n_forced : 0;
}

int64_t transcript_known(const struct transcript *t, uint64_t first, size_t n)
{
    if (first > t->n)
        return -1;
    uint64_t known = t->n - first;
    return (int64_t)(known < n ? known : n);
}

static int grow(struct transcript *t)
{
    size_t cap = t->cap ? t->cap * 2 : 64;
    uint32_t *ids = realloc(t->ids, cap * sizeof *ids);
    if (!ids)
        return -1;
    t->ids = ids;
    if (t->logprobs) {
        float *lp = realloc(t->lp, cap * sizeof *lp);
        if (!lp)
            return -1;
        t->lp = lp;
    }
    if (t->n_top > 0) {
        struct transcript_top *top = realloc(t->top, cap * t->n_top * sizeof *top);
        if (!top)
            return -1;
        t->top = top;
    }
    t->cap = cap;
    return 0;
}

int transcript_push(struct transcript *t, uint32_t id, float lp, const struct transcript_top *top,
                    unsigned n_top)
{
    if (t->n == t->cap && grow(t))
        return -1;
    t->ids[t->n] = id;
    if (t->logprobs)
        t->lp[t->n] = lp;
    for (unsigned i = 0; i < t->n_top; i++)
        t->top[t->n * t->n_top + i] = i < n_top ? top[i] : (struct transcript_top){0, NAN};
    t->n++;
    return 0;
}
