/* The way of a model's bytes to a client: hold-back, stop strings, parser. Whatever comes, in whatever pieces, the parts are
 * the same as in one piece, valid UTF-8, and never contain a stop string. */
#include "../toolcall/scanner.h"
#include "stop.h"
#include "utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct parts {
    struct buf content, reasoning, calls, args;
    bool open;
};

static void content(void *arg, const char *s, size_t n)
{
    buf_add(&((struct parts *)arg)->content, s, n);
}

static void reasoning(void *arg, const char *s, size_t n)
{
    buf_add(&((struct parts *)arg)->reasoning, s, n);
}

static void call(void *arg, const char *name)
{
    struct parts *p = arg;
    buf_puts(&p->calls, name);
    p->open = true;
}

static void args(void *arg, const char *s, size_t n)
{
    struct parts *p = arg;
    if (!p->open)
        abort();
    buf_add(&p->calls, s, n);
    buf_add(&p->args, s, n);
}

/* Arguments that are whole are an object. */
static void whole(void *arg)
{
    struct parts *p = arg;
    if (!p->open || p->args.n == 0 || p->args.p[0] != '{' || !jscan_valid(p->args.p, p->args.n))
        abort();
    buf_clear(&p->args);
    p->open = false;
}

static void broken(void *arg, const char *s, size_t n)
{
    struct parts *p = arg;
    if (!p->open)
        abort();
    buf_puts(&p->calls, "!");
    buf_add(&p->calls, s, n);
    buf_clear(&p->args);
    p->open = false;
}

static const struct dialect *dialect_of(unsigned i)
{
    static const char *const templates[] = {"",
                                            "<tool_call>",
                                            "<function=",
                                            "[TOOL_CALLS]",
                                            "<|tool_call>",
                                            "<|tool_call|>",
                                            "<start_function_call>",
                                            "<|python_tag|>",
                                            "<arg_key>",
                                            "<｜tool▁call▁begin｜>",
                                            "<|channel|>"};
    const char *t = templates[i % (sizeof templates / sizeof *templates)];
    return dialect_find(t, strlen(t), false, false);
}

static void run(const uint8_t *data, size_t n, size_t piece, unsigned mode, const struct dialect *d,
                const struct stop_set *set, struct parts *out, struct buf *through)
{
    static const struct scan_ops ops = {content, reasoning, call, args, whole, broken};
    struct scanner p;
    struct stop_state st;
    struct utf8_hold h = {0};
    int hit = -1;
    if (stop_init(&st, set))
        abort();
    const bool frames = d->body == BODY_HARMONY;
    const struct scan_rules rules = {.dialect = mode & 4 ? d : NULL,
                                     .frames = frames,
                                     .think =
                                         mode & 1 ? think_marks_find("<|channel|>", frames ? 11 : 0) : NULL,
                                     .forced = mode & 32,
                                     .think_open = mode & 2,
                                     .single = mode & 16};
    scanner_init(&p, &rules, &ops, out);
    for (size_t at = 0; at < n && hit < 0; at += piece) {
        struct buf text = {0}, safe = {0};
        utf8_feed(&h, data + at, n - at < piece ? n - at : piece, &text);
        hit = stop_feed(&st, text.p, text.n, &safe);
        scanner_feed(&p, safe.p, safe.n);
        buf_add(through, safe.p, safe.n);
        buf_fini(&text);
        buf_fini(&safe);
    }
    if (hit < 0) {
        struct buf text = {0}, safe = {0};
        utf8_flush(&h, &text);
        if (stop_feed(&st, text.p, text.n, &safe) < 0)
            stop_flush(&st, &safe);
        scanner_feed(&p, safe.p, safe.n);
        buf_add(through, safe.p, safe.n);
        buf_fini(&text);
        buf_fini(&safe);
    }
    scanner_end(&p, mode & 128);
    if (out->open)
        abort();
    scanner_fini(&p);
    buf_fini(&out->args);
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
    if (n < 3)
        return 0;
    unsigned mode = data[0];
    size_t piece = 1 + data[1] % 13;
    const struct dialect *d = dialect_of(data[2]);
    struct stop_set *set = stop_set_new(stops, lens, mode & 8 ? 5 : 0);
    struct parts a = {0}, b = {0};
    struct buf ta = {0}, tb = {0};
    run(data + 3, n - 3, n, mode, d, set, &a, &ta);
    run(data + 3, n - 3, piece, mode, d, set, &b, &tb);
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
