/* The inside of requests.c, requests_gather.c and requests_wait.c. */
#ifndef WORKER_REQUESTS_PRIV_H
#define WORKER_REQUESTS_PRIV_H

#include "request.h"

#define OPEN_MAX 4096 /* requests that the core may hold */
#define REMEMBER 1024 /* ended ones that are known by their rid */
#define TABLE    (OPEN_MAX + REMEMBER)

struct requests {
    struct requests_opts o;
    struct vt_link *link;
    struct request *at[TABLE];
    unsigned n_used; /* places up to the highest used one */
    uint64_t serial, parked, sent;
    uint64_t tokens_at; /* when tokens went out last */
    uint64_t due;       /* when those that are held back will; 0: none are */
    int closed;
    uint32_t closed_retry;
    char closed_text[128];
    unsigned short_of_memory; /* level */
};

struct request *requests_by_handle(struct requests *rs, uint64_t handle);
/* The core has it or is about to. */
bool requests_in_core(const struct request *r);
void requests_tell_core(struct requests *rs, enum cmd_type type, uint64_t handle, uint32_t n);
/* Puts it into the core's inbox; look: it may come back as EV_WANTS. -1: no memory. */
int requests_put(struct requests *rs, struct request *r, bool look);
void requests_end(struct requests *rs, struct request *r, enum eng_done why);
void requests_end_with(struct requests *rs, struct request *r, const struct vt_err *why);

/* requests_gather.c: what came since the last tokens went out is to be held back. */
bool requests_gather(struct requests *rs);

/* requests_wait.c */
void requests_wants(struct requests *rs, struct request *r, uint32_t resident);
void requests_cancel(struct requests *rs, struct request *r);

#endif
