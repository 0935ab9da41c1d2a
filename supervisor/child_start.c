/* Start of a generation: gate, pipes, fork, lifeline, nonce. */
#include "child_priv.h"

#include "device.h"
#include "events.h"
#include "evidence.h"
#include "gate.h"
#include "lifeline.h"
#include "payload.h"
#include "profiles.h"
#include "programs.h"
#include "spawn.h"

#include "hash.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

int child_find_program(struct child *c, struct vt_err *err)
{
    const char *set = c->role == ROLE_ENGINE ? vt_config_str(c->sup->cfg, VT_CFG_ENGINE_PROGRAM) : "";
    if (set[0] != '\0')
        snprintf(c->exe_path, sizeof c->exe_path, "%s", set);
    else if (program_find(c->info->program, c->exe_path, sizeof c->exe_path, err) < 0)
        return -1;
    c->exe_fd = spawn_open(c->exe_path, err);
    struct vt_err none; /* it is missed only by who wants it */
    if (c->role == ROLE_ENGINE &&
        program_find("vitriol-external", c->ext_path, sizeof c->ext_path, &none) == 0)
        c->ext_fd = spawn_open(c->ext_path, &none);
    return c->exe_fd < 0 ? -1 : 0;
}

int child_program(const struct child *c, const char **path)
{
    bool external = c->role == ROLE_ENGINE && sup_external(c->sup->cfg);
    *path = external ? c->ext_path : c->exe_path;
    return external ? c->ext_fd : c->exe_fd;
}

static enum exit_class class_of_gate(const struct vt_err *err)
{
    switch (err->code) {
    case VT_E_NO_INPUT:
    case VT_E_PAYLOAD: return CLASS_PAYLOAD;
    case VT_E_CONFIG: return CLASS_CONFIG;
    case VT_E_PERM: return CLASS_PERM;
    case VT_E_MEM_PRESSURE: return CLASS_HOST_MEM;
    case VT_E_DEVICE_MEM: return CLASS_DEVICE_OOM_LOAD;
    case VT_E_DEVICE_LOST: return CLASS_DEVICE_LOST;
    case VT_E_BUSY: return CLASS_VRAM_NOT_RETURNED;
    case VT_E_HUNG: return CLASS_UNKILLABLE;
    default: return CLASS_SPAWN_FAILED;
    }
}

/* at: 0, or when it is tried again, what failed not being this child: a GPU that is lost, one that cannot be ended. */
static void refused(struct child *c, uint64_t at, const struct vt_err *err)
{
    child_cause(c, class_of_gate(err), "%.250s", err->text);
    c->was_ready = false;
    if (at == 0) {
        child_schedule(c, EV_SPAWN_FAILED, EV_REFUSED);
        return;
    }
    c->next_start = at;
    child_change(c, EV_REFUSED);
    child_arm(c, at);
}

/* Identity of the model's bytes, so that a change of the file is noticed. */
uint64_t child_payload_identity(const struct sup *s)
{
    struct stat st;
    if (stat(s->model, &st) < 0)
        return 1;
    return (uint64_t)st.st_ino * 31 + (uint64_t)st.st_size * 17 + (uint64_t)st.st_mtim.tv_sec * 1000003 +
           (uint64_t)st.st_mtim.tv_nsec;
}

#define PAYLOAD_POLL_US VT_MS(200)
#define LEAVE_MS        2000u
#define REASON_BOUNCE   3 /* of ORDER */

/* Gateway and engine read one file: who still has another one open at that path leaves before the next one starts. While a move
 * goes on (profiles.h), it says which of them starts anew. */
static bool same_file(struct child *c, uint64_t *at)
{
    struct sup *s = c->sup;
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    struct child *other = sup_role(s, c->role == ROLE_ENGINE ? ROLE_GATEWAY : ROLE_ENGINE);
    if (other == NULL || other->pid == 0 || (engine != NULL && engine->unrouted) ||
        c->launch.model_file[0] == '\0' || other->launch.model_file[0] == '\0' ||
        strcmp(c->launch.model_file, other->launch.model_file) == 0)
        return true;
    if (other->state == VT_CHILD_READY && other->op == 0) {
        event_text(s, EVENT_NOTE, other, VT_LOG_WARNING,
                   "%s is another file than %s has read: it starts anew", s->model, other->name);
        child_leave(other, LEAVE_MS, true, REASON_BOUNCE);
    }
    *at = sup_now(s) + PAYLOAD_POLL_US;
    return false;
}

