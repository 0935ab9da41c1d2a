/* The program: one thread, one poll loop. Everything that happens becomes an event in a queue; each is given to the core, what
 * it changed is stored, then its effects are done. */
#ifndef OFF_APP_H
#define OFF_APP_H

#include "clock.h"
#include "core/core.h"
#include "couple/coupling.h"
#include "net/net.h"
#include "options.h"
#include "snap/snap.h"
#include "store/store.h"
#include "term/screen.h"
#include "tools/tool.h"

struct app {
    struct options o;
    struct off_clock clock;
    char *home, *root, *folder;
    char **dirs; /* folders of the command line beside it, NULL-terminated */
    struct couplings couplings;
    const struct coupling *coupling;
    struct model *m;
    struct store *store;
    struct net *net;
    struct tools *tools;
    struct snap *snap;
    struct screen *screen;
    struct keeper *keeper; /* NULL: none */
    int64_t project;
    char *tools_json;
    FILE *record;

    /* events that wait: sources may be in the middle of something when they report */
    struct event *queue;
    size_t n_queue, cap_queue;

    bool headless, once, quit;
    int exit;
    int signal_pipe[2];
    bool eof;          /* standard input of stream-json ended */
    struct text input; /* its unfinished line */
    int64_t seq;
    char *trust_shown;     /* hash of what the question about trust showed, or NULL */
    struct vt_err trouble; /* a store that fails is told once */
};

/* Everything before the loop; -1 with err. */
int app_open(struct app *a, struct vt_err *err);
void app_close(struct app *a);
/* Runs until the end; returns the exit code. */
int app_run(struct app *a);

/* An event for the queue: strings are copied, approvals and changes taken over. */
void app_put(void *app, const struct event *e);

/* open.c: conversations */
int app_open_session(struct app *a, struct vt_err *err); /* as the options say */
int app_switch(struct app *a, const char *session, bool fork, struct vt_err *err);
int app_new_session(struct app *a, struct vt_err *err);
/* What is around the conversation now: EV_AROUND for the core. Caller frees its text. */
void app_around(struct app *a, struct event *out);
int app_couple(struct app *a, const char *name, struct vt_err *err);
char *app_tools_json(void);
/* Hash in hex of what the folder's .officina holds, "" when there is nothing, APP_NO_HASH when it cannot be read
 * as a whole. list: gets a line for each thing that would count, or NULL. Caller frees. */
#define APP_NO_HASH "unreadable"
char *app_project_hash(const struct app *a, struct text *list);

/* pages.c: sheets that the program fills */
void app_page(struct app *a, const char *page, const char *words);
void app_export(struct app *a, const char *path);
void app_notice(struct app *a, enum notice_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* output.c: headless input and output */
void app_emit(struct app *a, const char *json);
void app_input(struct app *a);
void app_result(struct app *a, const char *words);
void app_print_text(struct app *a, FILE *out);

/* effects.c */
void app_do(struct app *a, const struct effect *fx);

#endif
