/* Without snapshots: each one is answered with the reason, so that turns go on and rewind restores the talk only. */
#include "snap/snap.h"

#include <stdlib.h>

struct snap {
    struct snap_options o;
};

static const char why[] = "this build has no snapshots";

struct snap *snap_open(const struct snap_options *o, struct vt_err *err)
{
    struct snap *s = mem_new(sizeof *s);
    s->o = *o;
    return s;
}

void snap_close(struct snap *s)
{
    free(s);
}

void snap_session(struct snap *s, const char *session) {}

void snap_cover(struct snap *s, const char *path) {}

void snap_take(struct snap *s, size_t turn, enum snap_when when)
{
    const struct event e = {.kind = EV_SNAP, .id = (int64_t)turn, .n = when, .m = UNKNOWN, .text = why};
    s->o.sink(s->o.arg, &e);
}

static void refuse(struct snap *s, size_t turn)
{
    const struct event e = {.kind = EV_REWIND_DONE, .id = (int64_t)turn, .n = 1, .text = why};
    s->o.sink(s->o.arg, &e);
}

void snap_plan(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n)
{
    const struct event e = {.kind = EV_REWIND_PLAN, .id = (int64_t)turn, .text = "{}"};
    s->o.sink(s->o.arg, &e);
}

void snap_restore(struct snap *s, size_t turn, const struct snap_turn *turns, size_t n)
{
    refuse(s, turn);
}

void snap_redo(struct snap *s)
{
    refuse(s, 0);
}

void snap_diff(struct snap *s, const char *title, const struct snap_turn *turns, size_t n)
{
    const struct event e = {.kind = EV_DIFF, .text = title};
    s->o.sink(s->o.arg, &e);
}

void snap_look(struct snap *s) {}

size_t snap_poll(struct snap *s, struct pollfd *fds, size_t max)
{
    return 0;
}

int snap_timeout(const struct snap *s)
{
    return -1;
}

void snap_work(struct snap *s, const struct pollfd *fds, size_t n) {}
