#include "app.h"

#include "core/core_priv.h"
#include "core/event_log.h"
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define FDS_MAX 256

/* ---- events ---- */

void app_put(void *app, const struct event *e)
{
    struct app *a = app;
    a->queue = mem_room(a->queue, a->n_queue, &a->cap_queue, sizeof *a->queue);
    struct event *q = &a->queue[a->n_queue++];
    *q = *e;
    if (e->text != NULL) {
        q->len = e->len != 0 ? e->len : strlen(e->text);
        q->text = mem_dupn(e->text, q->len);
    }
    q->name = mem_dup(e->name);
}

static void store_changes(struct app *a, bool hard)
{
    struct vt_err err = {0};
    if (store_sync(a->store, a->m, hard, &err) == 0) {
        a->trouble.text[0] = '\0';
        return;
    }
    if (strcmp(a->trouble.text, err.text) != 0)
        app_notice(a, NOTICE_TROUBLE, "The conversation could not be stored: %s", err.text);
    a->trouble = err;
}

static void account(struct app *a, int64_t spent_before)
{
    int64_t spent = a->m->gauges.spent;
    if (spent <= 0 || spent == spent_before || a->m->session == NULL)
        return;
    store_request(a->store, a->m->session, a->m->coupling, a->m->now, UNKNOWN, UNKNOWN, UNKNOWN,
                  spent - (spent_before > 0 ? spent_before : 0), NULL);
}

static void keep_seen(void *arg, const char *path, const uint64_t *lines, size_t n)
{
    struct app *a = arg;
    store_seen(a->store, path, lines, n, NULL); /* when it cannot be stored the model reads the file again */
}

static void tell_core(struct app *a, const struct event *e, struct effects *fx)
{
    if (a->record != NULL)
        event_log_write(a->record, e);
    core_step(a->m, e, fx);
}

static void step(struct app *a, struct event *e)
{
    struct effects fx = {0};
    int64_t spent = a->m->gauges.spent;
    bool was_idle = a->m->status == ST_READY;
    e->at = e->at != 0 ? e->at : off_clock_now(&a->clock);
    if (e->kind == EV_SUBMIT) {
        struct event around;
        app_around(a, &around);
        around.at = e->at;
        tell_core(a, &around, &fx);
        free((void *)around.text);
    }
    tell_core(a, e, &fx);
    /* While a conversation comes back, what has not come yet would be taken for deleted. Within an answer only what the core marked is written, once a second. A full sync ends a turn. */
    if (e->kind != EV_OPENED && e->kind != EV_STORED)
        store_changes(a, !was_idle && a->m->status == ST_READY);
    if (e->kind == EV_TOOL_DONE)
        tools_seen(a->tools, keep_seen, a);
    if (e->kind == EV_STREAM_END)
        account(a, spent);
    for (size_t i = 0; i < fx.n && !a->quit; i++)
        if (fx.v[i].kind != FX_QUIT)
            app_do(a, &fx.v[i]);
    for (size_t i = 0; i < fx.n && !a->quit; i++) /* when all has been told */
        if (fx.v[i].kind == FX_QUIT)
            app_do(a, &fx.v[i]);
    effects_clear(&fx);
}

static void drain(struct app *a)
{
    for (size_t i = 0; i < a->n_queue; i++) {
        struct event e = a->queue[i]; /* the queue may grow and move */
        if (!a->quit)
            step(a, &e);
        free((void *)e.text);
        free((void *)e.name);
    }
    a->n_queue = 0;
}

/* ---- signals ---- */

static int signal_fd = -1; /* a handler has no argument */

static void on_signal(int sig)
{
    int keep = errno;
    unsigned char byte = (unsigned char)sig;
    if (write(signal_fd, &byte, 1) < 0) /* full: the same signal waits there already */
        byte = 0;
    errno = keep;
}

static int open_signals(struct app *a, struct vt_err *err)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT};
    if (pipe2(a->signal_pipe, O_CLOEXEC | O_NONBLOCK) < 0)
        return vt_fail_errno(err, VT_E_OS, "signal pipe");
    signal_fd = a->signal_pipe[1];
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &sa, NULL);
    signal(SIGPIPE, SIG_IGN);
    return 0;
}

