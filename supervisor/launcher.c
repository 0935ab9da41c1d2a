/* vitriol: the one command. `serve` runs an appliance in the foreground; run, eval, bench, plan and inspect are vitriol-tool's. */
#include "ctl_client.h"
#include "gate.h"
#include "hold.h"
#include "programs.h"
#include "rundir.h"

#include "build_id.h"
#include "models_dir.h"
#include "suggest.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGS_MAX 256

static const char *const commands[] = {"serve",   "run",  "eval",     "bench", "plan",
                                       "inspect", "pull", "officina", "help",  "version"};
static const char *const ctl_commands[] = {"status",     "health", "wait",        "bounce", "drain",
                                           "checkpoint", "slots",  "fingerprint", "events", "config",
                                           "start",      "stop",   "reset",       "op"};

static int fail(const struct vt_err *err)
{
    fprintf(stderr, "vitriol: %s\n", err->text);
    return vt_err_exit(err);
}

static void usage(FILE *out)
{
    fputs("usage: vitriol COMMAND [options]\n"
          "  serve      run the appliance in the foreground; Ctrl-C drains\n"
          "             --port N  --model FILE  --slots N  --ctx N  --state-dir DIR  --run-dir DIR\n"
          "             --listen ADDR:PORT  --set section.key=value  --unblessed  --verbose\n"
          "  run        one answer to the terminal, without an appliance\n"
          "  eval       perplexity of a text, or logits\n"
          "  bench      prefill and decode speed\n"
          "  plan       what an engine would take of a device, and whether it fits\n"
          "  inspect    what a GGUF file holds\n"
          "  pull       fetch a model: hf:OWNER/REPO:QUANT or a URL\n"
          "  officina   the coding workshop in this folder, or in the one given\n"
          "  version, help\n"
          "A running appliance is asked with vitriolctl.\n",
          out);
}

/* ---- serve: what was asked for ---- */

struct serve {
    struct vt_config *cfg; /* the same keys as vitriold will read, to check and to say what runs */
    const char *argv[ARGS_MAX];
    int n;
    char listen[300], model[PATH_MAX];
    bool verbose, level_set;
    struct rundir dir;
    struct hold hold;
    char program[PATH_MAX];
    pid_t pid;
    bool told; /* what runs has been said */
};

static int push(struct serve *s, const char *option, const char *value, struct vt_err *err)
{
    if (s->n + 3 > ARGS_MAX)
        return vt_fail(err, VT_E_USAGE, "too many options");
    s->argv[s->n++] = option;
    if (value != NULL)
        s->argv[s->n++] = value;
    return 0;
}

static int set_key(struct serve *s, const char *key, const char *value, const char *option,
                   struct vt_err *err)
{
    return vt_config_set(s->cfg, VT_L_CMDLINE, key, value, option, err);
}

static int set_pair(struct serve *s, const char *pair, struct vt_err *err)
{
    char name[128];
    const char *eq = strchr(pair, '=');
    if (eq == NULL)
        return vt_fail(err, VT_E_USAGE, "--set %s: write --set section.key=value", pair);
    snprintf(name, sizeof name, "%.*s", (int)(eq - pair), pair);
    s->level_set = s->level_set || strcmp(name, "log.level") == 0;
    return set_key(s, name, eq + 1, "--set", err) < 0 ? -1 : push(s, "--set", pair, err);
}

static int set_model(struct serve *s, const char *value, struct vt_err *err)
{
    char path[PATH_MAX];
    if (vt_models_find(s->cfg, value, path, sizeof path, err) < 0)
        return -1;
    /* vitriold may run elsewhere than here. */
    if (realpath(path, s->model) == NULL)
        return vt_fail_errno(err, VT_E_NO_INPUT, "--model %s", value);
    return set_key(s, "model.path", s->model, "--model", err) < 0 ? -1 : push(s, "--model", s->model, err);
}

