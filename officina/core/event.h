/* Events: all that can happen to the model. They come from the screen, the network, tools, snapshots, the store and the
 * timer, carry the time and the numbers that the core may not make itself, and are enough to replay a session.
 *
 * One flat struct for all kinds, so that a log of events is one table's work (core/event_log.h). Strings are borrowed:
 * they live until core_step() returns. Fields that a kind does not name are 0 or NULL. */
#ifndef OFF_EVENT_H
#define OFF_EVENT_H

#include "core/model.h"

/* EVENT(name, fields and meaning) */
#define EVENTS(EVENT)                                                                                          \
    /* time passes; sent when core_deadline() is reached, and once a second while the screen is open */        \
    EVENT(TICK)                                                                                                \
    /* --- the user (the screen, or headless input) --- */                                                     \
    /* text: what was entered, commands and !lines too. n: 1 = from a headless `-p` (never a command) */       \
    EVENT(SUBMIT)                                                                                              \
    /* text: the composer's whole text, n: caret. Sent when either changed */                                  \
    EVENT(COMPOSE)                                                                                             \
    EVENT(STOP)      /* Esc or Ctrl-C while something runs */                                                  \
    EVENT(LEAVE)     /* Ctrl-C or Ctrl-D on an empty composer; twice within 2 s leaves */                      \
    EVENT(QUIT)      /* leave at once; n: exit code (signals) */                                               \
    EVENT(MODE)      /* n: enum mode */                                                                        \
    EVENT(ANSWER)    /* id: item of the call, n: enum answer, text: reason of a denial or answer of `ask` */   \
    EVENT(UNQUEUE)   /* the first queued line goes back into the composer */                                   \
    EVENT(END_THINK) /* end the reasoning early */                                                             \
    EVENT(RETRY)     /* try the engine now; in ERROR: send again */                                            \
    EVENT(SHEET_MOVE) /* n: rows down (negative: up) */                                                        \
    EVENT(SHEET_DO)   /* n: the character of the key: '\r', 'f', 'c', 'd', 'y', 27 for Esc */                  \
    EVENT(CLOSED)     /* the input of stream-json ended: leave when what was asked is done */                  \
    EVENT(FOCUS)      /* n: 1 in, 0 out */                                                                     \
    /* --- the network --- */                                                                                  \
    EVENT(REPLY) /* id: of FX_ASK; name: its path; n: HTTP status, 0 = no connection; text, len: body */       \
    EVENT(STREAM_OPEN) /* id: of FX_SEND; n: HTTP status. Headers are here */                                  \
    EVENT(STREAM_DATA) /* id; text, len: the data of one server-sent event */                                  \
    EVENT(                                                                                                     \
        STREAM_END) /* id; n: HTTP status, 0 = none came; m: 0 = ended whole, 1 = broken off;              \
                          text: body of a refusal or words of the fault; x: Retry-After in seconds, or 0 */   \
    /* --- tools (tools/tool.h). id: the item of the call --- */                                               \
    EVENT(                                                                                                     \
        TOOL_CHECKED) /* n: enum tool_verdict; text: reason; name: gist; m: bits TOOL_* of tool.h;          \
                           approval: what to ask (taken over) */  \
    EVENT(TOOL_OUTPUT) /* text, len: bytes as they came from the program */                                    \
    EVENT(TOOL_DONE) /* n: enum tool_outcome; text, len: result for the model; name: gist or NULL;         \
                           m: stored output's number or 0; changes, n_changes: what was written (taken over) */   \
    EVENT(JOB)       /* id: job; text: command; n: exit status or -1 while it runs; m: lines so far */         \
    EVENT(SERVER)    /* name: MCP server or extension; n: 1 well, 0 not; text: word for the panel */           \
    EVENT(USER_RAN)  /* a !line ended. name: command; text, len: output; n: exit status; m: 1 = into the   \
                           conversation */   \
    /* --- extensions --- */                                                                                   \
    EVENT(                                                                                                     \
        CONTRIBUTED) /* n: bits 1 << enum ext_event that somebody wants; text: JSON                       \
                          {"commands":[{"name","args","help"}]} */    \
    EVENT(PANEL)     /* name: extension; text: JSON list of lines for the panel */                             \
    EVENT(NOTED)     /* the answer to FX_TELL of before_request; text: note for the model, or NULL */          \
    EVENT(                                                                                                     \
        TEMPLATE) /* name: the line "/name words"; text: JSON {"mode","parts":[{"text"} or                \
                       {"tool","arguments"}]} */    \
    /* --- snapshots (snap/snap.h) --- */                                                                      \
    EVENT(SNAP) /* id: turn's index; n: enum snap_when; name: tree or NULL; text: what is not covered, \
                          or NULL; m: files changed since the turn's first tree (SNAP_AFTER), UNKNOWN */       \
    EVENT(                                                                                                     \
        REWIND_PLAN) /* id: turn's index; text: JSON {"restore":[],"keep":[],"conflict":[],"uncovered":[]} */  \
    EVENT(REWIND_DONE) /* id: turn's index; n: 0 done, 1 failed; text: words */                                \
    EVENT(DIFF)        /* changes, n_changes (taken over); text: title */                                      \
    EVENT(GIT)         /* name: branch or NULL; n: new files; m: changed ones */                               \
    EVENT(TOUCHED)     /* text: JSON [{"path","sign","added","removed"}] */                                    \
    /* --- the store and the start --- */                                                                      \
    EVENT(OPENED) /* text: JSON, see core/open.h: session, folder, coupling, limits, opening note */           \
    EVENT(                                                                                                     \
        STORED) /* text: JSON of one stored turn or item of a resumed conversation, in order; with name      \
                      "unit" a message: id, n: item, m: count * 100 + role * 10 + form, text: its bytes */ \
    EVENT(RESUMED) /* all of them are in */                                                                    \
    EVENT(AROUND)  /* what is around, before the user's words count; text: JSON, see around_told() */          \
    EVENT(COUPLED) /* text: JSON of the coupling that is now used */                                           \
    EVENT(                                                                                                     \
        SHEET) /* n: enum sheet_kind; name: title; text: JSON {"heads":[],"rows":[{"key","cells":[]}],    \
                      "lines":[],"detail":[]} */    \
    EVENT(NOTICE) /* n: enum notice_level; text */

enum event_kind {
#define EVENT(name) EV_##name,
    EVENTS(EVENT)
#undef EVENT
        EV_COUNT
};

enum answer { ANSWER_ONCE, ANSWER_SESSION, ANSWER_PROJECT, ANSWER_DENY, ANSWER_TEXT };
enum snap_when { SNAP_USER, SNAP_BEFORE, SNAP_AFTER, SNAP_LATE }; /* LATE: of a turn that a death ended */

struct event {
    enum event_kind kind;
    uint64_t at; /* microseconds */
    int64_t id, n, m;
    double x;
    const char *text;
    size_t len; /* of text; where a kind does not name it, strlen */
    const char *name;
    struct approval *approval;
    struct file_change *changes;
    size_t n_changes;
};

/* "TICK", …; never NULL. */
const char *event_name(enum event_kind kind);

/* Where parts of the program put what happened. */
typedef void (*event_sink)(void *arg, const struct event *e);

#endif
