/* Golden frames: every scene at 40x12, 80x24, 120x40 and 200x50, as it is drawn, with its roles, and with what the roles are
 * in 24-bit, 256 and 16 colours and without; the ASCII form as well. A file holds one scene.
 *
 * GOLDEN_WRITE=1 writes the files anew: look at the difference before it is committed. Then random frames: any model at any
 * size stays within its grid. */
#include "term/theme.h"
#include "util/text.h"
#include "view/scenes.h"
#include "view/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    int w, h;
} sizes[] = {{40, 12}, {80, 24}, {120, 40}, {200, 50}};

static const struct caps full = {.depth = DEPTH_TRUE, .glyphs = GLYPHS_FULL, .motion = true};

static void check_rows(const struct grid *g)
{
    for (int y = 0; y < g->h; y++) {
        int width = 0;
        for (int x = 0; x < g->w; x++) {
            const struct cell *c = grid_at(g, x, y);
            assert_int_equal(c->width == 0, c->n == 0);
            if (c->width == 0)
                assert_int_equal(grid_at(g, x - 1, y)->width, 2);
            width += c->width;
        }
        assert_int_equal(width, g->w);
    }
    assert_true(!g->caret || (g->caret_x >= 0 && g->caret_x < g->w && g->caret_y >= 0 && g->caret_y < g->h));
}

static void frame(struct text *out, const struct scene *s, int w, int h, enum glyphs glyphs, bool attrs)
{
    struct grid g;
    struct ui *u = mem_new(sizeof *u);
    struct caps caps = full;
    caps.glyphs = glyphs;
    ui_init(u);
    assert_int_equal(grid_init(&g, w, h), 0);
    struct model *m = s->make(u);
    view_draw(&g, m, u, &caps, SCENE_NOW);
    check_rows(&g);
    char *text = frame_text(&g);
    text_printf(out, "== %s %dx%d %s caret %d,%d\n", s->name, w, h,
                glyphs == GLYPHS_ASCII    ? "ascii"
                : glyphs == GLYPHS_BLOCKS ? "blocks"
                                          : "full",
                g.caret_x, g.caret_y);
    text_puts(out, text);
    free(text);
    if (attrs) {
        bool used[ROLE_N][ROLE_N] = {{false}};
        char *attr = frame_attr(&g);
        text_printf(out, "-- roles\n%s-- inks\n", attr);
        free(attr);
        for (int i = 0; i < g.w * g.h; i++)
            used[g.cell[i].style.fg][g.cell[i].style.bg] = true;
        for (int fg = 0; fg < ROLE_N; fg++) {
            for (int bg = 0; bg < ROLE_N; bg++) {
                struct style st = {.fg = (uint8_t)fg, .bg = (uint8_t)bg};
                if (!used[fg][bg])
                    continue;
                text_printf(out, "%c on %c:", role_letter((enum role)fg), role_letter((enum role)bg));
                for (int d = DEPTH_TRUE; d >= DEPTH_NONE; d--) {
                    struct ink k = theme_ink(st, (enum depth)d, false);
                    if (d != DEPTH_8)
                        text_printf(out, d == DEPTH_TRUE ? " %06x/%06x+%u" : " %d/%d+%u",
                                    k.fg < 0 && d == DEPTH_TRUE ? 0 : k.fg,
                                    k.bg < 0 && d == DEPTH_TRUE ? 0 : k.bg, k.attr);
                }
                text_puts(out, "\n");
            }
        }
    }
    model_free(m);
    ui_fini(u);
    free(u);
    grid_fini(&g);
}

static char *slurp(const char *path)
{
    FILE *f = fopen(path, "r");
    struct text t = {0};
    char buf[8192];
    size_t n;
    if (!f)
        return NULL;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0)
        text_add(&t, buf, n);
    fclose(f);
    return text_take(&t);
}

static void compare(const char *path, const char *got)
{
    char *want = slurp(path);
    if (!want)
        fail_msg("%s is missing: GOLDEN_WRITE=1 writes it", path);
    if (strcmp(got, want) != 0) {
        int line = 1;
        const char *a = got, *b = want;
        for (; *a && *a == *b; a++, b++)
            line += *a == '\n';
        while (a > got && a[-1] != '\n')
            a--, b--;
        fail_msg("%s differs at line %d:\n  got  %.*s\n  want %.*s", path, line, (int)strcspn(a, "\n"), a,
                 (int)strcspn(b, "\n"), b);
    }
    free(want);
}

