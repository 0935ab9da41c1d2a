/* What the runner's files share: tools.c (life, events, workers), judge.c (who may), run_file.c (read,
 * write, edit, grep, glob), run_shell.c (bash, job, !lines). */
#ifndef OFF_TOOLS_PRIV_H
#define OFF_TOOLS_PRIV_H

#include "tools/box.h"
#include "tools/output.h"
#include "tools/proc.h"
#include "tools/root.h"
#include "tools/rules.h"
#include "tools/seen.h"
#include "tools/tool.h"

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

struct ext;

/* A command that runs: of a call, a job (call 0), or a !line. */
struct run {
    struct run *next;
    struct proc proc;
    struct output *output;
    int64_t call, job; /* item of the call that waits for it, or 0; number of the job, or 0 */
    char *command;
    uint64_t started;
    unsigned seconds;
    bool user, into; /* a !line; its output goes into the conversation */
    bool told;       /* a job whose end was told */
    int64_t told_lines;
    /* calls of `job` that wait for it */
    int64_t waiter;
    uint64_t wait_until;
};

/* A call that only reads, in a thread of its own. Everything in it is its own copy. */
struct reading {
    struct tools *t;
    pthread_t thread;
    int64_t call;
    const struct tool_spec *spec;
    json_t *args;
    atomic_int stop;
    /* result */
    enum tool_outcome outcome;
    struct text result;
    char *gist, *path;
    struct text content; /* read: the file; lines first … first + count - 1 of it were shown */
    long first, count;
    struct reading *next;
};

/* A call that was judged and waits for the extensions' verdict. */
struct held {
    struct held *next;
    struct tool_call c; /* name and args are own */
    struct judged *j;
};

struct judged;

struct tools {
    struct tools_options o; /* strings are own copies */
    struct root root;
    struct box box;
    struct rules *rules;
    struct seen *seen;
    struct ext *ext;
    int64_t window; /* of the last call of a server */
    char *out_dir;
    struct run *runs;
    struct held *held;
    struct reading *tasks;
    int pipe[2]; /* finished tasks, as pointers */
    int64_t next_job;
};

/* What judging found; fields are own. */
struct judged {
    enum tool_verdict verdict;
    int64_t bits;
    char *gist;
    struct text reason;
    struct approval *approval;
    /* edit and write: what would be written */
    char *path;
    bool exists;
    struct text before, after;
    struct file_change *change;
};

void tools_judge(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j);
void judged_free(struct judged *j);
/* An extension wants the user to be asked about a call that was allowed. */
void judged_ask(struct tools *t, const struct tool_call *c, struct judged *j, const char *reason);

void tools_emit(struct tools *t, const struct event *e);
void tools_done(struct tools *t, int64_t call, enum tool_outcome outcome, const struct text *result);

void run_write(struct tools *t, const struct tool_call *c, struct judged *j);
void run_read(struct reading *k);
void run_grep(struct reading *k);
void run_glob(struct reading *k);
/* Applies write's and edit's arguments to the file as it is: fills path, before, after, change; -1 with the
 * fault in reason. */
int file_prepare(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j);

void run_bash(struct tools *t, const struct tool_call *c, json_t *args);
void run_job(struct tools *t, const struct tool_call *c, json_t *args);
void run_user(struct tools *t, const char *command, bool into);
void run_close(struct tools *t);
void run_poll_done(struct tools *t);
void run_read_pipe(struct tools *t, int fd);

#endif