static void take_signals(struct app *a)
{
    unsigned char sig;
    while (read(a->signal_pipe[0], &sig, 1) == 1) {
        if (sig == SIGWINCH && a->screen != NULL) {
            screen_resized(a->screen);
        } else if (sig == SIGCONT && a->screen != NULL) {
            screen_resized(a->screen);
        } else if (sig == SIGINT || sig == SIGTERM || sig == SIGHUP) {
            const struct event stop = {.kind = EV_STOP};
            const struct event quit = {.kind = EV_QUIT, .n = sig == SIGINT ? 130 : 143};
            app_put(a, &stop);
            app_put(a, &quit);
        }
    }
}

/* ---- the loop ---- */

static int sooner(int a, int b)
{
    return a < 0 ? b : b < 0 ? a : a < b ? a : b;
}

static int timeout_of(struct app *a, uint64_t now)
{
    uint64_t due = core_deadline(a->m);
    int ms = -1;
    if (due != 0)
        ms = due <= now ? 0 : due - now > 3600000000u ? 3600000 : (int)((due - now + 999) / 1000);
    ms = sooner(ms, net_timeout(a->net));
    ms = sooner(ms, tools_timeout(a->tools));
    ms = sooner(ms, snap_timeout(a->snap));
    if (a->screen != NULL)
        ms = sooner(ms, screen_timeout(a->screen, a->m, now));
    if (a->clock.file != NULL) /* somebody else moves the time */
        ms = sooner(ms, 50);
    return ms;
}

struct ready {
    struct pollfd fds[FDS_MAX];
    size_t net, tools, snap; /* where each one's begin */
    size_t n;
};

static void collect(struct app *a, struct ready *r)
{
    r->n = 0;
    r->fds[r->n++] = (struct pollfd){.fd = a->signal_pipe[0], .events = POLLIN};
    int in = a->screen != NULL ? screen_fd(a->screen) : a->o.stream_input && !a->eof ? STDIN_FILENO : -1;
    r->fds[r->n++] = (struct pollfd){.fd = in, .events = POLLIN};
    r->net = r->n;
    r->n += net_poll(a->net, r->fds + r->n, FDS_MAX - r->n);
    r->tools = r->n;
    r->n += tools_poll(a->tools, r->fds + r->n, FDS_MAX - r->n);
    r->snap = r->n;
    r->n += snap_poll(a->snap, r->fds + r->n, FDS_MAX - r->n);
}

static void work(struct app *a, struct ready *r)
{
    uint64_t now = off_clock_now(&a->clock);
    if (r->fds[0].revents != 0)
        take_signals(a);
    if (a->screen != NULL)
        screen_work(a->screen, a->m, now, r->fds[1].revents != 0);
    else if (r->fds[1].revents != 0)
        app_input(a);
    net_work(a->net, r->fds + r->net, r->tools - r->net);
    tools_work(a->tools, r->fds + r->tools, r->snap - r->tools);
    snap_work(a->snap, r->fds + r->snap, r->n - r->snap);
}

/* The last turn's snapshot may still be on its way: without it, what the user changes afterwards would count as the
 * turn's. */
static void finish_snapshots(struct app *a)
{
    struct pollfd fd;
    for (int i = 0; i < 50 && snap_busy(a->snap); i++) {
        size_t n = snap_poll(a->snap, &fd, 1);
        if (poll(&fd, n, 100) > 0)
            snap_work(a->snap, &fd, n);
    }
    for (size_t i = 0; i < a->n_queue; i++) {
        struct effects fx = {0};
        if (a->queue[i].kind != EV_SNAP || a->queue[i].n != SNAP_AFTER)
            continue;
        a->queue[i].at = off_clock_now(&a->clock);
        core_step(a->m, &a->queue[i], &fx);
        effects_clear(&fx);
    }
    store_changes(a, true);
}

