/* The model: everything that Officina knows at one moment, and all that the view draws.
 *
 * Plain structs, no handles, no clocks. core_step() (core/core.h) is the only writer; the view and the programs around
 * it read. Strings are UTF-8 as they came (the view's gate makes them fit for cells) and owned by the model; a NULL
 * string is an unknown one, shown as a dash. A number that is not known is negative. Times are microseconds of the
 * clock that stamps events; `now` is the time of the last event. One thread.
 *
 * What only a screen knows (size, scrolling, folds, menus, selection, undo of the composer) is not here: it is the
 * view's own `struct ui`. */
#ifndef OFF_MODEL_H
#define OFF_MODEL_H

#include "util/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNKNOWN (-1) /* of counts and speeds */

enum mode { MODE_BUILD, MODE_PLAN };

/* ---- transcript and history: one list ---- */

enum item_kind {
    ITEM_USER,      /* what the user sent */
    ITEM_NOTE,      /* what Officina tells the model ahead of a user text or result; not drawn */
    ITEM_REASONING, /* dim, folded */
    ITEM_TEXT,      /* the model's answer, Markdown */
    ITEM_CALL,      /* a tool call with its result: item.call */
    ITEM_CUT,       /* a rule across with words: distilled, rewound; later items are what the model sees */
    ITEM_NOTICE,    /* from Officina to the user; never sent to the model */
};

enum call_state {
    CALL_ARRIVING, /* arguments still stream; not stored yet */
    CALL_PENDING,  /* stored, its turn has not come */
    CALL_ASKING,   /* waits for the user: call.approval, or call.question for the tool `ask` */
    CALL_RUNNING,
    CALL_OK,      /* ✓ */
    CALL_FAILED,  /* ✗ it ran and failed, or was malformed */
    CALL_DENIED,  /* ⊘ by the user or a rule: call.reason says which */
    CALL_REFUSED, /* ⊘ by Plan mode; no denial */
    CALL_CLOSED,  /* ⊘ not run: stopped, steered, or the workshop died */
};

/* One part of a call that is judged for itself: one simple command of a shell line, one file of an edit. */
struct approval_part {
    char *text;   /* the exact bytes */
    char *reason; /* "allowed for this session", "NOT allowed: deletes files" */
    bool allowed;
};

/* A file as it is and as it would be, for the diff view. Both texts whole; NULL before: a new file; NULL after: a
 * removed one. */
struct file_change {
    char *path; /* relative to the root */
    char *before, *after;
    size_t before_len, after_len;
    int added, removed; /* lines */
    char *remark;       /* line-ending or mode change in words, or NULL */
};

/* The question to the user about one call. Bound to its bytes by `bound`: an answer counts for these only. */
struct approval {
    char *what; /* the exact command or arguments, shown with controls as codes */
    struct approval_part *parts;
    size_t n_parts;
    struct file_change *changes; /* edit and write */
    size_t n_changes;
    char *where;        /* "in ~/my-project · project sandbox · no network · 120 s" */
    char *rule_session; /* pattern that Alt-S would add, or NULL where none is offered */
    char *rule_project; /* pattern of Alt-P, or NULL */
    uint8_t bound[32];  /* turn, call, arguments, folder, mode, rules' revision, files' hashes */
    uint64_t since;     /* when the box was put up: answers count from 400 ms later */
};

