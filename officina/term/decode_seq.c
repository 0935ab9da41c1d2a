#include "term/decode_seq.h"

#include <stdlib.h>
#include <string.h>

#define PARAMS 6

struct params {
    unsigned v[PARAMS];   /* first of each field; missing ones are 0 */
    unsigned sub[PARAMS]; /* second, behind a colon */
    int n;
};

/* "97:65;5:1;…"; numbers stay below a million. */
static void read_params(const char *s, size_t n, struct params *p)
{
    int field = 0;
    int part = 0;
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < n && field < PARAMS; i++) {
        if (s[i] >= '0' && s[i] <= '9') {
            unsigned *v = part == 0 ? &p->v[field] : part == 1 ? &p->sub[field] : NULL;
            if (v && *v < 1000000)
                *v = *v * 10 + (unsigned)(s[i] - '0');
            p->n = field + 1;
        } else if (s[i] == ':') {
            part++;
        } else if (s[i] == ';') {
            field++;
            part = 0;
        }
    }
}

static bool set_key(struct term_event *ev, enum term_key k, uint32_t cp, unsigned mods)
{
    memset(ev, 0, sizeof *ev);
    ev->kind = TE_KEY;
    ev->u.key.key = k;
    ev->u.key.cp = cp;
    ev->u.key.mods = mods;
    return true;
}

static bool set_answer(struct term_event *ev, enum term_answer what, uint32_t value)
{
    memset(ev, 0, sizeof *ev);
    ev->kind = TE_ANSWER;
    ev->u.answer.what = what;
    ev->u.answer.value = value;
    return true;
}

/* The parameter is 1 + a bit mask: 1 shift, 2 alt, 4 ctrl, 8 super, 16 hyper, 32 meta. */
static unsigned mods_of(unsigned param)
{
    unsigned bits = param ? param - 1 : 0;
    return (bits & 7) | (bits & 32 ? TM_ALT : 0);
}

static bool tilde_key(unsigned number, enum term_key *k)
{
    static const struct {
        uint8_t number, key;
    } keys[] = {{1, TK_HOME},    {2, TK_INSERT},  {3, TK_DELETE},  {4, TK_END},      {5, TK_PGUP},
                {6, TK_PGDN},    {7, TK_HOME},    {8, TK_END},     {11, TK_F1},      {12, TK_F1 + 1},
                {13, TK_F1 + 2}, {14, TK_F1 + 3}, {15, TK_F1 + 4}, {17, TK_F1 + 5},  {18, TK_F1 + 6},
                {19, TK_F1 + 7}, {20, TK_F1 + 8}, {21, TK_F1 + 9}, {23, TK_F1 + 10}, {24, TK_F1 + 11}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i].number == number) {
            *k = (enum term_key)keys[i].key;
            return true;
        }
    }
    return false;
}

static bool letter_key(char c, enum term_key *k)
{
    switch (c) {
    case 'A': *k = TK_UP; return true;
    case 'B': *k = TK_DOWN; return true;
    case 'C': *k = TK_RIGHT; return true;
    case 'D': *k = TK_LEFT; return true;
    case 'H': *k = TK_HOME; return true;
    case 'F': *k = TK_END; return true;
    case 'P':
    case 'Q':
    case 'R':
    case 'S': *k = (enum term_key)(TK_F1 + (c - 'P')); return true;
    default: return false;
    }
}

