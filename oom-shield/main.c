/* vitriol-shield: the child of vitriold that keeps the out-of-memory killer away from the appliance, and by hand: a look at
 * what it would do, one scan, and taking everything back. */
#include "shield.h"

#include "clock.h"
#include "config.h"
#include "link.h"
#include "log.h"
#include "mem_read.h"
#include "sandbox.h"
#include "series.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#define SCAN_US VT_SEC(5)
#define MIB     (1024ull * 1024)

struct app {
    sd_event *ev;
    sd_event_source *timer;
    struct vt_child *child;
    struct vt_child_args args;
    struct vt_config *cfg;
    struct vt_log *log;
    struct vt_clock clock;
    struct shield shield;
    char dir[480];
    uint64_t scans;
    bool ready;
};

/* ---- the report ---- */

static void write_report(struct app *a)
{
    char path[512], next[520];
    snprintf(path, sizeof path, "%s/shield.report", a->dir);
    snprintf(next, sizeof next, "%s.new", path);
    FILE *f = fopen(next, "we");
    if (f == NULL)
        return;
    shield_report(&a->shield, f);
    if (fclose(f) != 0 || rename(next, path) < 0)
        unlink(next);
}

static void send_series(struct app *a)
{
    struct vt_enc *e =
        vt_child_begin(a->child, VT_F_T_STORE, 0); /* for every child but the engine the same keys */
    vt_enc_str(e, VT_T_STORE_CHILD, a->args.name);
    vt_enc_u64(e, VT_T_STORE_GEN, a->args.gen);
    vt_enc_map(e, VT_T_STORE_COUNTERS, 0);
    vt_enc_map(e, VT_T_STORE_GAUGES, 1);
    vt_enc_put_u64(e, VT_SERIES_SHIELD_MARKED);
    vt_enc_put_f64(e, shield_marked(&a->shield));
    vt_child_send(a->child);
}

/* ---- the child ---- */

static void scan(struct app *a)
{
    struct vt_err err;
    struct mem_cgroup c;
    /* Looked at each time: a limit may be set while it runs. */
    mem_read_cgroup(&c, a->shield.proc_root, vt_config_str(a->cfg, VT_CFG_PATHS_CGROUP_ROOT));
    bool limited = c.limit != MEM_NO_LIMIT;
    if (limited && !a->shield.scope_cgroup) /* at the first scan the marks of a dead one, too */
        shield_undo(&a->shield);
    a->shield.scope_cgroup = limited;
    if (shield_scan(&a->shield, true, NULL, NULL, &err) < 0)
        vt_log(a->log, VT_LOG_WARNING, "%s", err.text);
    a->scans++;
    write_report(a);
    send_series(a);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    scan(arg);
    sd_event_source_set_time_relative(src, SCAN_US);
    sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
    return 0;
}

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct app *a = arg;
    if (a->ready)
        return;
    scan(a);
    a->ready = true;
    vt_child_begin(a->child, VT_F_READY, 0);
    vt_child_send(a->child);
    if (sd_event_add_time_relative(a->ev, &a->timer, CLOCK_MONOTONIC, SCAN_US, 100000, on_timer, a) < 0)
        sd_event_exit(a->ev, VT_EX_OS);
}

static void leave(struct app *a, int code)
{
    shield_undo(&a->shield);
    write_report(a);
    vt_log(a->log, VT_LOG_INFO, "%u values restored, %u not restorable", a->shield.restored,
           a->shield.not_restored);
    sd_event_exit(a->ev, code);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct app *a = arg;
    if (f->type != VT_F_ORDER)
        return;
    uint64_t verb = vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (verb == VT_ORDER_STOP || verb == VT_ORDER_DRAIN) {
        leave(a, VT_EX_OK);
        return;
    }
    if (verb == VT_ORDER_LEVEL)
        scan(a);
    struct vt_enc *e = vt_child_begin(a->child, VT_F_ORDER_DONE, f->id);
    vt_enc_u64(e, VT_ORDER_DONE_VERB, verb);
    vt_enc_u64(e, VT_ORDER_DONE_OK, 1);
    vt_child_send(a->child);
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct app *a = arg;
    vt_enc_u64(e, VT_BEAT_STEP, a->scans);
    vt_enc_u64(e, VT_BEAT_IN_FLIGHT, 0);
}

static void on_orphan(void *arg)
{
    leave(arg, VT_EX_LOST_SUPERVISOR);
}

/* Our unit's cgroup, if it is a unit's: a login session's holds everything else of the user, too. */
static void own_cgroup(struct rules *r, pid_t pid, const char *proc_root)
{
    struct task t;
    int dir = task_open(proc_root, pid);
    if (dir < 0)
        return;
    if (task_read(&t, dir, pid, false)) {
        char *service = strstr(t.cgroup, ".service");
        for (char *at = service; at != NULL; at = strstr(at + 1, ".service"))
            service = at; /* the innermost */
        if (service != NULL && strncmp(t.cgroup, "/user.slice", 11) != 0) {
            service[strlen(".service")] = '\0';
            snprintf(r->own_cgroup, sizeof r->own_cgroup, "%s", t.cgroup);
        } else if (service != NULL && strstr(service, ".service/") == NULL) {
            snprintf(r->own_cgroup, sizeof r->own_cgroup, "%s", t.cgroup);
        }
    }
    close(dir);
}

