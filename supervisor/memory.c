#include "memory.h"

#include "child.h"
#include "duties.h"
#include "events.h"
#include "gate.h"
#include "mem_gain.h"
#include "mem_level.h"
#include "mem_psi.h"
#include "ops.h"
#include "tele.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SLOW_US      VT_SEC(1)
#define QUICK_US     VT_MS(250)
#define QUICK_FOR_US VT_SEC(10) /* after the kernel told of stalls */
#define SETTLE_US    VT_SEC(2)  /* from READY to the baseline */
#define EXTERNAL                                                                                             \
    6u /* times the time to enter a level at level 2, without a remedy: somebody else is to blame */
#define CRITICAL_US   VT_SEC(5) /* at level 3 before a child is told to go */
#define CRITICAL_MS   5000u     /* for parking and saving then */
#define THROTTLED_US  VT_SEC(10)
#define OOM_HOLD_US   VT_SEC(300) /* not below level 2 after a kill */
#define MIB           (1024ull * 1024)
#define GATEWAY_LIMIT (1024 * MIB)
#define STORE_LIMIT   (512 * MIB)
#define SWAP_LIMIT    (256 * MIB)
#define ABOVE_HIGH    (2048 * MIB)
#define TOP           5

struct follow {
    struct memory_child view;
    uint32_t gen;
    unsigned told; /* level that it was told */
    struct mem_trend trend;
    bool leak_told;
    uint64_t high_events, throttled_until;
};

struct memory {
    struct mem_level level;
    struct mem_sample sample; /* the last valid one */
    struct mem_bounces bounces;
    struct follow of[SUP_CHILDREN];
    sd_event_source *timer, *psi;
    int psi_fd;
    char psi_why[256];
    uint64_t quick_until, high_since, critical_since;
    bool told_external, told_broken, hurried;
};

static const char *proc_root(const struct sup *s)
{
    return vt_config_str(s->cfg, VT_CFG_PATHS_PROC_ROOT);
}

static bool on(const struct sup *s)
{
    return vt_config_bool(s->cfg, VT_CFG_MEMORY_LEVELS);
}

/* ---- each child ---- */

/* Its promise: what the KV pool may still grow into. */
static uint64_t promised(const struct child *c)
{
    return c->launch.kv_bytes_per_token * c->launch.pool_tokens;
}

static void limit_leaf(struct sup *s, const struct child *c, const struct memory_child *v)
{
    uint64_t slack = (uint64_t)vt_config_int(s->cfg, VT_CFG_MEMORY_ENGINE_SLACK_MIB) * MIB;
    struct vt_plan need;
    struct vt_err err;
    if (c->role == ROLE_GATEWAY)
        leaf_put(&s->leaves, c->name, "memory.max", GATEWAY_LIMIT);
    if (c->role == ROLE_STORE)
        leaf_put(&s->leaves, c->name, "memory.high", STORE_LIMIT);
    /* An external engine's server is in the leaf, too, and what that needs nobody knows. */
    if (c->role != ROLE_ENGINE || sup_external(s->cfg) || slack == 0 || gate_engine_need(s, &need, &err) < 0)
        return;
    /* Mapped weights are charged to the leaf that read them first: they must fit below. */
    uint64_t high = v->baseline + need.weights + slack;
    leaf_put(&s->leaves, c->name, "memory.high", high);
    leaf_put(&s->leaves, c->name, "memory.max", high + ABOVE_HIGH);
    leaf_put(&s->leaves, c->name, "memory.swap.max", SWAP_LIMIT);
    leaf_put(&s->leaves, c->name, "memory.oom.group", 1);
}

static void settle(struct sup *s, struct child *c, struct follow *f, uint64_t now)
{
    if (f->view.settled || c->state != VT_CHILD_READY || now - c->ready_at < SETTLE_US)
        return;
    f->view.settled = true;
    f->view.baseline = mem_foot_private(&f->view.foot) + c->pinned_host + promised(c);
    limit_leaf(s, c, &f->view);
}

static void throttled(struct sup *s, const struct child *c, struct follow *f, uint64_t now)
{
    uint64_t n = 0;
    if (!leaf_event(&s->leaves, c->name, "high", &n))
        return;
    if (n > f->high_events && f->high_events != 0)
        f->throttled_until = now + THROTTLED_US;
    f->high_events = n;
}

static void leak(struct sup *s, const struct child *c, struct follow *f, uint64_t held, uint64_t now)
{
    mem_trend_take(&f->trend, held, now);
    if (f->leak_told || !mem_trend_leaks(&f->trend, 64 * MIB))
        return;
    f->leak_told = true;
    event_text(s, EVENT_MEMORY, c, VT_LOG_WARNING,
               "leak suspected: it has grown for six hours and does not flatten, now %llu MiB",
               (unsigned long long)(held / MIB));
}

