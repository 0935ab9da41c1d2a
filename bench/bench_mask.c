/* What a grammar costs per token: bench_mask VOCAB.gguf SCHEMA.json [SECONDS [TEXTS]]
 *
 * Walks through texts of a schema with the vocabulary of a model file, choosing among the allowed tokens at random, and measures
 * mask and advance apart: for places in the grammar that were met before, and for those that were not; these in processor time,
 * too, which other load changes little. Fewer TEXTS show what the first requests with a grammar see. */
#include "clock.h"
#include "constraint.h"
#include "gguf.h"
#include "grammar.h"
#include "tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST = 1 << 22, LONGEST = 2000 };

struct times {
    float *us; /* [MOST] */
    size_t n;
};

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void tell(const char *what, struct times *t)
{
    double sum = 0;
    if (t->n == 0) {
        printf("%-28s none\n", what);
        return;
    }
    qsort(t->us, t->n, sizeof *t->us, by_value);
    for (size_t i = 0; i < t->n; i++)
        sum += (double)t->us[i];
    printf("%-28s %8zu   mean %8.2f   median %8.2f   99 %% %8.2f   most %8.2f us\n", what, t->n,
           sum / (double)t->n, (double)t->us[t->n / 2], (double)t->us[t->n * 99 / 100],
           (double)t->us[t->n - 1]);
}

static void add(struct times *t, uint64_t ns)
{
    if (t->n < MOST)
        t->us[t->n++] = (float)ns / 1000;
}

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t now_ns(void)
{
    return clock_ns(CLOCK_MONOTONIC);
}

static uint64_t draw(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static uint32_t choose(const struct token_mask *m, uint32_t n_vocab, uint64_t *x)
{
    if (!m->bits)
        return m->ids[draw(x) % m->n];
    uint32_t id = (uint32_t)(draw(x) % n_vocab);
    while (!token_mask_has(m, id))
        id = (id + 1) % n_vocab;
    return id;
}

static struct constraints *vocabulary(const char *path, uint32_t *n_vocab, struct tok **tok)
{
    struct gguf_file *g;
    struct vt_err err;
    struct constraints *cs;
    const uint32_t *eog;
    if (gguf_open(&g, path, true, &err) < 0 || tok_load(tok, g, &err) < 0) {
        fprintf(stderr, "bench_mask: %s\n", err.text);
        exit(1);
    }
    uint32_t n = *n_vocab = tok_n_vocab(*tok);
    struct trie_token *t = calloc(n, sizeof *t);
    for (uint32_t i = 0; i < n; i++) {
        size_t len;
        t[i].bytes = tok_bytes(*tok, i, &len);
        t[i].n = (uint32_t)len;
        t[i].control = tok_kind(*tok, i) == TOK_CONTROL;
    }
    size_t n_eog = tok_eog_ids(*tok, &eog);
    uint64_t start = now_ns();
    if (constraints_new(&cs, t, n, eog, n_eog, &err) < 0)
        exit(1);
    printf("%u tokens; trie made in %.1f ms\n", n, (double)(now_ns() - start) / 1e6);
    free(t);
    gguf_close(g);
    return cs;
}

static uint8_t *compile(const char *path, size_t *n)
{
    struct vt_err err;
    uint8_t *bytes;
    json_error_t je;
    json_t *schema = json_load_file(path, 0, &je);
    uint64_t start = now_ns();
    struct grammar *g = grammar_new();
    if (!schema || grammar_finish(g, grammar_schema(g, schema, path), &bytes, n, &err) < 0) {
        fprintf(stderr, "bench_mask: %s\n", schema ? err.text : je.text);
        exit(1);
    }
    printf("schema compiled in %.2f ms to %zu bytes\n", (double)(now_ns() - start) / 1e6, *n);
    grammar_free(g);
    json_decref(schema);
    return bytes;
}

int main(int argc, char **argv)
{
    struct times hit = {malloc(MOST * sizeof(float)), 0}, miss = {malloc(MOST * sizeof(float)), 0},
                 work = {malloc(MOST * sizeof(float)), 0}, step = {malloc(MOST * sizeof(float)), 0};
    uint32_t n_vocab;
    struct tok *tok;
    size_t n;
    if (argc < 3) {
        fprintf(stderr, "usage: bench_mask VOCAB.gguf SCHEMA.json [SECONDS [TEXTS]]\n");
        return 64;
    }
    struct constraints *cs = vocabulary(argv[1], &n_vocab, &tok);
    uint8_t *bytes = compile(argv[2], &n);
    uint64_t end = now_ns() + (uint64_t)(argc > 3 ? atoi(argv[3]) : 5) * 1000000000u, x = 88172645463325252u;
    struct constraint_stats before, after;
    struct constraint c;
    struct vt_err err;
    unsigned texts = 0, most = argc > 4 ? (unsigned)atoi(argv[4]) : UINT_MAX;
    while (texts < most && now_ns() < end) {
        if (constraint_open(cs, bytes, n, &c, &err) < 0)
            return 1;
        for (unsigned i = 0; i < LONGEST && !c.ended; i++) {
            struct token_mask m;
            constraint_stats(&c, &before);
            uint64_t c0 = clock_ns(CLOCK_THREAD_CPUTIME_ID), t0 = now_ns();
            if (constraint_mask(&c, &m, &err) < 0) {
                fprintf(stderr, "bench_mask: %s\n", err.text);
                return 1;
            }
            uint64_t t1 = now_ns();
            constraint_stats(&c, &after);
            add(after.made > before.made ? &miss : &hit, t1 - t0);
            if (after.made > before.made)
                add(&work, clock_ns(CLOCK_THREAD_CPUTIME_ID) - c0);
            uint32_t id = choose(&m, n_vocab, &x);
            t0 = now_ns();
            if (constraint_advance(&c, id, &err) < 0) {
                fprintf(stderr, "bench_mask: %s\n", err.text);
                return 1;
            }
            add(&step, now_ns() - t0);
        }
        texts++;
        constraint_close(&c);
    }
    printf("%u texts\n", texts);
    tell("mask, place met before", &hit);
    tell("mask, new place", &miss);
    tell("the same, processor time", &work);
    tell("advance", &step);
    constraints_free(cs);
    tok_free(tok);
    free(bytes);
    free(hit.us);
    free(miss.us);
    free(work.us);
    free(step.us);
    return 0;
}
