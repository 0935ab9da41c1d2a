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

struct open_call {
    int64_t call; /* item */
    int64_t rpc;  /* id on the wire; 0: not sent yet */
    char *tool;   /* NULL: wants the list */
    json_t *arguments;
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
    unsigned marks, noise;
    struct open_call *calls;
};

struct ext_server *server_new(const char *name);
void server_free(struct ext_server *s);
void server_call(struct ext *x, struct ext_server *s, int64_t call, const char *tool,
                 const json_t *arguments);
void server_cancel(struct ext *x, struct ext_server *s, int64_t call);
void server_work(struct ext *x, struct ext_server *s, const struct pollfd *fds, size_t n);
size_t server_poll(const struct ext_server *s, struct pollfd *fds, size_t max);
uint64_t server_deadline(const struct ext_server *s); /* monotonic; 0: none */
bool server_enabled(const struct ext_server *s, const char *tool);

/* ---- of ext.c ---- */
void ext_done(struct ext *x, int64_t call, bool ok, const char *text, size_t n);
void ext_told(struct ext *x, const struct ext_server *s);
/* Compares the tools' descriptions with those of the last session and tells a difference. */
void ext_compare(struct ext *x, const struct ext_server *s);
const struct ext_options *ext_options_of(const struct ext *x);

#endif
