#include "events.h"

#include "tele.h"

#include <stdio.h>
#include <stdlib.h>

struct events {
    uint64_t seq; /* of the last one */
    struct event kept[EVENTS_KEPT];
};

struct events *events_new(void)
{
    return calloc(1, sizeof(struct events));
}

void events_free(struct events *e)
{
    free(e);
}

static struct event *add(struct sup *s, enum event_kind kind, const struct child *c)
{
    struct events *e = s->events;
    struct event *ev = &e->kept[e->seq % EVENTS_KEPT];
    *ev = (struct event){.seq = ++e->seq, .t_us = sup_now(s), .kind = kind};
    if (c != NULL) {
        snprintf(ev->child, sizeof ev->child, "%s", c->name);
        ev->gen = c->gen;
    }
    return ev;
}

void event_state(struct sup *s, const struct child *c, enum vt_child_state from)
{
    struct event *ev = add(s, EVENT_STATE, c);
    ev->from = child_state_name(from);
    ev->to = child_state_name(c->state);
    bool ended = c->state >= VT_CHILD_HUNG;
    if (ended && c->class != CLASS_NONE)
        ev->class = exit_class_name(c->class);
    if (ended)
        snprintf(ev->text, sizeof ev->text, "%s", c->detail);
    bool bad = c->state == VT_CHILD_FAILED || c->state == VT_CHILD_HUNG ||
               (c->state == VT_CHILD_REAPING && c->class != CLASS_STOPPED);
    char line[400], gen[16];
    snprintf(gen, sizeof gen, "%u", c->gen);
    snprintf(line, sizeof line, "%s generation %u: %s -> %s%s%s%s%s%s", c->name, c->gen, ev->from, ev->to,
             ev->class != NULL ? " (" : "", ev->class != NULL ? ev->class : "", ev->class != NULL ? ")" : "",
             ev->text[0] != '\0' ? ": " : "", ev->text);
    vt_log_ev(s->log, bad ? VT_LOG_WARNING : VT_LOG_INFO, "child-state", line, "CHILD", c->name, "GEN", gen,
              "FROM", ev->from, "TO", ev->to, "CLASS", ev->class != NULL ? ev->class : "", NULL);
    tele_event(s, ev);
}

void event_text(struct sup *s, enum event_kind kind, const struct child *c, enum vt_level level,
                const char *fmt, ...)
{
    struct event *ev = add(s, kind, c);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ev->text, sizeof ev->text, fmt, ap);
    va_end(ap);
    char line[320];
    snprintf(line, sizeof line, "%s%s%s", ev->child, ev->child[0] != '\0' ? ": " : "", ev->text);
    vt_log_ev(s->log, level, event_kind_name(kind), line, "CHILD", ev->child, NULL);
    tele_event(s, ev);
}

const struct event *events_after(const struct events *e, uint64_t seq, unsigned i)
{
    uint64_t oldest = e->seq > EVENTS_KEPT ? e->seq - EVENTS_KEPT + 1 : 1;
    uint64_t want = (seq + 1 > oldest ? seq + 1 : oldest) + i;
    return want <= e->seq ? &e->kept[(want - 1) % EVENTS_KEPT] : NULL;
}

uint64_t events_last(const struct events *e)
{
    return e->seq;
}

const char *event_kind_name(enum event_kind k)
{
    static const char *const names[] = {"?",         "state",  "suspect", "late",   "relisten",
                                        "operation", "launch", "note",    "link",   "lock",
                                        "profile",   "plan",   "drift",   "memory", "vram"};
    return (unsigned)k < sizeof names / sizeof names[0] ? names[k] : "?";
}
