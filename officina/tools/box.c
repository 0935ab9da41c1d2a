#include "tools/box.h"

#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the home; folders get an empty one over them, files an empty file. */
static const char *const HIDDEN[] = {".ssh",
                                     ".gnupg",
                                     ".aws",
                                     ".azure",
                                     ".kube",
                                     ".docker",
                                     ".config/gcloud",
                                     ".config/gh",
                                     ".config/hub",
                                     ".config/google-chrome",
                                     ".config/chromium",
                                     ".config/BraveSoftware",
                                     ".mozilla",
                                     ".thunderbird",
                                     ".password-store",
                                     ".local/share/keyrings",
                                     ".netrc",
                                     ".git-credentials",
                                     ".config/git/credentials",
                                     ".npmrc",
                                     ".pypirc",
                                     ".pgpass",
                                     ".cargo/credentials",
                                     ".cargo/credentials.toml",
                                     ".config/rclone",
                                     ".vault-token",
                                     ".terraform.d",
                                     ".bash_history",
                                     ".zsh_history",
                                     ".local/share/evolution",
                                     ".config/op",
                                     "Mail",
                                     ".mutt",
                                     ".gem/credentials"};
/* Of the project: what other programs run or obey. */
static const char *const GUARDED[] = {".git/hooks", ".git/config", ".officina", ".vscode", ".idea", ".envrc"};

struct args {
    char **v;
    size_t n, cap;
};

static void arg(struct args *a, const char *s)
{
    a->v = mem_room(a->v, a->n, &a->cap, sizeof *a->v);
    a->v[a->n++] = s ? mem_dup(s) : NULL;
}

static void args3(struct args *a, const char *x, const char *y, const char *z)
{
    arg(a, x);
    arg(a, y);
    if (z)
        arg(a, z);
}

void box_argv_free(char **argv)
{
    for (size_t i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

/* path is dir or lies in it. */
static bool within(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/' || (n == 1));
}

static void hide(struct args *a, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return;
    if (S_ISDIR(st.st_mode))
        args3(a, "--tmpfs", path, NULL);
    else
        args3(a, "--ro-bind", "/dev/null", path);
}

/* What of the home and the state is not to be seen. The project is bound between the two calls: what
 * contains it must be hidden before, what it contains after. */
static void hide_all(struct args *a, const struct box *b, bool after)
{
    char path[4200];
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN; i++) {
        snprintf(path, sizeof path, "%s/%s", b->home, HIDDEN[i]);
        if (within(b->root, path) ? !after : within(path, b->root) == after)
            hide(a, path);
    }
    if (within(b->root, b->state) ? !after : within(b->state, b->root) == after)
        hide(a, b->state);
}

bool box_guarded(const char *rel)
{
    bool yes = within(rel, ".git");
    for (size_t i = 0; i < sizeof GUARDED / sizeof *GUARDED; i++)
        yes = yes || within(rel, GUARDED[i]);
    return yes;
}

static void guard(struct args *a, const char *root)
{
    char path[4200];
    struct stat st;
    snprintf(path, sizeof path, "%s/.git", root);
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        args3(a, "--bind", path, path); /* what is mounted cannot be moved away */
        snprintf(path, sizeof path, "%s/.git/hooks", root);
        if (lstat(path, &st) < 0) { /* an empty one that takes nothing */
            args3(a, "--tmpfs", path, NULL);
            args3(a, "--remount-ro", path, NULL);
        }
    }
    for (size_t i = 0; i < sizeof GUARDED / sizeof *GUARDED; i++) {
        snprintf(path, sizeof path, "%s/%s", root, GUARDED[i]);
        if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode))
            args3(a, "--ro-bind", path, path);
    }
}

