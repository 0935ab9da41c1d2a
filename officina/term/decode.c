#include "term/decode.h"
#include "term/decode_seq.h"
#include "term/gate.h"

#include <stdlib.h>
#include <string.h>

enum { GROUND, ESC, SS3, CSI, CSI_LINUX, STRING, STRING_ESC, PASTE, UTF8 };

static const char paste_end[] = "\x1b[201~";

void decode_init(struct decoder *d, unsigned esc_ms)
{
    memset(d, 0, sizeof *d);
    d->esc_ms = esc_ms;
}

void decode_fini(struct decoder *d)
{
    free(d->paste);
    memset(d, 0, sizeof *d);
}

static void key(decode_fn *fn, void *arg, enum term_key k, uint32_t cp, unsigned mods)
{
    struct term_event ev = {.kind = TE_KEY};
    ev.u.key.key = k;
    ev.u.key.cp = cp;
    ev.u.key.mods = mods;
    fn(arg, &ev);
}

/* One byte below 0x20, or 0x7f. */
static void control(decode_fn *fn, void *arg, unsigned char c, unsigned mods)
{
    static const char above[] = "\\]^_";
    switch (c) {
    case '\r': key(fn, arg, TK_ENTER, 0, mods); return;
    case '\t': key(fn, arg, TK_TAB, 0, mods); return;
    case 0x7f: key(fn, arg, TK_BACKSPACE, 0, mods); return;
    case 0x1b: key(fn, arg, TK_ESC, 0, mods); return;
    case 0: key(fn, arg, TK_CHAR, ' ', mods | TM_CTRL); return;
    default: break;
    }
    key(fn, arg, TK_CHAR, c < 0x1b ? (uint32_t)('a' + c - 1) : (uint32_t)above[c - 0x1c], mods | TM_CTRL);
}

static void paste_byte(struct decoder *d, char c)
{
    if (d->n_paste >= DECODE_PASTE_MAX) {
        d->paste_cut = true;
        return;
    }
    if (d->n_paste == d->cap_paste) {
        size_t cap = d->cap_paste ? d->cap_paste * 2 : 4096;
        char *more = realloc(d->paste, cap);
        if (!more) {
            d->paste_cut = true;
            return;
        }
        d->paste = more;
        d->cap_paste = cap;
    }
    d->paste[d->n_paste++] = c;
}

/* Replaces what is no UTF-8 and drops the C1 controls, in place of a copy that is at most three times as long. */
static char *clean_utf8(const char *in, size_t n, size_t *out_n)
{
    char *out = malloc(n * 3 + 1);
    *out_n = 0;
    if (!out)
        return NULL;
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        i += gate_decode(in + i, n - i, &cp);
        if (cp >= 0x80 && cp < 0xa0)
            continue;
        *out_n += gate_encode(cp, out + *out_n);
    }
    return out;
}

static void paste_done(struct decoder *d, decode_fn *fn, void *arg)
{
    struct term_event ev = {.kind = TE_PASTE};
    size_t n;
    char *text = clean_utf8(d->paste ? d->paste : "", d->n_paste, &n);
    ev.u.paste.text = text ? text : "";
    ev.u.paste.n = n;
    ev.u.paste.cut = d->paste_cut || !text;
    d->state = GROUND;
    fn(arg, &ev);
    free(text);
    free(d->paste);
    d->paste = NULL;
    d->n_paste = d->cap_paste = 0;
    d->paste_cut = d->paste_cr = false;
    d->end_at = 0;
}

/* A byte of a paste that is no part of its end mark: CR and CR LF become newlines, controls go. */
static void paste_text(struct decoder *d, char c)
{
    bool cr = d->paste_cr;
    d->paste_cr = c == '\r';
    if (c == '\r')
        paste_byte(d, '\n');
    else if (c == '\n' ? !cr : c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f))
        paste_byte(d, c);
}

static void in_paste(struct decoder *d, char c, decode_fn *fn, void *arg)
{
    if (c == paste_end[d->end_at]) {
        if (++d->end_at == sizeof paste_end - 1)
            paste_done(d, fn, arg);
        return;
    }
    for (uint8_t i = 0; i < d->end_at; i++) /* the mark had only begun: its ESC goes, the rest was text */
        paste_text(d, paste_end[i]);
    d->end_at = 0;
    if (c == paste_end[0])
        d->end_at = 1;
    else
        paste_text(d, c);
}

