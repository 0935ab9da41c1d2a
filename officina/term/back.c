#include "term/back.h"
#include "term/theme.h"
#include "util/text.h"

#include <curses.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

struct back {
    int fd;      /* the terminal; borrowed */
    FILE *made;  /* memory file that ncurses writes into */
    SCREEN *scr; /* ncurses' own */
    struct grid shown;
    enum depth depth;
    bool sync, light, whole, pastes;
    char *buf;
    size_t cap;
};

/* ncurses takes these signals when nobody else has; the workshop's belong to its own loop. */
static const int taken[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};

static SCREEN *open_type(const char *type, FILE *out)
{
    struct sigaction old[sizeof taken / sizeof taken[0]];
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaction(taken[i], NULL, &old[i]);
    SCREEN *scr = newterm(type, out, stdin);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaction(taken[i], &old[i], NULL);
    return scr;
}

/* setupterm() first: newterm() ends the process for some descriptions. */
static bool type_known(const char *type, int fd)
{
    int rc = 0;
    if (!type || !*type || setupterm(type, fd, &rc) == ERR)
        return false;
    bool moves = tigetstr("cup") != NULL && tigetstr("cup") != (char *)-1;
    del_curterm(cur_term);
    return moves;
}

/* "xterm-256color" → "xterm-direct", when there is such a description. malloc'd or NULL. */
static char *direct_type(const char *type, int fd)
{
    struct text t = {0};
    const char *tail = strstr(type, "-256color");
    text_add(&t, type, tail ? (size_t)(tail - type) : strlen(type));
    text_puts(&t, "-direct");
    if (type_known(t.s, fd))
        return text_take(&t);
    text_free(&t);
    return NULL;
}

static bool usable(const char *s)
{
    return s && s != (char *)-1 && *s;
}

static void find_depth(struct back *s, enum depth want)
{
    enum depth have = DEPTH_NONE;
    if (has_colors() && start_color() == OK) {
        use_default_colors();
        have = tigetflag("RGB") > 0 || COLORS > 256 ? DEPTH_TRUE
               : COLORS >= 256                      ? DEPTH_256
               : COLORS >= 16                       ? DEPTH_16
               : COLORS >= 8                        ? DEPTH_8
                                                    : DEPTH_NONE;
    }
    s->depth = want < have ? want : have;
}

static const char *choose_type(int fd, const char *type, char **remark)
{
    static const char *const families[] = {"xterm-256color", "xterm", "ansi"};
    if (type_known(type, fd))
        return type;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (!type_known(families[i], fd))
            continue;
        struct text t = {0};
        text_printf(&t, "no description of the terminal \"%s\": drawing as %s does (TERM)", type ? type : "",
                    families[i]);
        *remark = text_take(&t);
        return families[i];
    }
    return NULL;
}

struct back *back_open(int fd, const char *type, enum depth want, int w, int h, char **remark,
                       struct vt_err *err)
{
    *remark = NULL;
    type = choose_type(fd, type, remark);
    if (!type) {
        vt_fail(
            err, VT_E_USAGE,
            "no description of this terminal and none of xterm or ansi: install ncurses-base or set TERM");
        return NULL;
    }
    struct back *s = mem_new(sizeof *s);
    s->fd = fd;
    char *direct = want == DEPTH_TRUE ? direct_type(type, fd) : NULL;
    int mem = memfd_create("frame", MFD_CLOEXEC);
    s->made = mem < 0 ? NULL : fdopen(mem, "w+");
    if (s->made)
        s->scr = open_type(direct ? direct : type, s->made);
    free(direct);
    if (!s->scr) {
        vt_fail(err, VT_E_OS, "ncurses cannot draw on a terminal of type %s", type);
        if (s->made)
            fclose(s->made);
        free(s);
        free(*remark);
        *remark = NULL;
        return NULL;
    }
    find_depth(s, want);
    s->pastes = usable(tigetstr("BE"));
    leaveok(stdscr, FALSE);
    back_resize(s, w, h);
    return s;
}

/* Takes what ncurses has written since the last time into s->buf from `at` on; returns the bytes. */
static size_t take_made(struct back *s, size_t at)
{
    int fd = fileno(s->made);
    fflush(s->made);
    off_t n = lseek(fd, 0, SEEK_CUR);
    if (n <= 0)
        return 0;
    if (at + (size_t)n + 64 > s->cap) {
        s->cap = (at + (size_t)n + 64) * 2;
        s->buf = mem_grow(s->buf, s->cap);
    }
    ssize_t got = pread(fd, s->buf + at, (size_t)n, 0);
    if (lseek(fd, 0, SEEK_SET) != 0 || ftruncate(fd, 0) != 0)
        return 0;
    return got > 0 ? (size_t)got : 0;
}

