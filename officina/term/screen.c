#include "term/screen.h"
#include "term/host.h"
#include "term/keeper.h"
#include "term/paths.h"
#include "term/tty.h"
#include "util/text.h"
#include "view/act.h"

#include <errno.h>
#include <langinfo.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FRAME_US   33334 /* at most 30 frames a second */
#define AT_ONCE_US 2000  /* a wait that ended sooner did not wait */
#define KEY_US     12000 /* what a key changes is shown sooner */

struct screen {
    struct screen_options o;
    struct tty *tty;
    struct ui ui;
    struct keys keys;
    struct looks looks;
    struct grid grid;
    const struct model *m; /* of the call that is running */
    uint64_t now, drawn_at, pending_at;
    uint64_t cost; /* of the last frame, microseconds: a huge answer that streams is drawn less often */
    char *type;
    uint64_t polled_at; /* the loop began to wait; what was typed before may be read only now */
    uint64_t looked_at; /* the terminal had nothing more to read */
    bool urgent, gone;
    int idle_reads;
};

/* The terminal's own times are real ones, also where the program's clock is a test's. */
static uint64_t real_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static uint64_t real_ms(void)
{
    return real_us() / 1000;
}

static enum depth depth_of(const char *color)
{
    if (color && strcmp(color, "never") == 0)
        return DEPTH_NONE;
    if (color && strcmp(color, "16") == 0)
        return DEPTH_16;
    if (color && strcmp(color, "256") == 0)
        return DEPTH_256;
    return DEPTH_TRUE;
}

static bool set(const char *name)
{
    const char *v = getenv(name);
    return v && *v;
}

static void notice(struct screen *s, const char *words)
{
    const struct event e = {.kind = EV_NOTICE, .n = NOTICE_INFO, .text = words};
    s->o.sink(s->o.arg, &e);
}

/* keys.conf over the defaults; what is wrong in it is told and the defaults stay. */
static void read_keys(struct screen *s)
{
    struct text path = {0}, t = {0};
    struct vt_err err;
    char buf[4096];
    size_t n;
    keys_defaults(&s->keys);
    text_printf(&path, "%s/keys.conf", s->o.home);
    FILE *f = fopen(path.s, "re");
    while (f && (n = fread(buf, 1, sizeof buf, f)) > 0 && t.len < 65536)
        text_add(&t, buf, n);
    if (f)
        fclose(f);
    if (t.len && keys_read(&s->keys, t.s, t.len, &err) < 0)
        notice(s, err.text);
    text_free(&path);
    text_free(&t);
}

static struct tty_options options_of(const struct screen *s)
{
    const char *color = s->o.color;
    return (struct tty_options){.in = STDIN_FILENO,
                                .out = STDOUT_FILENO,
                                .type = s->type,
                                .colorterm =
                                    color && strcmp(color, "24bit") == 0 ? "truecolor" : getenv("COLORTERM"),
                                .colorfgbg = getenv("COLORFGBG"),
                                .no_color = set("NO_COLOR") && (!color || strcmp(color, "auto") == 0),
                                .depth = depth_of(color),
                                .glyphs = s->looks.glyphs,
                                .theme = s->looks.theme,
                                .mouse = s->looks.mouse,
                                .motion = s->looks.motion,
                                .remote = set("SSH_CONNECTION")};
}