static int one_option(struct serve *s, const char *arg, const char *value, struct vt_err *err)
{
    static const struct {
        const char *option, *key;
    } plain[] = {{"--run-dir", "paths.run_dir"},
                 {"--state-dir", "paths.state_dir"},
                 {"--listen", "http.listen"},
                 {"--slots", "engine.slots"},
                 {"--ctx", "engine.ctx_tokens"}};
    static const char *const names[] = {"--port",      "--model",   "--slots",  "--ctx",
                                        "--state-dir", "--run-dir", "--listen", "--set",
                                        "--unblessed", "--verbose", "--help"};
    char hint[160];
    size_t k = 0;
    while (k < sizeof plain / sizeof plain[0] && strcmp(arg, plain[k].option) != 0)
        k++;
    bool is_plain = k < sizeof plain / sizeof plain[0];
    if (!is_plain && strcmp(arg, "--port") != 0 && strcmp(arg, "--model") != 0 && strcmp(arg, "--set") != 0)
        return vt_fail(err, VT_E_USAGE, "serve: unknown option %.64s%s", arg,
                       vt_suggest(arg, names, 10, hint, sizeof hint));
    if (value == NULL)
        return vt_fail(err, VT_E_USAGE, "serve: %s needs a value", arg);
    if (is_plain)
        return set_key(s, plain[k].key, value, arg, err) < 0 ? -1 : push(s, arg, value, err);
    if (strcmp(arg, "--model") == 0)
        return set_model(s, value, err);
    if (strcmp(arg, "--set") == 0)
        return set_pair(s, value, err);
    snprintf(s->listen, sizeof s->listen, "127.0.0.1:%s", value);
    return set_key(s, "http.listen", s->listen, "--port", err) < 0 ? -1 : push(s, "--listen", s->listen, err);
}

static int parse(struct serve *s, int argc, char **argv, struct vt_err *err)
{
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--verbose") == 0 || strcmp(argv[i], "-v") == 0) {
            s->verbose = true;
            continue;
        }
        if (strcmp(argv[i], "--unblessed") == 0) {
            if (push(s, argv[i], NULL, err) < 0)
                return -1;
            continue;
        }
        if (one_option(s, argv[i], argv[i + 1], err) < 0)
            return -1;
        i++;
    }
    if (!s->verbose && !s->level_set && push(s, "--set", "log.level=warning", err) < 0)
        return -1;
    return vt_config_check(s->cfg, err);
}

/* What vitriold would find out only after it has started; here it ends the command with its reason. */
static int check_payload(struct serve *s, struct vt_err *err)
{
    struct sup *probe = calloc(1, sizeof *probe);
    if (probe == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    probe->cfg = s->cfg;
    int rc = gate_find_model(probe, err);
    if (rc == 0)
        rc = gate_engine(probe, err);
    if (rc < 0 && err->code == VT_E_MEM_PRESSURE)
        err->code = VT_E_NOMEM; /* exit 86: host memory refused */
    free(probe);
    return rc;
}

/* ---- serve: the process ---- */

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = interrupted + 1;
}

static void on_child(int sig) {}

static void heed_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: waits end at once */
    struct sigaction child = {.sa_handler = on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGCHLD, &child, NULL); /* ends a wait, too */
}

static int start(struct serve *s, struct vt_err *err)
{
    pid_t parent = getpid();
    s->pid = fork();
    if (s->pid < 0)
        return vt_fail_errno(err, VT_E_OS, "fork");
    if (s->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* without its launcher it drains */
        if (getppid() == parent && hold_pass(&s->hold) == 0)
            execv(s->program, (char **)(uintptr_t)s->argv);
        _exit(127);
    }
    return 0;
}

/* The exit code when it has ended, else -1; to wait is until then or until somebody interrupts. Signals are held back
 * between the look at `interrupted` and the wait: one that came there, or before, would be waited over. */
static int ended(struct serve *s, bool wait)
{
    int st;
    pid_t p;
    sigset_t hold, before;
    sigemptyset(&hold);
    sigaddset(&hold, SIGINT);
    sigaddset(&hold, SIGTERM);
    sigaddset(&hold, SIGCHLD);
    sigprocmask(SIG_BLOCK, &hold, &before);
    while ((p = waitpid(s->pid, &st, WNOHANG)) == 0 && wait && !interrupted)
        sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (p != s->pid)
        return -1;
    return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Drains, hurries at the next Ctrl-C, and waits for the end. */
static int stop(struct serve *s)
{
    int told = 0, rc;
    fprintf(stderr, "vitriol: draining; Ctrl-C again to hurry\n");
    for (;;) {
        if (interrupted > told || told == 0) {
            told = interrupted > 0 ? interrupted : 1;
            kill(s->pid, SIGTERM);
        }
        rc = ended(s, false);
        if (rc >= 0)
            return rc;
        pause_ms(50);
    }
}

static int exit_of_class(const char *class)
{
    static const struct {
        const char *class;
        int code;
    } table[] = {{"payload", VT_EX_PAYLOAD},
                 {"config", VT_EX_CONFIG},
                 {"perm", VT_EX_PERM},
                 {"version", VT_EX_PROTOCOL},
                 {"host_mem", VT_EX_HOST_MEM}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(class, table[i].class) == 0)
            return table[i].code;
    }
    return VT_EX_INTERNAL;
}

