#include "probe.h"

#include "programs.h"
#include "spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAID_MAX 4096
#define ARGS_MAX 12

extern char **environ;

struct probe {
    struct sup *s;
    probe_done *done;
    int exe_fd;
    char path[512];
    pid_t pid;
    int pidfd, out;
    uint32_t runs;
    bool late;
    sd_event_source *on_exit, *timer;
};

/* The answer is a line of its own; whatever else was said explains a failure. */
static json_t *parse(char *said, char *why, size_t size)
{
    json_t *answer = NULL;
    char *save = NULL;
    why[0] = '\0';
    for (char *l = strtok_r(said, "\n", &save); l != NULL && answer == NULL;
         l = strtok_r(NULL, "\n", &save)) {
        if (l[0] == '{')
            answer = json_loads(l, JSON_REJECT_DUPLICATES, NULL);
        else
            snprintf(why, size, "%.300s", l);
    }
    return answer;
}

static void stop_watching(struct probe *p)
{
    p->on_exit = sd_event_source_disable_unref(p->on_exit);
    sd_event_source_set_enabled(p->timer, SD_EVENT_OFF);
    if (p->pidfd >= 0)
        close(p->pidfd);
    if (p->out >= 0)
        close(p->out);
    p->pidfd = p->out = -1;
    p->pid = 0;
}

static void kill_it(const struct probe *p)
{
    syscall(SYS_pidfd_send_signal, p->pidfd, SIGKILL, NULL, 0);
    kill(-p->pid, SIGKILL);
}

static int on_end(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct probe *p = arg;
    char said[SAID_MAX], why[320];
    siginfo_t si = {0};
    if (waitid((idtype_t)3 /* P_PIDFD */, (id_t)fd, &si, WEXITED | WNOHANG) < 0 || si.si_pid == 0)
        return 0;
    ssize_t n = read(p->out, said, sizeof said - 1);
    said[n > 0 ? n : 0] = '\0';
    bool well = si.si_code == CLD_EXITED && si.si_status == 0, late = p->late;
    json_t *answer = parse(said, why, sizeof why);
    stop_watching(p);
    if (late)
        snprintf(why, sizeof why, "the probe did not answer in time and was killed");
    else if (!well && why[0] == '\0')
        snprintf(why, sizeof why, "the probe ended with %s %d",
                 si.si_code == CLD_EXITED ? "status" : "signal", si.si_status);
    else if (well && answer == NULL)
        snprintf(why, sizeof why, "the probe's answer cannot be read");
    bool understood = si.si_code == CLD_EXITED && !late && (!well || answer != NULL);
    p->done(p->s, well && !late ? answer : NULL, understood ? si.si_status : -1, why);
    json_decref(answer);
    return 0;
}

static int on_deadline(sd_event_source *src, uint64_t usec, void *arg)
{
    struct probe *p = arg;
    p->late = true;
    if (p->pid > 0)
        kill_it(p);
    return 0;
}

int probe_open(struct probe **out, struct sup *s, probe_done *done, struct vt_err *err)
{
    struct probe *p = calloc(1, sizeof *p);
    const char *set = vt_config_str(s->cfg, VT_CFG_SUPERVISOR_PROBE_PROGRAM);
    struct vt_err none;
    if (p == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    *p = (struct probe){.s = s, .done = done, .exe_fd = -1, .pidfd = -1, .out = -1};
    *out = p;
    if (sd_event_add_time(s->ev, &p->timer, CLOCK_MONOTONIC, 0, 1000, on_deadline, p) < 0 ||
        sd_event_source_set_enabled(p->timer, SD_EVENT_OFF) < 0)
        return vt_fail(err, VT_E_OS, "timer of the probe");
    if (set[0] != '\0')
        snprintf(p->path, sizeof p->path, "%s", set);
    else if (program_find("vitriol-probe", p->path, sizeof p->path, &none) < 0)
        return 0; /* it is missed by who has a GPU */
    p->exe_fd = spawn_open(p->path, set[0] != '\0' ? err : &none);
    return p->exe_fd < 0 && set[0] != '\0' ? -1 : 0;
}

void probe_close(struct probe *p)
{
    if (p == NULL)
        return;
    if (p->pid > 0) {
        kill_it(p);
        stop_watching(p);
    }
    sd_event_source_disable_unref(p->timer);
    if (p->exe_fd >= 0)
        close(p->exe_fd);
    free(p);
}

static int run(struct probe *p, const char *const *argv, int out, struct vt_err *err)
{
    struct sup *s = p->s;
    struct spawn_env env = {0};
    const char *args[ARGS_MAX + 2] = {p->path};
    unsigned n = 1;
    for (; argv[n - 1] != NULL && n <= ARGS_MAX; n++)
        args[n] = argv[n - 1];
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || spawn_env_make(&env, environ, s->instance_hex, s->dir.run, "probe", ++p->runs) < 0) {
        if (null >= 0)
            close(null);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    struct spawn_req r = {.exe_fd = p->exe_fd,
                          .argv = args,
                          .envp = (const char *const *)env.envp,
                          .log_fd = out,
                          .nonce_fd = null,
                          .death_signal = SIGKILL,
                          .change_user = s->run_uid != geteuid(),
                          .uid = s->run_uid,
                          .gid = s->run_gid};
    int rc = spawn(&r, &p->pid, &p->pidfd, err);
    close(null);
    spawn_env_free(&env);
    return rc;
}

int probe_start(struct probe *p, const char *const *argv, struct vt_err *err)
{
    int out[2];
    if (p->pid > 0)
        return vt_fail(err, VT_E_BUSY, "the probe before, pid %d, has not ended", (int)p->pid);
    if (p->exe_fd < 0)
        return vt_fail(err, VT_E_NO_INPUT, "vitriol-probe is not installed");
    if (pipe2(out, O_CLOEXEC) < 0)
        return vt_fail_errno(err, VT_E_OS, "pipe");
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    int rc = run(p, argv, out[1], err);
    close(out[1]);
    p->out = out[0];
    p->late = false;
    if (rc == 0 && sd_event_add_io(p->s->ev, &p->on_exit, p->pidfd, EPOLLIN, on_end, p) < 0) {
        rc = vt_fail(err, VT_E_OS, "event source for the probe");
        kill_it(p);
        waitpid(p->pid, NULL, 0);
    }
    if (rc < 0) {
        stop_watching(p);
        return -1;
    }
    sd_event_source_set_time_relative(p->timer,
                                      VT_MS(vt_config_int(p->s->cfg, VT_CFG_SUPERVISOR_PROBE_TIMEOUT_MS)));
    sd_event_source_set_enabled(p->timer, SD_EVENT_ONESHOT);
    return 0;
}

pid_t probe_pid(const struct probe *p)
{
    return p != NULL ? p->pid : 0;
}