static void seq_start(struct decoder *d, int state)
{
    d->state = state;
    d->n_seq = 0;
    d->seq_lost = false;
}

static void seq_byte(struct decoder *d, char c)
{
    if (d->n_seq == DECODE_SEQ_MAX)
        d->seq_lost = true;
    else
        d->seq[d->n_seq++] = c;
}

/* The sequence is whole: hands it on, or begins a paste. */
static void seq_done(struct decoder *d, int kind, decode_fn *fn, void *arg)
{
    struct term_event ev;
    bool alt = d->alt;
    d->state = GROUND;
    d->alt = false;
    if (d->seq_lost)
        return;
    if (kind == CSI && d->n_seq == 4 && memcmp(d->seq, "200~", 4) == 0) {
        d->state = PASTE;
        d->end_at = 0;
        return;
    }
    bool known = kind == CSI         ? decode_csi(d->seq, d->n_seq, &ev)
                 : kind == CSI_LINUX ? decode_linux(d->seq[0], &ev)
                 : kind == SS3       ? decode_ss3(d->seq, d->n_seq, &ev)
                                     : decode_osc(d->seq, d->n_seq, &ev);
    if (!known)
        return;
    if (alt && ev.kind == TE_KEY)
        ev.u.key.mods |= TM_ALT;
    fn(arg, &ev);
}

static size_t utf8_need(unsigned char c)
{
    return c >= 0xf0 && c < 0xf5 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc2 && c < 0xe0 ? 2 : 1;
}

static void ground(struct decoder *d, unsigned char c, unsigned mods, decode_fn *fn, void *arg)
{
    d->state = GROUND;
    if (c == 0x1b) {
        d->state = ESC;
        d->alt = false;
    } else if (c < 0x20 || c == 0x7f) {
        control(fn, arg, c, mods);
    } else if (c < 0x80) {
        key(fn, arg, TK_CHAR, c, mods);
    } else if (utf8_need(c) > 1) {
        seq_start(d, UTF8);
        d->alt = mods & TM_ALT;
        seq_byte(d, (char)c);
    } else {
        key(fn, arg, TK_CHAR, 0xfffd, mods);
    }
}

/* Returns false when c is no part of the character and has to be read again. */
static bool in_utf8(struct decoder *d, unsigned char c, decode_fn *fn, void *arg)
{
    uint32_t cp;
    bool more = (c & 0xc0) == 0x80;
    if (more)
        seq_byte(d, (char)c);
    if (more && d->n_seq < utf8_need((unsigned char)d->seq[0]))
        return true;
    if (gate_decode(d->seq, d->n_seq, &cp) != d->n_seq)
        cp = 0xfffd;
    unsigned mods = d->alt ? TM_ALT : 0;
    d->state = GROUND;
    d->alt = false;
    if (cp < 0x80 || cp >= 0xa0) /* C1 controls are nobody's key */
        key(fn, arg, TK_CHAR, cp, mods);
    return more;
}

static void after_esc(struct decoder *d, unsigned char c, decode_fn *fn, void *arg)
{
    bool alt = d->alt;
    switch (c) {
    case '[': seq_start(d, CSI); return;
    case 'O': seq_start(d, SS3); return;
    case ']':
    case 'P':
    case '_':
    case '^':
        if (c == 'P' || c == ']' || !alt) {
            seq_start(d, STRING);
            seq_byte(d, (char)c);
            return;
        }
        break;
    case 0x1b:
        if (alt)
            key(fn, arg, TK_ESC, 0, 0);
        d->alt = true;
        return;
    default: break;
    }
    if (alt)
        key(fn, arg, TK_ESC, 0, 0);
    d->alt = false;
    ground(d, c, TM_ALT, fn, arg);
}

/* A byte within a control sequence. Returns false when c cannot be in one: the sequence is dropped, c read again. */
static bool in_csi(struct decoder *d, unsigned char c, decode_fn *fn, void *arg)
{
    if (c < 0x20 || c > 0x7e) {
        d->state = GROUND;
        d->alt = false;
        return false;
    }
    if (c == '[' && d->n_seq == 0) {
        d->state = CSI_LINUX;
        return true;
    }
    seq_byte(d, (char)c);
    if (c >= 0x40 || (c == '$' && d->n_seq > 1 && d->seq[0] != '?')) /* rxvt ends shifted keys with $ */
        seq_done(d, CSI, fn, arg);
    return true;
}

