/* Effects: what the core wants done. The program does them in order after each step, when what the step changed has
 * been stored; answers come back as events. A replay drops them. */
#ifndef OFF_EFFECT_H
#define OFF_EFFECT_H

#include <stddef.h>
#include <stdint.h>

enum effect_kind {
    /* network: id is chosen by the core and returns in the events */
    FX_SEND,  /* POST text to the coupling's chat path and stream; name: coupling */
    FX_CLOSE, /* close the stream id at once; no event comes for it any more */
    FX_ASK, /* one short request: name: path below the engine's root, text: body, or NULL for GET → EV_REPLY */
    FX_COUPLE, /* use the coupling `name` → EV_COUPLED */
    /* tools: id is the item of the call */
    FX_CHECK, /* name: tool, text: canonical arguments → EV_TOOL_CHECKED */
    FX_RUN, /* the same, allowed now; bound: what the approval was bound to, or NULL → EV_TOOL_OUTPUT, _DONE */
    FX_CANCEL, /* end it: terminate, then kill → EV_TOOL_DONE */
    FX_KILL,   /* id: job */
    FX_RULE, /* name: "session", "project" or "user"; text: pattern; n: 1 allow, 0 deny; m: enum mode; id: 1 = tell */
    FX_USER_RUN, /* text: a !line's command; m: 1 = its output goes into the conversation → EV_USER_RAN */
    FX_TELL,     /* extensions: name: event, text: its fields as JSON; before_request → EV_NOTED */
    /* snapshots */
    FX_SNAP,        /* id: turn's index, n: enum snap_when → EV_SNAP */
    FX_REWIND_PLAN, /* id: turn's index → EV_REWIND_PLAN */
    FX_REWIND,      /* id: turn's index: put the files back (restore list only) → EV_REWIND_DONE */
    FX_DIFF,        /* id: turn's index, -1 = the whole conversation → EV_DIFF */
    FX_REDO,        /* → EV_REWIND_DONE */
    /* store */
    FX_LIST,   /* text: words or NULL → EV_SHEET of SHEET_RESUME */
    FX_OPEN,   /* text: conversation; n: 1 = as a fork → EV_OPENED, EV_STORED…, EV_RESUMED */
    FX_NEW,    /* → EV_OPENED */
    FX_TITLE,  /* text */
    FX_EXPORT, /* text: file */
    FX_FACT,   /* text: remember; or id: forget that one → EV_NOTICE */
    FX_PAGE, /* name: page ("rules", "mcp", "status", …): the program writes it → EV_SHEET or EV_NOTICE */
    FX_TRUST,   /* n: 1 the folder's configuration is trusted as it is now, 0 not */
    FX_HISTORY, /* text: prompt to remember for the composer's history */
    /* out */
    FX_EMIT, /* text: one JSON object for stream-json output */
    FX_QUIT, /* n: exit code; text: NULL or words for standard error */
};

struct effect {
    enum effect_kind kind;
    int64_t id, n, m;
    char *name, *text; /* owned by the list; NULL: none */
    uint8_t bound[32];
    int has_bound;
};

struct effects {
    struct effect *v;
    size_t n, cap;
};

/* Appends a zeroed effect; name and text are copied. The pointer lives until the next call. */
struct effect *effect_add(struct effects *fx, enum effect_kind kind, int64_t id, const char *name,
                          const char *text);
void effects_clear(struct effects *fx);

#endif