static int gate_of_engine(struct child *c, uint64_t *at, struct vt_err *err)
{
    struct sup *s = c->sup;
    enum payload_state p = PAYLOAD_BAD;
    if (!s->force_shape && profiles_may_launch(s, s->cfg, err) < 0)
        return -1;
    if (gate_find_model(s, err) == 0) {
        if (!sup_external(s->cfg))
            payload_file(s->model, c->launch.model_file);
        p = payload_check(s, s->cfg, s->model, err);
        if (p == PAYLOAD_GOOD && !s->force_shape && profiles_may_draft(s, s->cfg, s->model, err) < 0)
            return -1;
    }
    if (p == PAYLOAD_WORKING) {
        *at = sup_now(s) + PAYLOAD_POLL_US;
        return 1;
    }
    if (p == PAYLOAD_GOOD && (sup_external(s->cfg) || gate_engine(s, err) == 0))
        return same_file(c, at) ? device_gate(s, c, at, err) : 1;
    c->payload_seen = child_payload_identity(c->sup);
    return -1;
}

/* 1: not yet known, since its model is still being read, or its GPU, or the gateway has another file, or something of the last
 * generation is still there; *at: when to ask again. */
static int gate(struct child *c, uint64_t *at, struct vt_err *err)
{
    *at = 0;
    c->launch.model_file[0] = '\0';
    if ((c->state == VT_CHILD_FAILED || c->state == VT_CHILD_DOWN) && !child_gone(c)) {
        *at = sup_now(c->sup) + CHILD_LEFT_POLL_US;
        return 1;
    }
    pid_t left = orphans_left(&c->sup->orphans, c->name);
    if (left != 0) {
        *at = sup_now(c->sup) + CHILD_LEFT_POLL_US;
        return vt_fail(err, VT_E_HUNG,
                       "pid %d, which a vitriold that died left behind, does not end (state %c); nothing is "
                       "started beside it",
                       (int)left, evidence_proc_state(c->sup, left));
    }
    if (c->role == ROLE_ENGINE)
        return gate_of_engine(c, at, err);
    if (c->role != ROLE_GATEWAY || sup_external(c->sup->cfg))
        return 0;
    payload_file(c->sup->model, c->launch.model_file);
    return same_file(c, at) ? 0 : 1;
}

/* A path of this generation that nothing occupies; whatever sits there was not made by us. */
static void name_generation(struct child *c)
{
    struct stat st;
    for (;;) {
        c->gen++;
        snprintf(c->life_path, sizeof c->life_path, "%s/l.%s.%u", c->sup->dir.in, c->name, c->gen);
        if (lstat(c->life_path, &st) < 0)
            return;
        event_text(c->sup, EVENT_NOTE, c, VT_LOG_WARNING,
                   "%s exists and is not ours; the next number is taken", c->life_path);
    }
}

struct pipes {
    int log[2], nonce[2];
};

static void close_pair(int p[2])
{
    for (int i = 0; i < 2; i++) {
        if (p[i] >= 0)
            close(p[i]);
        p[i] = -1;
    }
}

