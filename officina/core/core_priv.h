/* What the files of the core share beyond the model. */
#ifndef OFF_CORE_PRIV_H
#define OFF_CORE_PRIV_H

#include "core/core.h"
#include "couple/coupling.h"
#include "ext/line.h"

#define SEC(n)  ((uint64_t)(n)*1000000u)
#define MSEC(n) ((uint64_t)(n)*1000u)

#define REWINDS_MAX    32  /* that can be undone */
#define JOBS_MAX       20  /* shown, as long as one of them has ended */
#define SECTIONS_MAX   8   /* of extensions in the panel */
#define SECTION_LINE   200 /* bytes of one of their lines */
#define CALLS_MAX      32  /* calls of one answer */
#define READS_TOGETHER 4
#define STREAM_RETRIES 2
#define AROUND_GONE    " the file is gone; they hold no more."
#define NOTE_WAIT      SEC(20) /* for extensions; they have a shorter limit of their own */

/* ---- projection and wire: one unit is one message that the model sees ---- */

enum form { FORM_FULL, FORM_STUB, FORM_GONE };
enum role { ROLE_USER, ROLE_ANSWER, ROLE_RESULT };

struct unit {
    int64_t id;         /* of the user item, the answer's first item, or the result */
    size_t item, count; /* index of its (first) item and how many belong to it */
    enum role role;
    enum form form;
    char *bytes;        /* NULL when GONE */
    char *note, *steer; /* what rides in it: a changed form keeps the words of the workshop */
    int64_t tokens;
    bool stored;
};

/* ---- one answer while it arrives ---- */

struct reply {
    size_t reasoning, text;  /* item index + 1; 0: none */
    size_t calls[CALLS_MAX]; /* item index + 1, by the stream's index */
    size_t n_calls;
    bool any;     /* a byte arrived */
    bool visible; /* text arrived */
    bool too_many, repeats, truncated;
    char finish[24];
    int64_t prompt, cached, completion; /* usage; UNKNOWN */
    bool done;                          /* [DONE] or a finish reason */
    uint64_t stored_at;
};

enum phase {
    PH_IDLE,
    PH_WANT,   /* a request is to be sent as soon as engine, snapshot and time allow */
    PH_STREAM, /* it runs */
    PH_CALLS,  /* calls are judged and run */
};

enum purpose { FOR_TURN, FOR_DISTIL };

struct core {
    /* the conversation's fixed parts */
    struct coupling cpl;
    char *opening, *tools, *version;
    bool open; /* EV_OPENED came */
    /* numbers that grow */
    int64_t next_ask, next_call, next_answer, next_turn;
    /* projection */
    struct unit *units;
    size_t n_units, cap_units, covered; /* items below this index are in units or not for the model */
    int64_t epoch;
    struct text sent; /* messages of the last request: the next one begins with these bytes */
    double bytes_per_token;
    int64_t counted_units; /* units that `used` counts; the rest is estimated */
    /* the loop */
    enum phase phase;
    enum purpose purpose;
    struct reply answer;
    int64_t request;     /* id of the running stream, 0: none */
    uint64_t sent_at;    /* of the running request */
    uint64_t not_before; /* PH_WANT: wait until then */
    uint64_t heard_at;   /* last byte of the stream */
    int tries;           /* of this request, after faults */
    bool reduced;        /* the context was reduced for this request already */
    bool retry_broken;
    int requests; /* of this turn */
    int max_requests;
    bool snap_wait; /* a writing call waits for EV_SNAP */
    size_t snapped; /* the turn whose SNAP_BEFORE was answered or given up, counted from 1 */
    uint64_t snap_since;
    bool in_check;     /* FX_CHECK runs */
    bool stopped;      /* by the user, in this turn */
    bool send_allowed; /* to a coupling that asks first */
    bool cap_answered;
    enum mode told_mode;   /* what the model was told last */
    uint8_t signs[10][16]; /* the last ten steps, for the repeat guard */
    size_t n_signs;
    bool repeat_end;
    /* extensions and commands */
    unsigned hooks;                                  /* bits 1 << enum ext_event that an extension wants */
    enum { NOTE_OPEN, NOTE_ASKED, NOTE_HEARD } note; /* before_request of the next request */
    uint64_t note_since;
    json_t *parts; /* of the command whose calls run; NULL: none */
    size_t prompt; /* index of its user item */
    /* headless */
    bool emit;                 /* stream-json objects are wanted */
    bool once;                 /* leave when the turn has ended */
    bool answers;              /* headless, but somebody answers on standard input */
    size_t noticed;            /* items below were told as notices */
    int denied, allowed_later; /* calls */
    int exit;
    char *exit_status, *exit_detail;
    uint64_t away_since;
    /* the engine */
    bool props_known, props_asked, focus;
    int polls_open;
    uint64_t poll_at, poll_sent;
    int silent_polls, away_tries;
    double prev_predicted, prev_seconds, prev_read, prev_read_s;
    uint64_t speed_at;
    /* economy */
    int64_t no_gain;
    bool full;
    int64_t spent_session, spent_day, spent_month; /* micro-euro */
    /* rewind */
    size_t rewind_to;
    struct rewound { /* what /redo can undo, the newest last */
        int64_t number;
        int what; /* 'b', 'f', 'c' */
    } rewinds[REWINDS_MAX];
    size_t n_rewinds;
    int64_t last_rewind;
    int rewind_what; /* 'b', 'f', 'c'; 'r': redo; 0: none runs */
    /* notes for the model that wait for the next message */
    struct text notes;
    char *checkpoint_wanted; /* WARMING this */
    int64_t saved_tokens;    /* at the last checkpoint */
};

