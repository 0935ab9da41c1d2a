/* Ctl client: one call to vitriold, its reply as JSON; and where a vitriold is found. For vitriolctl and the launcher. */
#ifndef CTL_CLIENT_H
#define CTL_CLIENT_H

#include "err.h"

#include <jansson.h>
#include <stdint.h>
#include <sys/types.h>

#define CLIENT_TIMEOUT_MS 2000

struct client {
    char run[128];
    char ctl[160];
};

/* run: --run-dir, or NULL: the first place of the configuration and the defaults where a vitriold lives. */
int client_find(struct client *c, const char *run, struct vt_err *err);
/* The reply's result (owned), or NULL: VT_E_UNAVAILABLE when nothing runs there, VT_E_DEADLINE, or the code of the refusal.
 * args: NULL or an object of strings and integers, its keys in ascending order; stolen. op: number of a long operation. */
json_t *client_call(const struct client *c, const char *verb, json_t *args, uint64_t *op, struct vt_err *err);
/* Explains that nobody answers: no vitriold, and who sits on its port if somebody does. */
int client_absent(const struct client *c, struct vt_err *err);
/* The same process must hold the lock, answer on ctl, and own the HTTP socket; 0, or -1 with the impostor's pid. */
int client_verify(const struct client *c, const json_t *status, struct vt_err *err);
/* Follows an operation until it ends or the time is over (VT_E_DEADLINE); its last state, owned. */
json_t *client_follow(const struct client *c, uint64_t op, int timeout_s, struct vt_err *err);

/* Fields of an object, with "" and 0 where they are absent. */
const char *client_str(const json_t *o, const char *key);
uint64_t client_num(const json_t *o, const char *key);

/* A frame's map as JSON, for EVENT frames. */
json_t *client_event(const uint8_t *buf, size_t len);

#endif
