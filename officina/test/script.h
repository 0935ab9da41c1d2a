/* A script of the scripted gateway: what it answers to the chat requests, one block for each, and what
 * happens by time.
 *
 *   engine n_ctx=32768 certified=32768 slots=1 model=scripted-1 checkpoints=on cut=any|end strict=yes|no boot=1
 *          delta=8 gap=0 read=131 decode=11.3 tools=yes|no window=yes|no
 *   ON 1 expect last "look at a"
 *        think "hm" pause 50 call read {"path":"a.txt"} usage 900 20 0 end
 *   ON 2 expect result call_1 contains "line one" say "seen" ; end
 *   ON 3 status 503 loading ; again         the next request must have the very same bytes; the next block plays for it
 *   ELSE say "ok" ; end                     for every request after the last block
 *   TELEMETRY 2.0s evicted=12000 decoded=1840000
 *   HEALTH 5.0s bouncing eta=20 ; 7.0s down ; 9.0s up boot=2
 *
 * Blocks play in order; their numbers must grow. Strings are JSON strings; `#` begins a comment; `;` and
 * line ends only separate. Steps of a block:
 *
 *   say STRING, think STRING       text, reasoning (in pieces of `delta` bytes, `gap` ms apart)
 *   call NAME OBJECT|STRING        a tool call; a STRING is sent as the arguments, whatever it is
 *   call_id STRING                 the id of the next call (else call_1, call_2, … through the whole script)
 *   pause MS                       nothing for so long
 *   ping                           an SSE comment
 *   progress TOTAL CACHED DONE     prompt_progress, if the request asks for it
 *   usage PROMPT COMPLETION CACHED the counts of this answer (else: bytes / 4, and the longest common prefix)
 *   raw STRING                     these bytes as they are into the stream
 *   fault CODE STRING              an error event in the stream
 *   status CODE [WORD]             no stream: this status; the word is the message ("loading": llama.cpp's)
 *   end [REASON]                   finish_reason, usage, [DONE]; without it the stream ends without a terminator
 *   drop                           the connection is reset
 *   cut N                          so many bytes of the stream from here are sent, then the connection is reset
 *   hang                           silence until the client leaves; `hung` in the log says that it did
 *   health …, telemetry …          as the lines below, at this moment
 *
 * Expectations: last STRING, result ID contains|lacks STRING, any STRING, none STRING, tool NAME, messages
 * N, extends (the request before is a prefix), cut (it is not).
 *
 * States of health: ok, loading, draining, bouncing (eta=S), down (nothing listens; open connections are
 * reset), up (ok again; boot=N: a new engine, slots empty). One thread after loading. */
#ifndef OFF_TEST_SCRIPT_H
#define OFF_TEST_SCRIPT_H

#include "err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum step_kind {
    STEP_SAY,
    STEP_THINK,
    STEP_CALL,
    STEP_CALL_ID,
    STEP_PAUSE,
    STEP_PING,
    STEP_PROGRESS,
    STEP_USAGE,
    STEP_RAW,
    STEP_FAULT,
    STEP_STATUS,
    STEP_END,
    STEP_DROP,
    STEP_CUT,
    STEP_HANG,
    STEP_HEALTH,
    STEP_TELEMETRY,
    STEP_KINDS,
};

/* `name=value` pairs of a line, in order. */
struct pairs {
    char *name[16], *value[16];
    size_t n;
};

struct step {
    enum step_kind kind;
    char *text, *more; /* string operands: say TEXT, call NAME MORE, status CODE WORD */
    double n[3];       /* number operands */
    struct pairs pairs;
    double at; /* of a timed step: seconds after the start */
};

enum expect_kind {
    EXPECT_LAST,
    EXPECT_CONTAINS,
    EXPECT_LACKS,
    EXPECT_ANY,
    EXPECT_NONE,
    EXPECT_TOOL,
    EXPECT_MESSAGES,
    EXPECT_EXTENDS,
    EXPECT_CUT
};

struct expect {
    enum expect_kind kind;
    char *id, *text;
    long n;
};

struct block {
    int number, line; /* number 0: ELSE */
    bool again;
    struct expect *expects;
    struct step *steps;
    size_t n_expects, n_steps;
};

struct script {
    struct pairs engine;
    struct block *blocks; /* in order; an ELSE is last */
    struct step *timed;   /* in order of `at` */
    size_t n_blocks, n_timed;
};

/* Reads a script of len bytes; 0, or -1 with the line in err. Free it in both cases. */
int script_parse(struct script *s, const char *text, size_t len, struct vt_err *err);
void script_free(struct script *s);
/* The value of a pair, or dflt. */
const char *pairs_get(const struct pairs *p, const char *name, const char *dflt);

#endif