static int give_up(struct serve *s, const struct client *c)
{
    struct vt_err err;
    json_t *st = client_call(c, "status", NULL, NULL, &err);
    int rc = VT_EX_INTERNAL;
    size_t i;
    const json_t *child;
    json_array_foreach(json_object_get(st, "children"), i, child)
    {
        if (strcmp(client_str(child, "state"), "failed") != 0)
            continue;
        fprintf(stderr, "vitriol: %s failed (%s): %s\n", client_str(child, "name"),
                client_str(child, "class"), client_str(child, "detail"));
        rc = exit_of_class(client_str(child, "class"));
    }
    json_decref(st);
    kill(s->pid, SIGTERM);
    ended(s, true);
    return rc;
}

/* 0 ready, -1 failed, 1 it ended (code in *rc), 2 interrupted. */
static int wait_ready(struct serve *s, const struct client *c, int *rc)
{
    bool terminal = isatty(STDERR_FILENO), shown = false;
    for (;;) {
        struct vt_err err;
        if ((*rc = ended(s, false)) >= 0)
            return 1;
        if (interrupted)
            return 2;
        json_t *st = client_call(c, "status", NULL, NULL, &err);
        const char *state = client_str(st, "state");
        bool ready = strcmp(state, "ready") == 0, failed = strcmp(state, "failed") == 0;
        bool ours = st != NULL && (pid_t)client_num(st, "pid") == s->pid;
        if (terminal && ours && !ready) {
            fprintf(stderr, "\r\033[K%s", client_str(st, "text"));
            shown = true;
        }
        json_decref(st);
        if (ours && (ready || failed)) {
            if (shown)
                fprintf(stderr, "\r\033[K");
            return ready ? 0 : -1;
        }
        pause_ms(100);
    }
}

static void tell(struct serve *s, const struct client *c)
{
    struct vt_err err;
    json_t *st = client_call(c, "status", NULL, NULL, &err);
    const char *model = client_str(st, "model"), *address = client_str(st, "address");
    const char *base = strrchr(model, '/');
    char where[80];
    bool any = strncmp(address, "0.0.0.0:", 8) == 0;
    snprintf(where, sizeof where, "%s%s", any ? "127.0.0.1" : address, any ? address + 7 : "");
    printf("VITRIOL %s is ready: %s, %llu slots of %llu tokens, on http://%s (fingerprint %s)\n",
           client_str(st, "build"), base != NULL ? base + 1 : model,
           (unsigned long long)client_num(st, "slots"), (unsigned long long)client_num(st, "window"), address,
           client_str(st, "fp"));
    printf("ask it:     curl http://%s/v1/chat/completions -H 'Content-Type: application/json' -d "
           "'{\"messages\":[{\"role\":\"user\","
           "\"content\":\"Hello\"}],\"max_tokens\":64}'\n",
           where);
    char ctl[PATH_MAX];
    if (program_find("vitriolctl", ctl, sizeof ctl, &err) < 0 || getenv("VITRIOL_LIBEXEC") == NULL)
        snprintf(ctl, sizeof ctl, "vitriolctl");
    printf("look at it: '%s' --run-dir '%s' status\n", ctl, s->dir.run);
    printf("stop it:    Ctrl-C (it drains first)\n");
    fflush(stdout);
    json_decref(st);
}

static int complete_argv(struct serve *s, struct vt_err *err)
{
    if (program_find("vitriold", s->program, sizeof s->program, err) < 0)
        return -1;
    memmove(s->argv + 1, s->argv, (size_t)s->n * sizeof s->argv[0]);
    s->argv[0] = s->program;
    s->argv[++s->n] = NULL;
    return 0;
}