static void bwrap_args(struct args *a, const struct box *b, const struct box_way *w)
{
    char fd[16];
    arg(a, "bwrap");
    args3(a, "--ro-bind", "/", "/");
    args3(a, "--dev", "/dev", NULL);
    args3(a, "--proc", "/proc", NULL);
    args3(a, "--tmpfs", "/tmp", NULL);
    args3(a, "--tmpfs", "/var/tmp", NULL);
    args3(a, "--tmpfs", "/run",
          NULL); /* sockets of agents and daemons are writable through a read-only mount */
    args3(a, "--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve");
    if (b->level == BOX_STRICT)
        args3(a, "--tmpfs", b->home, NULL);
    else
        hide_all(a, b, false);
    args3(a, w->read_only ? "--ro-bind" : "--bind", b->root, b->root);
    if (!w->read_only)
        guard(a, b->root);
    for (size_t i = 0; i < b->n_more; i++) {
        args3(a, w->read_only ? "--ro-bind" : "--bind", b->more[i], b->more[i]);
        if (!w->read_only)
            guard(a, b->more[i]);
    }
    hide_all(a, b, true);
    arg(a, "--unshare-user-try");
    arg(a, "--unshare-pid");
    arg(a, "--unshare-ipc");
    arg(a, "--unshare-uts");
    arg(a, "--unshare-cgroup-try");
    if (!w->network)
        arg(a, "--unshare-net");
    args3(a, "--cap-drop", "ALL", NULL);
    arg(a, "--new-session");
    arg(a, "--die-with-parent");
    if (b->filter >= 0) {
        snprintf(fd, sizeof fd, "%d", b->filter);
        args3(a, "--seccomp", fd, NULL);
    }
    args3(a, "--chdir", b->root, NULL);
    arg(a, "--");
}

char **box_argv(const struct box *b, const struct box_way *w, const char *command)
{
    struct args a = {0};
    if (!w->user && b->level >= BOX_PROJECT)
        bwrap_args(&a, b, w);
    args3(&a, "/bin/sh", "-c", command);
    arg(&a, NULL);
    return a.v;
}

/* ---- the system-call filter ---- */

static int filter_rules(scmp_filter_ctx f)
{
    static const int never[] = {SCMP_SYS(ptrace),           SCMP_SYS(mount),
                                SCMP_SYS(umount2),          SCMP_SYS(pivot_root),
                                SCMP_SYS(move_mount),       SCMP_SYS(open_tree),
                                SCMP_SYS(fsopen),           SCMP_SYS(fsmount),
                                SCMP_SYS(keyctl),           SCMP_SYS(add_key),
                                SCMP_SYS(request_key),      SCMP_SYS(bpf),
                                SCMP_SYS(perf_event_open),  SCMP_SYS(kexec_load),
                                SCMP_SYS(kexec_file_load),  SCMP_SYS(init_module),
                                SCMP_SYS(finit_module),     SCMP_SYS(delete_module),
                                SCMP_SYS(userfaultfd),      SCMP_SYS(open_by_handle_at),
                                SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
                                SCMP_SYS(swapon),           SCMP_SYS(swapoff),
                                SCMP_SYS(reboot),           SCMP_SYS(settimeofday),
                                SCMP_SYS(clock_settime),    SCMP_SYS(acct),
                                SCMP_SYS(quotactl)};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        int rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), never[i], 0);
        if (rc < 0)
            return rc;
    }
    /* typing into the terminal that started us */
    return seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                            SCMP_A1(SCMP_CMP_MASKED_EQ, 0xffffffffu, TIOCSTI));
}

/* The weak level has no network space of its own, so the families that reach one are closed. */
static int network_rules(scmp_filter_ctx f)
{
    static const unsigned families[] = {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, AF_UNIX};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        int rc = seccomp_rule_add(f, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, 0xffffffffu, families[i]));
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int make_filter(struct box *b, struct vt_err *err)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    int fd = memfd_create("officina-filter", 0); /* inherited by bwrap, so not close-on-exec */
    int rc = f && fd >= 0 ? filter_rules(f) : -ENOMEM;
    if (rc == 0 && b->level == BOX_WEAK)
        rc = network_rules(f);
    if (rc == 0)
        rc = seccomp_export_bpf(f, fd);
    seccomp_release(f);
    off_t len = rc == 0 ? lseek(fd, 0, SEEK_END) : -1;
    if (len > 0) {
        b->program = mem_new((size_t)len);
        b->program_len = (size_t)len;
        rc = pread(fd, b->program, (size_t)len, 0) == len ? 0 : -EIO;
        lseek(fd, 0, SEEK_SET);
    }
    if (rc == 0 && len > 0) {
        b->filter = fd;
        return 0;
    }
    if (fd >= 0)
        close(fd);
    return vt_fail(err, VT_E_OS, "the system-call filter cannot be made: %s", strerror(-rc));
}

/* ---- the weak level ---- */

static const uint64_t READS =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
static const uint64_t WRITES =
    LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
    LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
    LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
    LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER;