struct screen *screen_open(const struct screen_options *o, struct vt_err *err)
{
    struct screen *s = mem_new(sizeof *s);
    char *remark = NULL;
    s->o = *o;
    s->type = mem_dup(getenv("TERM"));
    s->looks = (struct looks){.glyphs = GLYPHS_FULL, .mouse = true, .motion = true};
    looks_read(&s->looks, o->home, s->type);
    if (o->ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        s->looks.glyphs = GLYPHS_ASCII;
    s->looks.mouse &= !o->no_mouse;
    s->looks.motion &= !o->no_motion;
    struct tty_options to = options_of(s);
    s->tty = tty_open(&to, real_ms(), &remark, err);
    if (!s->tty) {
        free(s->type);
        free(s);
        return NULL;
    }
    if (o->keeper)
        o->keeper->screen = true;
    ui_init(&s->ui);
    s->ui.mark_gone = o->resumed;
    s->ui.keys = &s->keys;
    read_keys(s);
    if (remark)
        notice(s, remark);
    free(remark);
    return s;
}

void screen_close(struct screen *s)
{
    tty_close(s->tty);
    if (s->o.keeper)
        s->o.keeper->screen = false;
    ui_fini(&s->ui);
    grid_fini(&s->grid);
    free(s->type);
    free(s);
}

int screen_fd(const struct screen *s)
{
    return s->gone ? -1 : STDIN_FILENO;
}

void screen_leave(struct screen *s)
{
    tty_leave(s->tty);
    if (s->o.keeper)
        s->o.keeper->screen = false;
}

void screen_return(struct screen *s)
{
    tty_return(s->tty);
    if (s->o.keeper)
        s->o.keeper->screen = true;
    s->urgent = true;
}

void screen_resized(struct screen *s)
{
    tty_resized(s->tty);
    s->urgent = true;
}

/* ---- what keys ask for ---- */

static void flash(struct screen *s, const char *words)
{
    ui_flash(&s->ui, s->now, words);
}

static void editor(struct screen *s, struct act *a, const char *text)
{
    char *why, *out = host_edit(s->tty, s->o.home, text, &why);
    if (out)
        act_replace(a, out, strlen(out));
    else
        flash(s, why);
    free(out);
    free(why);
    s->urgent = true;
}

static void write_frame(struct screen *s)
{
    struct text path = {0};
    char *text = frame_text(&s->grid);
    text_printf(&path, "%s/frame.txt", s->o.home);
    flash(s, text && host_write(path.s, text, strlen(text)) == 0
                 ? "the frame is in frame.txt of the state folder"
                 : "frame.txt could not be written");
    free(text);
    text_free(&path);
}

static bool on_off(const char *word, bool now)
{
    return strncmp(word, "on", 2) == 0 ? true : strncmp(word, "off", 3) == 0 ? false : !now;
}

static void keep_looks(struct screen *s)
{
    looks_write(&s->looks, s->o.home, s->type);
}

static void set_glyphs(struct screen *s, const char *word)
{
    if (!looks_glyphs(word, &s->looks.glyphs)) {
        flash(s, "/glyphs full, blocks or ascii");
        return;
    }
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 && s->looks.glyphs != GLYPHS_ASCII) {
        s->looks.glyphs = GLYPHS_ASCII;
        flash(s, "the locale is not UTF-8: ASCII it stays");
    }
    tty_glyphs(s->tty, s->looks.glyphs);
    keep_looks(s);
}

static void set_theme(struct screen *s, const char *word)
{
    if (!looks_theme(word, &s->looks.theme)) {
        flash(s, "/theme dark, light or auto");
        return;
    }
    tty_theme(s->tty, s->looks.theme);
    keep_looks(s);
}

static void set_mouse(struct screen *s, const char *word)
{
    s->looks.mouse = on_off(word, s->looks.mouse);
    tty_mouse(s->tty, s->looks.mouse);
    flash(s, s->looks.mouse ? "mouse on" : "mouse off: the terminal selects by itself");
    keep_looks(s);
}

static void set_motion(struct screen *s, const char *word)
{
    s->looks.motion = on_off(word, s->looks.motion);
    flash(s, s->looks.motion ? "motion on, from the next start" : "motion off");
    s->ui.mark_gone |= !s->looks.motion && s->ui.mark_since;
    keep_looks(s);
}

static void suspend(struct screen *s)
{
    screen_leave(s);
    kill(0, SIGTSTP); /* the keeper, too: the shell sees one job stop */
    screen_return(s);
}

struct asked {
    struct screen *s;
    struct act *a;
};

static void host(void *arg, enum host_do what, const char *text)
{
    struct asked *k = arg;
    struct screen *s = k->s;
    switch (what) {
    case HOST_EDITOR: editor(s, k->a, text); break;
    case HOST_SUSPEND: suspend(s); break;
    case HOST_REDRAW: screen_resized(s); break;
    case HOST_FRAME: write_frame(s); break;
    case HOST_COPY: {
        char *words = host_copy(s->tty, s->o.home, text);
        flash(s, words);
        free(words);
        break;
    }
    case HOST_MOUSE: set_mouse(s, text); break;
    case HOST_THEME: set_theme(s, text); break;
    case HOST_GLYPHS: set_glyphs(s, text); break;
    case HOST_MOTION: set_motion(s, text); break;
    }
}

static void paths(void *arg, const char *word, struct menu *out)
{
    struct asked *k = arg;
    paths_complete(k->s->m->root, word, out);
}

