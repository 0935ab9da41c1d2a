#include "term/keeper.h"
#include "term/tty.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* Orders that reach only the keeper are the workshop's; SIGINT and SIGQUIT of a keyboard reach it anyway. */
static const int passed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

static void keep_signals(sigset_t *all)
{
    sigemptyset(all);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++)
        sigaddset(all, passed_on[i]);
    sigaddset(all, SIGCHLD);
    sigaddset(all, SIGINT);
    sigaddset(all, SIGQUIT);
    sigprocmask(SIG_BLOCK, all, NULL);
}

static void write_all(int fd, const char *s)
{
    size_t n = strlen(s);
    while (n) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno != EINTR && errno != EAGAIN)
            return;
        if (k > 0) {
            s += k;
            n -= (size_t)k;
        }
    }
}

static void give_back(int tty, const struct termios *saved)
{
    signal(SIGTTOU, SIG_IGN); /* the settings are set even when the shell has the terminal again */
    write_all(tty, tty_restore_string());
    tcsetattr(tty, TCSADRAIN, saved);
}

/* Sleeps until the child has ended; returns its wait status. */
static int wait_for(pid_t child, const sigset_t *all)
{
    for (;;) {
        int status, sig = 0;
        sigwait(all, &sig);
        if (sig != SIGCHLD && sig != SIGINT && sig != SIGQUIT)
            kill(child, sig);
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
    }
}

struct keeper *keeper_start(int tty, struct vt_err *err)
{
    struct termios saved;
    sigset_t all, old;
    struct keeper *k = mmap(NULL, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (k == MAP_FAILED || tcgetattr(tty, &saved) != 0) {
        vt_fail_errno(err, VT_E_OS, "terminal settings cannot be saved");
        return NULL;
    }
    pid_t first = getpid();
    sigprocmask(SIG_SETMASK, NULL, &old);
    keep_signals(&all);
    pid_t child = fork();
    if (child < 0) {
        vt_fail_errno(err, VT_E_OS, "no process for the terminal's keeper");
        sigprocmask(SIG_SETMASK, &old, NULL);
        munmap(k, sizeof *k);
        return NULL;
    }
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGHUP); /* without its keeper the workshop leaves in order */
        if (getppid() != first)
            raise(SIGHUP);
        sigprocmask(SIG_SETMASK, &old, NULL);
        return k;
    }
    int status = wait_for(child, &all);
    if (k->screen || WIFSIGNALED(status))
        give_back(tty, &saved);
    if (WIFSIGNALED(status)) {
        fprintf(stderr,
                "officina was ended by signal %d (%s); the conversation is stored: vitriol officina --resume "
                "last\n",
                WTERMSIG(status), strsignal(WTERMSIG(status)));
        _exit(128 + WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}
