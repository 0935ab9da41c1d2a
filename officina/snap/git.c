#include "snap/git.h"

#include "hash.h"
#include "tools/box.h"
#include "util/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 48 };

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static char *format(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&s, fmt, ap) < 0)
        abort();
    va_end(ap);
    return s;
}

static void slurp(int fd, struct text *out)
{
    char buf[65536];
    ssize_t n;
    lseek(fd, 0, SEEK_SET);
    while ((n = read(fd, buf, sizeof buf)) > 0)
        text_add(out, buf, (size_t)n);
}

static int spawn(const char *const *argv, char *const *env, const struct text *in, struct text *out,
                 struct vt_err *err)
{
    struct text words = {0};
    int fds[3], status = -1, rc = -1;
    for (int i = 0; i < 3; i++)
        fds[i] = memfd_create("officina-git", MFD_CLOEXEC);
    if (in && in->len && write(fds[0], in->s, in->len) != (ssize_t)in->len)
        vt_fail_errno(err, VT_E_IO, "what git reads");
    else
        rc = 0;
    lseek(fds[0], 0, SEEK_SET);
    pid_t pid = rc == 0 ? fork() : -1;
    if (pid == 0) {
        for (int i = 0; i < 3; i++)
            dup2(fds[i], i);
        setsid();   /* a Ctrl-C at the terminal is not for git */
        umask(077); /* what it writes lies in the state folder */
        execvpe(argv[0], (char *const *)argv, env);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    slurp(fds[1], out);
    slurp(fds[2], &words);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
    if (rc == 0 && (pid < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0))
        rc = vt_fail(err, VT_E_IO, "git %s: %.300s", argv[1],
                     WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "the program is not installed"
                                                                     : text_str(&words));
    text_free(&words);
    return rc;
}

/* Configuration that holds for every call, whatever a repository says. */
static const char *const FIXED[] = {"-c", "core.hooksPath=/dev/null",  "-c", "core.fsmonitor=false",
                                    "-c", "core.autocrlf=false",       "-c", "core.safecrlf=false",
                                    "-c", "core.symlinks=true",        "-c", "core.fileMode=true",
                                    "-c", "core.untrackedCache=false", "-c", "gc.auto=0",
                                    "-c", "core.quotePath=false",      "-c", "core.bigFileThreshold=32m",
                                    "-c", "submodule.recurse=false",   "-c", "core.checkStat=default"};

/* What every call finds in its environment behind env[0], its PATH; returns how many there are then. */
static size_t clean(char **env)
{
    static char *const fixed[] = {
        "HOME=/nonexistent",   "GIT_CONFIG_NOSYSTEM=1",    "GIT_CONFIG_GLOBAL=/dev/null",
        "GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",    "GIT_OPTIONAL_LOCKS=0",
        "GIT_PAGER=cat",       "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C"};
    memcpy(env + 1, fixed, sizeof fixed);
    return 1 + sizeof fixed / sizeof *fixed;
}

static int run(const char *const *args, const char *const *more, size_t n_more, const struct text *in,
               struct text *out, struct vt_err *err)
{
    const char *argv[MAX_ARGS + 32] = {"git"};
    char *path = format("PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    char *env[20] = {path};
    size_t n = 1, k = clean(env);
    for (size_t i = 0; i < sizeof FIXED / sizeof *FIXED; i++)
        argv[n++] = FIXED[i];
    for (size_t i = 0; args[i] && n + 1 < sizeof argv / sizeof *argv; i++)
        argv[n++] = args[i];
    argv[n] = NULL;
    for (size_t i = 0; i < n_more; i++)
        env[k++] = (char *)more[i];
    env[k] = NULL;
    int rc = spawn(argv, env, in, out, err);
    free(path);
    return rc;
}

int git_run(const struct git *g, const char *const *args, const struct text *in, struct text *out,
            struct vt_err *err)
{
    char *more[] = {format("GIT_DIR=%s", g->dir), format("GIT_WORK_TREE=%s", g->root),
                    format("GIT_INDEX_FILE=%s", g->index)};
    int rc = run(args, (const char *const *)more, 3, in, out, err);
    for (int i = 0; i < 3; i++)
        free(more[i]);
    return rc;
}

int git_look(const char *root, const char *home, const char *const *args, struct text *out,
             struct vt_err *err)
{
    struct box b;
    struct text line = {0};
    char *path = format("PATH=%s", getenv("PATH") ? getenv("PATH") : "/usr/bin:/bin");
    char *env[20] = {path};
    clean(env);
    text_puts(&line, "exec git");
    for (size_t i = 0; i < sizeof FIXED / sizeof *FIXED; i++)
        text_printf(&line, " %s", FIXED[i]);
    for (size_t i = 0; args[i]; i++)
        text_printf(&line, " %s", args[i]);
    int rc = box_open(&b, "project", root, home, err);
    if (rc == 0 && b.level < BOX_PROJECT)
        rc = vt_fail(err, VT_E_OS, "bubblewrap does not start");
    if (rc == 0) {
        const struct box_way way = {.read_only = true};
        char **argv = box_argv(&b, &way, text_str(&line));
        rc = spawn((const char *const *)argv, env, NULL, out, err);
        box_argv_free(argv);
    }
    box_close(&b);
    text_free(&line);
    free(path);
    return rc;
}

static int make(struct git *g, struct vt_err *err)
{
    static const char attributes[] = "* -text -eol -filter -ident -working-tree-encoding -diff -merge\n";
    const char *args[] = {"init", "--quiet", "--bare", "--object-format=sha256", "--template=", g->dir, NULL};
    struct text out = {0};
    int rc = run(args, NULL, 0, NULL, &out, err);
    text_free(&out);
    char *info = format("%s/info", g->dir), *file = format("%s/info/attributes", g->dir);
    if (rc == 0)
        rc = file_own_dir(info, err);
    if (rc == 0)
        rc = file_write(file, attributes, sizeof attributes - 1, err);
    free(info);
    free(file);
    return rc;
}

int git_open(struct git *g, const char *root, const char *home, const char *session, struct vt_err *err)
{
    uint8_t h[VT_SHA256_LEN];
    char key[33];
    vt_sha256(root, strlen(root), h);
    vt_hex(h, 16, key);
    char *shadow = format("%s/shadow", home), *mark = format("%s/shadow/%s.git/info/attributes", home, key);
    g->root = mem_dup(root);
    g->dir = format("%s/shadow/%s.git", home, key);
    g->index = format("%s/index-%s", g->dir, session && *session && !strchr(session, '/') ? session : "none");
    int rc = file_own_dir(shadow, err);
    if (rc == 0 && access(mark, F_OK) < 0)
        rc = make(g, err);
    free(shadow);
    free(mark);
    return rc;
}

void git_close(struct git *g)
{
    free(g->root);
    free(g->dir);
    free(g->index);
    memset(g, 0, sizeof *g);
}

void git_blob_name(const char *bytes, size_t n, char out[65])
{
    uint8_t h[VT_SHA256_LEN];
    char head[40];
    struct vt_sha256 *s = vt_sha256_new();
    int k = snprintf(head, sizeof head, "blob %zu", n);
    vt_sha256_add(s, head, (size_t)k + 1);
    vt_sha256_add(s, bytes, n);
    vt_sha256_end(s, h);
    vt_sha256_free(s);
    vt_hex(h, sizeof h, out);
}