static void own_folder(struct rules *r)
{
    ssize_t n = readlink("/proc/self/exe", r->own_dir, sizeof r->own_dir - 1);
    r->own_dir[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(r->own_dir, '/');
    if (slash != NULL)
        *slash = '\0';
}

static int make_rules(struct rules *r, const struct vt_config *cfg, pid_t own, struct vt_err *err)
{
    char bad[160];
    *r = (struct rules){.uid = getuid(),
                        .own = own,
                        .floor = (int)vt_config_int(cfg, VT_CFG_SHIELD_FLOOR),
                        .min_bytes = (uint64_t)vt_config_int(cfg, VT_CFG_SHIELD_MIN_MIB) * MIB};
    own_folder(r);
    if (rules_keep(r, vt_config_str(cfg, VT_CFG_SHIELD_KEEP), bad, sizeof bad) < 0)
        return vt_fail(err, VT_E_CONFIG,
                       "shield.keep: \"%s\" is no name of a process, unit:NAME or path of a file that exists",
                       bad);
    return 0;
}

static int serve(int argc, char **argv, struct app *a, struct vt_err *err)
{
    static const struct vt_child_ops ops = {
        .on_welcome = on_welcome, .on_lifeline = on_lifeline, .on_beat = on_beat, .on_orphan = on_orphan};
    if (vt_child_args(&a->args, argc, argv, a->cfg, err) < 0 ||
        make_rules(&a->shield.rules, a->cfg, getppid(), err) < 0)
        return -1;
    const char *root = vt_config_str(a->cfg, VT_CFG_PATHS_PROC_ROOT), *run = getenv("VITRIOL_RUN_DIR");
    if (run == NULL || run[0] != '/')
        return vt_fail(err, VT_E_CONFIG, "VITRIOL_RUN_DIR names no folder");
    snprintf(a->dir, sizeof a->dir, "%s", run);
    own_cgroup(&a->shield.rules, getppid(), root);
    if (vt_sandbox_enter(err) < 0 || shield_open(&a->shield, a->dir, root, true, err) < 0)
        return -1;
    vt_child_block_signals();
    a->log = vt_log_new(a->args.name, VT_SINK_STDERR, VT_LOG_INFO, 0);
    if (sd_event_new(&a->ev) < 0)
        return vt_fail(err, VT_E_OS, "no event loop");
    if (vt_child_new(&a->child, a->ev, &a->args, "shield", 0, &ops, a, a->log, &a->clock, err) < 0)
        return -1;
    int rc = sd_event_loop(a->ev);
    vt_child_free(a->child);
    sd_event_source_disable_unref(a->timer);
    sd_event_unref(a->ev);
    shield_close(&a->shield);
    return rc;
}

/* ---- by hand ---- */

static void show(void *arg, const struct task *t, enum verdict v)
{
    if (t->uid == getuid() && !t->kernel)
        printf("%7d %-16s %5d %6llu MiB  %s\n", (int)t->pid, t->comm, t->adj,
               (unsigned long long)(t->bytes / MIB), v == MAY_MARK ? "would be marked" : verdict_name(v));
}

static int by_hand(const char *what, const char *dir, struct app *a, struct vt_err *err)
{
    bool undo = strcmp(what, "--undo") == 0, mark = strcmp(what, "--mark") == 0;
    if (make_rules(&a->shield.rules, a->cfg, 0, err) < 0 ||
        shield_open(&a->shield, dir, "/proc", undo || mark, err) < 0)
        return -1;
    int rc = 0;
    if (undo) {
        shield_undo(&a->shield);
        printf("%u restored, %u not restorable\n", a->shield.restored, a->shield.not_restored);
    } else {
        rc = shield_scan(&a->shield, mark, mark ? NULL : show, NULL, err);
        if (rc == 0 && mark)
            shield_report(&a->shield, stdout);
    }
    shield_close(&a->shield);
    return rc;
}

static void usage(FILE *out)
{
    fputs("vitriol-shield is started by vitriold. By hand:\n"
          "  vitriol-shield --look DIR [section.key=value]...  what it would do; nothing is changed\n"
          "  vitriol-shield --mark DIR [section.key=value]...  one scan; DIR keeps the journal\n"
          "  vitriol-shield --undo DIR                         takes back what the journal in DIR names\n"
          "  vitriol-shield --version, --help\n",
          out);
}

static int settings(struct app *a, int argc, char **argv, struct vt_err *err)
{
    char name[128];
    for (int i = 3; i < argc; i++) {
        const char *eq = strchr(argv[i], '=');
        if (eq == NULL)
            return vt_fail(err, VT_E_USAGE, "%s: write section.key=value", argv[i]);
        snprintf(name, sizeof name, "%.*s", (int)(eq - argv[i]), argv[i]);
        if (vt_config_set(a->cfg, VT_L_CMDLINE, name, eq + 1, "command line", err) < 0)
            return -1;
    }
    return 0;
}

static bool is_by_hand(const char *word)
{
    return strcmp(word, "--look") == 0 || strcmp(word, "--mark") == 0 || strcmp(word, "--undo") == 0;
}

int main(int argc, char **argv)
{
    struct vt_err err = {0};
    if (vt_told_version(argc, argv, "vitriol-shield"))
        return VT_EX_OK;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        return VT_EX_OK;
    }
    struct app *a = calloc(1, sizeof *a);
    if (a == NULL || (a->cfg = vt_config_new()) == NULL)
        return VT_EX_HOST_MEM;
    a->clock = vt_clock_real();
    int rc;
    if (argc >= 3 && is_by_hand(argv[1]))
        rc = settings(a, argc, argv, &err) < 0 ? -1 : by_hand(argv[1], argv[2], a, &err);
    else
        rc = serve(argc, argv, a, &err);
    if (rc < 0) {
        fprintf(stderr, "vitriol-shield: %s\n", err.code != 0 ? err.text : strerror(-rc));
        rc = err.code != 0 ? vt_err_exit(&err) : VT_EX_OS;
    }
    vt_log_free(a->log);
    vt_config_free(a->cfg);
    free(a);
    return rc;
}
