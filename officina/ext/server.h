/* One server: its process, its lines, the requests that are open. Used by ext.c alone. */
#ifndef OFF_EXT_SERVER_H
#define OFF_EXT_SERVER_H

#include "ext/ext.h"
#include "tools/proc.h"

enum server_state {
    SERVER_IDLE,  /* never started, or waiting to be started again */
    SERVER_HELLO, /* initialize was sent */
    SERVER_LIST,  /* tools/list was sent */
    SERVER_READY,
    SERVER_OFF, /* failed too often: off for this session */
};

enum ask_kind {
    ASK_TOOL,    /* call: item of the call */
    ASK_COMMAND, /* a command of the extension's: tool is "/lint" */
    ASK_BEFORE,  /* before_tool: call is the item that waits for the verdict */
    ASK_REQUEST, /* before_request: call is the question's number */
    ASK_NOTHING, /* told only */
};

struct open_call {
    enum ask_kind kind;
    int64_t call;
    int64_t rpc;       /* id on the wire; 0: not sent yet */
    char *tool;        /* NULL: wants the list; of an event its name */
    json_t *arguments; /* of an event: its other fields */
    uint64_t deadline;
    struct open_call *next;
};

struct ext_server {
    struct ext_server *next;
    char *name;
    char **argv;      /* program and arguments */
    char **env;       /* names of variables that it gets, NULL-terminated */
    char **enabled;   /* names of tools, NULL-terminated; NULL: all */
    char *dir;        /* where it runs */
    unsigned timeout; /* seconds of a call */
    bool plan, own, project;
    /* own: an executable of ours, not MCP; project: from the project's folder */
    enum server_state state;
    char *word; /* for the panel */
    struct proc proc;
    bool running;
    int in, err; /* its standard input; its standard error. -1: none */
    struct text out, line, log;
    json_t *tools;
    int64_t next_rpc, shake_rpc;
    uint64_t shake_until, start_after;
    unsigned marks, noise, told; /* told: lines that nobody asked for, since told_since */
    uint64_t told_since;
    unsigned events;  /* bits of 1 << enum ext_event */
    json_t *commands; /* [{"name","args","help"}] */
    bool panel, panel_changed;
    json_t *panel_lines;
    struct open_call *calls;
};

struct ext_server *server_new(const char *name);
void server_free(struct ext_server *s);
void server_end(struct ext *x, struct ext_server *s); /* its calls fail, its panel goes, and it is freed */
/* Puts the question in the queue and starts the server when it does not run; the answer comes by ext_answered(). */
void server_ask(struct ext *x, struct ext_server *s, enum ask_kind kind, int64_t call, const char *tool,
                const json_t *arguments);
/* Takes its word of what it contributes, from ext.conf or hello. */
void server_take_events(struct ext_server *s, const json_t *names);
void server_take_commands(struct ext_server *s, const json_t *names);
void server_cancel(struct ext *x, struct ext_server *s, int64_t call);
void server_work(struct ext *x, struct ext_server *s, const struct pollfd *fds, size_t n);
size_t server_poll(const struct ext_server *s, struct pollfd *fds, size_t max);
uint64_t server_deadline(const struct ext_server *s); /* monotonic; 0: none */
bool server_enabled(const struct ext_server *s, const char *tool);

/* ---- between server.c and said.c ---- */
void server_fail(struct ext *x, struct ext_server *s, const char *why);
void server_end_call(struct ext *x, struct ext_server *s, struct open_call *c, bool ok, const char *text,
                     size_t n, const json_t *body);
void server_word(struct ext *x, struct ext_server *s, const char *text);
void server_send(struct ext *x, struct ext_server *s, json_t *o); /* takes o */
json_t *server_rpc(struct ext_server *s, const char *method, json_t *params, int64_t *id);
void server_show_panel(struct ext *x, struct ext_server *s, const json_t *lines);
void said_read(struct ext *x, struct ext_server *s); /* what its standard output has */
void said_send_waiting(struct ext *x, struct ext_server *s);

/* ---- of ext.c and hook.c ---- */
/* body: the answer as it came, NULL when there is none; text: its words for a tool's call, or what went wrong. */
void ext_answered(struct ext *x, struct ext_server *s, const struct open_call *c, bool ok, const char *text,
                  size_t n, const json_t *body);
void ext_done(struct ext *x, int64_t call, bool ok, const char *text, size_t n);
void ext_progress(struct ext *x, const struct open_call *c, const char *text);
void ext_panel(struct ext *x, struct ext_server *s);
/* What the extensions contribute may be something else now. */
void ext_contribute(struct ext *x);
struct ext_server *ext_servers(const struct ext *x);
struct hook;
struct hook *ext_hook(struct ext *x);
void ext_told(struct ext *x, const struct ext_server *s);
/* Compares the tools' descriptions with those of the last session and tells a difference. */
void ext_compare(struct ext *x, const struct ext_server *s);
const struct ext_options *ext_options_of(const struct ext *x);

#endif