static int make_pipes(struct pipes *p, struct vt_err *err)
{
    *p = (struct pipes){{-1, -1}, {-1, -1}};
    if (pipe2(p->log, O_CLOEXEC) < 0 || pipe2(p->nonce, O_CLOEXEC) < 0) {
        vt_fail_errno(err, VT_E_OS, "pipe");
        close_pair(p->log);
        close_pair(p->nonce);
        return -1;
    }
    fcntl(p->log[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static int execute(struct child *c, struct pipes *p, struct vt_err *err)
{
    struct sup *s = c->sup;
    struct spawn_env env = {0};
    char **argv = launch_argv(c);
    if (argv == NULL || spawn_env_make(&env, environ, s->instance_hex, s->dir.run, c->name, c->gen) < 0) {
        launch_argv_free(argv);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    spawn_env_hash(&env, c->launch.env);
    const char *path;
    int exe = child_program(c, &path);
    if (exe < 0) {
        launch_argv_free(argv);
        spawn_env_free(&env);
        return vt_fail(err, VT_E_CONFIG,
                       "engine.kind = external needs the program vitriol-external, which is not installed");
    }
    struct spawn_req r = {.exe_fd = exe,
                          .argv = (const char *const *)argv,
                          .envp = (const char *const *)env.envp,
                          .log_fd = p->log[1],
                          .nonce_fd = p->nonce[0],
                          .extra = s->http.fd,
                          .n_extra = c->role == ROLE_GATEWAY ? s->http.n : 0,
                          .death_signal = c->info->death_signal,
                          .change_user = s->run_uid != geteuid(),
                          .uid = s->run_uid,
                          .gid = s->run_gid,
                          .leaf_fd = leaf_open(&s->leaves, c->name)};
    int rc = spawn(&r, &c->pid, &c->pidfd, err);
    if (r.leaf_fd >= 0)
        close(r.leaf_fd);
    launch_argv_free(argv);
    spawn_env_free(&env);
    return rc;
}

/* The process runs and waits for its nonce; it gets it when everything on our side listens. */
static int receive(struct child *c, struct pipes *p, struct vt_err *err)
{
    if (c->log.fd >= 0)
        close(c->log.fd);
    c->log.fd = p->log[0];
    p->log[0] = -1;
    if (child_watch(c, &c->on_exit, c->pidfd, child_on_end) < 0 ||
        child_watch(c, &c->on_log, c->log.fd, child_on_log) < 0)
        return vt_fail(err, VT_E_OS, "event source for %s", c->name);
    if (lifeline_listen(c, err) < 0)
        return -1;
    if (write(p->nonce[1], c->nonce, sizeof c->nonce) != (ssize_t)sizeof c->nonce)
        return vt_fail_errno(err, VT_E_OS, "nonce of %s", c->name);
    return 0;
}

static void forget_generation(struct child *c)
{
    c->spawned_at = sup_now(c->sup);
    c->ready_at = c->killed_at = c->next_start = 0;
    c->ordered = c->bounce = c->was_ready = false;
    c->killed_for = CLASS_NONE;
    c->load_phase = 0;
    c->load_done = c->load_total = c->load_began = 0;
    c->launch.window = c->launch.slots = c->launch.pool_tokens = 0;
    free(c->evidence);
    c->evidence = NULL;
}

void child_start(struct child *c)
{
    struct sup *s = c->sup;
    struct vt_err err;
    struct pipes p;
    uint64_t at;
    int open = gate(c, &at, &err);
    if (open > 0) {
        if (c->ordered &&
            c->class != CLASS_UNKILLABLE) { /* it left as it was told: what follows is no failure yet */
            c->class = CLASS_NONE;
            c->detail[0] = '\0';
        }
        c->next_start = c->state == VT_CHILD_DOWN ? 0 : at;
        child_arm(c, at);
        return;
    }
    if (open < 0 || make_pipes(&p, &err) < 0) {
        refused(c, open < 0 ? at : 0, &err);
        return;
    }
    name_generation(c);
    c->life_link = s->next_link++;
    vt_random(c->nonce, sizeof c->nonce);
    if (execute(c, &p, &err) < 0) {
        close_pair(p.log);
        close_pair(p.nonce);
        refused(c, 0, &err);
        return;
    }
    forget_generation(c);
    c->class = CLASS_NONE;
    c->detail[0] = '\0';
    c->oom_kills = child_oom_kills(c);
    live_enter(&c->live, LIVE_STARTING, sup_now(s));
    child_change(c, EV_SPAWNED);
    child_arm(c, 0);
    if (receive(c, &p, &err) < 0)
        child_kill(c, CLASS_SPAWN_FAILED, err.text);
    close_pair(p.log);
    close_pair(p.nonce);
    launch_ask(c);
}

void child_want(struct child *c)
{
    c->want = true;
    if (c->state == VT_CHILD_DOWN && !c->waits_for_others)
        child_start(c);
}
