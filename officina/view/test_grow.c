/* What streams: a text has the same rows in one piece and grown in any pieces, and a frame lays out no more of a long answer
 * than of a short one. Counts, no times. */
#include "term/back.h"
#include "util/text.h"
#include "view/markdown.h"
#include "view/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const piece[] = {
    "word ",
    "two words\n",
    "\n",
    "\n\n",
    "- item\n",
    "1. first\n",
    "> quote\n",
    "```c\n",
    "```\n",
    "```",
    "~~~~\n",
    "  ```\n",
    "int x; /* a ",
    "b */\n",
    "    deep\n",
    "| a | b |\n",
    "|---|---|\n",
    "# Head\n",
    "漢字",
    "👩‍💻",
    "`code`",
    "**b**",
    "[l](http://a)\n",
    "[r]: http://b\n",
    "[r] ",
    "***\n",
    "\t",
    "\r\n",
    "===\n",
    "<b>\n",
    "a_very_long_line_of_code_that_makes_the_frame_wider_and_is_cut_at_its_end_somewhere "};

static void same_rows(const struct rows *a, const struct rows *b, const char *of)
{
    if (a->n != b->n)
        fail_msg("%zu and %zu rows of \"%s\"", a->n, b->n, of);
    for (size_t y = 0; y < a->n; y++) {
        if (a->v[y].n != b->v[y].n || a->v[y].width != b->v[y].width)
            fail_msg("row %zu has %zu and %zu cells, of \"%s\"", y, a->v[y].n, b->v[y].n, of);
        for (size_t x = 0; x < a->v[y].n; x++)
            if (!cell_equal(&a->v[y].c[x], &b->v[y].c[x]))
                fail_msg("cell %zu of row %zu differs, of \"%s\"", x, y, of);
    }
}

static void test_any_pieces(void **state)
{
    unsigned seed = 11;
    for (int round = 0; round < 400; round++) {
        struct text md = {0};
        struct rows grown = {0};
        struct markdown_keep keep = {0};
        struct markdown_look look = {.width = 20 + rand_r(&seed) % 80,
                                     .scroll = rand_r(&seed) % 4 ? 0 : rand_r(&seed) % 9,
                                     .glyphs = glyphs_of(GLYPHS_FULL)};
        look.wide = look.width + rand_r(&seed) % 60;
        for (int i = rand_r(&seed) % 40; i > 0; i--) {
            /* most of them often enough that fences close and lists end */
            text_puts(&md, piece[(size_t)rand_r(&seed) % (sizeof piece / sizeof piece[0])]);
            size_t cut =
                rand_r(&seed) % 3 ? md.len : md.len - (size_t)rand_r(&seed) % (md.len < 4 ? md.len + 1 : 4);
            struct rows whole = {0};
            if (cut < keep.at) /* a text only grows */
                cut = md.len;
            markdown_grow(&grown, 0, md.s, cut, &look, &keep);
            markdown_layout(&whole, md.s, cut, &look);
            char *of = mem_dupn(md.s, cut);
            same_rows(&grown, &whole, of);
            free(of);
            rows_free(&whole);
        }
        rows_free(&grown);
        text_free(&md);
    }
}

/* A whole frame of a conversation that grows is the frame of one that is opened at that moment. */
static void check_frame(struct model *m, struct ui *grown, uint64_t now)
{
    const struct caps caps = {.depth = DEPTH_TRUE, .glyphs = GLYPHS_FULL};
    struct grid a, b;
    struct ui *fresh = mem_new(sizeof *fresh);
    ui_init(fresh);
    fresh->all_open = grown->all_open;
    assert_int_equal(grid_init(&a, 90, 20), 0);
    assert_int_equal(grid_init(&b, 90, 20), 0);
    view_draw(&a, m, grown, &caps, now);
    view_draw(&b, m, fresh, &caps, now);
    char *got = frame_text(&a), *want = frame_text(&b);
    assert_string_equal(got, want);
    free(got);
    free(want);
    got = frame_attr(&a);
    want = frame_attr(&b);
    assert_string_equal(got, want);
    free(got);
    free(want);
    grid_fini(&a);
    grid_fini(&b);
    ui_fini(fresh);
    free(fresh);
}

static void test_frames(void **state)
{
    unsigned seed = 3;
    for (int round = 0; round < 8; round++) {
        struct model *m = model_new();
        struct ui *u = mem_new(sizeof *u);
        uint64_t now = 1000000;
        ui_init(u);
        u->all_open = round & 1;
        m->status = ST_THINKING;
        for (int k = 0; k < 2; k++) {
            struct item *it = model_add(m, k ? ITEM_TEXT : ITEM_REASONING);
            it->id = k + 1;
            it->live = true;
            it->at = now;
            for (int i = 0; i < 40; i++) {
                text_puts(&it->body, piece[(size_t)rand_r(&seed) % (sizeof piece / sizeof piece[0])]);
                check_frame(m, u, now += 300000);
            }
            it->ended = now;
            check_frame(m, u, now);
        }
        model_free(m);
        ui_fini(u);
        free(u);
    }
}