/* A key by its Unicode number, as kitty and xterm send it; functional keys have numbers of the private area. */
static bool unicode_key(unsigned cp, unsigned mods, struct term_event *ev)
{
    static const char keypad[] = "0123456789./*-+";
    switch (cp) {
    case 8: return set_key(ev, TK_BACKSPACE, 0, mods);
    case 9: return set_key(ev, TK_TAB, 0, mods);
    case 13:
    case 57414: return set_key(ev, TK_ENTER, 0, mods);
    case 27: return set_key(ev, TK_ESC, 0, mods);
    case 127: return set_key(ev, TK_BACKSPACE, 0, mods);
    case 57417: return set_key(ev, TK_LEFT, 0, mods);
    case 57418: return set_key(ev, TK_RIGHT, 0, mods);
    case 57419: return set_key(ev, TK_UP, 0, mods);
    case 57420: return set_key(ev, TK_DOWN, 0, mods);
    case 57421: return set_key(ev, TK_PGUP, 0, mods);
    case 57422: return set_key(ev, TK_PGDN, 0, mods);
    case 57423: return set_key(ev, TK_HOME, 0, mods);
    case 57424: return set_key(ev, TK_END, 0, mods);
    case 57425: return set_key(ev, TK_INSERT, 0, mods);
    case 57426: return set_key(ev, TK_DELETE, 0, mods);
    default: break;
    }
    if (cp >= 57399 && cp < 57399 + sizeof keypad - 1)
        return set_key(ev, TK_CHAR, (uint32_t)keypad[cp - 57399], mods & ~(unsigned)TM_SHIFT);
    if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0xd800 && cp <= 0xf8ff) || cp > 0x10ffff)
        return false;
    if (mods & TM_SHIFT &&
        !(mods & (TM_CTRL | TM_ALT))) /* the shifted sign is not told at this level but for letters */
        return set_key(ev, TK_CHAR, cp >= 'a' && cp <= 'z' ? cp - 32 : cp, 0);
    if (mods & TM_CTRL && cp >= 'A' && cp <= 'Z')
        cp += 32;
    return set_key(ev, TK_CHAR, cp, mods);
}

static bool mouse(const char *s, size_t n, struct term_event *ev)
{
    struct params p;
    char final = s[n - 1];
    read_params(s + 1, n - 2, &p);
    if ((final != 'M' && final != 'm') || p.n < 3 || !p.v[1] || !p.v[2] || p.v[1] > 10000 || p.v[2] > 10000)
        return false;
    memset(ev, 0, sizeof *ev);
    ev->kind = TE_MOUSE;
    unsigned b = p.v[0];
    ev->u.mouse.x = (int)p.v[1] - 1;
    ev->u.mouse.y = (int)p.v[2] - 1;
    ev->u.mouse.mods = (b & 4 ? TM_SHIFT : 0) | (b & 8 ? TM_ALT : 0) | (b & 16 ? TM_CTRL : 0);
    ev->u.mouse.button = (int)(b & 3);
    if (b & 64) {
        ev->u.mouse.what = b & 1 ? TMOUSE_WHEEL_DOWN : TMOUSE_WHEEL_UP;
        return (b & 2) == 0 && final == 'M'; /* 66 and 67 scroll sideways */
    }
    if (b & 128 || (b & 3) == 3)
        return false;
    ev->u.mouse.what = final == 'm' ? TMOUSE_RELEASE : b & 32 ? TMOUSE_DRAG : TMOUSE_PRESS;
    return true;
}

/* Answers to questions with a private mark: ? or >. */
static bool private_csi(const char *s, size_t n, struct term_event *ev)
{
    struct params p;
    char final = s[n - 1];
    read_params(s + 1, n - 2, &p);
    if (s[0] == '?' && final == 'c')
        return set_answer(ev, TA_ATTRIBUTES, p.v[0]);
    if (s[0] == '?' && final == 'u')
        return set_answer(ev, TA_KEYBOARD, p.v[0]);
    if (s[0] == '?' && final == 'y' && n > 2 && s[n - 2] == '$' && p.v[0] == 2026)
        return set_answer(ev, TA_SYNC, p.v[1]);
    return false;
}

/* rxvt ends a tilde key with ^, $ or @ for ctrl, shift and both. */
static bool rxvt_csi(const struct params *p, char final, struct term_event *ev)
{
    enum term_key k;
    unsigned mods = final == '^' ? TM_CTRL : final == '$' ? TM_SHIFT : TM_CTRL | TM_SHIFT;
    return tilde_key(p->v[0], &k) && set_key(ev, k, 0, mods);
}