int app_run(struct app *a)
{
    struct ready r;
    while (!a->quit) {
        drain(a);
        if (a->n_queue != 0)
            continue;
        if (a->quit)
            break;
        uint64_t now = off_clock_now(&a->clock);
        uint64_t due = core_deadline(a->m);
        if (a->screen != NULL)
            screen_draw(a->screen, a->m, now);
        bool works = a->m->n_turns != 0 && a->m->turns[a->m->n_turns - 1].state == TURN_OPEN;
        if (works)
            store_beat(a->store);
        collect(a, &r);
        int ms = timeout_of(a, now);
        if (works)
            ms = sooner(ms, 1000);
        int got = poll(r.fds, r.n, ms);
        if (got < 0 && errno != EINTR)
            break;
        if (got <= 0)
            for (size_t i = 0; i < r.n; i++)
                r.fds[i].revents = 0;
        if (got == 0 && due != 0 && ms >= 0 && (uint64_t)ms * 1000 + 1000 >= (due > now ? due - now : 0))
            off_clock_reach(&a->clock, due);
        work(a, &r);
        if (due != 0 && off_clock_now(&a->clock) >= due) {
            const struct event tick = {.kind = EV_TICK};
            app_put(a, &tick);
        }
    }
    finish_snapshots(a);
    return a->exit;
}

/* ---- start and end ---- */

static int state_folder(struct app *a, struct vt_err *err)
{
    const char *set = getenv("OFFICINA_HOME"), *home = getenv("HOME");
    struct text t = {0};
    if (set != NULL && set[0] != '\0')
        text_puts(&t, set);
    else if (home != NULL && home[0] == '/')
        text_printf(&t, "%s/.vitriol/officina", home);
    else
        return vt_fail(err, VT_E_CONFIG, "neither OFFICINA_HOME nor HOME is set");
    a->home = text_take(&t);
    if (file_own_dir(a->home, err) < 0)
        return -1;
    if (access(a->home, W_OK) < 0)
        return vt_fail_errno(err, VT_E_CONFIG, "%s: the state folder cannot be written", a->home);
    return 0;
}

static int project_folder(struct app *a, struct vt_err *err)
{
    char path[PATH_MAX];
    a->dirs = mem_new((a->o.n_dirs + 1) * sizeof *a->dirs);
    for (size_t i = 0; i < a->o.n_dirs; i++) { /* as they are meant from where the program was started */
        if (realpath(a->o.dirs[i], path) == NULL)
            return vt_fail_errno(err, VT_E_NO_INPUT, "--add-dir %s", a->o.dirs[i]);
        a->dirs[i] = mem_dup(path);
    }
    if (realpath(a->o.folder != NULL ? a->o.folder : ".", path) == NULL)
        return vt_fail_errno(err, VT_E_NO_INPUT, "%s", a->o.folder != NULL ? a->o.folder : ".");
    if (access(path, R_OK | X_OK) < 0 || chdir(path) < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "%s", path);
    a->root = mem_dup(path);
    a->folder = file_tilde(path);
    return 0;
}

static size_t history(void *arg, const char **out, size_t max)
{
    struct app *a = arg;
    return a->store != NULL ? store_history(a->store, a->project, out, max) : 0;
}

static int open_couplings(struct app *a, struct vt_err *err)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/couplings.conf", a->home);
    if (couplings_load(&a->couplings, path, a->o.engine, err) < 0)
        return -1;
    a->coupling = couplings_find(&a->couplings, a->o.coupling, err);
    return a->coupling == NULL ? -1 : 0;
}

