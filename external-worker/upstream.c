#include "upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS_MAX 128

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), port = -1;
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
        getsockname(fd, (struct sockaddr *)&a, &n) == 0)
        port = ntohs(a.sin_port);
    if (fd >= 0)
        close(fd);
    return port;
}

int upstream_where(struct upstream *u, const struct vt_config *cfg, struct vt_err *err)
{
    const char *url = vt_config_str(cfg, VT_CFG_EXTERNAL_URL);
    u->ours = vt_config_str(cfg, VT_CFG_EXTERNAL_COMMAND)[0] != '\0';
    if (url[0] != '\0') {
        size_t n = strlen(url);
        snprintf(u->base, sizeof u->base, "%.*s", (int)(n > 0 && url[n - 1] == '/' ? n - 1 : n), url);
        return 0;
    }
    int port = free_port();
    if (port < 0)
        return vt_fail_errno(err, VT_E_OS, "no free port of 127.0.0.1");
    snprintf(u->base, sizeof u->base, "http://127.0.0.1:%d", port);
    return 0;
}

struct word {
    char text[4096];
    size_t n;
};

static int add(struct word *w, const char *text, size_t n, struct vt_err *err)
{
    if (w->n + n >= sizeof w->text)
        return vt_fail(err, VT_E_CONFIG, "external.command: a word is longer than %zu bytes", sizeof w->text);
    memcpy(w->text + w->n, text, n);
    w->n += n;
    w->text[w->n] = '\0';
    return 0;
}

/* The text for {name}; NULL: there is no such name. */
static const char *meaning(const struct upstream *u, const struct vt_config *cfg, const char *name, size_t n,
                           char *buf, size_t size)
{
    const char *port = strrchr(u->base, ':');
    snprintf(buf, size, "%s", "");
    if (n == 4 && strncmp(name, "port", 4) == 0)
        snprintf(buf, size, "%.*s", (int)strspn(port + 1, "0123456789"), port + 1);
    else if (n == 5 && strncmp(name, "model", 5) == 0)
        return vt_config_str(cfg, VT_CFG_MODEL_PATH);
    else if (n == 5 && strncmp(name, "slots", 5) == 0)
        vt_config_text(cfg, VT_CFG_EXTERNAL_SLOTS, buf, size);
    else if (n == 3 && strncmp(name, "ctx", 3) == 0)
        vt_config_text(cfg, VT_CFG_EXTERNAL_CTX_TOKENS, buf, size);
    else
        return NULL;
    return buf;
}

static int fill(const struct upstream *u, const struct vt_config *cfg, const char *p, size_t n,
                struct word *w, struct vt_err *err)
{
    const char *end = p + n;
    w->n = 0;
    w->text[0] = '\0';
    while (p < end) {
        const char *close = *p == '{' ? memchr(p, '}', (size_t)(end - p)) : NULL;
        char buf[32];
        if (close == NULL) {
            if (add(w, p++, 1, err) < 0)
                return -1;
            continue;
        }
        const char *text = meaning(u, cfg, p + 1, (size_t)(close - p - 1), buf, sizeof buf);
        if (text == NULL)
            return vt_fail(err, VT_E_CONFIG,
                           "external.command: %.*s is none of {port}, {model}, {slots}, {ctx}",
                           (int)(close - p + 1), p);
        if (text[0] == '\0')
            return vt_fail(err, VT_E_CONFIG, "external.command: nothing is known for %.*s%s",
                           (int)(close - p + 1), p, strncmp(p, "{model}", 7) == 0 ? ": set model.path" : "");
        if (add(w, text, strlen(text), err) < 0)
            return -1;
        p = close + 1;
    }
    return 0;
}

void upstream_argv_free(char **argv)
{
    for (char **p = argv; p != NULL && *p != NULL; p++)
        free(*p);
    free(argv);
}

char **upstream_argv(const struct upstream *u, const struct vt_config *cfg, struct vt_err *err)
{
    const char *p = vt_config_str(cfg, VT_CFG_EXTERNAL_COMMAND);
    char **argv = calloc(WORDS_MAX + 1, sizeof *argv);
    struct word *w = malloc(sizeof *w);
    unsigned n = 0;
    bool ok = argv != NULL && w != NULL;
    while (ok && *(p += strspn(p, " ")) != '\0') {
        size_t len = strcspn(p, " ");
        ok = n < WORDS_MAX && fill(u, cfg, p, len, w, err) == 0 && (argv[n] = strdup(w->text)) != NULL;
        n++;
        p += len;
    }
    free(w);
    if (ok)
        return argv;
    if (n >= WORDS_MAX)
        vt_fail(err, VT_E_CONFIG, "external.command: more than %d words", WORDS_MAX);
    upstream_argv_free(argv);
    return NULL;
}

static void become(char **argv)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    dup2(2, 1);
    execvp(argv[0], argv);
    fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
    _exit(errno == ENOENT ? 127 : 126);
}

int upstream_start(struct upstream *u, const struct vt_config *cfg, struct vt_err *err)
{
    pid_t parent = getpid();
    char **argv = upstream_argv(u, cfg, err);
    if (argv == NULL)
        return -1;
    u->pid = fork();
    if (u->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it had gone before that */
            _exit(126);
        become(argv);
    }
    upstream_argv_free(argv);
    return u->pid > 0 ? 0 : vt_fail_errno(err, VT_E_OS, "fork");
}

int upstream_ended(struct upstream *u, int *status)
{
    if (u->pid <= 0 || waitpid(u->pid, status, WNOHANG) != u->pid)
        return 0;
    u->pid = 0;
    return 1;
}

bool upstream_worked(struct upstream *u)
{
    char path[64], text[2048] = "";
    unsigned long long user = 0, sys = 0, rss = 0, rchar = 0;
    if (u->pid <= 0)
        return !u->ours; /* somebody else's: waiting for it is no fault of ours */
    snprintf(path, sizeof path, "/proc/%d/stat", (int)u->pid);
    FILE *f = fopen(path, "re");
    const char *at = f != NULL && fgets(text, sizeof text, f) != NULL ? strrchr(text, ')') : NULL;
    if (f != NULL)
        fclose(f);
    if (at != NULL)
        sscanf(at,
               ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %*u %*u %llu",
               &user, &sys, &rss);
    snprintf(path, sizeof path, "/proc/%d/io", (int)u->pid);
    f = fopen(path, "re");
    if (f != NULL && fgets(text, sizeof text, f) != NULL)
        sscanf(text, "rchar: %llu", &rchar);
    if (f != NULL)
        fclose(f);
    uint64_t now = user + sys + rss + rchar;
    bool worked = now != u->seen;
    u->seen = now;
    return worked;
}

void upstream_stop(struct upstream *u, unsigned ms)
{
    int status;
    if (u->pid <= 0)
        return;
    kill(u->pid, SIGTERM);
    for (unsigned waited = 0; waited < ms && u->pid > 0; waited += 10) {
        if (upstream_ended(u, &status) == 0)
            nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    if (u->pid > 0) {
        kill(u->pid, SIGKILL);
        waitpid(u->pid, &status, 0);
        u->pid = 0;
    }
}
