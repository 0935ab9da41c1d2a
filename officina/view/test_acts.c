/* Acts: keys to events. Above all: typing never approves, and what was typed is never lost. */
#include "term/gate.h"
#include "util/text.h"
#include "view/act.h"
#include "view/scenes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct world {
    struct act a;
    struct ui *u;
    struct model *m;
    struct keys keys;
    struct caps caps;
    struct grid g;
    size_t n[EV_COUNT];
    struct text submitted;
    int64_t answer;
    struct text copied;
    enum host_do asked;
};

static void sink(void *arg, const struct event *e)
{
    struct world *w = arg;
    w->n[e->kind]++;
    if (e->kind == EV_SUBMIT)
        text_set(&w->submitted, e->text);
    if (e->kind == EV_COMPOSE) { /* as the core does */
        text_set(&w->m->composer.text, e->text);
        w->m->composer.caret = (size_t)e->n;
    }
    if (e->kind == EV_SUBMIT)
        text_clear(&w->m->composer.text);
    if (e->kind == EV_ANSWER)
        w->answer = e->n;
    if (e->kind == EV_MODE)
        w->m->mode = (enum mode)e->n;
}

static void host(void *arg, enum host_do what, const char *text)
{
    struct world *w = arg;
    w->asked = what;
    if (what == HOST_COPY)
        text_set(&w->copied, text);
}

static size_t history(void *arg, const char **out, size_t max)
{
    static const char *const prompts[] = {"newest prompt", "older prompt"};
    for (size_t i = 0; i < 2 && i < max; i++)
        out[i] = prompts[i];
    return max < 2 ? max : 2;
}

static struct world *world(const char *scene)
{
    struct world *w = mem_new(sizeof *w);
    w->u = mem_new(sizeof *w->u);
    ui_init(w->u);
    keys_defaults(&w->keys);
    w->caps = (struct caps){.depth = DEPTH_TRUE, .motion = true};
    for (size_t i = 0; i < n_scenes; i++)
        if (strcmp(scenes[i].name, scene) == 0)
            w->m = scenes[i].make(w->u);
    assert_non_null(w->m);
    assert_int_equal(grid_init(&w->g, 80, 24), 0);
    w->a = (struct act){.u = w->u,
                        .m = w->m,
                        .caps = &w->caps,
                        .keys = &w->keys,
                        .shown = &w->g,
                        .now = SCENE_NOW,
                        .sink = sink,
                        .sink_arg = w,
                        .host = host,
                        .host_arg = w,
                        .history = history};
    edit_reset(&w->u->edit);
    return w;
}

static void end(struct world *w)
{
    model_free(w->m);
    ui_fini(w->u);
    free(w->u);
    grid_fini(&w->g);
    text_free(&w->submitted);
    text_free(&w->copied);
    free(w);
}

/* A frame is drawn, then time passes. */
static void pass(struct world *w, uint64_t ms)
{
    act_sync(&w->a);
    view_draw(&w->g, w->m, w->u, &w->caps, w->a.now);
    act_shown(&w->a);
    w->a.now += ms * 1000;
}

static void key(struct world *w, enum term_key k, uint32_t cp, unsigned mods)
{
    struct term_event ev = {.kind = TE_KEY};
    ev.u.key.key = k;
    ev.u.key.cp = cp;
    ev.u.key.mods = mods;
    act_event(&w->a, &ev);
}

static void type(struct world *w, const char *s)
{
    for (; *s; s++)
        key(w, TK_CHAR, (unsigned char)*s, 0);
}

static void is(struct world *w, const char *s)
{
    assert_string_equal(text_str(&w->u->edit.text), s);
    assert_string_equal(text_str(&w->m->composer.text), s);
}

