/* Of device.c and device_next.c: what is known of the GPU, and how a plan is asked for and judged. */
#ifndef DEVICE_PRIV_H
#define DEVICE_PRIV_H

#include "device.h"
#include "probe.h"
#include "vram.h"

#include "plan.h"

#define MIB (1ull << 20)

/* The question about a configuration that is to run next. */
struct device_next {
    const struct vt_config *cfg; /* whose answer this is, or will be; NULL: nobody waits for one */
    bool asked;                  /* the running probe is about it */
    bool heard;
    int status; /* of the probe: 0, what it ended with, or -1: it said nothing */
    bool planned;
    struct vt_plan plan;
    uint64_t free, total;
    char why[200];
};

struct device {
    struct probe *probe;
    struct vram vram;
    struct ladder ladder;
    struct device_next next;
    json_t *rungs;               /* key -> rung */
    char key[320];               /* of the configuration and the GPU in use, "": not known yet */
    const struct vt_config *cfg; /* that all of this is about */
    char name[16];               /* "gpu:0", once an engine was ready there; "": none */
    char uuid[40], holders[200];
    bool proving; /* what the running probe does */
    bool waiting; /* the engine's start waits for its answer */
    bool unknown; /* the probe has no word on it: the engine is to find out */
    bool planned; /* plan is that of this configuration */
    struct vt_plan plan;
    uint64_t total, told_wait, told_short;
    char text[256];
};

/* engine.device names a GPU: there is nothing to fall back to. */
bool device_named(const struct sup *s);
/* The engine may compute on a GPU. */
bool device_concerns(const struct sup *s);
uint32_t device_window_at(const struct sup *s, unsigned rung);

/* Of the probe's answer; what is missing is 0. */
uint64_t device_bytes(const json_t *o, const char *key);
void device_read_plan(struct vt_plan *out, const json_t *plan);
/* Asks for the plan of what `of` is configured to run; window: tokens of a slot. */
int device_ask_plan(struct sup *s, const struct sup *of, uint32_t window, struct vt_err *err);
/* What the rungs from `window` down would make free. */
uint64_t device_rungs_give(const struct sup *of, const struct vt_plan *plan, uint32_t window);

void device_next_heard(struct sup *s, const json_t *answer, int status, const char *why);

#endif