struct call {
    char *id;      /* Officina's own, "c0012", unique in the conversation */
    char *wire_id; /* the engine's own id of it, when it was fit to be sent back; or NULL */
    char *name;    /* tool */
    char *args;    /* canonical JSON object once whole; the bytes so far while ARRIVING */
    char *gist;    /* "src/parse.c  1–140", "make test": what the row shows behind the name */
    enum call_state state;
    uint64_t started, ended; /* 0: not yet */
    struct text tail;   /* what it printed last while running: at most 8 KiB, whole lines, controls removed */
    struct text result; /* what the model gets; empty while pending */
    int64_t result_id;  /* the result's item number; m-0124 */
    int64_t result_tokens;
    int64_t output;             /* stored whole output o-31, or 0 */
    char *reason;               /* why denied, refused or closed; NULL otherwise */
    struct file_change *change; /* edit and write when done: what was done; NULL otherwise */
    size_t n_changes;
    struct approval *approval; /* while ASKING */
    char *question;            /* while ASKING by the tool `ask` */
    char **options;            /* its choices */
    size_t n_options;
    char *repair; /* how malformed arguments were mended, told in the result; or NULL */
    char *fault;  /* why the arguments cannot be used; or NULL */
    int flags;    /* TOOL_* of tools/tool.h, once checked */
    bool allowed; /* by the user: `bound` goes along when it runs */
    uint8_t bound[32];
};

enum notice_level { NOTICE_INFO, NOTICE_TROUBLE }; /* · and ! */

struct item {
    int64_t id; /* grows by one within the conversation; m-0123 */
    enum item_kind kind;
    size_t turn;      /* index in model.turns */
    uint64_t at;      /* when it was made */
    uint64_t ended;   /* REASONING and TEXT: when its last byte arrived; 0 while it streams */
    struct text body; /* text; of a CUT its words; of a CALL unused */
    struct call *call;
    int64_t answer; /* REASONING, TEXT, CALL: items of one answer have the same number; 0 otherwise */
    int64_t tokens; /* as counted or estimated; UNKNOWN */
    enum notice_level level;
    int times;       /* equal notices in a row are one, counted here */
    bool partial;    /* the answer broke off here; what had arrived is kept */
    bool live;       /* in the branch that the model sees (false above a rewind's cut) */
    int64_t rewound; /* not live because of the rewind with that number: /redo brings it back; 0: no */
    bool dirty;      /* not stored yet in this form */
};

enum turn_state { TURN_OPEN, TURN_DONE, TURN_INTERRUPTED, TURN_FAILED, TURN_REWOUND };

struct turn {
    char key[8]; /* "t0007" */
    size_t first_item;
    uint64_t started, ended;
    enum turn_state state;
    enum mode mode;
    char *coupling;
    char *tree_user, *tree_before, *tree_after; /* snapshots, NULL: none */
    char *partial;                              /* why a snapshot does not cover all, or NULL */
    char *checkpoint;                           /* engine's checkpoint at the end of the turn, or NULL */
    int64_t tokens_before, tokens_after;        /* context at its borders */
    int files_changed;                          /* UNKNOWN until snapshots are compared */
    int64_t row;                                /* in the store; 0: not stored yet */
    bool dirty;
};

/* ---- what the user writes ---- */

/* The text is here because it is stored as the draft and sent from here; how it is edited is the view's. */
struct composer {
    struct text text;
    size_t caret; /* byte offset, at a character's border */
};

/* A line that was sent while the model worked; it waits for the next tool boundary. */
struct queued {
    char *text;
    uint64_t at;
};

/* ---- the engine ---- */

enum link_state {
    LINK_START, /* nothing heard yet */
    LINK_LIVE,
    LINK_AWAY,
    LINK_LOADING,
    LINK_BOUNCING,
    LINK_WARMING,
};

struct engine {
    enum link_state link;
    uint64_t last_seen;   /* 0: never */
    uint64_t retry_at;    /* AWAY: the next try */
    double bounce_eta;    /* BOUNCING: seconds, UNKNOWN */
    char *boot;           /* boot id, or NULL */
    char *model;          /* "qwen-27b-q3km" */
    char *build;          /* engine's build */
    int slot, slots;      /* ours (UNKNOWN: any) and how many there are (UNKNOWN) */
    int slots_busy;       /* UNKNOWN */
    bool slot_warm;       /* the slot holds this conversation */
    int64_t window;       /* physical tokens of one slot; UNKNOWN */
    int64_t certified;    /* certified depth; UNKNOWN */
    char *certified_how;  /* "11.3 tok/s there, 250.5 tok/s reading, profile deep, 2025-11-30"; NULL */
    int64_t boot_decoded; /* tokens decoded since its start; UNKNOWN */
    int64_t evicted;      /* KV cells evicted (⤓); UNKNOWN: the engine does not say */
    char *warming;        /* WARMING: the checkpoint's name */
    bool tools_known;     /* template takes tools */
    bool can_save;        /* slots can be saved and restored */
    char *save_why_not;   /* "checkpoints off (projector)", or NULL */
    bool cut_anywhere;    /* the cache can be cut at any token */
    bool can_end_think;   /* Alt-E works */
};

