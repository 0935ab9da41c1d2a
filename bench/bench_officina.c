/* Frames of the workshop without a terminal's speed in them: the time to draw and the bytes that would go to a terminal.
 * usage: bench_officina [KIB]     of the answer that streams (default 256)
 *
 * An answer of prose, lists, a table and code arrives 24 bytes at a time at 200x50; after each piece a frame is drawn and
 * given to ncurses (xterm-256color) that writes into a file. Then a transcript of ten thousand lines at rest and scrolled.
 * One JSON object: milliseconds, the most cells laid out for a frame, bytes a frame. bench/officina.py runs it. */
#include "term/back.h"
#include "util/text.h"
#include "view/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define W 200
#define H 50

static const char *const piece[] = {
    "## What happens here\n\nThe reader takes *one* byte past the end when the buffer is empty, which "
    "`next_token` "
    "does not expect; the bound has to be tested before the byte is read. ",
    "That is what the second test shows.\n\n",
    "- swap the two tests,\n- add a regression test,\n- run the suite again.\n\n",
    "| file | lines | why |\n| --- | --- | --- |\n| src/parse.c | 12 | the bound |\n| tests/parse_test.c | "
    "48 | new |\n\n",
    "```c\nstatic int next_token(struct lexer *lx)\n{\n    while (lx->p < lx->end && isspace((unsigned "
    "char)*lx->p))\n"
    "        lx->p++; /* blanks */\n    if (lx->p >= lx->end)\n        return TOK_EOF;\n    return *lx->p++ "
    "== '\"' ? 1 : "
    "0x20;\n}\n```\n\n"};

struct times {
    double *ms;
    size_t n, cap;
};

/* Time on a core: what others do meanwhile is not the frame's. */
static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void took(struct times *t, double ms)
{
    t->ms = mem_room(t->ms, t->n, &t->cap, sizeof *t->ms);
    t->ms[t->n++] = ms;
}

static void tell(const char *name, struct times *t)
{
    qsort(t->ms, t->n, sizeof *t->ms, by_value);
    printf("\"%s\":{\"frames\":%zu,\"median_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f}", name, t->n,
           t->ms[t->n / 2], t->ms[t->n * 99 / 100], t->ms[t->n - 1]);
    free(t->ms);
    memset(t, 0, sizeof *t);
}

struct bench {
    struct model *m;
    struct ui *u;
    struct grid g;
    struct back *back;
    int fd;
    struct caps caps;
};

static double draw(struct bench *b, uint64_t now, bool write)
{
    double from = now_ms();
    view_draw(&b->g, b->m, b->u, &b->caps, now);
    if (write)
        back_draw(b->back, &b->g);
    return now_ms() - from;
}

static struct item *add(struct bench *b, enum item_kind kind, uint64_t at)
{
    struct item *it = model_add(b->m, kind);
    it->id = (int64_t)b->m->n_items;
    it->live = true;
    it->at = at;
    return it;
}

static void stream(struct bench *b, size_t bytes)
{
    struct text whole = {0};
    struct times t = {0};
    uint64_t now = 1000000, most = 0;
    while (whole.len < bytes)
        for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++)
            text_puts(&whole, piece[i]);
    add(b, ITEM_USER, now);
    text_puts(&b->m->items[0].body, "why does it fail?");
    struct item *it = add(b, ITEM_TEXT, now);
    b->m->status = ST_WRITING;
    off_t before = lseek(b->fd, 0, SEEK_END);
    for (size_t at = 0; at < whole.len; at += 24) {
        text_add(&it->body, whole.s + at, whole.len - at < 24 ? whole.len - at : 24);
        took(&t, draw(b, now += 10000, true));
        most = b->u->laid > most ? b->u->laid : most;
    }
    double per = (double)(lseek(b->fd, 0, SEEK_END) - before) / (double)t.n;
    tell("stream", &t);
    printf(",\"stream_bytes\":%zu,\"stream_cells_most\":%llu,\"stream_bytes_a_frame\":%.0f,", whole.len,
           (unsigned long long)most, per);
    it->ended = now;
    b->m->status = ST_READY;
    text_free(&whole);
}

/* One long code block: what a model writes when it is asked for a whole file. */
static void code(struct bench *b, size_t bytes)
{
    struct times t = {0};
    uint64_t now = 2000000000, most = 0;
    struct item *it = add(b, ITEM_TEXT, now);
    b->m->status = ST_WRITING;
    text_puts(&it->body, "```c\n");
    while (it->body.len < bytes) {
        text_puts(&it->body, "    if (lx->p >= lx->end) return TOK_EOF; /* ");
        took(&t, draw(b, now += 10000, true));
        text_puts(&it->body, "the end */\n");
        took(&t, draw(b, now += 10000, true));
        most = b->u->laid > most ? b->u->laid : most;
    }
    tell("code", &t);
    printf(",\"code_bytes\":%zu,\"code_cells_most\":%llu,", it->body.len, (unsigned long long)most);
    it->ended = now;
    b->m->status = ST_READY;
}

static void transcript(struct bench *b)
{
    struct times rest = {0}, key = {0}, up = {0};
    uint64_t now = 3000000000;
    for (int i = 0; i < 10000 / 8; i++) {
        struct item *it = add(b, i & 1 ? ITEM_TEXT : ITEM_USER, now);
        it->ended = now;
        for (int k = 0; k < 8; k++)
            text_printf(&it->body, "line %d of the transcript says something about `thing_%d`.\n", i * 8 + k,
                        k);
    }
    draw(b, now, true);
    off_t before = lseek(b->fd, 0, SEEK_END);
    for (int i = 0; i < 200; i++)
        took(&rest, draw(b, now, true));
    off_t idle = lseek(b->fd, 0, SEEK_END) - before;
    for (int i = 0; i < 200; i++) {
        edit_insert(&b->u->edit, "k", 1, EDIT_TYPE);
        took(&key, draw(b, now, true));
    }
    for (int i = 0; i < 200; i++) {
        double from = now_ms();
        view_scroll(b->u, b->m, &b->caps, -20, now);
        draw(b, now, true);
        took(&up, now_ms() - from);
    }
    tell("rest", &rest);
    printf(",\"rest_bytes\":%lld,", (long long)idle);
    tell("key", &key);
    printf(",");
    tell("scroll", &up);
}

int main(int argc, char **argv)
{
    struct bench b = {.caps = {.depth = DEPTH_256, .glyphs = GLYPHS_FULL}};
    struct vt_err err = {0};
    char *remark = NULL;
    size_t kib = argc > 1 ? strtoul(argv[1], NULL, 10) : 256;
    b.fd = memfd_create("terminal", MFD_CLOEXEC);
    b.m = model_new();
    b.u = mem_new(sizeof *b.u);
    ui_init(b.u);
    b.back = b.fd < 0 ? NULL : back_open(b.fd, "xterm-256color", DEPTH_256, W, H, &remark, &err);
    if (b.back == NULL || grid_init(&b.g, W, H) < 0) {
        fprintf(stderr, "bench_officina: no terminal description: %s\n", err.text);
        return 1;
    }
    printf("{");
    stream(&b, kib * 1024);
    code(&b, kib * 1024);
    transcript(&b);
    printf("}\n");
    back_close(b.back);
    grid_fini(&b.g);
    ui_fini(b.u);
    free(b.u);
    model_free(b.m);
    free(remark);
    close(b.fd);
    return 0;
}
