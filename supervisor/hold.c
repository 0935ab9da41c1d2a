#include "hold.h"

#include "listen.h"
#include "rundir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define FIRST_US VT_MS(200)

int hold_open(struct hold *h, const struct vt_config *cfg, const char *run_dir, struct vt_err *err)
{
    memset(h, 0, sizeof *h);
    /* Before the port, whose owner would be a less useful answer. */
    pid_t holder = rundir_holder(run_dir);
    if (holder > 0)
        return vt_fail(err, VT_E_UNAVAILABLE,
                       "another vitriold (pid %d) runs in %s; ask it with vitriolctl --run-dir %s, or choose "
                       "another --run-dir",
                       (int)holder, run_dir, run_dir);
    return listen_open(&h->http, cfg, err);
}

int hold_pass(const struct hold *h)
{
    int high[SUP_FD_MAX];
    char number[16], names[8 * SUP_FD_MAX] = "";
    /* Away from the places they are going to, where one might stand in another's way. */
    for (int i = 0; i < h->http.n; i++) {
        high[i] = fcntl(h->http.fd[i], F_DUPFD_CLOEXEC, SD_LISTEN_FDS_START + SUP_FD_MAX);
        if (high[i] < 0)
            return -1;
    }
    for (int i = 0; i < h->http.n; i++) {
        if (dup2(high[i], SD_LISTEN_FDS_START + i) < 0)
            return -1;
        strcat(names, i > 0 ? ":http" : "http");
    }
    snprintf(number, sizeof number, "%d", (int)getpid());
    setenv("LISTEN_PID", number, 1);
    snprintf(number, sizeof number, "%d", h->http.n);
    setenv("LISTEN_FDS", number, 1);
    return setenv("LISTEN_FDNAMES", names, 1);
}

static const char *how(int code, char *out, size_t size)
{
    const char *name = code > 128 ? sigabbrev_np(code - 128) : NULL;
    if (name != NULL)
        snprintf(out, size, "was killed by SIG%s", name);
    else
        snprintf(out, size, "ended with status %d", code);
    return out;
}

bool hold_again(struct hold *h, int *code, pid_t pid, uint64_t lived_us, uint64_t *delay_us)
{
    char text[64];
    bool signalled = *code > 128 && *code != 128 + SIGTERM && *code != 128 + SIGINT;
    if (!signalled && *code != VT_EX_INTERNAL)
        return false;
    h->deaths = lived_us < HOLD_LIVE_US ? h->deaths + 1 : 1;
    if (h->deaths >= HOLD_DEATHS) {
        fprintf(
            stderr,
            "vitriol: vitriold (pid %d) %s, %u times within %d s of its start: giving up; --verbose shows "
            "its log\n",
            (int)pid, how(*code, text, sizeof text), h->deaths, (int)(HOLD_LIVE_US / 1000000));
        *code = VT_EX_INTERNAL;
        return false;
    }
    *delay_us = FIRST_US << (h->deaths - 1);
    fprintf(stderr,
            "vitriol: vitriold (pid %d) %s; starting it again in %.1f s, connections wait meanwhile\n",
            (int)pid, how(*code, text, sizeof text), (double)*delay_us / 1e6);
    return true;
}

void hold_close(struct hold *h)
{
    listen_close(&h->http);
}
