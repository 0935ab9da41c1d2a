/* Events: what happened, numbered without gaps; the last 256 are kept for those who missed some. Each goes to the log and
 * as EVENT to `tele`. */
#ifndef EVENTS_H
#define EVENTS_H

#include "sup.h"

#define EVENTS_KEPT 256

/* Key `event` of EVENT; numbers are never reused. */
enum event_kind {
    EVENT_STATE = 1, /* from, to, class */
    EVENT_SUSPECT = 2,
    EVENT_LATE = 3, /* our own loop was late, or the machine slept */
    EVENT_RELISTEN = 4,
    EVENT_OPERATION = 5,
    EVENT_LAUNCH = 6, /* fingerprint line */
    EVENT_NOTE = 7,   /* of a child */
    EVENT_LINK = 8,
    EVENT_LOCK = 9,
    EVENT_PROFILE = 10, /* applied, blessed, rolled back */
    EVENT_PLAN = 11,    /* measured memory is not what was planned */
    EVENT_DRIFT = 12,   /* what runs differs from its blessed record */
    EVENT_MEMORY = 13,  /* levels, bounces for memory, pressure that is not ours */
    EVENT_VRAM = 14,    /* a GPU's memory that does not return, is short, or the GPU is lost or proved */
};

struct event {
    uint64_t seq, t_us;
    enum event_kind kind;
    char child[SUP_NAME_MAX];
    uint32_t gen;
    const char *from, *to, *class; /* static names or NULL */
    char text[256];
};

struct events *events_new(void);
void events_free(struct events *e);
void event_state(struct sup *s, const struct child *c, enum vt_child_state from);
void event_text(struct sup *s, enum event_kind kind, const struct child *c, enum vt_level level,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The i-th kept event after seq, or NULL. */
const struct event *events_after(const struct events *e, uint64_t seq, unsigned i);
uint64_t events_last(const struct events *e);
const char *event_kind_name(enum event_kind k);

#endif