static void take(void *arg, const struct term_event *ev)
{
    struct act *a = arg;
    struct asked *k = a->host_arg;
    k->s->urgent = true;
    act_event(a, ev);
}

static void begin(struct screen *s, struct act *a, struct asked *k, const struct model *m, uint64_t now)
{
    s->m = m;
    s->now = now;
    *k = (struct asked){s, a};
    *a = (struct act){.u = &s->ui,
                      .m = m,
                      .caps = tty_caps(s->tty),
                      .keys = &s->keys,
                      .shown = &s->grid,
                      .now = now,
                      .sink = s->o.sink,
                      .sink_arg = s->o.arg,
                      .host = host,
                      .paths = paths,
                      .host_arg = k,
                      .history = s->o.history};
}

void screen_work(struct screen *s, const struct model *m, uint64_t now, bool ready)
{
    struct act a;
    struct asked k;
    begin(s, &a, &k, m, now);
    act_sync(&a);
    uint64_t real = real_us();
    if (ready && real - s->polled_at < AT_ONCE_US &&
        s->looked_at) /* it was there before: typed some time since then */
        a.late = real - s->looked_at < now ? real - s->looked_at : now;
    if (ready) {
        int rc = tty_read(s->tty, real_ms(), take, &a);
        s->idle_reads = rc > 0 ? 0 : s->idle_reads + 1;
        if ((rc < 0 || s->idle_reads > 20) && !s->gone) { /* readable without bytes: the terminal hung up */
            const struct event e = {.kind = EV_QUIT, .n = 129};
            s->gone = true;
            s->o.sink(s->o.arg, &e);
        }
    }
    tty_tick(s->tty, real_ms(), take, &a);
    s->looked_at = real_us();
}

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static int ms_until(uint64_t at_us, uint64_t now_us)
{
    if (at_us == UINT64_MAX)
        return -1;
    return at_us <= now_us ? 0 : at_us - now_us > 60000000 ? 60000 : (int)((at_us - now_us + 999) / 1000);
}

int screen_timeout(struct screen *s, const struct model *m, uint64_t now)
{
    uint64_t real = real_us(), tick = tty_deadline(s->tty);
    s->polled_at = real;
    int ms = ms_until(view_deadline(m, &s->ui, tty_caps(s->tty), now), now);
    ms = sooner(ms, ms_until(tick == UINT64_MAX ? tick : tick * 1000, real));
    return sooner(ms, s->pending_at ? ms_until(s->pending_at, real) : -1);
}

void screen_draw(struct screen *s, const struct model *m, uint64_t now)
{
    struct act a;
    struct asked k;
    int w, h;
    uint64_t wait = s->urgent ? KEY_US : 3 * s->cost > FRAME_US ? 3 * s->cost : FRAME_US;
    if (s->gone)
        return;
    uint64_t real = real_us();
    if (s->drawn_at && real < s->drawn_at + wait) {
        s->pending_at = s->drawn_at + wait;
        return;
    }
    begin(s, &a, &k, m, now);
    act_sync(&a);
    tty_size(s->tty, &w, &h);
    if (w != s->grid.w || h != s->grid.h) {
        grid_fini(&s->grid);
        if (grid_init(&s->grid, w, h) < 0)
            return;
    }
    s->pending_at = 0;
    s->urgent = false;
    view_draw(&s->grid, m, &s->ui, tty_caps(s->tty), now);
    s->cost = real_us() - real;
    if (tty_draw(s->tty, &s->grid) != 0)
        s->drawn_at = real;
    a.now += real_us() - real;
    act_shown(&a);
}

void screen_dump(const struct model *m, int columns, int rows, bool ascii, struct text *out)
{
    const struct caps caps = {.depth = DEPTH_TRUE, .glyphs = ascii ? GLYPHS_ASCII : GLYPHS_FULL};
    struct ui *u = mem_new(sizeof *u);
    struct grid g;
    ui_init(u);
    edit_load(&u->edit, text_str(&m->composer.text), m->composer.text.len, m->composer.caret);
    if (grid_init(&g, columns, rows) == 0) {
        view_draw(&g, m, u, &caps, m->now);
        char *text = frame_text(&g);
        text_puts(out, text ? text : "");
        free(text);
        grid_fini(&g);
    }
    ui_fini(u);
    free(u);
}