static void follow(struct sup *s, struct child *c, struct follow *f, uint64_t now)
{
    if (f->gen != c->gen)
        *f = (struct follow){.gen = c->gen};
    f->view.gain = 0;
    if (c->pid == 0 || !mem_read_foot(&f->view.foot, proc_root(s), c->pid))
        return;
    settle(s, c, f, now);
    throttled(s, c, f, now);
    uint64_t held = mem_foot_private(&f->view.foot) + c->pinned_host;
    if (f->view.settled) {
        f->view.gain = mem_gain(held, f->view.baseline);
        leak(s, c, f, held, now);
    }
}

static void follow_all(struct sup *s, struct mem_sample *sample, uint64_t now)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        struct child *c = &s->child[i];
        struct follow *f = &s->memory->of[i];
        follow(s, c, f, now);
        if (c->pid == 0 || !f->view.foot.valid)
            continue;
        sample->own_swap += f->view.foot.swap;
        if (c->role == ROLE_ENGINE)
            sample->hot_mapped += f->view.foot.rss_file;
    }
}

/* ---- the largest of the others ---- */

struct consumer {
    uint64_t held;
    pid_t pid;
    char comm[32];
};

static void read_comm(const struct sup *s, struct consumer *k)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.2000s/%d/comm", proc_root(s), (int)k->pid);
    FILE *f = fopen(path, "re");
    if (f == NULL || fgets(k->comm, sizeof k->comm, f) == NULL)
        snprintf(k->comm, sizeof k->comm, "?");
    if (f != NULL)
        fclose(f);
    for (char *p = k->comm; *p != '\0'; p++)
        *p = *p == '\n' ? '\0' : isprint((unsigned char)*p) ? *p : '?';
}

static void insert(struct consumer top[TOP], const struct consumer *k)
{
    for (int i = 0; i < TOP; i++) {
        if (k->held <= top[i].held)
            continue;
        memmove(&top[i + 1], &top[i], (size_t)(TOP - 1 - i) * sizeof top[0]);
        top[i] = *k;
        return;
    }
}

static void top_five(const struct sup *s, char *out, size_t size)
{
    struct consumer top[TOP] = {0};
    struct mem_foot foot;
    struct dirent *e;
    DIR *d = opendir(proc_root(s));
    while (d != NULL && (e = readdir(d)) != NULL) {
        struct consumer k = {.pid = isdigit((unsigned char)e->d_name[0]) ? (pid_t)atoi(e->d_name) : 0};
        if (k.pid > 0 && mem_read_foot(&foot, proc_root(s), k.pid)) {
            k.held = mem_foot_private(&foot);
            insert(top, &k);
        }
    }
    if (d != NULL)
        closedir(d);
    size_t n = 0;
    out[0] = '\0';
    for (int i = 0; i < TOP && top[i].pid != 0 && n < size; i++) {
        read_comm(s, &top[i]);
        n += (size_t)snprintf(out + n, size - n, "%s%s[%d] %llu MiB", i > 0 ? ", " : "", top[i].comm,
                              (int)top[i].pid, (unsigned long long)(top[i].held / MIB));
    }
}

/* ---- what is done ---- */

static void tell(struct child *c, struct follow *f, unsigned level)
{
    if (c->role != ROLE_ENGINE || c->state != VT_CHILD_READY || f->told == level)
        return;
    struct vt_enc *e = child_begin(c, VT_F_ORDER, 0);
    vt_enc_u64(e, VT_ORDER_VERB, VT_ORDER_LEVEL);
    vt_enc_map(e, VT_ORDER_ARGS, 1);
    vt_enc_put_u64(e, 2);
    vt_enc_put_u64(e, level);
    if (child_send(c) == 0)
        f->told = level;
}

static void changed(struct sup *s, unsigned from)
{
    struct memory *m = s->memory;
    const struct mem_sample *k = &m->sample;
    event_text(s, EVENT_MEMORY, NULL, m->level.level > from ? VT_LOG_WARNING : VT_LOG_NOTICE,
               "memory level %u -> %u%s%s; usable %llu of %llu MiB", from, m->level.level,
               m->level.why[0] != '\0' ? ": " : "", m->level.why,
               (unsigned long long)(mem_available_eff(k) / MIB), (unsigned long long)(mem_base(k) / MIB));
}

static void external(struct sup *s)
{
    char top[180];
    top_five(s, top, sizeof top);
    event_text(s, EVENT_MEMORY, NULL, VT_LOG_ERR,
               "memory_pressure_external: no restart of ours would help; largest: %s", top);
    s->memory->told_external = true;
}

