/* Fixture of the tests that start vitriold as a process with test children in all roles, in a directory of its own.
 *
 * A wait ends the test with vitriold's log when its time is over, and at once when what it waits for cannot come any
 * more: vitriold has ended, or the child has failed for good. Its seconds are those of a quiet machine and several times
 * as many in fact: what has to happen within a time is asserted beside it. One thread. */
#ifndef FIXTURE_H
#define FIXTURE_H

#include "ctl_client.h"

#include <stdbool.h>

struct fx {
    char root[64], run[80], bin[80], log[96];
    int port;
    pid_t pid;
    struct client c;
    const char *more[24]; /* further arguments */
    int n_more;
    bool serve;      /* by way of the launcher, whose pid is then pid */
    int inherit;     /* listening socket to hand over, -1: none */
    char notify[96]; /* NOTIFY_SOCKET, "" : none */
};

int fx_setup(void **state);
int fx_teardown(void **state);
void fx_set(struct fx *f, const char *key_value); /* --set for the next start; not copied */
void fx_start(struct fx *f);
/* Exit status of vitriold, 128 + signal, or -1 when it does not end in time. */
int fx_wait_end(struct fx *f, double seconds);

json_t *fx_status(struct fx *f);                                /* owned; NULL when nobody answers */
const json_t *fx_child(const json_t *status, const char *name); /* NULL: no such child */
char *fx_log(struct fx *f); /* all that vitriold said; until the next call */
void fx_fail(struct fx *f, const char *what);

/* Until the child is in that state, of at least that generation; its pid. */
pid_t fx_wait(struct fx *f, const char *name, const char *state, unsigned min_gen, double seconds);
void fx_wait_overall(struct fx *f, const char *state, double seconds);
void fx_wait_log(struct fx *f, const char *part, double seconds);
void fx_expect_class(struct fx *f, const char *name, const char *class, const char *detail);

double fx_now(void); /* seconds */
void fx_nap(int ms);
int fx_listen_any(int *port); /* a listening socket on a free port of 127.0.0.1 */
bool fx_alive(pid_t pid);     /* exists and is no zombie */
int fx_entries(const char *dir);

#endif
