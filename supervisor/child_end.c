/* End of a generation: orders to leave, kills, and what follows when the process is gone. */
#include "child_priv.h"

#include "device.h"
#include "evidence.h"
#include "lifeline.h"
#include "links.h"
#include "memory.h"
#include "ops.h"
#include "orphans.h"
#include "routes.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define REAP_POLL_US   VT_MS(20)
#define DRAIN_GRACE_US VT_SEC(5)

uint64_t child_oom_kills(const struct child *c)
{
    uint64_t n;
    return leaf_event(&c->sup->leaves, c->name, "oom_kill", &n) ? n : evidence_oom_kills(c->sup, getpid());
}

static uint64_t unkillable_us(const struct child *c)
{
    return VT_SEC(vt_config_int(c->sup->cfg, VT_CFG_SUPERVISOR_UNKILLABLE_S));
}

static void sigkill(struct child *c)
{
    leaf_kill(&c->sup->leaves, c->name);
    /* The leader by its descriptor, then whatever shares its group; the group outlives the leader until we reap it. */
    syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0);
    kill(-c->pid, SIGKILL);
    if (c->killed_at == 0)
        c->killed_at = sup_now(c->sup);
}

void child_kill(struct child *c, enum exit_class why, const char *detail)
{
    if (c->pid == 0 || state_next(c->state, EV_KILL) == STATE_UNDEFINED)
        return;
    if (c->killed_for == CLASS_NONE && !(c->ordered && why == CLASS_NONE)) {
        c->killed_for = why;
        child_cause(c, why, "%s", detail);
    }
    if (c->evidence == NULL && why != CLASS_NONE)
        c->evidence = evidence_capture(c, detail);
    live_enter(&c->live, LIVE_OFF, sup_now(c->sup));
    bool again = c->killed_at != 0;
    sigkill(c);
    child_change(c, EV_KILL);
    if (!again) /* the time that it has to be gone does not begin anew */
        child_arm(c, c->killed_at + unkillable_us(c));
}

void child_hang(struct child *c, enum exit_class why, const char *detail)
{
    if (state_next(c->state, EV_HANG) == STATE_UNDEFINED) {
        child_kill(c, why, detail);
        return;
    }
    child_cause(c, why, "%s", detail);
    c->hung_total++;
    c->sup->hung_total++;
    child_change(c, EV_HANG);
    child_kill(c, why, detail);
}

static void not_running_anyway(struct child *c, bool come_back)
{
    if (come_back) {
        child_reset(c);
        return;
    }
    child_arm(c, 0);
    c->next_start = 0;
    child_change(c, EV_WANT_DOWN);
}

void child_leave(struct child *c, uint32_t deadline_ms, bool come_back, unsigned reason)
{
    c->want = come_back;
    c->bounce = come_back;
    switch (c->state) {
    case VT_CHILD_DOWN:
        if (come_back)
            child_start(c);
        return;
    case VT_CHILD_FAILED:
        if (c->pid != 0) /* given up, and still there */
            return;
        not_running_anyway(c, come_back);
        return;
    case VT_CHILD_BACKOFF: not_running_anyway(c, come_back); return;
    case VT_CHILD_STARTING:
        c->ordered = true;
        child_kill(c, CLASS_NONE, "");
        return;
    case VT_CHILD_LOADING:
        c->ordered = true;
        child_order(c, VT_ORDER_STOP, 0, 2000, reason, -1);
        deadline_ms = deadline_ms < 2000 ? deadline_ms : 2000;
        break;
    case VT_CHILD_READY:
        c->ordered = true;
        child_order(c, c->role == ROLE_STORE ? VT_ORDER_STOP : VT_ORDER_DRAIN, 0, deadline_ms, reason, -1);
        break;
    case VT_CHILD_DRAINING: /* hurried */ child_order(c, VT_ORDER_STOP, 0, deadline_ms, reason, -1); break;
    case VT_CHILD_HUNG:
    case VT_CHILD_REAPING: return;
    }
    child_change(c, EV_DRAIN);
    uint64_t grace = VT_MS(deadline_ms) / 2;
    child_arm(c, sup_now(c->sup) + VT_MS(deadline_ms) + (grace < DRAIN_GRACE_US ? grace : DRAIN_GRACE_US));
}

void child_reset(struct child *c)
{
    restart_reset(&c->restart);
    child_change(c, EV_RESET);
    if ((c->state == VT_CHILD_BACKOFF || c->state == VT_CHILD_FAILED || c->state == VT_CHILD_DOWN) &&
        c->pid == 0) {
        c->want = true;
        child_start(c);
    }
}

/* ---- the end of a process ---- */

#define SIGKILL_BIT (1ull << (SIGKILL - 1))
#define PF_EXITING                                                                                           \
    0x4u /* of the kernel's flags of a task, which /proc/PID/stat shows: it is being taken apart, */