#define SPEED_SAMPLES 64 /* one a second, newest last */

struct gauges {
    /* context, of the conversation */
    int64_t used;               /* tokens; UNKNOWN */
    bool used_estimated;        /* shown with ~ */
    int64_t size;               /* certified depth, else the window; UNKNOWN */
    bool size_certified;        /* else marked `uncertified` */
    int64_t live, offload;      /* tokens the model sees; tokens stubbed or distilled away */
    int64_t target;             /* live target (high mark), the gauge's notch; UNKNOWN */
    int64_t read, read_of;      /* prompt reading: done, total; UNKNOWN when nothing is read */
    double read_speed;          /* tokens a second; UNKNOWN */
    int64_t read_last;          /* tokens of the last whole reading, "8.1k done"; UNKNOWN */
    double decode;              /* tokens a second, smoothed; UNKNOWN */
    float speed[SPEED_SAMPLES]; /* negative: no sample */
    double speed_max;           /* scale of the history */
    /* flow of this conversation, tokens; UNKNOWN until the first answer */
    int64_t in, cached, out, reread;
    int64_t spent; /* micro-euro of this conversation; UNKNOWN: not priced */
};

/* ---- the panel's other blocks ---- */

struct touched {
    char *path;
    char sign; /* + new, ~ changed, - removed */
    int added, removed;
};

enum task_state { TASK_OPEN, TASK_DOING, TASK_DONE };

struct task {
    char *text;
    enum task_state state;
};

struct job {
    int64_t id; /* 1, 2, … */
    char *command;
    uint64_t started, ended; /* ended 0: running */
    int64_t lines;
    int exit; /* valid when ended; 128+n: by signal n */
};

struct server { /* MCP server or extension */
    char *name;
    bool ok;
    char *word; /* "ready, 4 tools", "no answer" */
};

struct section { /* of the panel, by an extension */
    char *name;
    char **lines;
    size_t n;
};

struct own_command {   /* of commands/ or an extension: a row of the menu */
    char *name;        /* "/lint" */
    char *args, *help; /* NULL: none */
};

/* ---- what lies over the transcript: pickers and pages ---- */

enum sheet_kind {
    SHEET_NONE,
    SHEET_REWIND,  /* rows: turns; Enter both, f files, c context, d diff, Esc stay */
    SHEET_RESUME,  /* rows: conversations */
    SHEET_HISTORY, /* rows: turns of this conversation; Enter jumps, y copies, d diff */
    SHEET_COUPLE,  /* rows: couplings */
    SHEET_PAGE,    /* text only: help, keys, status, context, rules … */
    SHEET_DIFF,    /* sheet.changes, drawn by the diff view */
    SHEET_TRUST,   /* a question about the folder: Alt-Y trusts, Esc does not */
};

struct sheet_row {
    char *cells[5]; /* by the columns' heads; NULL: none */
    char *key;      /* turn key, conversation id, coupling's name */
};

struct sheet {
    enum sheet_kind kind;
    char *title;    /* REWIND */
    char *heads[5]; /* columns' heads; NULL ends */
    struct sheet_row *rows;
    size_t n_rows, cursor;
    char **detail; /* lines about the row under the cursor */
    size_t n_detail;
    char *keys;   /* foot: "Enter both   f files only …" */
    char *hint;   /* for the composer rule: "nothing changes until you press Enter, f or c" */
    char **lines; /* PAGE */
    size_t n_lines;
    struct file_change *changes; /* DIFF */
    size_t n_changes;
};

