/* Extensions: MCP servers over standard input and output (mcp.conf), executables (ext/NAME/ext.conf), skills
 * and commands.
 *
 * Servers are started at their first use, as processes of the user outside the sandbox, and reached through
 * the one tool `mcp`. What they write is read as hostile: lines have a limit, what is no JSON is counted and
 * skipped, every call has a deadline, and a server that fails is restarted with growing pauses. What a
 * server says of its tools is shown, not believed. Project folders (.officina/…) count only after trust.
 * Results are events: EV_TOOL_DONE, EV_SERVER and the others that
 * are named below. What an extension says can make things stricter and can add words; it loosens nothing. Runs in the program's thread and never blocks. */
#ifndef OFF_EXT_H
#define OFF_EXT_H

#include "core/event.h"
#include "err.h"
#include "ext/line.h"
#include "util/text.h"

#include <jansson.h>
#include <poll.h>

struct ext;

enum ext_verdict { EXT_PASS, EXT_ASK, EXT_FAIL, EXT_DENY }; /* the later one counts */

struct ext_options {
    const char *root, *home, *session;
    bool trusted;
    event_sink sink;
    void *arg;
    /* The answer to ext_before_tool(), with arg: may come within the call. reason: "NAME: words". */
    void (*verdict)(void *arg, int64_t id, enum ext_verdict v, const char *reason);
};

/* Reads mcp.conf and looks for extensions and skills; starts nothing. */
struct ext *ext_open(const struct ext_options *o, struct vt_err *err);
void ext_close(struct ext *x);
void ext_trust(struct ext *x, bool trusted);
void ext_session(struct ext *x, const char *session);
/* The user's file says `plan = yes` for this server (and names the tool among enabled_tools). */
bool ext_plan_allows(const struct ext *x, const char *server, const char *tool);
/* A call of the tool `mcp`; EV_TOOL_DONE comes for it. tool NULL: the list of the server's tools, or of all
 * servers ("*"). */
void ext_call(struct ext *x, int64_t id, const char *server, const char *tool, const json_t *arguments);
void ext_cancel(struct ext *x, int64_t id);
/* The text of a skill, appended; -1 with the names that there are. */
int ext_skill(struct ext *x, const char *name, struct text *out, struct vt_err *err);
/* Names and descriptions of skills and servers, a line each, for the opening note; empty when there are
 * none. */
void ext_note(struct ext *x, struct text *out);
/* A line "/name words": one of commands/NAME.md becomes EV_TEMPLATE, one of an extension's is asked for and becomes
 * EV_NOTICE or EV_SHEET, and EV_SUBMIT when it gives a prompt; a fault is a notice. -1: no such command. */
int ext_command(struct ext *x, const char *line);
/* Does an extension want to judge this call? fields: {"tool","arguments",…} of the event. */
bool ext_judges(const struct ext *x, const json_t *fields);
void ext_before_tool(struct ext *x, int64_t id, const json_t *fields);
/* The other events. before_request is answered by EV_NOTED, in every case within some 15 s. */
void ext_tell(struct ext *x, const char *event, const json_t *fields);
/* Lines for /mcp, /ext and /skills, and of ext_note() for "note" (none when there is nothing). Caller frees
 * each and the array. */
char **ext_page(struct ext *x, const char *page, size_t *n);

size_t ext_poll(struct ext *x, struct pollfd *fds, size_t max);
int ext_timeout(const struct ext *x); /* milliseconds, -1: none */
void ext_work(struct ext *x, const struct pollfd *fds, size_t n);

#endif