/* Any keys without Alt and Ctrl-X, however long and whenever: no answer. */
static void test_typing_never_approves(void **state)
{
    unsigned seed = 9;
    for (int round = 0; round < 30; round++) {
        struct world *w = world("approval");
        for (int i = 0; i < 400; i++) {
            pass(w, (uint64_t)(rand_r(&seed) % 900));
            enum term_key k = rand_r(&seed) % 4 ? TK_CHAR : (enum term_key)(rand_r(&seed) % (TK_F12 + 1));
            uint32_t cp = 0x20 + (uint32_t)(rand_r(&seed) % 95);
            unsigned mods = rand_r(&seed) % 3 ? 0 : rand_r(&seed) & 1 ? TM_SHIFT : TM_CTRL;
            if (mods & TM_CTRL && (cp | 32) == 'x')
                continue;
            key(w, k, k == TK_CHAR ? cp : 0, mods);
            if (i % 50 == 0) {
                struct term_event ev = {.kind = TE_PASTE};
                ev.u.paste.text = "y\n\x19yes\nAlt-Y\n";
                ev.u.paste.n = strlen(ev.u.paste.text);
                act_event(&w->a, &ev);
            }
        }
        assert_int_equal(w->n[EV_ANSWER], 0);
        end(w);
    }
}

static void test_quiet_time(void **state)
{
    struct world *w = world("approval");
    pass(w, 100);
    key(w, TK_CHAR, 'y', TM_ALT); /* the box has just come up */
    assert_int_equal(w->n[EV_ANSWER], 0);
    pass(w, 1000);
    type(w, "a");
    pass(w, 100);
    key(w, TK_CHAR, 'y', TM_ALT); /* in the middle of typing */
    assert_int_equal(w->n[EV_ANSWER], 0);
    pass(w, 300);
    key(w, TK_CHAR, 'y', TM_ALT);
    assert_int_equal(w->n[EV_ANSWER], 1);
    assert_int_equal(w->answer, ANSWER_ONCE);
    is(w, "a"); /* what was being written stays */
    pass(w, 500);
    key(w, TK_CHAR, 'x', TM_CTRL);
    key(w, TK_CHAR, 's', 0);
    assert_int_equal(w->answer, ANSWER_SESSION);
    pass(w, 500);
    key(w, TK_CHAR, 'n', TM_ALT); /* the reason is what stands in the composer */
    assert_int_equal(w->answer, ANSWER_DENY);
    is(w, "");
    end(w);
}

static void test_click(void **state)
{
    struct world *w = world("approval");
    struct term_event ev = {.kind = TE_MOUSE};
    int row = 0;
    pass(w, 1000);
    for (int y = 0; y < 24; y++)
        if (grid_at(&w->g, 4, y)->bytes[0] == 'A' && grid_at(&w->g, 8, y)->bytes[0] == 'Y')
            row = y;
    assert_true(row > 0);
    ev.u.mouse.what = TMOUSE_PRESS;
    ev.u.mouse.y = row - 1; /* beside it */
    ev.u.mouse.x = 6;
    act_event(&w->a, &ev);
    assert_int_equal(w->n[EV_ANSWER], 0);
    ev.u.mouse.y = row;
    struct term_event focus = {.kind = TE_FOCUS, .u.focused = true};
    act_event(&w->a, &focus);
    act_event(&w->a, &ev); /* the click that gave the focus */
    assert_int_equal(w->n[EV_ANSWER], 0);
    pass(w, 500);
    act_event(&w->a, &ev);
    assert_int_equal(w->n[EV_ANSWER], 1);
    assert_int_equal(w->answer, ANSWER_ONCE);
    end(w);
}

static void test_send(void **state)
{
    struct world *w = world("plan");
    type(w, "hello");
    is(w, "hello");
    key(w, TK_ENTER, 0, TM_ALT);
    type(w, "there");
    is(w, "hello\nthere");
    key(w, TK_ENTER, 0, 0);
    assert_string_equal(text_str(&w->submitted), "hello\nthere");
    is(w, "");
    key(w, TK_ENTER, 0, 0); /* nothing to send */
    assert_int_equal(w->n[EV_SUBMIT], 1);
    act_sync(&w->a);
    key(w, TK_TAB, 0, 0);
    assert_int_equal(w->m->mode, MODE_BUILD);
    w->m->mode = MODE_PLAN; /* the core has not had its turn when the next one comes */
    key(w, TK_TAB, 0, 0);
    assert_int_equal(w->m->mode, MODE_PLAN);
    end(w);
}

static void test_escape(void **state)
{
    struct world *w = world("plan");
    key(w, TK_ESC, 0, 0);
    pass(w, 600);
    key(w, TK_ESC, 0, 0); /* too slow */
    assert_int_equal(w->n[EV_SUBMIT], 0);
    pass(w, 100);
    key(w, TK_ESC, 0, 0);
    assert_string_equal(text_str(&w->submitted), "/rewind");
    end(w);
    w = world("running");
    type(w, "draft");
    key(w, TK_ESC, 0, 0);
    assert_int_equal(w->n[EV_STOP], 1);
    key(w, TK_CHAR, 'c', TM_CTRL);
    assert_int_equal(w->n[EV_STOP], 2);
    is(w, "draft");
    end(w);
}

