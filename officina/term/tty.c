#include "term/tty.h"
#include "term/back.h"
#include "util/text.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

/* A terminal that has not answered by then will not be waited for; what comes later is taken all the same. */
#define ANSWER_MS      300
#define SLOW_ANSWER_MS 150

struct tty {
    struct tty_options o;
    struct termios saved;
    struct back *back;
    struct decoder decoder;
    struct caps caps;
    int w, h;
    bool raw, answered, keyboard, looked;
    uint64_t asked_ms;
};

static const char restore[] =
    "\x1b[?2026l\x1b[?1002l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u\x1b[0m\x1b[?1049l\x1b[?25h";
static const char modes_on[] = "\x1b[?2004h\x1b[?1004h";
static const char mouse_on[] = "\x1b[?1002h\x1b[?1006h", mouse_off[] = "\x1b[?1002l\x1b[?1006l";
static const char questions[] = "\x1b[?2026$p\x1b]11;?\x1b\\\x1b[?u\x1b[c";
static const char keyboard_on[] = "\x1b[>1u";

const char *tty_restore_string(void)
{
    return restore;
}

void tty_send(struct tty *t, const char *bytes, size_t n)
{
    while (n) {
        ssize_t k = write(t->o.out, bytes, n);
        if (k <= 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (k > 0) {
            bytes += k;
            n -= (size_t)k;
        }
    }
}

static void ask_size(struct tty *t)
{
    struct winsize ws;
    t->w = 80;
    t->h = 24;
    if (ioctl(t->o.out, TIOCGWINSZ, &ws) == 0 && ws.ws_col && ws.ws_row) {
        t->w = ws.ws_col < 500 ? ws.ws_col : 500;
        t->h = ws.ws_row < 300 ? ws.ws_row : 300;
    }
}

static void set_raw(struct tty *t)
{
    struct termios raw = t->saved;
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(t->o.in, TCSADRAIN, &raw);
    t->raw = true;
}

static void ask(struct tty *t, uint64_t now_ms)
{
    struct text out = {0};
    text_puts(&out, modes_on);
    if (t->caps.mouse)
        text_puts(&out, mouse_on);
    text_puts(&out, questions);
    tty_send(t, out.s, out.len);
    text_free(&out);
    t->asked_ms = now_ms;
    t->answered = false;
}

static enum depth wanted_depth(const struct tty_options *o)
{
    if (o->no_color)
        return DEPTH_NONE;
    bool truecolor =
        o->colorterm && (strcmp(o->colorterm, "truecolor") == 0 || strcmp(o->colorterm, "24bit") == 0);
    bool direct = o->type && strstr(o->type, "-direct");
    return o->depth == DEPTH_TRUE && !truecolor && !direct ? DEPTH_256 : o->depth;
}

/* COLORFGBG is "15;0" or "15;default;0": the last number is the ground. */
static bool says_light(const char *colorfgbg)
{
    const char *last = colorfgbg ? strrchr(colorfgbg, ';') : NULL;
    if (!last)
        return false;
    int ground = atoi(last + 1);
    return ground == 7 || ground == 15;
}

struct tty *tty_open(const struct tty_options *o, uint64_t now_ms, char **remark, struct vt_err *err)
{
    struct tty *t = mem_new(sizeof *t);
    *remark = NULL;
    t->o = *o;
    if (!isatty(o->in) || !isatty(o->out) || tcgetattr(o->in, &t->saved) != 0) {
        vt_fail(err, VT_E_USAGE, "the workshop needs a terminal: for scripts use `vitriol officina -p TEXT`");
        free(t);
        return NULL;
    }
    ask_size(t);
    t->back = back_open(o->out, o->type, wanted_depth(o), t->w, t->h, remark, err);
    if (!t->back) {
        free(t);
        return NULL;
    }
    t->caps = (struct caps){
        .depth = back_depth(t->back), .glyphs = o->glyphs, .motion = o->motion, .mouse = o->mouse};
    t->caps.light = o->theme == TTY_THEME_LIGHT || (o->theme == TTY_THEME_AUTO && says_light(o->colorfgbg));
    back_set_light(t->back, t->caps.light);
    decode_init(&t->decoder, o->remote ? 80 : 30);
    set_raw(t);
    ask(t, now_ms);
    return t;
}

void tty_leave(struct tty *t)
{
    if (!t->raw)
        return;
    tty_send(t, restore, sizeof restore - 1);
    tcsetattr(t->o.in, TCSADRAIN, &t->saved);
    t->raw = false;
}

void tty_return(struct tty *t)
{
    static const char again[] = "\x1b[?1049h\x1b[2J";
    tcgetattr(t->o.in, &t->saved);
    set_raw(t);
    tty_send(t, again, sizeof again - 1);
    ask(t, t->asked_ms);
    if (t->keyboard)
        tty_send(t, keyboard_on, sizeof keyboard_on - 1);
    tty_resized(t);
}

/* What the terminal still has to answer would be typed into the shell. */
static void await_answers(struct tty *t)
{
    struct pollfd fd = {t->o.in, POLLIN, 0};
    char buf[256];
    while (t->raw && !t->answered && poll(&fd, 1, ANSWER_MS) > 0) {
        ssize_t n = read(t->o.in, buf, sizeof buf);
        if (n <= 0)
            break;
        t->answered = memchr(buf, 'c', (size_t)n) != NULL; /* the last answer's end */
    }
}

void tty_close(struct tty *t)
{
    back_close(t->back);
    await_answers(t);
    tty_leave(t);
    decode_fini(&t->decoder);
    free(t);
}

const struct caps *tty_caps(const struct tty *t)
{
    return &t->caps;
}

void tty_size(const struct tty *t, int *w, int *h)
{
    *w = t->w;
    *h = t->h;
}

void tty_resized(struct tty *t)
{
    ask_size(t);
    back_resize(t->back, t->w, t->h);
}

int tty_draw(struct tty *t, const struct grid *g)
{
    return g->w == t->w && g->h == t->h ? back_draw(t->back, g) : 0;
}

void tty_mouse(struct tty *t, bool on)
{
    t->caps.mouse = on;
    tty_send(t, on ? mouse_on : mouse_off, strlen(on ? mouse_on : mouse_off));
}

void tty_glyphs(struct tty *t, enum glyphs g)
{
    t->caps.glyphs = g;
}

void tty_theme(struct tty *t, enum tty_theme theme)
{
    t->o.theme = theme;
    t->caps.light = theme == TTY_THEME_LIGHT;
    back_set_light(t->back, t->caps.light);
}

/* The program may have had other things to do since it asked: the terminal's time begins when it is listened to. */
static void look(struct tty *t, uint64_t now_ms)
{
    if (!t->looked)
        t->asked_ms = now_ms;
    t->looked = true;
}

static bool is_light(uint32_t rgb)
{
    return (rgb >> 16) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 > 128 * 1000;
}

struct passing {
    struct tty *t;
    uint64_t now_ms;
    decode_fn *fn;
    void *arg;
};

static void answer(struct tty *t, enum term_answer what, uint32_t value, uint64_t now_ms)
{
    switch (what) {
    case TA_ATTRIBUTES:
        if (!t->answered && now_ms - t->asked_ms > SLOW_ANSWER_MS)
            t->caps.motion = false;
        t->answered = true;
        break;
    case TA_SYNC: back_set_sync(t->back, value == 1 || value == 2); break;
    case TA_BACKGROUND:
        if (t->o.theme == TTY_THEME_AUTO) {
            t->caps.light = is_light(value);
            back_set_light(t->back, t->caps.light);
        }
        break;
    case TA_KEYBOARD:
        if (!t->keyboard && t->raw)
            tty_send(t, keyboard_on, sizeof keyboard_on - 1);
        t->keyboard = true;
        break;
    case TA_CURSOR: break;
    }
}

static void pass(void *arg, const struct term_event *ev)
{
    struct passing *p = arg;
    if (ev->kind == TE_ANSWER)
        answer(p->t, ev->u.answer.what, ev->u.answer.value, p->now_ms);
    else
        p->fn(p->arg, ev);
}

int tty_read(struct tty *t, uint64_t now_ms, decode_fn *fn, void *arg)
{
    char buf[16384];
    struct passing p = {t, now_ms, fn, arg};
    look(t, now_ms);
    ssize_t n = read(t->o.in, buf, sizeof buf);
    if (n == 0) /* nothing; a terminal that hung up reads so too, but polls as ended */
        return 0;
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -1;
    if (!back_pastes(t->back) && t->decoder.state == 0 && decode_is_burst(buf, (size_t)n))
        decode_burst(&t->decoder, buf, (size_t)n, pass, &p);
    else
        decode_feed(&t->decoder, buf, (size_t)n, now_ms, pass, &p);
    return (int)n;
}

void tty_tick(struct tty *t, uint64_t now_ms, decode_fn *fn, void *arg)
{
    struct passing p = {t, now_ms, fn, arg};
    look(t, now_ms);
    decode_tick(&t->decoder, now_ms, pass, &p);
    if (!t->answered && now_ms - t->asked_ms >= ANSWER_MS) {
        t->answered = true;
        t->caps.motion = false; /* a line too slow to answer is too slow for motion */
    }
}

uint64_t tty_deadline(const struct tty *t)
{
    uint64_t at = decode_deadline(&t->decoder);
    uint64_t wait = t->answered ? UINT64_MAX : t->asked_ms + ANSWER_MS;
    return at < wait ? at : wait;
}
