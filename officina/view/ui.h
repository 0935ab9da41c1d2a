/* What only a screen knows: the composer's editing, scrolling, folds, menus, selection, the mark. Beside the model it is all
 * that a frame is drawn from; term/screen.c turns keys into changes of it and into events (keys.h). One thread. */
#ifndef OFF_UI_H
#define OFF_UI_H

#include "core/model.h"
#include "term/caps.h"
#include "view/edit.h"
#include "view/keys.h"
#include "view/look.h"

enum overlay { OVER_NONE, OVER_PANEL, OVER_TASKS, OVER_HELP, OVER_PALETTE, OVER_SEARCH };

#define UI_CACHE  128
#define UI_CELLS  400000 /* laid-out cells that are kept beyond those of the last frame: about 8 MiB */
#define UI_FOLDS  512    /* blocks whose fold the user changed; older ones fold by themselves again */
#define TRUST_BOX (-1)
#define MENU_ROWS 8
#define MENU_MAX  200

struct ui_fold {
    int64_t id; /* item */
    bool open;
};

struct ui_cached {
    const struct item *item;
    uint64_t stamp;
    struct rows rows;
    struct block_keep keep;
    uint64_t frame; /* that used it last */
    size_t cells;
    bool used;
};

/* A list to choose from under the composer's rule: commands, paths, earlier prompts. */
struct menu {
    char *entry[MENU_MAX]; /* what is put in; owned */
    char *about[MENU_MAX]; /* or NULL; owned */
    size_t n, cursor;
    size_t from; /* byte of the composer where the completed word begins */
    bool shown;
};

struct ui {
    struct edit edit;
    struct text sent; /* the composer as the core knows it */
    size_t sent_caret;
    struct menu menu;
    enum overlay overlay;
    struct text query; /* of palette and search */
    bool panel_off;    /* the user closed the panel where it has room */
    bool follow;
    size_t top_item; /* block and row at the top when not following */
    int top_row;
    int rows_below;  /* of the last frame */
    size_t seen;     /* items when the view left the end */
    int page;        /* rows of the transcript in the last frame */
    int sheet_top;   /* first line of a page */
    size_t selected; /* item; SIZE_MAX: none */
    struct ui_fold fold[UI_FOLDS];
    size_t n_fold;
    bool all_open;
    int code_scroll, box_scroll;
    bool whole, unified; /* of the approval */
    bool mark_gone;
    uint64_t mark_since; /* it began to dissolve; 0: not yet */
    char *flash;         /* words on the composer's rule until flash_until */
    uint64_t flash_until;
    /* Consent counts for what was there to be read: the item that asks (-1: the question about trust), whether the last frame
     * showed it, since when it is on the terminal (0: not yet), and when the last key came. */
    int64_t box_id;
    bool box_seen;
    uint64_t box_shown, last_key;
    struct ui_cached cache[UI_CACHE];
    uint64_t frame; /* counts views of the model: within one nothing of it changes */
    uint64_t laid;  /* cells that were laid out for the last frame */
    int w, h;
    enum mode mode;             /* as last asked for: several keys may come before the core has its turn */
    bool prefixed, chord_quiet; /* Ctrl-X came; it came after a quiet time */
    uint64_t chord_at;          /* and then */
    uint64_t esc_at;            /* the last lone Esc */
    uint64_t focus_at;
    char *cleared;           /* what Ctrl-C took from the composer: the newest of its history */
    const struct keys *keys; /* for the help page; borrowed, may be NULL */
};

void ui_init(struct ui *u);
void ui_fini(struct ui *u);
void ui_flash(struct ui *u, uint64_t now, const char *words);
bool ui_is_open(const struct ui *u, const struct model *m, const struct item *it, uint64_t now);
void ui_fold(struct ui *u, const struct item *it, bool open);
void menu_clear(struct menu *n);
void menu_add(struct menu *n, const char *entry, const char *about);

#endif