static void test_leave(void **state)
{
    struct world *w = world("plan");
    type(w, "draft");
    key(w, TK_CHAR, 'd', TM_CTRL);
    key(w, TK_CHAR, 'c', TM_CTRL);
    assert_int_equal(w->n[EV_LEAVE], 0);
    is(w, "");
    key(w, TK_UP, 0, 0); /* kept in its history */
    is(w, "draft");
    key(w, TK_UP, 0, 0);
    is(w, "newest prompt");
    key(w, TK_CHAR, 'u', TM_CTRL);
    key(w, TK_CHAR, 'd', TM_CTRL);
    assert_int_equal(w->n[EV_LEAVE], 1);
    end(w);
}

static void test_menu(void **state)
{
    struct world *w = world("plan");
    type(w, "/rew");
    assert_true(w->u->menu.shown);
    key(w, TK_TAB, 0, 0);
    is(w, "/rewind");
    key(w, TK_ENTER, 0, 0);
    assert_string_equal(text_str(&w->submitted), "/rewind");
    type(w, "/titl");
    key(w, TK_ENTER, 0, 0); /* needs a text: it is completed, not sent */
    is(w, "/title ");
    assert_int_equal(w->n[EV_SUBMIT], 1);
    key(w, TK_CHAR, 'u', TM_CTRL);
    key(w, TK_CHAR, 'r', TM_CTRL);
    type(w, "older");
    is(w, "");
    key(w, TK_ENTER, 0, 0);
    is(w, "older prompt");
    key(w, TK_CHAR, 'u', TM_CTRL);
    type(w, "/mouse off");
    key(w, TK_ENTER, 0, 0);
    assert_int_equal(w->asked, HOST_MOUSE);
    assert_int_equal(w->n[EV_SUBMIT], 1); /* the core never sees it */
    end(w);
}

static void test_switches(void **state)
{
    static const char *const lines[] = {"/panel sideways", "/mouse zz", "/motion onward", "/panel offf"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct world *w = world("plan");
        bool off = w->u->panel_off;
        type(w, lines[i]);
        key(w, TK_ENTER, 0, 0);
        assert_int_equal(w->u->panel_off, off);
        assert_int_equal(w->asked, HOST_EDITOR); /* nothing was asked */
        assert_non_null(strstr(w->u->flash, "on or off"));
        end(w);
    }
}

static void test_blocks(void **state)
{
    struct world *w = world("writing");
    w->m->items[3].ended = 1;
    pass(w, 10);
    key(w, TK_UP, 0, TM_CTRL);
    assert_int_equal(w->u->selected, 3);
    key(w, TK_CHAR, 'y', 0);
    assert_memory_equal(text_str(&w->copied), "## Result", 9);
    key(w, TK_UP, 0, TM_CTRL);
    assert_int_equal(w->u->selected, 2);
    assert_false(ui_is_open(w->u, w->m, &w->m->items[2], w->a.now));
    key(w, TK_CHAR, ' ', 0);
    assert_true(ui_is_open(w->u, w->m, &w->m->items[2], w->a.now));
    type(w, "text"); /* any other key goes on writing */
    is(w, "text");
    type(w, " y");
    is(w, "text y");
    end(w);
}

static void test_sheet(void **state)
{
    struct world *w = world("rewind");
    key(w, TK_DOWN, 0, 0);
    assert_int_equal(w->n[EV_SHEET_MOVE], 1);
    key(w, TK_CHAR, 'f', 0);
    assert_int_equal(w->n[EV_SHEET_DO], 1);
    type(w, "zf"); /* a letter that the picker does not know is writing, and so is what follows */
    assert_int_equal(w->n[EV_SHEET_DO], 1);
    is(w, "zf");
    key(w, TK_ESC, 0, 0);
    assert_int_equal(w->n[EV_SHEET_DO], 2);
    end(w);
}