/* ---- the status word ---- */

enum status {
    ST_READY,
    ST_SENDING,
    ST_READING,   /* gauges.read, read_of, read_speed */
    ST_THINKING,  /* since status_since */
    ST_WRITING,   /* */
    ST_RUNNING,   /* running: index of the item; time since call.started */
    ST_APPROVAL,  /* asking: index of the item; n_asking */
    ST_ANSWER,    /* the tool `ask` waits */
    ST_INTERRUPT, /* INTERRUPTED, until the next input */
    ST_ERROR,     /* status_text: one sentence */
    ST_AWAY,      /* engine.retry_at, last_seen */
    ST_LOADING,   /* */
    ST_BOUNCING,  /* engine.bounce_eta */
    ST_WARMING,   /* engine.warming */
    ST_SLOT,      /* WAITING SLOT */
    ST_OFFLOAD,   /* OFFLOADING; status_text: numbers */
    ST_DISTIL,    /* DISTILLING */
    ST_FULL,      /* CONTEXT FULL; status_text */
    ST_CAP,       /* CAP REACHED */
    ST_REWIND,    /* picker open */
    ST_READONLY,  /* READ ONLY */
    ST_OPENING,   /* OPENING: the first frame, before the conversation is there */
};

struct model {
    uint64_t now;
    /* session */
    char *session;            /* id */
    char *title;              /* NULL until there is one */
    char *folder;             /* as shown: "~/my-project" */
    char *root;               /* absolute */
    char *branch;             /* git branch, or NULL */
    int git_new, git_changed; /* +2 ~1; UNKNOWN */
    char *coupling;           /* name */
    char *coupling_title;     /* "Lapis Occultus – VITRIOL" */
    char *sandbox;            /* "project", "strict", "weak", "off" */
    bool read_only;           /* another Officina holds this conversation */
    bool headless;            /* nobody can be asked */
    bool trusted;             /* project configuration is read */
    enum mode mode;

    struct item *items;
    size_t n_items, cap_items;
    struct turn *turns;
    size_t n_turns, cap_turns;
    struct queued *queue;
    size_t n_queue, cap_queue;
    struct composer composer;

    enum status status;
    uint64_t status_since;
    char *status_text;
    size_t running, asking; /* items of ST_RUNNING, ST_APPROVAL and ST_ANSWER */
    size_t n_asking;
    bool leaving; /* "press Ctrl-C again to leave" until leave_until */
    uint64_t leave_until;

    struct engine engine;
    struct gauges gauges;
    struct touched *touched;
    size_t n_touched, cap_touched;
    struct task *tasks;
    size_t n_tasks, cap_tasks;
    struct job *jobs;
    size_t n_jobs, cap_jobs;
    struct server *servers;
    size_t n_servers, cap_servers;
    struct section *sections;
    size_t n_sections, cap_sections;
    struct own_command *commands;
    size_t n_commands;
    struct sheet sheet;

    struct core *core; /* what the loop knows beyond this; opaque to the view */
};

/* The conversation is empty and so is the composer: the mark may be shown. */
bool model_is_empty(const struct model *m);
/* "BUILD" or "PLAN". */
const char *mode_name(enum mode mode);
/* The status word without its numbers, exactly as the screen begins: "READY", "RUNNING", … */
const char *status_word(enum status s);
/* An empty model, for tests of the view as well; free with model_free(). Every unknown is UNKNOWN or NULL. */
struct model *model_new(void);
void model_free(struct model *m);
/* Appends a zeroed item of that kind to the last turn (tests may fill it at will). The pointer lives until the next
 * call. */
struct item *model_add(struct model *m, enum item_kind kind);
void change_free(struct file_change *changes, size_t n);
void approval_free(struct approval *a);
void sheet_clear(struct sheet *s);

#endif
