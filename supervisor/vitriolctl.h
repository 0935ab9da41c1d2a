/* Vitriolctl: what its commands share. */
#ifndef VITRIOLCTL_H
#define VITRIOLCTL_H

#include "ctl_client.h"

#include <stdbool.h>

struct call {
    struct client client;
    const char *run;   /* --run-dir, NULL: look for one */
    const char *state; /* --state-dir, NULL: the configured one */
    bool json, follow, origin, history, diff, wait, ready, force;
    const char *key_file, *tenant, *slot, *note; /* NULL: not given */
    int timeout_s;                               /* -1: the command's own */
    const char *arg[3];
    int n_args;
};

/* Each returns the exit code. With --json a failure is told in the same three fields everywhere, on stdout, where the answer
 * would be; its text goes to stderr as well. */
int call_print(json_t *v);
int call_fail(const struct call *c, const struct vt_err *err);
int call_misused(const struct call *c, const char *what);
/* A number and nothing behind it. */
bool call_number(const char *text, uint64_t *out);

/* Calls an acting verb, whose args are stolen; wait: until its operation has ended. */
int call_act(struct call *c, const char *verb, json_t *args, bool wait, int timeout_s);

int cmd_store(struct call *c);   /* ctl_store.c */
int cmd_shield(struct call *c);  /* ctl_shield.c */
int cmd_certify(struct call *c); /* ctl_certify.c */
/* ctl_profile.c */
int cmd_apply(struct call *c);
int cmd_probe(struct call *c);
int cmd_rollback(struct call *c);
int cmd_bless(struct call *c);
int cmd_blessed(struct call *c);
int cmd_forbid(struct call *c);
int cmd_measures(struct call *c);
int cmd_verdicts(struct call *c);
int cmd_suspects(struct call *c);

#endif