/* One write; a terminal that is slow or set not to block takes it in parts. */
static int write_out(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EAGAIN) {
            struct pollfd pf = {.fd = fd, .events = POLLOUT};
            if (poll(&pf, 1, 5000) <= 0)
                return -1;
            continue;
        }
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return -1;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int flush_made(struct back *s)
{
    static const char begin[] = "\x1b[?2026h", end[] = "\x1b[?2026l";
    size_t at = s->sync ? sizeof begin - 1 : 0;
    size_t n = take_made(s, at);
    if (!n)
        return 0;
    if (s->sync) {
        memcpy(s->buf, begin, at);
        memcpy(s->buf + at + n, end, sizeof end - 1);
        n += sizeof end - 1;
    }
    return write_out(s->fd, s->buf, at + n) < 0 ? -1 : 1;
}

void back_close(struct back *s)
{
    endwin();
    flush_made(s);
    delscreen(s->scr);
    fclose(s->made);
    grid_fini(&s->shown);
    free(s->buf);
    free(s);
}

enum depth back_depth(const struct back *s)
{
    return s->depth;
}

bool back_pastes(const struct back *s)
{
    return s->pastes;
}

void back_set_sync(struct back *s, bool on)
{
    s->sync = on;
}

void back_set_light(struct back *s, bool on)
{
    s->whole |= s->light != on;
    s->light = on;
}

void back_resize(struct back *s, int w, int h)
{
    grid_fini(&s->shown);
    if (grid_init(&s->shown, w, h) < 0)
        abort();
    resizeterm(h < 1 ? 1 : h, w < 1 ? 1 : w);
    clearok(curscr, TRUE);
    s->whole = true;
}

/* What ncurses is given for a cell: characters that the C library gives another width than our table would shift the row. */
static int wide_text(const struct cell *c, wchar_t out[CCHARW_MAX + 1])
{
    int n = 0;
    for (size_t i = 0; i < c->n && n < CCHARW_MAX;) {
        uint32_t cp;
        i += gate_decode(c->bytes + i, c->n - i, &cp);
        int width = wcwidth((wchar_t)cp);
        if (n == 0 && width != c->width) {
            out[n++] = c->width == 2 ? L'\x3000' : L'?'; /* an ideographic blank is wide everywhere */
            break;
        }
        if (n > 0 && width != 0)
            break;
        out[n++] = (wchar_t)cp;
    }
    out[n] = L'\0';
    return n;
}

static attr_t attrs_of(unsigned a)
{
    return (a & ATTR_BOLD ? A_BOLD : 0) | (a & ATTR_DIM ? A_DIM : 0) |
           (a & ATTR_UNDERLINE ? A_UNDERLINE : 0) | (a & ATTR_REVERSE ? A_REVERSE : 0) |
           (a & ATTR_ITALIC ? A_ITALIC : 0);
}

static void put_cell(struct back *s, int x, int y, const struct cell *c)
{
    wchar_t wide[CCHARW_MAX + 1];
    cchar_t cc;
    struct ink k = theme_ink(c->style, s->depth, s->light);
    int pair = s->depth == DEPTH_NONE || (k.fg < 0 && k.bg < 0) ? 0 : alloc_pair(k.fg, k.bg);
    if (pair < 0)
        pair = 0;
    wide_text(c, wide);
    if (setcchar(&cc, wide, attrs_of(k.attr), (short)0, &pair) == OK)
        mvadd_wchnstr(y, x, &cc, 1);
}

int back_draw(struct back *s, const struct grid *g)
{
    bool changed = s->whole;
    for (int y = 0; y < g->h; y++) {
        for (int x = 0; x < g->w; x++) {
            const struct cell *c = grid_at(g, x, y);
            if (!s->whole && cell_equal(c, grid_at(&s->shown, x, y)))
                continue;
            changed = true;
            if (c->width)
                put_cell(s, x, y, c);
        }
    }
    if (!changed && g->caret == s->shown.caret && g->caret_x == s->shown.caret_x &&
        g->caret_y == s->shown.caret_y)
        return 0;
    s->whole = false;
    grid_copy(&s->shown, g);
    curs_set(g->caret ? 1 : 0);
    move(g->caret ? g->caret_y : 0, g->caret ? g->caret_x : 0);
    wnoutrefresh(stdscr);
    doupdate();
    return flush_made(s);
}
