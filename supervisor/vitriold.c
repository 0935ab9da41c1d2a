/* vitriold: starts, watches, restarts and describes the gateway, the store and the engines. */
#include "canary.h"
#include "child.h"
#include "ctl.h"
#include "device.h"
#include "duties.h"
#include "events.h"
#include "gate.h"
#include "links.h"
#include "listen.h"
#include "memory.h"
#include "ops.h"
#include "options.h"
#include "orphans.h"
#include "payload.h"
#include "profiles.h"
#include "routes.h"
#include "store_ask.h"
#include "sup.h"
#include "suspects.h"
#include "tele.h"

#include "build_id.h"
#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define TICK_US VT_SEC(1)

static enum vt_level level_of(const struct vt_config *cfg)
{
    const char *w = vt_config_str(cfg, VT_CFG_LOG_LEVEL);
    return w[0] == 'e'   ? VT_LOG_ERR
           : w[0] == 'w' ? VT_LOG_WARNING
           : w[0] == 'n' ? VT_LOG_NOTICE
           : w[0] == 'd' ? VT_LOG_DEBUG
                         : VT_LOG_INFO;
}

/* ---- the process ---- */

static int choose_user(struct sup *s, struct vt_err *err)
{
    const char *name = vt_config_str(s->cfg, VT_CFG_SUPERVISOR_RUN_AS);
    s->run_uid = geteuid();
    s->run_gid = getegid();
    if (name[0] == '\0')
        return 0;
    const struct passwd *pw = getpwnam(name);
    if (pw == NULL)
        return vt_fail(err, VT_E_CONFIG, "supervisor.run_as: no user %s", name);
    if (geteuid() != 0 && pw->pw_uid != geteuid())
        return vt_fail(err, VT_E_PERM, "supervisor.run_as: only root can run children as %s", name);
    s->run_uid = pw->pw_uid;
    s->run_gid = pw->pw_gid;
    return 0;
}

static void harden_process(struct vt_log *log)
{
    struct rlimit r;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    umask(0077);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    /* On fault: only pages that are used, not the stacks of the library's threads. */
    if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
        vt_log(log, VT_LOG_DEBUG, "pages are not locked: %s", strerror(errno));
}

static void read_boot_id(char out[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = '\0';
    if (f != NULL && fgets(out, 40, f) != NULL)
        out[strcspn(out, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
}

/* ---- loop ---- */

static void on_canary(struct sup *s, enum canary_kind kind, bool heard)
{
    static const char *const names[] = {"ctl", "tele"};
    struct vt_err err;
    if (heard) {
        duty_done(s, kind == CANARY_CTL ? DUTY_CTL : DUTY_TELE);
        return;
    }
    int rc = kind == CANARY_CTL ? ctl_relisten(s, &err) : tele_relisten(s, &err);
    event_text(s, EVENT_RELISTEN, NULL, VT_LOG_WARNING, "%s was deaf and is made anew%s%s", names[kind],
               rc < 0 ? ": " : "", rc < 0 ? err.text : "");
}

static void guard(struct sup *s)
{
    bool suspended;
    uint64_t by = live_guard_turn(&s->guard, sup_now(s), vt_boot(&s->clock), TICK_US, &suspended);
    if (by == 0)
        return;
    s->late_total++;
    event_text(s, EVENT_LATE, NULL, VT_LOG_NOTICE, "%s: every limit is extended by %llu ms",
               suspended ? "resumed: the machine slept" : "late_loop: this process did not run",
               (unsigned long long)(by / 1000));
    for (unsigned i = 0; i < s->n_children; i++)
        child_guard(&s->child[i], by);
}

static void keep_lock(struct sup *s)
{
    struct vt_err err;
    int rc = rundir_keep(&s->dir, &err);
    if (rc == 0)
        event_text(s, EVENT_LOCK, NULL, VT_LOG_WARNING, "%s had been removed by somebody and is there again",
                   s->dir.lock);
    else if (rc < 0)
        event_text(s, EVENT_LOCK, NULL, VT_LOG_ERR, "%s", err.text);
}

static int on_tick(sd_event_source *src, uint64_t usec, void *arg)
{
    struct sup *s = arg;
    sd_event_source_set_time_relative(src, TICK_US);
    sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
    guard(s);
    for (unsigned i = 0; i < s->n_children; i++)
        child_tick(&s->child[i]);
    links_want(s);
    ops_tick(s);
    profiles_tick(s);
    tele_children(s);
    duties_tick(s);
    if (sup_now(s) / TICK_US % 10 == 0)
        keep_lock(s);
    return 0;
}

static int on_signal(sd_event_source *src, const struct signalfd_siginfo *si, void *arg)
{
    struct sup *s = arg;
    /* A terminal and a launcher may both pass on the one Ctrl-C. */
    bool again = s->stopping && sup_now(s) - s->stop_asked_at > VT_MS(300);
    if (!s->stopping)
        s->stop_asked_at = sup_now(s);
    ops_shutdown(s, again || si->ssi_signo == SIGQUIT);
    return 0;
}

static int watch_signals(struct sup *s, struct vt_err *err)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGQUIT};
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (size_t i = 0; i < 3; i++) {
        if (sd_event_add_signal(s->ev, NULL, signals[i], on_signal, s) < 0)
            return vt_fail(err, VT_E_OS, "signals");
    }
    return 0;
}

static void block_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGQUIT);
    sigprocmask(SIG_BLOCK, &set, NULL); /* before any thread exists, so that all inherit it */
}

