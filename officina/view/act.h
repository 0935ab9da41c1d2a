/* Acts: what a key, a paste or a click does. Terminal events become changes of the ui and events of the core; what needs the
 * terminal or the file system itself is asked of the host. Pure but for the host. One thread. */
#ifndef OFF_ACT_H
#define OFF_ACT_H

#include "core/event.h"
#include "term/decode.h"
#include "view/view.h"

enum host_do {
    HOST_EDITOR,  /* the composer in $EDITOR; text: what it holds */
    HOST_SUSPEND, /* */
    HOST_REDRAW,  /* */
    HOST_FRAME,   /* the frame into a file */
    HOST_COPY,    /* text */
    HOST_MOUSE,   /* text: "on", "off", "" = the other */
    HOST_THEME,   /* text: "dark", "light", "auto" */
    HOST_GLYPHS,  /* text: "full", "blocks", "ascii" */
    HOST_MOTION,  /* text: "on", "off" */
};

struct act {
    struct ui *u;
    const struct model *m;
    const struct caps *caps;
    const struct keys *keys;
    const struct grid *shown; /* the last frame, for clicks */
    uint64_t now;
    uint64_t late; /* what is read now may have been typed so many microseconds ago: the program was busy */
    event_sink sink;
    void *sink_arg;
    void (*host)(void *arg, enum host_do what, const char *text);
    /* Paths for @: appends those that go with word to the menu. */
    void (*paths)(void *arg, const char *word, struct menu *out);
    void *host_arg;
    size_t (*history)(void *arg, const char **out, size_t max); /* with sink_arg */
};

void act_event(struct act *a, const struct term_event *ev);
/* Takes over a composer that the core has changed (a draft, a line taken back, a prompt after a rewind). Before each frame. */
void act_sync(struct act *a);
/* The frame is on the terminal by now: from here on an answer to what it shows may count. After each frame. */
void act_shown(struct act *a);
/* Puts a text that was edited elsewhere into the composer. */
void act_replace(struct act *a, const char *s, size_t n);

#define APPROVAL_SHOWN_US 400000 /* an answer counts when the box has been there that long */
#define APPROVAL_QUIET_US 250000 /* and no key has come for that long */

/* ---- parts, for act.c ---- */
void act_key(struct act *a, const struct term_event *ev);
void act_mouse(struct act *a, const struct term_event *ev);
void act_send(struct act *a, enum event_kind kind, int64_t n, const char *text);
void act_compose(struct act *a);
/* typed: when its key came; for a chord, the chord's first. quiet: no other key had come shortly before it. */
void act_answer(struct act *a, enum answer answer, uint64_t typed, bool quiet);
bool act_read(const struct act *a, int64_t id,
              uint64_t typed); /* was it on the screen for long enough by then? */
size_t act_prompts(struct act *a, const char **out, size_t max);
bool act_works(const struct model *m);
bool act_submit(struct act *a); /* false: there was nothing to send */
/* menu.c: the menu that goes with the composer's text, palette and search. */
void menu_update(struct act *a);
void menu_accept(struct act *a, bool send);
void menu_open(struct act *a, enum overlay what);

#endif
