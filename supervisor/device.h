/* Device: the GPU of the engine, as vitriold sees it: through a probe, a short-lived process (engine-worker/probe) that may hang
 * where vitriold may not, and is killed at its deadline. vram.h has the rules. Before each start of an engine that may compute on a
 * GPU its free memory is read and waited for; after a device error nothing starts before a proof; with too little memory the
 * windows get smaller, rung by rung, which records/ladder remembers.
 *
 * With engine.device = auto, what runs on a GPU once runs there again or not at all, until another configuration comes: a tenth of the
 * speed is no recovery. Main thread. */
#ifndef DEVICE_H
#define DEVICE_H

#include "sup.h"

int device_open(struct sup *s, struct vt_err *err);
void device_close(struct sup *s);

/* May the engine start? 0: yes. 1: not yet; *at: when to ask again, unless the device wakes the child before. -1: refused; *at: when
 * a GPU that is lost is tried again, 0: as after any failure. VT_E_DEVICE_LOST, VT_E_DEVICE_MEM, VT_E_BUSY: memory that did not
 * return. */
int device_gate(struct sup *s, struct child *engine, uint64_t *at, struct vt_err *err);
/* Something can be asked before the start is due. */
void device_prepare(struct sup *s);

/* Whether what `next` is configured to run fits on its GPU, counting what the running engine has there. 0: it does, or nobody can
 * tell; 1: the GPU is being asked, come again; -1: it does not, even on the last rung. Nothing that runs is touched. */
int device_fits(struct sup *s, const struct sup *next, struct vt_err *err);
void device_forget_next(struct sup *s); /* the answer is not waited for any more */

void device_ready(struct sup *s, const struct child *engine, const struct vt_frame *ready);
void device_ended(struct sup *s, const struct child *engine);
/* The vault lets go of all that it holds. */
void device_let_go(struct sup *s);
/* A reading of the engine's own (T_ENGINE). */
void device_take(struct sup *s, struct child *engine, const struct vt_frame *f);
/* An operator: the ladder is forgotten, a proof is tried at once. */
void device_reset(struct sup *s);

/* What an engine is told instead of the configured values. */
const char *device_name(const struct sup *s);
uint32_t device_window(const struct sup *s);

struct device_view {
    bool lost;
    unsigned rung;
    uint64_t free; /* last reading, 0: none */
    const char
        *text;   /* what people should know: lost, waiting, smaller windows; "" when all is as configured */
    pid_t probe; /* that runs, 0: none */
};
void device_look(const struct sup *s, struct device_view *v);

#endif
