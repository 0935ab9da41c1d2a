/* Exits: why a child ended, from evidence alone, and what follows from it. Pure.
 *
 * SIGKILL is "killed, sender unknown" unless the memory evidence names the out-of-memory killer; an exit with 0 that
 * nobody ordered is a fault like any other. */
#ifndef EXITS_H
#define EXITS_H

#include "frame.h"

#include <stdbool.h>

/* The numbers travel in INTERRUPTED and are never reused. */
enum exit_class {
    CLASS_NONE = 0,
    CLASS_STOPPED = 1,
    CLASS_CONFIG = 2,
    CLASS_PAYLOAD = 3,
    CLASS_PERM = 4,
    CLASS_VERSION = 5,
    CLASS_DEVICE_OOM_LOAD = 6,
    CLASS_DEVICE_OOM_RUN = 7,
    CLASS_DEVICE_LOST = 8,
    CLASS_HUNG = 9,
    CLASS_OOM_KILL = 10,
    CLASS_SIGNAL = 11,
    CLASS_SIGKILL_UNKNOWN = 12,
    CLASS_UNEXPECTED_EXIT = 13,
    CLASS_HELLO_TIMEOUT = 14,
    CLASS_LOAD_STALL = 15,
    CLASS_PROTOCOL = 16,
    CLASS_HOST_MEM = 17,
    CLASS_UNKILLABLE = 18,
    CLASS_DRAIN_DEADLINE = 19,
    CLASS_SPAWN_FAILED = 20,
    CLASS_VRAM_NOT_RETURNED = 21,
    CLASS_COUNT
};

struct exit_facts {
    enum vt_child_state state;  /* when it ended */
    bool ordered;               /* we told it to leave */
    enum exit_class killed_for; /* CLASS_NONE, or why we killed it */
    bool signalled;
    int status;    /* exit status, or the signal */
    bool oom_kill; /* the kernel's counters say so */
};

enum exit_class exit_classify(const struct exit_facts *f);
const char *exit_class_name(enum exit_class c);
/* A restart cannot cure it: failed at once, until reset or a change. */
bool exit_class_final(enum exit_class c);
/* Requests that were in flight may be resumed on the next generation. */
bool exit_class_resumable(enum exit_class c);

#endif