bool decode_csi(const char *s, size_t n, struct term_event *ev)
{
    struct params p;
    enum term_key k;
    if (n == 0)
        return false;
    char final = s[n - 1];
    if (s[0] == '<')
        return n > 2 && mouse(s, n, ev);
    if (s[0] == '?' || s[0] == '>' || s[0] == '=')
        return n > 1 && private_csi(s, n, ev);
    read_params(s, n - 1, &p);
    if (p.sub[1] == 3) /* kitty: the key was released */
        return false;
    unsigned mods = mods_of(p.v[1]);
    switch (final) {
    case '~':
        if (p.v[0] == 27 && p.n == 3)
            return unicode_key(p.v[2], mods, ev);
        return tilde_key(p.v[0], &k) && set_key(ev, k, 0, mods);
    case '^':
    case '$':
    case '@': return rxvt_csi(&p, final, ev);
    case 'u': return unicode_key(p.v[0], mods, ev);
    case 'Z': return set_key(ev, TK_TAB, 0, TM_SHIFT);
    case 'I':
    case 'O':
        if (n != 1)
            return false;
        memset(ev, 0, sizeof *ev);
        ev->kind = TE_FOCUS;
        ev->u.focused = final == 'I';
        return true;
    case 'R':
        if (p.n == 2 && p.v[0] != 1) /* ESC [ 1 ; 5 R is Ctrl-F3; any other row is a place */
            return set_answer(ev, TA_CURSOR, p.v[0] << 16 | (p.v[1] & 0xffff));
        break;
    case 'a':
    case 'b':
    case 'c':
    case 'd': /* rxvt, shift */
        return n == 1 && letter_key((char)(final - 32), &k) && set_key(ev, k, 0, TM_SHIFT);
    case 'M': return false;
    default: break;
    }
    return letter_key(final, &k) && set_key(ev, k, 0, mods);
}

bool decode_ss3(const char *s, size_t n, struct term_event *ev)
{
    static const char keypad[] = "*+,-./0123456789";
    struct params p;
    enum term_key k;
    char final = s[n - 1];
    read_params(s, n - 1, &p);
    unsigned mods = mods_of(p.n == 1 ? p.v[0] : p.v[1]);
    if (final == 'M')
        return set_key(ev, TK_ENTER, 0, mods);
    if (final >= 'a' && final <= 'd') /* rxvt, ctrl */
        return letter_key((char)(final - 32), &k) && set_key(ev, k, 0, TM_CTRL);
    if (final >= 'j' && final <= 'y')
        return set_key(ev, TK_CHAR, (uint32_t)keypad[final - 'j'], mods);
    return letter_key(final, &k) && set_key(ev, k, 0, mods);
}

bool decode_linux(char c, struct term_event *ev)
{
    return c >= 'A' && c <= 'E' && set_key(ev, (enum term_key)(TK_F1 + (c - 'A')), 0, 0);
}

/* "rgb:ffff/8080/0000" in one to four digits each, or "#rrggbb". */
static bool read_colour(const char *s, size_t n, uint32_t *rgb)
{
    char buf[40];
    if (n >= sizeof buf)
        return false;
    memcpy(buf, s, n);
    buf[n] = '\0';
    if (buf[0] == '#' && n == 7) {
        *rgb = (uint32_t)strtoul(buf + 1, NULL, 16);
        return true;
    }
    char *p = strncmp(buf, "rgb:", 4) == 0 ? buf + 4 : strncmp(buf, "rgba:", 5) == 0 ? buf + 5 : NULL;
    uint32_t out = 0;
    for (int i = 0; p && i < 3; i++) {
        char *end;
        unsigned long v = strtoul(p, &end, 16);
        long digits = end - p;
        if (digits < 1 || digits > 4 || (i < 2 && *end != '/'))
            return false;
        unsigned long most = (1ul << (4 * digits)) - 1;
        out = out << 8 | (uint32_t)(v * 255 / most);
        p = end + 1;
    }
    *rgb = out;
    return p != NULL;
}

bool decode_osc(const char *s, size_t n, struct term_event *ev)
{
    uint32_t rgb;
    if (n < 4 || memcmp(s, "]11;", 4) != 0 || !read_colour(s + 4, n - 4, &rgb))
        return false;
    return set_answer(ev, TA_BACKGROUND, rgb);
}
