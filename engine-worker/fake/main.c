/* The engine with a fault: KIND-at=N=FILE as its argument, KIND being lost, full or spin: in the N-th step, and only when FILE is there,
 * which is removed, so that the next generation is well. Or swap=FILE=MODEL: FILE takes the model's place before it is opened. */
#include "engine.h"
#include "fault.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct plan {
    enum fault what;
    unsigned long at, steps;
    char file[256];
};

static struct plan *the_plan(void)
{
    static struct plan p;
    return &p;
}

static bool step(struct eng *e)
{
    struct plan *p = the_plan();
    bool busy = eng_real.step(e);
    if (busy && p->what != FAULT_NONE && ++p->steps >= p->at && unlink(p->file) == 0)
        fault_inject(p->what);
    return busy;
}

static int extra(const char *text, struct worker_faults *out, struct vt_err *err)
{
    static const char *const kinds[] = {[FAULT_LOST] = "lost", [FAULT_FULL] = "full", [FAULT_SPIN] = "spin"};
    struct plan *p = the_plan();
    char to[256];
    if (sscanf(text, "swap=%255[^=]=%255s", p->file, to) == 2) {
        (void)!rename(p->file, to);
        return 0;
    }
    for (int k = FAULT_LOST; k <= FAULT_SPIN; k++) {
        size_t n = strlen(kinds[k]);
        char format[] = "-at=%lu=%255s";
        if (strncmp(text, kinds[k], n) == 0 && sscanf(text + n, format, &p->at, p->file) == 2) {
            p->what = (enum fault)k;
            return 0;
        }
    }
    return vt_fail(err, VT_E_USAGE, "%s: lost-at=N=FILE, full-at=N=FILE, spin-at=N=FILE or swap=FILE=MODEL",
                   text);
}

int main(int argc, char **argv)
{
    struct eng_ops ops = eng_real;
    ops.step = step;
    if (fault_module() != NULL)
        gpu_use(fault_module());
    return worker_main(argc, argv, &ops, true, extra);
}
