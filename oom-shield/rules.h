/* Rules: whom the shield may mark. Pure. Exclusions are asked in a fixed order and the first that matches is the reason; a
 * name only ever adds an exclusion, nobody is marked because of what it is called. Programs are known by the file that
 * runs and by their systemd unit; by the name that a process gives itself only where its file cannot be read. */
#ifndef SHIELD_RULES_H
#define SHIELD_RULES_H

#include "task.h"

#include <stddef.h>

#define RULES_KEEP 32

enum verdict {
    MAY_MARK,
    KEEP_INIT,      /* process 1, threads of the kernel, other users */
    KEEP_OWN,       /* vitriold, what it started, what started it */
    KEEP_PROTECTED, /* a negative value: somebody protects it on purpose */
    KEEP_LOGIN,     /* remote access, login, sessions, message buses, agents with keys */
    KEEP_DISPLAY,   /* display, desktop shell, input methods, sound */
    KEEP_STORAGE,   /* mounted filesystems, tunnels, package managers */
    KEEP_DEBUG,     /* debuggers and what they hold */
    KEEP_LISTED,    /* shield.keep */
    KEEP_SMALL,
    KEEP_AT_FLOOR, /* it has the value, or a higher one */
    KEEP_UNREADABLE,
    VERDICTS
};

struct keep {
    char text[128];
    int kind; /* KEEP_COMM, KEEP_UNIT, KEEP_FILE */
    dev_t dev;
    ino_t ino;
};

struct rules {
    uid_t uid;
    pid_t own; /* vitriold; 0: none */
    int floor;
    uint64_t min_bytes;
    char own_cgroup[512]; /* of the unit, "" when vitriold shares its cgroup with others */
    char own_dir[512];    /* folder of our programs */
    struct keep keep[RULES_KEEP];
    unsigned n_keep;
};

/* Entries with blanks or commas between them: the exact name of a process, unit:NAME, or an absolute path, which stands
 * for the file that is there now. -1 with the entry that is neither, in bad. */
int rules_keep(struct rules *r, const char *text, char *bad, size_t size);
/* related: it is an ancestor or a descendant of vitriold, or vitriold itself. */
enum verdict rules_judge(const struct rules *r, const struct task *t, bool related);
const char *verdict_name(enum verdict v);

#endif