/* The engine that holds most beyond its plan, if nothing is under way with any engine; *quiet: nothing is. */
static struct child *grown(struct sup *s, bool *quiet)
{
    struct child *most = NULL;
    uint64_t gain = 0;
    *quiet = !s->stopping;
    for (unsigned i = 0; i < s->n_children; i++) {
        struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE || !c->want)
            continue;
        *quiet = *quiet && c->state == VT_CHILD_READY && c->op == 0;
        if (s->memory->of[i].view.gain > gain) {
            gain = s->memory->of[i].view.gain;
            most = c;
        }
    }
    return most;
}

/* The next generation would find room. */
static bool comes_back(struct sup *s, const struct memory_child *v)
{
    struct vt_plan need;
    struct vt_err err;
    const struct mem_sample *k = &s->memory->sample;
    uint64_t room = k->cgroup.room == MEM_NO_LIMIT ? MEM_NO_LIMIT : k->cgroup.room + k->hot_mapped;
    uint64_t then = (k->available < room ? k->available : room) + mem_foot_private(&v->foot);
    return gate_host_need(s, &need, &err) == 0 && gate_memory(&need, then, &err) == 0;
}

static bool bounce(struct sup *s, struct child *c, const struct memory_child *v, uint64_t now)
{
    struct memory *m = s->memory;
    struct vt_err err;
    uint32_t ms = m->level.level >= 3 ? CRITICAL_MS : 0;
    unsigned long long mib = v->gain / MIB;
    if (!comes_back(s, v) || ops_bounce_within(s, c, ms, &err) == 0)
        return false;
    mem_bounce_note(&m->bounces, now);
    m->high_since = now; /* whether it helped is seen after it */
    m->hurried = ms != 0;
    event_text(s, EVENT_MEMORY, c, VT_LOG_WARNING,
               "memory_bounce: it holds %llu MiB beyond its plan and is restarted in order", mib);
    return true;
}

/* One that drains at its leisure while memory has become critical. */
static void hurry(struct sup *s)
{
    struct memory *m = s->memory;
    for (unsigned i = 0; i < s->n_children; i++) {
        struct child *c = &s->child[i];
        if (c->role == ROLE_ENGINE && c->state == VT_CHILD_DRAINING && c->bounce && !m->hurried) {
            m->hurried = true;
            ops_hurry(s, c, CRITICAL_MS);
        }
    }
}

static void relieve(struct sup *s, uint64_t now)
{
    struct memory *m = s->memory;
    bool quiet;
    if (m->level.level < 2) {
        m->high_since = m->critical_since = 0;
        m->told_external = false;
        return;
    }
    m->high_since = m->high_since == 0 ? now : m->high_since;
    m->critical_since = m->level.level < 3 ? 0 : m->critical_since == 0 ? now : m->critical_since;
    if (m->critical_since != 0 && now - m->critical_since >= CRITICAL_US)
        hurry(s);
    struct child *c = grown(s, &quiet);
    if (!quiet || (m->level.level == 3 && now - m->critical_since < CRITICAL_US))
        return;
    const struct mem_limits l = {.gain = (uint64_t)vt_config_int(s->cfg, VT_CFG_MEMORY_BOUNCE_GAIN_MIB) * MIB,
                                 .min_interval =
                                     VT_SEC(vt_config_int(s->cfg, VT_CFG_MEMORY_BOUNCE_INTERVAL_S)),
                                 .per_day = (unsigned)vt_config_int(s->cfg, VT_CFG_MEMORY_BOUNCES_PER_DAY)};
    const struct memory_child *v = c != NULL ? memory_of(s, c) : NULL;
    if (v != NULL && mem_bounce_judge(&m->bounces, &l, v->gain, now) == MEM_BOUNCE && bounce(s, c, v, now))
        return;
    if (!m->told_external && now - m->high_since >= EXTERNAL * m->level.enter_us)
        external(s);
}

/* ---- the sampler ---- */

static void broken(struct sup *s)
{
    struct memory *m = s->memory;
    if (m->level.invalid == 0 && m->told_broken) {
        m->told_broken = false;
        event_text(s, EVENT_MEMORY, NULL, VT_LOG_NOTICE, "memory is read again");
    }
    if (m->level.invalid < MEM_BROKEN || m->told_broken)
        return;
    m->told_broken = true;
    event_text(
        s, EVENT_MEMORY, NULL, VT_LOG_ERR,
        "mem_sampler_broken: %u readings of %s/meminfo in a row make no sense; nothing is done on them",
        m->level.invalid, proc_root(s));
}

static void sample(struct sup *s)
{
    struct memory *m = s->memory;
    struct mem_sample k;
    uint64_t now = sup_now(s);
    unsigned from = m->level.level;
    mem_read(&k, proc_root(s), vt_config_str(s->cfg, VT_CFG_PATHS_CGROUP_ROOT));
    follow_all(s, &k, now);
    if (k.valid)
        m->sample = k;
    s->mem_available = k.valid ? k.available : 0;
    if (on(s)) {
        mem_level_take(&m->level, &k, now);
        broken(s);
        if (m->level.level != from)
            changed(s, from);
        for (unsigned i = 0; i < s->n_children; i++)
            tell(&s->child[i], &m->of[i], m->level.level);
        if (k.valid)
            relieve(s, now);
    }
    duty_done(s, DUTY_MEMORY);
}