static int prepare(struct serve *s, int argc, char **argv, struct vt_err *err)
{
    s->cfg = vt_config_new();
    if (s->cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    bool user = getenv("RUNTIME_DIRECTORY") == NULL && geteuid() != 0;
    if (vt_config_layers(s->cfg, VT_DIR_VENDOR, VT_DIR_ETC, user, err) < 0 ||
        vt_config_env(s->cfg, environ, err) < 0 || parse(s, argc, argv, err) < 0 ||
        rundir_resolve(&s->dir, s->cfg, err) < 0 || complete_argv(s, err) < 0 || check_payload(s, err) < 0)
        return -1;
    return hold_open(&s->hold, s->cfg, s->dir.run, err);
}

/* One life of vitriold, from its start to its end; true: it is over, with *rc as the command's exit code. */
static bool live(struct serve *s, const struct client *c, int *rc)
{
    switch (wait_ready(s, c, rc)) {
    case 0:
        if (s->told)
            fprintf(stderr, "vitriol: ready again (vitriold pid %d)\n", (int)s->pid);
        else
            tell(s, c);
        s->told = true;
        *rc = ended(s, true);
        if (*rc >= 0)
            return false;
        *rc = stop(s);
        return true;
    case 1: return false;
    case 2: *rc = stop(s); return true;
    default: *rc = give_up(s, c); return true;
    }
}

static int lives(struct serve *s, const struct client *c, struct vt_err *err)
{
    struct vt_clock clock = vt_clock_real();
    for (;;) {
        uint64_t from = vt_mono(&clock), delay;
        int rc;
        if (start(s, err) < 0)
            return fail(err);
        if (live(s, c, &rc) || !hold_again(&s->hold, &rc, s->pid, vt_mono(&clock) - from, &delay))
            return rc;
        pause_ms((long)(delay / 1000));
        if (interrupted)
            return rc;
    }
}

static int serve(int argc, char **argv)
{
    struct serve s = {0};
    struct client c;
    struct vt_err err;
    int rc = 0;
    if (argc > 0 && (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)) {
        usage(stdout);
        return VT_EX_OK;
    }
    heed_signals();
    if (prepare(&s, argc, argv, &err) < 0 || client_find(&c, s.dir.run, &err) < 0) {
        hold_close(&s.hold);
        vt_config_free(s.cfg);
        return fail(&err);
    }
    rc = lives(&s, &c, &err);
    hold_close(&s.hold);
    vt_config_free(s.cfg);
    return rc;
}

/* ---- the others ---- */

static int become(const char *program, char **argv)
{
    static char path[PATH_MAX];
    struct vt_err err;
    if (program_find(program, path, sizeof path, &err) < 0)
        return fail(&err);
    argv[0] = path;
    execv(path, argv);
    vt_fail_errno(&err, VT_E_OS, "%s", path);
    return fail(&err);
}

static int unknown(const char *word)
{
    char hint[160];
    for (size_t i = 0; i < sizeof ctl_commands / sizeof ctl_commands[0]; i++) {
        if (strcmp(word, ctl_commands[i]) == 0) {
            fprintf(stderr, "vitriol: %s is asked of a running appliance: vitriolctl %s\n", word, word);
            return VT_EX_USAGE;
        }
    }
    fprintf(stderr, "vitriol: unknown command %.64s%s\n", word,
            vt_suggest(word, commands, sizeof commands / sizeof commands[0], hint, sizeof hint));
    return VT_EX_USAGE;
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (command[0] == '\0' || strcmp(command, "help") == 0 || strcmp(command, "--help") == 0 ||
        strcmp(command, "-h") == 0) {
        usage(command[0] == '\0' ? stderr : stdout);
        return command[0] == '\0' ? VT_EX_USAGE : VT_EX_OK;
    }
    if (strcmp(command, "version") == 0 || strcmp(command, "--version") == 0) {
        printf("vitriol %s\n", VT_BUILD_ID);
        return VT_EX_OK;
    }
    if (strcmp(command, "serve") == 0)
        return serve(argc - 2, argv + 2);
    if (strcmp(command, "run") == 0 || strcmp(command, "eval") == 0 || strcmp(command, "bench") == 0 ||
        strcmp(command, "plan") == 0 || strcmp(command, "inspect") == 0)
        return become("vitriol-tool", argv); /* its commands have the same names */
    if (strcmp(command, "pull") == 0)
        return become("vitriol-pull", argv + 1);
    if (strcmp(command, "officina") == 0)
        return become("officina", argv + 1);
    return unknown(command);
}