static int allow(int set, const char *path, uint64_t what)
{
    struct landlock_path_beneath_attr at = {.allowed_access = what,
                                            .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    if (at.parent_fd < 0)
        return errno == ENOENT ? 0 : -1;
    int rc = (int)syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &at, 0);
    close(at.parent_fd);
    return rc;
}

int box_ruleset(const struct box *b, const struct box_way *w, struct vt_err *err)
{
    if (w->user || b->level != BOX_WEAK)
        return -1;
    struct landlock_ruleset_attr attr = {.handled_access_fs = READS | WRITES};
    int set = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    int rc = set < 0 ? -1 : allow(set, "/", READS);
    if (rc == 0)
        rc = allow(set, "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_READ_FILE);
    if (rc == 0 && !w->read_only)
        rc = allow(set, b->root, READS | WRITES) < 0 || allow(set, "/tmp", READS | WRITES) < 0 ? -1 : 0;
    for (size_t i = 0; i < b->n_more && rc == 0 && !w->read_only; i++)
        rc = allow(set, b->more[i], READS | WRITES);
    if (rc == 0)
        return set;
    vt_fail_errno(err, VT_E_OS, "the kernel's Landlock refuses the sandbox");
    if (set >= 0)
        close(set);
    return -1;
}

int box_enter(const struct box *b, const struct box_way *w, int ruleset)
{
    if (w->user || b->level != BOX_WEAK)
        return 0;
    struct sock_fprog prog = {.len = (unsigned short)(b->program_len / sizeof(struct sock_filter)),
                              .filter = b->program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
        return -1;
    return w->network ? 0 : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog);
}

/* ---- what this machine can do ---- */

static bool bwrap_starts(void)
{
    static const char *const argv[] = {"bwrap",
                                       "--ro-bind",
                                       "/",
                                       "/",
                                       "--unshare-user-try",
                                       "--unshare-pid",
                                       "--unshare-net",
                                       "--proc",
                                       "/proc",
                                       "--dev",
                                       "/dev",
                                       "--",
                                       "/bin/true",
                                       NULL};
    int status, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(null, 0);
        dup2(null, 1);
        dup2(null, 2);
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    close(null);
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int box_open(struct box *b, const char *want, const char *root, const char *state, struct vt_err *err)
{
    const char *home = getenv("HOME");
    *b = (struct box){.filter = -1, .root = mem_dup(root), .state = mem_dup(state)};
    b->home = mem_dup(home && *home == '/' ? home : "/nonexistent");
    if (strcmp(want, "off") == 0)
        b->level = BOX_OFF;
    else if (strcmp(want, "project") != 0 && strcmp(want, "strict") != 0)
        return vt_fail(err, VT_E_USAGE, "no sandbox '%s'; there are project, strict and off", want);
    else if (bwrap_starts())
        b->level = strcmp(want, "strict") == 0 ? BOX_STRICT : BOX_PROJECT;
    else if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) >= 2)
        b->level = BOX_WEAK;
    else
        b->level = BOX_NONE;
    return b->level <= BOX_NONE ? 0 : make_filter(b, err);
}

int box_add(struct box *b, const char *path, struct vt_err *err)
{
    char hidden[4200];
    bool bad = within(b->home, path) || within(b->state, path) || within(path, b->state);
    for (size_t i = 0; i < sizeof HIDDEN / sizeof *HIDDEN && !bad; i++) {
        snprintf(hidden, sizeof hidden, "%s/%s", b->home, HIDDEN[i]);
        bad = within(hidden, path) || within(path, hidden);
    }
    if (bad)
        return vt_fail(err, VT_E_PERM,
                       "%s holds or is what is hidden from commands (the home folder, credentials, "
                       "the workshop's state)",
                       path);
    b->more = mem_grow(b->more, (b->n_more + 2) * sizeof *b->more);
    b->more[b->n_more++] = mem_dup(path);
    b->more[b->n_more] = NULL;
    return 0;
}

void box_close(struct box *b)
{
    box_argv_free(b->more);
    if (b->filter >= 0)
        close(b->filter);
    free(b->program);
    free(b->root);
    free(b->home);
    free(b->state);
    *b = (struct box){.filter = -1};
}

const char *box_name(const struct box *b)
{
    static const char *const names[] = {"off", "none", "weak", "project", "strict"};
    return names[b->level];
}