/* Cells of the frame that costs most while a text of that many pieces streams, and bytes for a terminal a frame. */
static uint64_t most_cells(const char *head, const char *const *parts, size_t n_parts, int n,
                           enum item_kind kind, bool open)
{
    const struct caps caps = {.depth = DEPTH_TRUE, .glyphs = GLYPHS_FULL};
    struct model *m = model_new();
    struct ui *u = mem_new(sizeof *u);
    struct grid g;
    uint64_t most = 0;
    ui_init(u);
    u->all_open = open;
    assert_int_equal(grid_init(&g, 200, 50), 0);
    m->status = ST_WRITING;
    struct item *it = model_add(m, kind);
    it->id = 1;
    it->live = true;
    it->at = 1;
    text_puts(&it->body, head);
    for (int i = 0; i < n; i++) {
        text_puts(&it->body, parts[(size_t)i % n_parts]);
        view_draw(&g, m, u, &caps, 1000000 + (uint64_t)i * 10000);
        most = u->laid > most ? u->laid : most;
        u->laid = 0;
    }
    view_draw(&g, m, u, &caps, 1000000 + (uint64_t)n * 10000);
    assert_true(u->laid <= most);
    grid_fini(&g);
    model_free(m);
    ui_fini(u);
    free(u);
    return most;
}

static void test_cost(void **state)
{
    static const char *const prose[] = {"A sentence of the answer that says something. ", "Another one.\n\n",
                                        "- one\n- two\n\n", "```c\nint x;\n```\n\n"};
    static const char *const code[] = {"    return a + b; /* sum */\n"};
    static const char *const thought[] = {"Let me see what that does. ", "It reads a byte.\n"};
    assert_in_range(most_cells("", prose, 4, 4000, ITEM_TEXT, false), 1, 800);
    assert_in_range(most_cells("```c\n", code, 1, 4000, ITEM_TEXT, false), 1, 800);
    assert_in_range(most_cells("", thought, 2, 4000, ITEM_REASONING, false), 1, 800);
    assert_in_range(most_cells("", thought, 2, 4000, ITEM_REASONING, true), 1, 800);
}

/* Nothing changed: nothing is laid out and not a byte goes to the terminal. A typed key: a few. */
static void test_bytes(void **state)
{
    const struct caps caps = {.depth = DEPTH_256, .glyphs = GLYPHS_FULL};
    struct vt_err err = {0};
    char *remark = NULL;
    int fd = memfd_create("terminal", MFD_CLOEXEC);
    struct back *back = back_open(fd, "xterm-256color", DEPTH_256, 200, 50, &remark, &err);
    if (!back)
        skip(); /* no description of it here */
    struct model *m = model_new();
    struct ui *u = mem_new(sizeof *u);
    struct grid g;
    ui_init(u);
    assert_int_equal(grid_init(&g, 200, 50), 0);
    for (int i = 0; i < 1250; i++) {
        struct item *it = model_add(m, i & 1 ? ITEM_TEXT : ITEM_USER);
        it->id = i + 1;
        it->live = true;
        it->ended = it->at = 1;
        for (int k = 0; k < 8; k++)
            text_printf(&it->body, "line %d of ten thousand\n\n", i * 8 + k);
    }
    view_draw(&g, m, u, &caps, 1000000);
    assert_in_range(u->laid, 1, 20000); /* what is seen, and not ten thousand lines */
    assert_int_equal(back_draw(back, &g), 1);
    off_t before = lseek(fd, 0, SEEK_END);
    view_draw(&g, m, u, &caps, 1000000);
    assert_int_equal(u->laid, 0);
    assert_int_equal(back_draw(back, &g), 0);
    assert_int_equal(lseek(fd, 0, SEEK_END), before);
    edit_insert(&u->edit, "k", 1, EDIT_TYPE);
    view_draw(&g, m, u, &caps, 1000000);
    assert_int_equal(back_draw(back, &g), 1);
    assert_in_range(lseek(fd, 0, SEEK_END) - before, 1, 120);
    assert_int_equal(u->laid, 0);
    size_t cells = 0;
    for (int i = 0; i < 60; i++) { /* whatever was scrolled through, only so much stays */
        view_scroll(u, m, &caps, -100, 1000000);
        view_draw(&g, m, u, &caps, 1000000);
        cells = 0;
        for (size_t k = 0; k < UI_CACHE; k++)
            cells += u->cache[k].used && u->cache[k].frame != u->frame ? u->cache[k].cells : 0;
        assert_true(cells <= UI_CELLS);
    }
    back_close(back);
    close(fd);
    grid_fini(&g);
    model_free(m);
    ui_fini(u);
    free(u);
    free(remark);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_pieces),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