/* The core changes the composer: a line taken back, a prompt after a rewind. */
static void test_sync(void **state)
{
    struct world *w = world("plan");
    type(w, "mine");
    text_set(&w->m->composer.text, "mine\nand the queued one");
    w->m->composer.caret = 4;
    act_sync(&w->a);
    is(w, "mine\nand the queued one");
    assert_int_equal(w->u->edit.caret, 4);
    key(w, TK_CHAR, '_', TM_CTRL); /* can be undone */
    is(w, "mine");
    end(w);
}

static void test_keys_conf(void **state)
{
    struct keys k;
    struct vt_err err;
    struct term_event ev = {.kind = TE_KEY};
    char out[80];
    static const struct {
        const char *text, *why;
    } wrong[] = {{"approve-once = y", "typing must never answer"},
                 {"deny = N", "typing must never answer"},
                 {"help = h", "letter that is typed"},
                 {"nonsense = F4", "no action"},
                 {"help = Hyper-Q", "is no key"},
                 {"help F1", "no action"},
                 {"# fine\nhelp = F1\npanel = Ctrl-", "is no key"}};
    keys_defaults(&k);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t n = k.n;
        assert_int_equal(keys_read(&k, wrong[i].text, strlen(wrong[i].text), &err), -1);
        assert_non_null(strstr(err.text, wrong[i].why));
        assert_int_equal(k.n, n);
    }
    static const char good[] = "# mine\nhelp = F4, Ctrl-X h\napprove-once = Ctrl-X Enter\n";
    assert_int_equal(keys_read(&k, good, sizeof good - 1, &err), 0);
    ev.u.key.key = TK_F1;
    assert_int_equal(keys_find(&k, &ev, false), ACT_NONE);
    ev.u.key.key = (enum term_key)(TK_F1 + 3);
    assert_int_equal(keys_find(&k, &ev, false), ACT_HELP);
    assert_string_equal(keys_of(&k, ACT_HELP, out, sizeof out), "F4, Ctrl-X h");
    assert_string_equal(keys_of(&k, ACT_YES, out, sizeof out), "Ctrl-X Enter");
    ev.u.key.key = TK_CHAR;
    ev.u.key.cp = 'Y';
    ev.u.key.mods = TM_ALT;
    assert_int_equal(keys_find(&k, &ev, false), ACT_NONE);
}

/* Consent is for what could be read: keys typed before the box was there, a prefix of a chord too, and a box that is scrolled
 * away or covered give none. */
static void test_type_ahead(void **state)
{
    struct world *w = world("approval");
    w->m->asking = SIZE_MAX; /* nothing asks yet */
    for (size_t i = 0; i < w->m->n_items; i++)
        if (w->m->items[i].kind == ITEM_CALL && w->m->items[i].call->state == CALL_ASKING)
            w->m->asking = i;
    w->m->status = ST_RUNNING;
    pass(w, 1000);
    key(w, TK_CHAR, 'x', TM_CTRL); /* for the panel, it was meant */
    w->m->status = ST_APPROVAL;
    pass(w, 1000);
    key(w, TK_CHAR, 'y', 0);
    assert_int_equal(w->n[EV_ANSWER], 0);
    pass(w, 1000);
    w->a.late = 900000; /* the program was busy: it was typed 100 ms after the box came */
    key(w, TK_CHAR, 'y', TM_ALT);
    assert_int_equal(w->n[EV_ANSWER], 0);
    w->a.late = 0;
    w->u->overlay = OVER_HELP;
    pass(w, 1000);
    key(w, TK_CHAR, 'y', TM_ALT);
    assert_int_equal(w->n[EV_ANSWER], 0);
    w->u->overlay = OVER_NONE;
    pass(w, 100);
    key(w, TK_CHAR, 'y', TM_ALT); /* it is to be read again */
    assert_int_equal(w->n[EV_ANSWER], 0);
    pass(w, 1000);
    key(w, TK_CHAR, 'y', TM_ALT);
    assert_int_equal(w->n[EV_ANSWER], 1);
    end(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_type_ahead),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_typing_never_approves),
        cmocka_unit_test(test_quiet_time),
        cmocka_unit_test(test_click),
        cmocka_unit_test(test_send),
        cmocka_unit_test(test_escape),
        cmocka_unit_test(test_leave),
        cmocka_unit_test(test_menu),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_sheet),
        cmocka_unit_test(test_sync),
        cmocka_unit_test(test_keys_conf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