#define PF_SIGNALED 0x400u /* it was killed */

static bool kill_pending(pid_t pid, const char *root)
{
    char path[512], line[256];
    unsigned long long set = 0;
    bool pending = false;
    snprintf(path, sizeof path, "%s/%d/status", root, (int)pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        pending = pending ||
                  ((sscanf(line, "SigPnd: %llx", &set) == 1 || sscanf(line, "ShdPnd: %llx", &set) == 1) &&
                   (set & SIGKILL_BIT) != 0);
    if (f != NULL)
        fclose(f);
    return pending;
}

static bool exiting(pid_t pid, const char *root)
{
    char path[512], text[1024];
    unsigned flags = 0;
    snprintf(path, sizeof path, "%s/%d/stat", root, (int)pid);
    FILE *f = fopen(path, "re");
    const char *at = f != NULL && fgets(text, sizeof text, f) != NULL ? strrchr(text, ')') : NULL;
    if (f != NULL)
        fclose(f);
    return at != NULL && sscanf(at, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
           (flags & (PF_EXITING | PF_SIGNALED)) != 0;
}

bool child_dying(const struct child *c)
{
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
    const char *root = vt_config_str(c->sup->cfg, VT_CFG_PATHS_PROC_ROOT);
    if (c->pid <= 0)
        return true;
    /* In this order: a process goes from the first to the second to the third. */
    return kill_pending(c->pid, root) || exiting(c->pid, root) || poll(&p, 1, 0) > 0;
}

static void finish(struct child *c)
{
    bool orderly = c->class == CLASS_STOPPED || c->ordered;
    c->waits_for_others = false;
    if (!c->want) {
        c->next_start = 0;
        child_arm(c, 0);
        child_change(c, EV_GONE_DOWN);
    } else if (orderly) {
        c->next_start = sup_now(c->sup);
        child_change(c, EV_GONE_BACKOFF);
        child_start(c);
    } else {
        child_schedule(c, EV_GONE_BACKOFF, EV_GONE_FAILED);
        if (c->role == ROLE_ENGINE && c->state == VT_CHILD_BACKOFF)
            device_prepare(c->sup); /* beside the wait */
    }
}

static unsigned known_pids(const struct sup *s, pid_t *out)
{
    unsigned n = 0;
    struct device_view v;
    for (unsigned i = 0; i < s->n_children; i++) {
        if (s->child[i].pid > 0)
            out[n++] = s->child[i].pid;
    }
    device_look(s, &v);
    if (v.probe > 0)
        out[n++] = v.probe;
    return n;
}

bool child_gone(const struct child *c)
{
    pid_t known[SUP_CHILDREN + 1]; /* and the probe */
    return c->pid == 0 && orphans_adopted(known, known_pids(c->sup, known)) == 0 &&
           leaf_empty(&c->sup->leaves, c->name);
}

/* Reaping: the leader is gone; what it left behind goes before the next generation comes. */
void child_reap(struct child *c)
{
    if (child_gone(c)) {
        leaf_remove(&c->sup->leaves, c->name);
        finish(c);
        return;
    }
    if (sup_now(c->sup) - c->killed_at > unkillable_us(c)) {
        child_give_up(c);
        return;
    }
    child_arm(c, sup_now(c->sup) + REAP_POLL_US);
}

/* Who traces it: until then its end is nobody else's to know. */
static pid_t tracer_of(const struct child *c)
{
    char path[512], line[256];
    int pid = 0;
    snprintf(path, sizeof path, "%s/%d/status", vt_config_str(c->sup->cfg, VT_CFG_PATHS_PROC_ROOT),
             (int)c->pid);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL && sscanf(line, "TracerPid: %d", &pid) != 1) {
    }
    if (f != NULL)
        fclose(f);
    return pid;
}

/* Whoever waits for its answers is told now. When it goes after all, the next one comes (child_on_end, child_start). */
void child_give_up(struct child *c)
{
    unsigned long long s = unkillable_us(c) / 1000000u;
    pid_t tracer = c->pid != 0 ? tracer_of(c) : 0;
    if (c->pid == 0)
        child_cause(
            c, CLASS_UNKILLABLE,
            "a process that it started does not end %llu s after SIGKILL; nothing is started beside it", s);
    else if (tracer != 0)
        child_cause(c, CLASS_UNKILLABLE,
                    "pid %d has ended, but pid %d (a debugger) has traced it for %llu s since: end that one",
                    (int)c->pid, (int)tracer, s);
    else
        child_cause(c, CLASS_UNKILLABLE,
                    "pid %d does not end %llu s after SIGKILL (state %c): reboot or device reset needed",
                    (int)c->pid, s, evidence_proc_state(c->sup, c->pid));
    child_change(c, EV_UNKILLABLE);
    if (c->data_link != 0)
        routes_interrupted(c->sup, c, c->data_link);
    c->data_link = 0;
    if (c->pid == 0) {
        c->next_start = sup_now(c->sup) + CHILD_LEFT_POLL_US;
        child_arm(c, c->next_start);
    }
}

static void describe(struct child *c, const siginfo_t *si)
{
    char said[sizeof c->detail];
    if (c->killed_for != CLASS_NONE && si->si_code == CLD_KILLED && si->si_status == SIGKILL)
        return; /* the cause was written when it was killed */
    memcpy(said, c->detail, sizeof said);
    if (si->si_code == CLD_EXITED)
        snprintf(c->detail, sizeof c->detail, "exit status %d%s%s%.200s", si->si_status,
                 c->ordered ? "" : " without an order", said[0] != '\0' ? ": " : "", said);
    else
        snprintf(c->detail, sizeof c->detail, "killed by SIG%s%s%.200s", sigabbrev_np(si->si_status),
                 said[0] != '\0' ? ": " : "", said);
}

/* What an engine could not come up with, or did not have the room for, may be what the vault holds: it lets go of it. */
static void free_vault(struct child *engine)
{
    struct child *vault = sup_role(engine->sup, ROLE_VAULT);
    if (vault == NULL || vault->state != VT_CHILD_READY || engine->sup->stopping)
        return;
    vt_log(engine->sup->log, VT_LOG_NOTICE, "%s lets go of its memory: %s ended as %s%s", vault->name,
           engine->name, exit_class_name(engine->class), engine->was_ready ? "" : " before it was ready");
    child_leave(vault, 1000, true, 0);
    device_let_go(engine->sup);
}

static void close_process(struct child *c)
{
    sd_event_source_set_enabled(c->on_exit, SD_EVENT_OFF);
    sd_event_source_set_enabled(c->on_log, SD_EVENT_OFF);
    childlog_read(&c->log, c->sup->log, c->name, sup_now(c->sup));
    close(c->log.fd);
    c->log.fd = -1;
    lifeline_close(c);
    close(c->pidfd);
    c->pidfd = -1;
    c->pid = 0;
}

static void ended(struct child *c, const siginfo_t *si)
{
    struct sup *s = c->sup;
    struct exit_facts facts = {.state = c->state,
                               .ordered = c->ordered,
                               .killed_for = c->killed_for,
                               .signalled = si->si_code != CLD_EXITED,
                               .status = si->si_status,
                               .oom_kill = child_oom_kills(c) > c->oom_kills};
    c->class = exit_classify(&facts);
    if (c->class == CLASS_OOM_KILL)
        memory_killed(s);
    describe(c, si);
    bool abnormal = c->class != CLASS_STOPPED;
    if (abnormal && c->role == ROLE_ENGINE &&
        (!c->was_ready || c->class == CLASS_DEVICE_OOM_LOAD || c->class == CLASS_DEVICE_OOM_RUN))
        free_vault(c);
    if (abnormal && !c->ordered) {
        c->restarts++;
        c->restarts_by_class[c->class]++;
        if (c->evidence == NULL)
            c->evidence = evidence_capture(c, c->detail);
    }
    if (abnormal && !c->ordered)
        evidence_keep(c);
    device_ended(s, c);
    close_process(c);
    live_enter(&c->live, LIVE_OFF, sup_now(s));
    links_child_gone(s, c);
    child_change(c, EV_EXIT);
    if (c->data_link != 0 && c->class != CLASS_STOPPED)
        routes_interrupted(s, c, c->data_link);
    c->data_link = 0;
    launch_end(c, c->evidence);
    ops_child_gone(s, c);
    if (c->killed_at == 0)
        c->killed_at = sup_now(s);
    child_reap(c);
    links_want(s);
}

int child_on_end(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct child *c = arg;
    siginfo_t si = {0};
    /* Not yet reaped: while the zombie stands, neither its pid nor its group can belong to anybody else. */
    if (waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == 0) {
        /* Its descriptor tells of its end without pause, and we may not have it: it is being traced. */
        sd_event_source_set_enabled(src, SD_EVENT_OFF);
        child_kill(c, CLASS_NONE, "");
        return 0;
    }
    lifeline_drain(c);
    leaf_kill(&c->sup->leaves, c->name);
    kill(-c->pid, SIGKILL);
    while (waitid((idtype_t)3, (id_t)fd, &si, WEXITED | WNOHANG) < 0 && errno == EINTR) {
    }
    ended(c, &si);
    return 0;
}

int child_on_log(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct child *c = arg;
    if (childlog_read(&c->log, c->sup->log, c->name, sup_now(c->sup)) == 1)
        sd_event_source_set_enabled(src, SD_EVENT_OFF); /* it closed both; its exit is another event */
    return 0;
}