struct core *core_new(void);
void core_free(struct core *c);

/* Empties the conversation: items, turns, queue, tasks, touched, composer, sheet. */
void model_empty(struct model *m);
void call_free(struct call *c);
void turn_clear(struct turn *t);
void set_str(char **at, const char *s);
void section_clear(struct section *s);                               /* its lines */
struct own_command *commands_free(struct own_command *v, size_t *n); /* NULL */

/* ---- turn.c ---- */
void turn_submit(struct model *m, const char *text, struct effects *fx);
void turn_begin(struct model *m, const char *text, struct effects *fx);
/* The same up to the request: prepare.c has something to do before. */
void turn_open(struct model *m, const char *text, struct effects *fx);
/* Begins the next turn with the first queued line, when nothing runs and there is one. */
void turn_next(struct model *m, struct effects *fx);
void turn_stop(struct model *m, struct effects *fx);
/* The extensions' note before the request that waits; NULL: they have none. */
void turn_noted(struct model *m, const char *text, struct effects *fx);
/* Ends the open turn. */
void turn_end(struct model *m, enum turn_state state, struct effects *fx);
/* The calls have their results: steering lines, then the next request. */
void turn_boundary(struct model *m, struct effects *fx);
/* PH_WANT: sends when all allows it. */
void turn_pump(struct model *m, struct effects *fx);
void turn_want(struct model *m, enum purpose purpose);
/* A fault that needs the user. exit and status: of headless runs. */
void turn_fail(struct model *m, int exit, const char *status, const char *words, struct effects *fx);
struct turn *turn_now(struct model *m); /* NULL: none */
struct item *notice(struct model *m, enum notice_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- answer.c ---- */
void answer_begin(struct model *m);
void answer_data(struct model *m, const char *data, size_t n, struct effects *fx);
void answer_end(struct model *m, const struct event *e, struct effects *fx);
/* Marks what arrived as ended; partial: it broke off. */
void answer_close(struct model *m, bool partial);

/* What arrived will not be part of the conversation: it stays readable, the model does not see it. */
void answer_discard(struct model *m);

/* ---- calls.c ---- */
void calls_begin(struct model *m, struct effects *fx);
void calls_next(struct model *m, struct effects *fx);
void calls_checked(struct model *m, const struct event *e, struct effects *fx);
void calls_output(struct model *m, const struct event *e);
void calls_done(struct model *m, const struct event *e, struct effects *fx);
void calls_answer(struct model *m, const struct event *e, struct effects *fx);
/* Nobody answers any more: what waits is denied. */
void calls_nobody(struct model *m, struct effects *fx);
/* Gives every open call of the turn a closing result. */
void calls_close(struct model *m, const char *why, struct effects *fx);
void call_finish(struct model *m, struct item *it, enum call_state state, const char *result, size_t n,
                 struct effects *fx);
struct item *item_find(struct model *m, int64_t id);

/* ---- prepare.c ---- */
void prepare_begin(struct model *m, const struct event *e, struct effects *fx);
/* Its calls have ended. */
void prepare_done(struct model *m, struct effects *fx);
void prepare_forget(struct core *c);

/* ---- wire.c ---- */
void wire_reset(struct model *m);
void wire_update(struct model *m);
/* The body of the next request. Caller frees. extra: a last user message that is not history, or NULL. */
char *wire_body(struct model *m, const char *extra, int64_t max_tokens);
void unit_build(struct model *m, struct unit *u);
int64_t wire_tokens(const struct model *m); /* live, counted and estimated */
void unit_clear(struct unit *u);

/* ---- engine.c ---- */
void engine_reply(struct model *m, const struct event *e, struct effects *fx);
void engine_tick(struct model *m, struct effects *fx);
uint64_t engine_deadline(const struct model *m);
void engine_lost(struct model *m, struct effects *fx); /* a request met no engine */
void engine_loading(struct model *m, struct effects *fx);
void engine_heard(struct model *m);
void engine_ask(struct model *m, const char *path, const char *body, struct effects *fx);
void engine_checkpoint(struct model *m, bool asked, struct effects *fx);

/* ---- economy.c ---- */
/* 1: the request fits; 0: something is done first (phase changed); -1: CONTEXT FULL. */
int economy_fits(struct model *m, struct effects *fx);
int64_t economy_answer_room(const struct model *m); /* tokens; UNKNOWN: no limit */
void economy_after_turn(struct model *m, struct effects *fx);
/* Stubs old bulk until live tokens are at most target; returns the tokens freed. */
int64_t economy_offload(struct model *m, int64_t target, struct effects *fx);
void economy_distil(struct model *m, const char *focus, struct effects *fx);
void economy_distilled(struct model *m, struct effects *fx);
void economy_gauges(struct model *m);
bool economy_drop(struct model *m, int64_t id, struct effects *fx);
void economy_page(struct model *m);
/* Money of one answer, and whether the next request may be paid for. */
void money_spend(struct model *m);
bool money_allows(struct model *m, struct effects *fx);

/* ---- restore.c ---- */
void restore_opened(struct model *m, const char *text, struct effects *fx);
void restore_stored(struct model *m, const struct event *e);
void restore_resumed(struct model *m, struct effects *fx);
void restore_coupled(struct model *m, const char *text, struct effects *fx);

/* ---- around.c ---- */
/* text: JSON {"date", "files": {NAME: its section of the opening note, "" when there is none}, "lines": [of skills and
 * servers]}. What of it the model was not told waits as a note for the next message. */
void around_told(struct model *m, const char *text);

/* ---- command.c ---- */
void command_run(struct model *m, const char *line, struct effects *fx);
void sheet_show(struct model *m, const struct event *e);
void sheet_do(struct model *m, int key, struct effects *fx);
void sheet_move(struct model *m, int64_t rows, struct effects *fx);
void page_line(struct model *m, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A count as text: a dash when it is not known. Returns out. */
const char *amount(char out[24], int64_t v);
void page_begin(struct model *m, const char *title);

/* ---- rewind.c ---- */
void rewind_open(struct model *m, const char *key, struct effects *fx);
void rewind_planned(struct model *m, const struct event *e, struct effects *fx);
void rewind_go(struct model *m, size_t turn, int what, struct effects *fx);
void rewind_done(struct model *m, const struct event *e, struct effects *fx);
void rewind_redo(struct model *m, struct effects *fx);

/* ---- emit.c: stream-json objects ---- */
/* Takes o. Nothing unless they are wanted. */
void emit(struct model *m, struct effects *fx, const char *type, json_t *o);
void emit_text(struct model *m, struct effects *fx, const char *type, const char *s, size_t n);
void emit_call(struct model *m, struct effects *fx, const struct item *it);
void emit_result(struct model *m, struct effects *fx, const struct item *it);
/* Tells the extensions, when one of them wants to know. Takes o. */
void tell(struct model *m, struct effects *fx, enum ext_event event, json_t *o);
void emit_turn_end(struct model *m, struct effects *fx);

/* ---- status.c ---- */
void status_update(struct model *m);

#endif
