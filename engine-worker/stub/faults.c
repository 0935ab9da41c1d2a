#include "stub.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void stub_sleep_us(uint64_t us)
{
    struct timespec t = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

static void hang(void)
{
    for (;;)
        stub_sleep_us(1000000);
}

/* One generation takes the file away, so that the ones after it are healthy. */
static bool still_due(const struct stub_opts *o)
{
    return o->once[0] == 0 || unlink(o->once) == 0;
}

/* A process that leaves the group and outlives its parent, unless somebody looks for it. */
static void fork_grandchild(void)
{
    if (fork() != 0)
        return;
    setsid();
    for (;;)
        pause();
}

void stub_fault_load(struct eng *e, uint32_t tick, uint32_t of)
{
    if (tick == 0 && e->o.grandchild)
        fork_grandchild();
    if (e->o.stall_load >= 0 && tick * 100 >= (uint32_t)e->o.stall_load * of && still_due(&e->o))
        hang();
    for (int i = 0; e->o.flood_log && i < 20000; i++)
        fprintf(stderr, "vitriol-stub: info: line %d of a flood that no log should have to take\n", i);
}

static void grow(struct eng *e)
{
    size_t n = (size_t)e->o.grow_mib << 20;
    e->hoard = malloc(n);
    if (e->hoard != NULL)
        memset(e->hoard, 0x5a, n);
}

void stub_fault_token(struct eng *e, const struct stub_req *r)
{
    const struct stub_opts *o = &e->o;
    if (o->grow_mib != 0 && e->hoard == NULL && e->tokens >= 300 && still_due(o))
        grow(e);
    if (o->exit0_after != 0 && e->tokens >= o->exit0_after && still_due(o))
        _exit(0);
    if (((o->segv_at != 0 && e->tokens >= o->segv_at) || r->crash) && still_due(o)) {
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    bool hangs = (o->hang_step != 0 && e->tokens >= o->hang_step) ||
                 (o->heartbeat_only != 0 && e->tokens >= o->heartbeat_only);
    if (hangs && still_due(o))
        hang();
}

bool stub_fault_nan(const struct eng *e)
{
    return e->o.nan_at != 0 && e->tokens + 1 == e->o.nan_at;
}

bool stub_fault_device(const struct eng *e)
{
    return e->o.device_sticky != 0 && e->tokens + 1 >= e->o.device_sticky;
}

void stub_guess(struct eng *e, struct stub_req *r)
{
    struct eng_counters *c = &e->counters;
    if (e->cfg.spec == ENG_SPEC_NONE)
        return;
    uint64_t accepted = (c->spec_drafted + 4) * e->o.spec_accept / 100;
    r->drafted += 4;
    r->accepted += (uint32_t)(accepted - c->spec_accepted);
    c->spec_drafts++;
    c->spec_drafted += 4;
    c->spec_refuted += accepted - c->spec_accepted < 4;
    c->spec_accepted = accepted;
    if (!e->o.spec_blind && c->spec_drafts % 64 == 0)
        c->spec_refuted++;
}