static int open_parts(struct app *a, struct vt_err *err)
{
    a->store = store_open(a->home, err);
    a->net = a->store != NULL ? net_open(app_put, a, err) : NULL;
    if (a->net == NULL)
        return -1;
    a->project = store_project(a->store, a->root, off_clock_now(&a->clock), err);
    if (a->project < 0)
        return -1;
    char *hash = app_project_hash(a, NULL), *trusted = store_trust(a->store, a->project);
    bool trust = hash[0] == '\0' || (strcmp(hash, APP_NO_HASH) != 0 && strcmp(hash, trusted) == 0);
    free(hash);
    free(trusted);
    const struct tools_options to = {.root = a->root,
                                     .home = a->home,
                                     .session = "",
                                     .sandbox = a->o.sandbox,
                                     .dirs = (const char *const *)a->dirs,
                                     .allow = a->o.allow,
                                     .deny = a->o.deny,
                                     .headless = a->headless,
                                     .trusted = trust,
                                     .sink = app_put,
                                     .arg = a};
    a->tools = tools_open(&to, err);
    if (a->tools == NULL)
        return -1;
    a->m->trusted = trust;
    const struct snap_options so = {
        .root = a->root, .home = a->home, .session = "", .sink = app_put, .arg = a};
    a->snap = snap_open(&so, err);
    return a->snap == NULL ? -1 : 0;
}

static int open_screen(struct app *a, struct vt_err *err)
{
    const struct screen_options so = {.home = a->home,
                                      .color = a->o.color,
                                      .ascii = a->o.ascii,
                                      .no_mouse = a->o.no_mouse,
                                      .no_motion = a->o.no_motion,
                                      .resumed = a->o.resume != NULL,
                                      .keeper = a->keeper,
                                      .sink = app_put,
                                      .arg = a,
                                      .history = history};
    a->screen = screen_open(&so, err);
    return a->screen == NULL ? -1 : 0;
}

/* The screen stands before what takes time: the database, the sandbox's trial, the shadow repository. */
static int first_frame(struct app *a, struct vt_err *err)
{
    if (open_screen(a, err) < 0)
        return -1;
    a->m->status = ST_OPENING;
    set_str(&a->m->folder, a->folder);
    set_str(&a->m->coupling_title, a->coupling->title);
    screen_draw(a->screen, a->m, off_clock_now(&a->clock));
    return 0;
}

/* What the screen had to say belongs into the conversation, which is open only now: it goes behind the rest. */
static void put_behind(struct app *a, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct event e = a->queue[i];
        app_put(a, &e);
        free((void *)e.text);
        free((void *)e.name);
    }
    memmove(a->queue, a->queue + n, (a->n_queue - n) * sizeof *a->queue);
    a->n_queue -= n;
}

int app_open(struct app *a, struct vt_err *err)
{
    a->headless = a->o.print != NULL || a->o.stream_input || a->o.dump_w != 0;
    a->once = a->o.print != NULL && !a->o.stream_input;
    off_clock_init(&a->clock, getenv("OFFICINA_CLOCK"));
    a->m = model_new();
    a->tools_json = app_tools_json();
    if (state_folder(a, err) < 0 || project_folder(a, err) < 0 || open_signals(a, err) < 0 ||
        open_couplings(a, err) < 0 || (!a->headless && first_frame(a, err) < 0))
        return -1;
    size_t said = a->n_queue;
    if (open_parts(a, err) < 0)
        return -1;
    if (a->o.record != NULL && (a->record = fopen(a->o.record, "we")) == NULL)
        return vt_fail_errno(err, VT_E_IO, "--record %s", a->o.record);
    if (app_open_session(a, err) < 0)
        return -1;
    put_behind(a, said);
    return 0;
}

void app_close(struct app *a)
{
    free(a->trust_shown);
    if (a->screen != NULL)
        screen_close(a->screen);
    if (a->snap != NULL)
        snap_close(a->snap);
    if (a->tools != NULL)
        tools_close(a->tools);
    net_close(a->net);
    store_close(a->store);
    for (size_t i = 0; i < a->n_queue; i++) {
        free((void *)a->queue[i].text);
        free((void *)a->queue[i].name);
        approval_free(a->queue[i].approval);
        change_free(a->queue[i].changes, a->queue[i].n_changes);
    }
    free(a->queue);
    couplings_free(&a->couplings);
    model_free(a->m);
    text_free(&a->input);
    if (a->record != NULL)
        fclose(a->record);
    free(a->tools_json);
    for (size_t i = 0; a->dirs != NULL && a->dirs[i] != NULL; i++)
        free(a->dirs[i]);
    free(a->dirs);
    free(a->home);
    free(a->root);
    free(a->folder);
    options_free(&a->o);
}
