/* The way of a model's bytes to a client: hold-back, stop strings, parser. Whatever comes, in whatever pieces, the parts are
 * the same as in one piece, valid UTF-8, and never contain a stop string. */
#include "parser.h"
#include "stop.h"
#include "utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    struct buf content, reasoning, calls;
};

static void content(void *arg, const char *s, size_t n)
{
    buf_add(&((struct parts *)arg)->content, s, n);
}

static void reasoning(void *arg, const char *s, size_t n)
{
    buf_add(&((struct parts *)arg)->reasoning, s, n);
}

static void tool(void *arg, const char *name, const char *args)
{
    struct parts *p = arg;
    buf_puts(&p->calls, name);
    buf_puts(&p->calls, args);
}

static void run(const uint8_t *data, size_t n, size_t piece, unsigned mode, const struct stop_set *set,
                struct parts *out, struct buf *through)
{
    static const struct parser_ops ops = {content, reasoning, tool};
    struct parser p;
    struct stop_state st;
    struct utf8_hold h = {0};
    int hit = -1;
    if (stop_init(&st, set))
        abort();
    parser_init(&p, &ops, out, mode & 1, mode & 2, mode & 4);
    for (size_t at = 0; at < n && hit < 0; at += piece) {
        struct buf text = {0}, safe = {0};
        utf8_feed(&h, data + at, n - at < piece ? n - at : piece, &text);
        hit = stop_feed(&st, text.p, text.n, &safe);
        parser_feed(&p, safe.p, safe.n);
        buf_add(through, safe.p, safe.n);
        buf_fini(&text);
        buf_fini(&safe);
    }
    if (hit < 0) {
        struct buf text = {0}, safe = {0};
        utf8_flush(&h, &text);
        if (stop_feed(&st, text.p, text.n, &safe) < 0)
            stop_flush(&st, &safe);
        parser_feed(&p, safe.p, safe.n);
        buf_add(through, safe.p, safe.n);
        buf_fini(&text);
        buf_fini(&safe);
    }
    parser_end(&p);
    parser_fini(&p);
    stop_fini(&st);
}

static void same(const struct buf *a, const struct buf *b)
{
    if (a->n != b->n || (a->n > 0 && memcmp(a->p, b->p, a->n) != 0))
        abort();
    if (!utf8_whole(a->p, a->n))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const stops[] = {"aba", "ab", "\n\nUser:", "<tool", "\xc3\xa9x"};
    const size_t lens[] = {3, 2, 7, 5, 3};
    if (n < 2)
        return 0;
    unsigned mode = data[0];
    size_t piece = 1 + data[1] % 13;
    struct stop_set *set = stop_set_new(stops, lens, mode & 8 ? 5 : 0);
    struct parts a = {0}, b = {0};
    struct buf ta = {0}, tb = {0};
    run(data + 2, n - 2, n, mode, set, &a, &ta);
    run(data + 2, n - 2, piece, mode, set, &b, &tb);
    same(&ta, &tb);
    same(&a.content, &b.content);
    same(&a.reasoning, &b.reasoning);
    same(&a.calls, &b.calls);
    for (int i = 0; mode & 8 && i < 5; i++)
        if (ta.n > 0 && memmem(ta.p, ta.n, stops[i], lens[i]))
            abort();
    buf_fini(&a.content);
    buf_fini(&a.reasoning);
    buf_fini(&a.calls);
    buf_fini(&b.content);
    buf_fini(&b.reasoning);
    buf_fini(&b.calls);
    buf_fini(&ta);
    buf_fini(&tb);
    stop_set_free(set);
    return 0;
}
