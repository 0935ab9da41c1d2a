/* vitriol-probe read|prove DEVICE [MODEL SLOTS CTX UBATCH SNAPSHOTS FLOOR_MIB SPEC_N] */
#include "probe.h"
#include "probe_module.h"
#include "resident.h"

#include "build_id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_answer(const struct probe_answer *a)
{
    const struct gpu_facts *f = &a->facts;
    printf("{\"free\":%" PRIu64 ",\"total\":%" PRIu64 ",\"uuid\":\"%s\",\"holders\":\"", f->free, f->total,
           f->uuid);
    for (unsigned i = 0; i < a->n_holders; i++)
        printf("%s%s[%d]", i > 0 ? ", " : "", a->holder[i].comm, a->holder[i].pid);
    printf("\"");
    if (a->planned)
        printf(",\"plan\":{\"weights\":%" PRIu64 ",\"kv\":%" PRIu64 ",\"work\":%" PRIu64 ",\"code\":%" PRIu64
               ",\"reserve\":%" PRIu64 "}",
               a->plan.weights, a->plan.kv, a->plan.work, a->plan.code, a->plan.reserve);
    printf("}\n");
}

static int number(const char *text, uint32_t *out, struct vt_err *err)
{
    char *end;
    unsigned long v = strtoul(text, &end, 10);
    if (end == text || *end || v > UINT32_MAX)
        return vt_fail(err, VT_E_USAGE, "\"%.32s\" is no number", text);
    *out = (uint32_t)v;
    return 0;
}

static int read_question(struct probe_question *q, int argc, char **argv, struct vt_err *err)
{
    uint32_t floor_mib = 0, spec_n = 0;
    *q = (struct probe_question){.prove = argc > 1 && strcmp(argv[1], "prove") == 0};
    if ((argc != 3 && argc != 10) || (!q->prove && strcmp(argv[1], "read") != 0))
        return vt_fail(err, VT_E_USAGE,
                       "usage: vitriol-probe read|prove DEVICE [MODEL SLOTS CTX UBATCH SNAPSHOTS FLOOR_MIB]");
    if (resident_parse(argv[2], &q->device, err) < 0)
        return -1;
    if (q->device == RESIDENT_CPU)
        return vt_fail(err, VT_E_USAGE, "the processor needs no probe");
    q->device = q->device == RESIDENT_AUTO ? 0 : q->device;
    if (argc == 3)
        return 0;
    q->model = argv[3];
    if (number(argv[4], &q->shape.slots, err) < 0 || number(argv[5], &q->shape.ctx_tokens, err) < 0 ||
        number(argv[6], &q->shape.ubatch, err) < 0 || number(argv[7], &q->shape.rec_snapshots, err) < 0 ||
        number(argv[8], &floor_mib, err) < 0 || number(argv[9], &spec_n, err) < 0)
        return -1;
    q->shape.drafts = sizing_drafts(q->shape.slots, spec_n);
    q->shape.reserve = (uint64_t)floor_mib << 20;
    return q->shape.slots > 0 && q->shape.slots <= 256
               ? 0
               : vt_fail(err, VT_E_USAGE, "%u slots: 1 to 256 are possible", q->shape.slots);
}

int main(int argc, char **argv)
{
    struct probe_question q;
    struct probe_answer a;
    struct vt_err err = {0};
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("vitriol-probe %s\n", VT_BUILD_ID);
        return VT_EX_OK;
    }
    if (probe_module() != NULL)
        gpu_use(probe_module());
    if (read_question(&q, argc, argv, &err) == 0 && probe_ask(&a, &q, &err) == 0) {
        put_answer(&a);
        return fflush(stdout) == 0 ? VT_EX_OK : VT_EX_IO;
    }
    fprintf(stderr, "%s\n", err.text);
    return vt_err_exit(&err);
}