static void again(struct sup *s)
{
    struct memory *m = s->memory;
    bool quick = m->level.level > 0 || sup_now(s) < m->quick_until;
    sd_event_source_set_time_relative(m->timer, quick ? QUICK_US : SLOW_US);
    sd_event_source_set_enabled(m->timer, SD_EVENT_ONESHOT);
}

static int on_timer(sd_event_source *src, uint64_t usec, void *arg)
{
    struct sup *s = arg;
    unsigned from = s->memory->level.level;
    sample(s);
    again(s);
    if (s->memory->level.level != from)
        tele_memory(s);
    return 0;
}

static int on_psi(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct sup *s = arg;
    struct memory *m = s->memory;
    if (revents & EPOLLERR) { /* its cgroup is gone: sampling goes on alone */
        sd_event_source_set_enabled(src, SD_EVENT_OFF);
        snprintf(m->psi_why, sizeof m->psi_why, "the trigger has ended");
        return 0;
    }
    m->quick_until = sup_now(s) + QUICK_FOR_US;
    sample(s);
    again(s);
    return 0;
}

static void arm(struct sup *s)
{
    struct memory *m = s->memory;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.500s/memory.pressure", m->sample.cgroup.path);
    if (m->sample.own.valid)
        m->psi_fd = mem_psi_arm(path, m->psi_why, sizeof m->psi_why);
    snprintf(path, sizeof path, "%.2000s/pressure/memory", proc_root(s));
    if (m->psi_fd < 0)
        m->psi_fd = mem_psi_arm(path, m->psi_why, sizeof m->psi_why);
    if (m->psi_fd >= 0 && sd_event_add_io(s->ev, &m->psi, m->psi_fd, EPOLLPRI, on_psi, s) < 0) {
        close(m->psi_fd);
        m->psi_fd = -1;
        snprintf(m->psi_why, sizeof m->psi_why, "it cannot be waited for");
    }
    if (m->psi_fd >= 0)
        m->psi_why[0] = '\0';
    else
        vt_log(s->log, VT_LOG_DEBUG, "no pressure trigger (%s): memory is sampled", m->psi_why);
}

int memory_open(struct sup *s, struct vt_err *err)
{
    struct memory *m = s->memory = calloc(1, sizeof *m);
    if (m == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    m->psi_fd = -1;
    mem_level_init(&m->level, VT_MS(vt_config_int(s->cfg, VT_CFG_MEMORY_ENTER_MS)),
                   VT_MS(vt_config_int(s->cfg, VT_CFG_MEMORY_LEAVE_MS)));
    if (sd_event_add_time_relative(s->ev, &m->timer, CLOCK_MONOTONIC, SLOW_US, 10000, on_timer, s) < 0)
        return vt_fail(err, VT_E_OS, "timer of the memory sampler");
    sample(s);
    arm(s);
    return 0;
}

void memory_close(struct sup *s)
{
    if (s->memory == NULL)
        return;
    sd_event_source_disable_unref(s->memory->timer);
    sd_event_source_disable_unref(s->memory->psi);
    if (s->memory->psi_fd >= 0)
        close(s->memory->psi_fd);
    free(s->memory);
    s->memory = NULL;
}

/* ---- asking ---- */

void memory_look(const struct sup *s, struct memory_view *v)
{
    const struct memory *m = s->memory;
    *v = (struct memory_view){.why = "", .trigger_why = ""};
    if (m == NULL)
        return;
    *v = (struct memory_view){.level = m->level.level,
                              .why = m->level.why,
                              .usable = mem_available_eff(&m->sample),
                              .base = mem_base(&m->sample),
                              .invalid = m->level.invalid_total,
                              .bounces = m->bounces.n,
                              .sample = &m->sample,
                              .trigger = m->psi_fd >= 0 && m->psi_why[0] == '\0',
                              .trigger_why = m->psi_why};
}

const struct memory_child *memory_of(const struct sup *s, const struct child *c)
{
    static const struct memory_child nothing;
    size_t i = (size_t)(c - s->child);
    return s->memory != NULL && s->memory->of[i].gen == c->gen ? &s->memory->of[i].view : &nothing;
}

void memory_killed(struct sup *s)
{
    if (s->memory != NULL)
        mem_level_force(&s->memory->level, sup_now(s) + OOM_HOLD_US);
}

bool memory_throttles(const struct sup *s, const struct child *c)
{
    return s->memory != NULL && sup_now(s) < s->memory->of[c - s->child].throttled_until;
}