static void test_golden(void **state)
{
    const char *source = getenv("OFFICINA_SOURCE"), *write = getenv("GOLDEN_WRITE");
    if (!source)
        skip();
    for (size_t i = 0; i < n_scenes; i++) {
        const struct scene *s = &scenes[i];
        struct text out = {0};
        char path[512];
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            frame(&out, s, sizes[k].w, sizes[k].h, GLYPHS_FULL, sizes[k].w == s->w);
        frame(&out, s, s->w, s->h, GLYPHS_BLOCKS, false);
        frame(&out, s, s->w, s->h, GLYPHS_ASCII, false);
        snprintf(path, sizeof path, "%s/view/golden/%s.txt", source, s->name);
        if (write) {
            FILE *f = fopen(path, "w");
            assert_non_null(f);
            fputs(out.s, f);
            fclose(f);
        } else {
            compare(path, out.s);
        }
        text_free(&out);
    }
}

static void test_ascii(void **state)
{
    for (size_t i = 0; i < n_scenes; i++) {
        struct text out = {0};
        frame(&out, &scenes[i], 100, 30, GLYPHS_ASCII, false);
        for (size_t k = 0; k < out.len; k++)
            if ((unsigned char)out.s[k] >= 0x80)
                fail_msg("scene %s: a byte that is no ASCII", scenes[i].name);
        text_free(&out);
    }
}

/* Every scene at sizes from 1x1 to 300x100, with scrolling, folding and typing in between. */
static void test_sizes(void **state)
{
    unsigned seed = 5;
    for (int round = 0; round < 400; round++) {
        const struct scene *s = &scenes[rand_r(&seed) % (int)n_scenes];
        struct ui *u = mem_new(sizeof *u);
        struct caps caps = {.depth = (enum depth)(rand_r(&seed) % 5),
                            .glyphs = (enum glyphs)(rand_r(&seed) % 3),
                            .motion = true};
        ui_init(u);
        struct model *m = s->make(u);
        uint64_t now = SCENE_NOW;
        struct text typed = {0};
        text_puts(&typed, text_str(&u->edit.text));
        for (int i = 0; i < 12; i++) {
            struct grid g;
            int w = i & 1 ? 1 + rand_r(&seed) % 60 : 1 + rand_r(&seed) % 300,
                h = 1 + rand_r(&seed) % (i & 2 ? 20 : 100);
            assert_int_equal(grid_init(&g, w, h), 0);
            view_draw(&g, m, u, &caps, now);
            check_rows(&g);
            if (w < VIEW_MIN_W || h < VIEW_MIN_H) {
                assert_false(g.caret);
            } else {
                switch (rand_r(&seed) % 8) {
                case 0: view_scroll(u, m, &caps, -(1 + rand_r(&seed) % 30), now); break;
                case 1: view_scroll(u, m, &caps, 1 + rand_r(&seed) % 30, now); break;
                case 2: view_select(u, m, &caps, rand_r(&seed) & 1 ? 1 : -1, now); break;
                case 3: u->all_open = !u->all_open; break;
                case 4: u->overlay = (enum overlay)(rand_r(&seed) % (OVER_HELP + 1)); break;
                case 5: u->code_scroll = rand_r(&seed) % 40; break;
                case 6: view_item_at(u, m, &caps, rand_r(&seed) % w, rand_r(&seed) % h, now); break;
                default: u->whole = !u->whole; break;
                }
            }
            assert_string_equal(text_str(&u->edit.text), text_str(&typed)); /* no size loses what was typed */
            now += 33000;
            grid_fini(&g);
        }
        text_free(&typed);
        model_free(m);
        ui_fini(u);
        free(u);
    }
}

/* The mark's dots only ever vanish. */
static void test_dissolve(void **state)
{
    struct grid g;
    struct ui *u = mem_new(sizeof *u);
    ui_init(u);
    struct model *m = scenes[0].make(u);
    size_t last = SIZE_MAX;
    assert_int_equal(grid_init(&g, 80, 24), 0);
    for (int f = 0; f <= 14; f++) {
        view_draw(&g, m, u, &full, SCENE_NOW + (uint64_t)f * 33000);
        size_t dots = 0;
        for (int y = 2; y < 20; y++) {
            for (int x = 0; x < 80; x++) {
                const struct cell *c = grid_at(&g, x, y);
                if (c->n == 3 && (unsigned char)c->bytes[0] == 0xe2 &&
                    ((unsigned char)c->bytes[1] & 0xfc) == 0xa0)
                    dots += (size_t)__builtin_popcount((((unsigned)c->bytes[1] & 3u) << 6) |
                                                       ((unsigned)c->bytes[2] & 63u));
            }
        }
        assert_true(dots <= last);
        last = dots;
        if (f == 0) {
            assert_true(dots > 1000);
            edit_insert(&u->edit, "x", 1, EDIT_TYPE);
        }
    }
    assert_int_equal(last, 0);
    assert_true(u->mark_gone);
    model_free(m);
    ui_fini(u);
    free(u);
    grid_fini(&g);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_ascii),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_dissolve),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
