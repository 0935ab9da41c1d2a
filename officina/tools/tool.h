/* Tools: what the core and the program expect of them.
 *
 * The list is fixed at build time: names, descriptions and schemas are the tool block of every request, at
 * most 7,000 bytes as JSON, and never change within a version. `todo` and `ask` are done by the core itself
 * and `recall` by the store; their entries stand in the list like the others'.
 *
 * `struct tools` is the runner: it owns the root handle, children, pipes, jobs, the sandbox, the rules and
 * the lines that were shown. It runs in the program's thread; nothing here blocks longer than 50 ms (what
 * can, goes to a worker or a child). A call is: tools_check → (the user) → tools_start → output … → done.
 * All results are events (core/event.h) given to the sink from within tools_work() or from the call itself. */
#ifndef OFF_TOOL_H
#define OFF_TOOL_H

#include "core/event.h"
#include "err.h"
#include "tools/seen.h"

#include <poll.h>

struct tool_spec {
    const char *name;
    const char *description;
    const char *schema; /* JSON Schema of the arguments, one line: an object with properties and required */
    bool reads;         /* only reads whatever its arguments: may run beside others, allowed in Plan */
};

/* The twelve, in the order in which they are sent. */
const struct tool_spec *tool_list(size_t *n);
const struct tool_spec *tool_find(const char *name); /* NULL: no such tool */

enum tool_verdict {
    TOOL_ALLOW,
    TOOL_ASK,    /* event.approval says what; its `bound` comes back in FX_RUN */
    TOOL_DENY,   /* a rule; text: which */
    TOOL_REFUSE, /* Plan, or no sandbox: text says why. No denial for the exit status */
    TOOL_FAULT,  /* arguments cannot be meant (no such file, old text not found …): text is the result */
};
/* Bits of TOOL_CHECKED's m. */
#define TOOL_WRITES 1 /* may change files: a snapshot comes first */
#define TOOL_READS  2 /* this very call only reads: may run beside others */

enum tool_outcome {
    TOOL_OK,
    TOOL_FAILED,    /* ran and failed, exit status not 0 */
    TOOL_CANCELLED, /* by FX_CANCEL; text: what had come */
    TOOL_CHANGED,   /* what the approval was bound to has changed: check and ask again */
};

struct tool_call {
    int64_t id;       /* item of the call; comes back in the events */
    const char *name; /* one of the list */
    const char *args; /* canonical JSON object, valid by the schema */
    enum mode mode;
    int64_t window; /* tokens of the context, for the limit of output; UNKNOWN */
};

struct tools_options {
    const char *root;                       /* absolute */
    const char *home;                       /* state folder: out/, rules; hidden from children */
    const char *session;                    /* conversation, for rules of the session and seen lines */
    const char *sandbox;                    /* "project", "strict" or "off" */
    const char *const *dirs;                /* folders beside the root, NULL-terminated; NULL: none */
    const char *const *allow, *const *deny; /* rules of the command line, NULL-terminated; NULL: none */
    bool headless, trusted;
    event_sink sink;
    void *arg;
};

struct tools;

struct tools *tools_open(const struct tools_options *o, struct vt_err *err);
void tools_close(struct tools *t); /* ends children and jobs */
/* "project", "strict", "weak", "off": what the sandbox is in truth. */
const char *tools_sandbox(const struct tools *t);
/* The conversation changed (resume, new, fork): seen lines and session rules start anew. */
void tools_session(struct tools *t, const char *session);
void tools_trust(struct tools *t, bool trusted);
/* One more folder for tools and commands until the program ends; only while no call runs. */
int tools_add_dir(struct tools *t, const char *path, struct vt_err *err);
/* The lines that were shown: what changed since the last call, and what another process left. */
void tools_seen(struct tools *t, seen_sink sink, void *arg);
void tools_seen_put(struct tools *t, const char *path, const uint64_t *lines, size_t n);

void tools_check(struct tools *t, const struct tool_call *c);
/* bound: of the approval, or NULL where none was needed (checked again: an unasked call that would now ask
 * is CHANGED). */
void tools_start(struct tools *t, const struct tool_call *c, const uint8_t *bound);
void tools_cancel(struct tools *t, int64_t id);
void tools_kill(struct tools *t, int64_t job);
/* A !line: outside the sandbox, as the user. */
void tools_user_run(struct tools *t, const char *command, bool into_conversation);
/* scope: "session", "project", "user". */
int tools_rule(struct tools *t, const char *scope, enum mode mode, bool allow, const char *pattern,
               struct vt_err *err);
/* A line that is a command of commands/NAME.md or of an extension (ext/ext.h); -1: it is none. */
int tools_command(struct tools *t, const char *line);
/* Tells the extensions an event; fields: JSON. */
void tools_tell(struct tools *t, const char *event, const char *fields);
/* Lines for /rules, /jobs. Caller frees each and the array. */
char **tools_page(struct tools *t, const char *page, size_t *n);

/* Descriptors to wait for: fills at most max, returns how many. */
size_t tools_poll(struct tools *t, struct pollfd *fds, size_t max);
/* Milliseconds until it wants to be called without a descriptor; -1: not. */
int tools_timeout(const struct tools *t);
void tools_work(struct tools *t, const struct pollfd *fds, size_t n);

#endif