/* ---- life ---- */

/* Who is protected already, or is root, gains nothing by raising others: the shield is for a user's own vitriold. */
static bool wants_shield(const struct sup *s)
{
    const char *mode = vt_config_str(s->cfg, VT_CFG_SHIELD_MODE);
    int adj = 0;
    if (mode[0] != 'a')
        return mode[1] == 'n'; /* on */
    FILE *f = fopen("/proc/self/oom_score_adj", "re");
    bool is_protected = f != NULL && fscanf(f, "%d", &adj) == 1 && adj < 0;
    if (f != NULL)
        fclose(f);
    return geteuid() != 0 && !is_protected;
}

static int open_shield(struct sup *s, struct vt_err *err)
{
    if (!wants_shield(s))
        return 0;
    s->n_children++;
    if (child_open(s, &s->child[s->n_children - 1], ROLE_SHIELD, "shield", err) == 0)
        return 0;
    if (vt_config_str(s->cfg, VT_CFG_SHIELD_MODE)[0] != 'a')
        return -1;
    vt_log(s->log, VT_LOG_NOTICE, "no shield: %s", err->text);
    child_close(&s->child[--s->n_children]);
    return 0;
}

static int open_children(struct sup *s, struct vt_err *err)
{
    static const struct {
        enum child_role role;
        const char *name;
    } list[] = {
        {ROLE_GATEWAY, "gateway"}, {ROLE_STORE, "store"}, {ROLE_VAULT, "vault0"}, {ROLE_ENGINE, "engine0"}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (list[i].role == ROLE_VAULT && !gate_vault(s))
            continue;
        if (child_open(s, &s->child[s->n_children++], list[i].role, list[i].name, err) < 0)
            return -1;
    }
    return open_shield(s, err);
}

/* Lock first, then the ground, then the sockets: a second instance must not touch the first. */
static int open_ground(struct sup *s, struct vt_err *err)
{
    char line[80];
    if (rundir_resolve(&s->dir, s->cfg, err) < 0 || choose_user(s, err) < 0 ||
        rundir_make(&s->dir, s->run_uid, s->run_gid, err) < 0 || rundir_lock(&s->dir, err) < 0)
        return -1;
    orphans_sweep(&s->orphans, "/proc", s->dir.run, s->instance_hex, s->log);
    leaves_open(&s->leaves, vt_config_str(s->cfg, VT_CFG_PATHS_CGROUP_ROOT),
                vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT));
    if (rundir_clean(&s->dir, err) < 0 || rundir_link_block(&s->dir, &s->next_link, err) < 0)
        return -1;
    /* Written before the bind, so that tools can say who sits on the port when this fails. */
    snprintf(line, sizeof line, "%s\n", vt_config_str(s->cfg, VT_CFG_HTTP_LISTEN));
    if (rundir_write(s->dir.address, line, err) < 0 || listen_open(&s->http, s->cfg, err) < 0)
        return -1;
    snprintf(line, sizeof line, "%s\n", s->http.address);
    return rundir_write(s->dir.address, line, err);
}

/* Readers are the group of the service user, also where vitriold itself stays root. */
static void share(const struct sup *s)
{
    const char *const paths[] = {s->dir.ctl, s->dir.tele, s->dir.lock, s->dir.address};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        if (s->run_gid != getegid() && chown(paths[i], (uid_t)-1, s->run_gid) < 0)
            vt_log(s->log, VT_LOG_WARNING, "%s: %s", paths[i], strerror(errno));
    }
}

