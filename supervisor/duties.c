#include "duties.h"

#include "child.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>

/* The canaries come every 5 s and take 4.1 s when they hear nothing. */
#define LIMIT_US VT_SEC(10)

struct duties {
    uint64_t done[DUTY_COUNT];
    uint64_t watchdog_us; /* half of what the manager wants, 0: it wants none */
    uint64_t pinged_at;
    bool told; /* the stalled duty was named */
    char status[256];
};

const char *duty_name(enum duty d)
{
    static const char *const names[DUTY_COUNT] = {"children", "memory sampler", "control socket",
                                                  "telemetry socket"};
    return (unsigned)d < DUTY_COUNT ? names[d] : "?";
}

int duties_open(struct sup *s, struct vt_err *err)
{
    uint64_t usec = 0;
    s->duties = calloc(1, sizeof *s->duties);
    if (s->duties == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    if (sd_watchdog_enabled(0, &usec) > 0)
        s->duties->watchdog_us = usec / 2;
    for (int d = 0; d < DUTY_COUNT; d++)
        s->duties->done[d] = sup_now(s);
    return 0;
}

void duties_close(struct sup *s)
{
    free(s->duties);
    s->duties = NULL;
}

void duty_done(struct sup *s, enum duty d)
{
    if (s->duties != NULL)
        s->duties->done[d] = sup_now(s);
}

void duties_notify(const char *state)
{
    sd_notify(0, state);
}

const char *duties_overdue(const struct sup *s)
{
    for (int d = 0; d < DUTY_COUNT; d++) {
        if (sup_now(s) - s->duties->done[d] > LIMIT_US)
            return duty_name((enum duty)d);
    }
    return NULL;
}

void duties_status(const struct sup *s, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "%s", s->stopping ? "draining; " : "");
    for (unsigned i = 0; i < s->n_children && n < size; i++) {
        const struct child *c = &s->child[i];
        n += (size_t)snprintf(out + n, size - n, "%s%s %s", i > 0 ? ", " : "", c->name,
                              child_state_name((unsigned)c->state));
        if (c->state == VT_CHILD_LOADING && n < size)
            n += (size_t)snprintf(out + n, size - n, " %d%%", (int)(child_load_ratio(c) * 100));
        if ((c->state == VT_CHILD_FAILED || c->state == VT_CHILD_BACKOFF) && n < size)
            n += (size_t)snprintf(out + n, size - n, " (%s)", exit_class_name(c->class));
    }
}

static void watchdog(struct sup *s)
{
    struct duties *d = s->duties;
    const char *late = duties_overdue(s);
    if (late != NULL && !d->told)
        vt_log(s->log, VT_LOG_ERR,
               "duty overdue: %s has not run for 10 s; the keep-alive ping stops until it does", late);
    d->told = late != NULL;
    if (d->watchdog_us == 0 || late != NULL || sup_now(s) - d->pinged_at < d->watchdog_us / 2)
        return;
    d->pinged_at = sup_now(s);
    duties_notify("WATCHDOG=1");
}

void duties_tick(struct sup *s)
{
    char status[256], line[300];
    duty_done(s, DUTY_CHILDREN);
    watchdog(s);
    duties_status(s, status, sizeof status);
    if (strcmp(status, s->duties->status) != 0) {
        memcpy(s->duties->status, status, sizeof status);
        snprintf(line, sizeof line, "STATUS=%s", status);
        duties_notify(line);
    }
}
