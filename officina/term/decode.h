/* Decoder of what a terminal sends: bytes to events, a state machine that may be split at every byte.
 *
 * Knows the sequences of xterm and its family, of the Linux console, rxvt's keypad, the kitty keyboard protocol
 * (disambiguating level) and xterm's modifyOtherKeys; bracketed paste as one event; SGR mouse; focus; the answers to the
 * questions of tty.h, also when they come late. An unknown sequence is dropped whole. What cannot be told apart by bytes is
 * told by time: a lone ESC is the key after `esc_ms`. No clock is read here: the caller gives the time in milliseconds.
 * One thread. */
#ifndef OFF_DECODE_H
#define OFF_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum term_key {
    TK_CHAR, /* cp holds the character; with TM_CTRL it is the lower-case letter or sign */
    TK_ENTER,
    TK_TAB,
    TK_ESC,
    TK_BACKSPACE,
    TK_INSERT,
    TK_DELETE,
    TK_HOME,
    TK_END,
    TK_PGUP,
    TK_PGDN,
    TK_UP,
    TK_DOWN,
    TK_LEFT,
    TK_RIGHT,
    TK_F1, /* F1 to F12 follow each other */
    TK_F12 = TK_F1 + 11,
};

enum term_mod { TM_SHIFT = 1, TM_ALT = 2, TM_CTRL = 4 };

enum term_mouse { TMOUSE_PRESS, TMOUSE_RELEASE, TMOUSE_DRAG, TMOUSE_WHEEL_UP, TMOUSE_WHEEL_DOWN };

enum term_answer {
    TA_ATTRIBUTES, /* device attributes: every terminal's last answer */
    TA_SYNC,       /* synchronized updates: value 1 or 2 known and usable, else not */
    TA_BACKGROUND, /* value 0xrrggbb */
    TA_KEYBOARD,   /* kitty keyboard protocol: value are the flags */
    TA_CURSOR,     /* a cursor position; nobody asks for it */
};

enum term_event_kind { TE_KEY, TE_PASTE, TE_MOUSE, TE_FOCUS, TE_ANSWER };

struct term_event {
    enum term_event_kind kind;
    union {
        struct {
            enum term_key key;
            uint32_t cp;
            unsigned mods;
        } key;
        struct {
            const char
                *text; /* UTF-8, newlines only, no controls but tabs; borrowed until the callback returns */
            size_t n;
            bool cut; /* longer than DECODE_PASTE_MAX: the rest was dropped */
        } paste;
        struct {
            enum term_mouse what;
            int button; /* 0 left, 1 middle, 2 right */
            int x, y;   /* from 0 */
            unsigned mods;
        } mouse;
        bool focused;
        struct {
            enum term_answer what;
            uint32_t value;
        } answer;
    } u;
};

typedef void decode_fn(void *arg, const struct term_event *ev);

#define DECODE_SEQ_MAX   256         /* a control sequence; a longer one is no sequence */
#define DECODE_PASTE_MAX (16u << 20) /* bytes of one paste */
#define DECODE_PASTE_GAP 5000        /* ms of silence after which an unfinished paste is taken as it is */

struct decoder {
    int state; /* decode.c's own */
    bool alt;  /* an ESC came before the ESC of the sequence */
    char seq[DECODE_SEQ_MAX];
    size_t n_seq;
    bool seq_lost;  /* too long: swallowed to its end and dropped */
    uint8_t end_at; /* bytes matched of a paste's end mark */
    char *paste;    /* owned */
    size_t n_paste, cap_paste;
    bool paste_cut, paste_cr;
    uint64_t last_ms; /* of the newest byte */
    unsigned esc_ms;
};

void decode_init(struct decoder *d, unsigned esc_ms);
void decode_fini(struct decoder *d);
/* Feeds n bytes that came at now_ms; fn is called for each event in order. */
void decode_feed(struct decoder *d, const void *bytes, size_t n, uint64_t now_ms, decode_fn *fn, void *arg);
/* Time has passed: decides a lone ESC and an abandoned paste. */
void decode_tick(struct decoder *d, uint64_t now_ms, decode_fn *fn, void *arg);
/* When decode_tick has to be called at the latest; UINT64_MAX when nothing waits. */
uint64_t decode_deadline(const struct decoder *d);

/* Do these bytes, read at once from a terminal without bracketed paste, look pasted: three or more lines? */
bool decode_is_burst(const void *bytes, size_t n);
/* Takes bytes as a paste, with the same cleaning as between brackets. */
void decode_burst(struct decoder *d, const void *bytes, size_t n, decode_fn *fn, void *arg);

#endif