static int open_modules(struct sup *s, const struct options *o, struct vt_err *err)
{
    if (sd_event_new(&s->ev) < 0)
        return vt_fail(err, VT_E_OS, "event loop");
    s->events = events_new();
    if (s->events == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    if (vt_sock_check_library(err) < 0 || watch_signals(s, err) < 0 || ops_open(s, err) < 0 ||
        links_open(s, err) < 0 || routes_open(s, err) < 0 || duties_open(s, err) < 0 ||
        open_children(s, err) < 0 || open_ground(s, err) < 0 || profiles_open(s, o, err) < 0 ||
        suspects_open(s, err) < 0 || ctl_open(s, err) < 0 || tele_open(s, err) < 0 ||
        memory_open(s, err) < 0 || device_open(s, err) < 0)
        return -1;
    if (sd_event_add_time_relative(s->ev, &s->tick, CLOCK_MONOTONIC, TICK_US, 10000, on_tick, s) < 0)
        return vt_fail(err, VT_E_OS, "timer");
    share(s);
    return 0;
}

static void announce(struct sup *s, const struct options *o)
{
    char line[160];
    snprintf(line, sizeof line, "READY=1\nMAINPID=%d\nSTATUS=control plane up", (int)getpid());
    duties_notify(line);
    if (o->ready_fd >= 0) {
        ssize_t n = write(o->ready_fd, "\n", 1);
        (void)n; /* who asked for it and went away does not need it any more */
        close(o->ready_fd);
    }
    vt_log(s->log, VT_LOG_NOTICE, "vitriold %s, instance %s, http on %s (%s), run directory %s", VT_BUILD_ID,
           s->instance_hex, s->http.address, s->http.handed_over ? "handed over" : "bound here", s->dir.run);
    if (geteuid() == 0 && s->run_uid == 0)
        vt_log(s->log, VT_LOG_NOTICE, "children run as root; supervisor.run_as chooses another user");
}

static int serve(struct sup *s, const struct options *o, struct vt_err *err)
{
    struct canary *canaries[2] = {NULL, NULL};
    if (open_modules(s, o, err) < 0 ||
        canary_open(&canaries[0], s, CANARY_CTL, s->dir.ctl, on_canary, err) < 0 ||
        canary_open(&canaries[1], s, CANARY_TELE, s->dir.tele, on_canary, err) < 0) {
        canary_close(canaries[0]);
        return -1;
    }
    announce(s, o);
    /* A model that is not there makes its engine fail and say so; the control plane stays up to tell. */
    if (gate_find_model(s, err) < 0)
        vt_log(s->log, VT_LOG_ERR, "%s", err->text);
    for (unsigned i = 0; i < s->n_children; i++)
        child_want(&s->child[i]);
    int rc = sd_event_loop(s->ev);
    canary_close(canaries[0]);
    canary_close(canaries[1]);
    return rc < 0 ? vt_fail(err, VT_E_OS, "event loop: %s", strerror(-rc)) : rc;
}

static void close_all(struct sup *s)
{
    for (unsigned i = 0; i < s->n_children; i++)
        child_close(&s->child[i]);
    if (s->links != NULL)
        links_close(s);
    routes_close(s);
    ctl_close(s);
    tele_close(s);
    memory_close(s);
    device_close(s);
    duties_close(s);
    store_ask_close(s);
    profiles_close(s);
    suspects_close(s);
    payload_close(s);
    ops_close(s);
    events_free(s->events);
    listen_close(&s->http);
    orphans_close(&s->orphans);
    rundir_release(&s->dir);
    sd_event_source_disable_unref(s->tick);
    sd_event_unref(s->ev);
}

static int run(struct vt_config *cfg, const struct options *o, struct vt_log *log, struct vt_err *err)
{
    struct sup *s = calloc(1, sizeof *s);
    if (s == NULL) {
        vt_config_free(cfg);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    s->cfg = cfg;
    s->log = log;
    s->clock = vt_clock_real();
    s->dir.lock_fd = -1;
    s->started_at = sup_now(s);
    vt_random(s->instance, sizeof s->instance);
    vt_hex(s->instance, sizeof s->instance, s->instance_hex);
    read_boot_id(s->boot_id);
    harden_process(log);
    int rc = serve(s, o, err);
    if (rc == 0)
        vt_log(log, VT_LOG_NOTICE, "stopped in order");
    close_all(s);
    vt_config_free(s->cfg); /* which may be another one by now */
    free(s);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o;
    struct vt_err err = {0};
    block_signals();
    int rc = options_read(&o, argc, argv, &err);
    if (rc == 0 && (o.help || o.version)) {
        if (o.help)
            options_usage(stdout);
        else
            printf("vitriold %s\n", VT_BUILD_ID);
        return 0;
    }
    struct vt_config *cfg = rc == 0 ? profiles_first(&o, &err) : NULL;
    if (cfg == NULL) {
        fprintf(stderr, "vitriold: %s\n", err.text);
        return vt_err_exit(&err);
    }
    struct vt_log *log = vt_log_new("vitriold", VT_SINK_AUTO, level_of(cfg), 0);
    rc = run(cfg, &o, log, &err);
    if (rc < 0) {
        vt_log(log, VT_LOG_ERR, "%s", err.text);
        rc = vt_err_exit(&err);
    }
    vt_log_free(log);
    return rc;
}
