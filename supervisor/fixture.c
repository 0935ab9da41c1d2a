#include "fixture.h"

#include "ctl_client.h"
#include "rundir.h"

#include "handshake.h"
#include "sock.h"
#include "sock_ctl.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Limits of waits are those of a quiet machine; a busy one takes several times as long. */
#define PATIENCE 5

/* ---- ground ---- */

double fx_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void fx_nap(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

int fx_listen_any(int *port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 8), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    *port = ntohs(a.sin_port);
    return fd;
}

int fx_setup(void **state)
{
    static const char *const roles[] = {"gateway", "store", "engine"};
    struct fx *f = calloc(1, sizeof *f);
    struct vt_err err;
    strcpy(f->root, "/tmp/vts-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->run, sizeof f->run, "%s/r", f->root);
    snprintf(f->bin, sizeof f->bin, "%s/bin", f->root);
    snprintf(f->log, sizeof f->log, "%s/log", f->root);
    assert_int_equal(mkdir(f->bin, 0755), 0);
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/vitriol-%s", f->bin, roles[i]);
        assert_int_equal(symlink(getenv("VT_TEST_CHILD"), path), 0);
    }
    int fd = fx_listen_any(&f->port);
    close(fd);
    f->inherit = -1;
    assert_int_equal(client_find(&f->c, f->run, &err), 0);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

int fx_wait_end(struct fx *f, double seconds)
{
    double end = fx_now() + seconds * PATIENCE;
    int st = 0;
    while (waitpid(f->pid, &st, WNOHANG) == 0) {
        if (fx_now() > end)
            return -1;
        fx_nap(10);
    }
    f->pid = 0;
    return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

int fx_teardown(void **state)
{
    struct fx *f = *state;
    if (f->pid > 0) {
        kill(f->pid, SIGQUIT);
        if (fx_wait_end(f, 10) < 0) {
            kill(f->pid, SIGKILL);
            waitpid(f->pid, NULL, 0);
        }
    }
    nftw(f->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(f);
    return 0;
}

void fx_set(struct fx *f, const char *key_value)
{
    f->more[f->n_more++] = "--set";
    f->more[f->n_more++] = key_value;
}

static void exec_vitriold(struct fx *f)
{
    char listen_on[32], state_dir[96], pid[16];
    const char *argv[64] = {f->serve ? getenv("VT_VITRIOL") : getenv("VT_VITRIOLD")};
    int n = 1;
    if (f->serve)
        argv[n++] = "serve";
    argv[n++] = "--run-dir";
    argv[n++] = f->run;
    argv[n++] = "--state-dir";
    argv[n++] = state_dir;
    snprintf(state_dir, sizeof state_dir, "%s/s", f->root);
    snprintf(listen_on, sizeof listen_on, "127.0.0.1:%d", f->port);
    if (f->inherit < 0) {
        argv[n++] = "--listen";
        argv[n++] = listen_on;
    }
    for (int i = 0; i < f->n_more; i++)
        argv[n++] = f->more[i];
    setenv("VITRIOL_LIBEXEC", f->bin, 1);
    int fd = open(f->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(fd, 1);
    dup2(fd, 2);
    if (f->inherit >= 0) {
        dup2(f->inherit, 3);
        snprintf(pid, sizeof pid, "%d", (int)getpid());
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        setenv("LISTEN_FDNAMES", "http", 1);
    }
    if (f->notify[0] != '\0') {
        setenv("NOTIFY_SOCKET", f->notify, 1);
        setenv("WATCHDOG_USEC", "4000000", 1);
    }
    execv(argv[0], (char **)(uintptr_t)argv);
    _exit(127);
}

void fx_start(struct fx *f)
{
    f->pid = fork();
    if (f->pid == 0)
        exec_vitriold(f);
}

json_t *fx_status(struct fx *f)
{
    struct vt_err err;
    return client_call(&f->c, "status", NULL, NULL, &err);
}

/* A field of a child in a status. */
const json_t *fx_child(const json_t *st, const char *name)
{
    size_t i;
    const json_t *c;
    json_array_foreach(json_object_get(st, "children"), i, c)
    {
        if (strcmp(client_str(c, "name"), name) == 0)
            return c;
    }
    return NULL;
}

char *fx_log(struct fx *f)
{
    static char text[1 << 20];
    int fd = open(f->log, O_RDONLY);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

void fx_fail(struct fx *f, const char *what)
{
    fprintf(stderr, "%s\n", fx_log(f)); /* longer than a message of the framework may be */
    fail_msg("%s; log above", what);
}

/* Waiting for what a vitriold that has ended can never do only delays the report. */
static void must_run(struct fx *f, const char *what)
{
    if (f->pid > 0 && fx_wait_end(f, 0) >= 0)
        fx_fail(f, what);
}

/* Failed for good: no retry is due, and neither a file that it watches nor a GPU that is proved could change that. */
static bool is_over(const json_t *c)
{
    return c != NULL && strcmp(client_str(c, "state"), "failed") == 0 &&
           client_num(c, "next_start_ms") == 0 && strcmp(client_str(c, "class"), "payload") != 0 &&
           strcmp(client_str(c, "class"), "device_lost") != 0;
}

pid_t fx_wait(struct fx *f, const char *name, const char *state, unsigned min_gen, double seconds)
{
    double end = fx_now() + seconds * PATIENCE;
    char text[128];
    for (;;) {
        json_t *st = fx_status(f);
        const json_t *c = st != NULL ? fx_child(st, name) : NULL;
        bool there =
            c != NULL && strcmp(client_str(c, "state"), state) == 0 && client_num(c, "gen") >= min_gen;
        bool over = !there && is_over(c);
        pid_t pid = there ? (pid_t)client_num(c, "pid") : 0;
        json_decref(st);
        if (there)
            return pid;
        snprintf(text, sizeof text, "%s is not %s within %.1f s", name, state, seconds * PATIENCE);
        must_run(f, text);
        if (over || fx_now() > end)
            fx_fail(f, text);
        fx_nap(20);
    }
}

void fx_wait_overall(struct fx *f, const char *state, double seconds)
{
    double end = fx_now() + seconds * PATIENCE;
    for (;;) {
        json_t *st = fx_status(f);
        bool there = strcmp(client_str(st, "state"), state) == 0;
        bool over = !there && strcmp(client_str(st, "state"), "failed") == 0;
        json_decref(st);
        if (there)
            return;
        must_run(f, state);
        if (over || fx_now() > end)
            fx_fail(f, state);
        fx_nap(20);
    }
}

void fx_wait_log(struct fx *f, const char *part, double seconds)
{
    double end = fx_now() + seconds * PATIENCE;
    while (strstr(fx_log(f), part) == NULL) {
        bool over = f->pid > 0 && fx_wait_end(f, 0) >= 0;
        if (strstr(fx_log(f), part) == NULL && (over || fx_now() > end))
            fx_fail(f, part);
        fx_nap(20);
    }
}

void fx_expect_class(struct fx *f, const char *name, const char *class, const char *detail)
{
    json_t *st = fx_status(f);
    const json_t *c = fx_child(st, name);
    if (strcmp(client_str(c, "class"), class) != 0 || strstr(client_str(c, "detail"), detail) == NULL)
        fail_msg("%s: class %s, detail \"%s\"; log:\n%s", name, client_str(c, "class"),
                 client_str(c, "detail"), fx_log(f));
    json_decref(st);
}

bool fx_alive(pid_t pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    char *got = fgets(text, sizeof text, f);
    fclose(f);
    const char *p = got != NULL ? strrchr(text, ')') : NULL;
    return p != NULL && p[2] != 'Z' && p[2] != 'X';
}

int fx_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d != NULL && readdir(d) != NULL)
        n++;
    if (d != NULL)
        closedir(d);
    return n - 2;
}
