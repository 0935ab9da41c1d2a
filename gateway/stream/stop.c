#include "stop.h"

#include <stdlib.h>
#include <string.h>

struct stop_one {
    char *text;
    uint32_t n;
    uint32_t *fail; /* fail[k]: longest proper border of the first k+1 bytes */
};

struct stop_set {
    size_t n;
    struct stop_one *one;
};

static int prepare(struct stop_one *o, const char *text, size_t n)
{
    o->text = malloc(n + 1);
    o->fail = calloc(n, sizeof *o->fail);
    if (!o->text || !o->fail)
        return -1;
    memcpy(o->text, text, n);
    o->text[n] = '\0';
    o->n = (uint32_t)n;
    for (uint32_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && text[i] != text[k])
            k = o->fail[k - 1];
        if (text[i] == text[k])
            k++;
        o->fail[i] = k;
    }
    return 0;
}

struct stop_set *stop_set_new(const char *const *strings, const size_t *lens, size_t n)
{
    struct stop_set *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->one = calloc(n ? n : 1, sizeof *s->one);
    if (!s->one) {
        stop_set_free(s);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (lens[i] == 0)
            continue;
        if (prepare(&s->one[s->n++], strings[i], lens[i])) {
            stop_set_free(s);
            return NULL;
        }
    }
    return s;
}

void stop_set_free(struct stop_set *s)
{
    if (!s)
        return;
    for (size_t i = 0; s->one && i < s->n; i++) {
        free(s->one[i].text);
        free(s->one[i].fail);
    }
    free(s->one);
    free(s);
}

size_t stop_set_count(const struct stop_set *s)
{
    return s->n;
}

const char *stop_text(const struct stop_set *s, size_t i, size_t *len)
{
    *len = s->one[i].n;
    return s->one[i].text;
}

int stop_init(struct stop_state *st, const struct stop_set *set)
{
    *st = (struct stop_state){.set = set};
    st->len = calloc(set->n ? set->n : 1, sizeof *st->len);
    return st->len ? 0 : -1;
}

void stop_fini(struct stop_state *st)
{
    free(st->len);
    buf_fini(&st->held);
    *st = (struct stop_state){0};
}

/* One byte through every automaton; the longest string that ends here, or -1. *hold: longest partial match. */
static int advance(struct stop_state *st, char c, uint32_t *hold)
{
    int hit = -1;
    *hold = 0;
    for (size_t i = 0; i < st->set->n; i++) {
        const struct stop_one *o = &st->set->one[i];
        uint32_t k = st->len[i];
        while (k > 0 && o->text[k] != c)
            k = o->fail[k - 1];
        if (o->text[k] == c)
            k++;
        if (k == o->n && (hit < 0 || o->n > st->set->one[hit].n))
            hit = (int)i;
        st->len[i] = k == o->n ? o->fail[k - 1] : k;
        if (k > *hold)
            *hold = k;
    }
    return hit;
}

int stop_feed(struct stop_state *st, const char *text, size_t n, struct buf *out)
{
    if (st->set->n == 0) {
        buf_add(out, text, n);
        return -1;
    }
    size_t from = 0; /* text[from..] is neither in out nor in held */
    for (size_t i = 0; i < n; i++) {
        uint32_t hold;
        int hit = advance(st, text[i], &hold);
        size_t pending = st->held.n + (i + 1 - from);
        size_t keep = hit >= 0 ? st->set->one[hit].n : hold;
        size_t let = pending - keep;
        size_t of_held = let < st->held.n ? let : st->held.n;
        if (of_held > 0) {
            buf_add(out, st->held.p, of_held);
            buf_drop(&st->held, of_held);
        }
        if (let > of_held) {
            buf_add(out, text + from, let - of_held);
            from += let - of_held;
        }
        if (hit >= 0) {
            buf_clear(&st->held);
            return hit;
        }
    }
    if (n > from)
        buf_add(&st->held, text + from, n - from);
    return -1;
}

void stop_flush(struct stop_state *st, struct buf *out)
{
    buf_add(out, st->held.p, st->held.n);
    buf_clear(&st->held);
}