static void in_string(struct decoder *d, unsigned char c, decode_fn *fn, void *arg)
{
    if (d->state == STRING_ESC) {
        if (c == '\\') {
            seq_done(d, STRING, fn, arg);
            return;
        }
        d->state = GROUND; /* the string was broken off; what comes is a sequence of its own */
        d->alt = false;
        after_esc(d, c, fn, arg);
    } else if (c == '\a') {
        seq_done(d, STRING, fn, arg);
    } else if (c == 0x1b) {
        d->state = STRING_ESC;
    } else {
        seq_byte(d, (char)c);
    }
}

static void feed_byte(struct decoder *d, unsigned char c, decode_fn *fn, void *arg)
{
    switch (d->state) {
    case PASTE: in_paste(d, (char)c, fn, arg); return;
    case STRING:
    case STRING_ESC: in_string(d, c, fn, arg); return;
    case ESC: after_esc(d, c, fn, arg); return;
    case CSI:
        if (in_csi(d, c, fn, arg))
            return;
        break;
    case CSI_LINUX:
    case SS3:
        if (c >= 0x20 && c < 0x7f) {
            seq_byte(d, (char)c);
            if (d->state == CSI_LINUX || c >= 0x40)
                seq_done(d, d->state, fn, arg);
            return;
        }
        d->state = GROUND;
        d->alt = false;
        break;
    case UTF8:
        if (in_utf8(d, c, fn, arg))
            return;
        break;
    default: break;
    }
    ground(d, c, 0, fn, arg);
}

void decode_feed(struct decoder *d, const void *bytes, size_t n, uint64_t now_ms, decode_fn *fn, void *arg)
{
    const unsigned char *p = bytes;
    decode_tick(d, now_ms, fn, arg);
    if (n)
        d->last_ms = now_ms;
    for (size_t i = 0; i < n; i++)
        feed_byte(d, p[i], fn, arg);
}

uint64_t decode_deadline(const struct decoder *d)
{
    switch (d->state) {
    case GROUND: return UINT64_MAX;
    case PASTE: return d->last_ms + DECODE_PASTE_GAP;
    case ESC: return d->last_ms + d->esc_ms;
    case STRING: return d->last_ms + (d->n_seq == 1 ? d->esc_ms : 1000); /* Alt-_ Alt-] Alt-^ Alt-P */
    default: return d->last_ms + 1000;
    }
}

void decode_tick(struct decoder *d, uint64_t now_ms, decode_fn *fn, void *arg)
{
    if (now_ms < decode_deadline(d))
        return;
    switch (d->state) {
    case PASTE: paste_done(d, fn, arg); return;
    case ESC:
        if (d->alt)
            key(fn, arg, TK_ESC, 0, 0);
        key(fn, arg, TK_ESC, 0, 0);
        break;
    case CSI:
        if (d->n_seq == 0) /* Alt-[ is a key when nothing follows */
            key(fn, arg, TK_CHAR, '[', TM_ALT);
        break;
    case SS3:
        if (d->n_seq == 0)
            key(fn, arg, TK_CHAR, 'O', TM_ALT);
        break;
    case STRING:
        if (d->n_seq == 1)
            key(fn, arg, TK_CHAR, (unsigned char)d->seq[0], TM_ALT);
        break;
    case UTF8: key(fn, arg, TK_CHAR, 0xfffd, 0); break;
    default: break;
    }
    d->state = GROUND;
    d->alt = false;
}

bool decode_is_burst(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    int lines = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == 0x1b)
            return false;
        lines += p[i] == '\r' || (p[i] == '\n' && (i == 0 || p[i - 1] != '\r'));
    }
    return lines >= 3;
}

void decode_burst(struct decoder *d, const void *bytes, size_t n, decode_fn *fn, void *arg)
{
    const char *p = bytes;
    for (size_t i = 0; i < n; i++)
        paste_text(d, p[i]);
    paste_done(d, fn, arg);
}
