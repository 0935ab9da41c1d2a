/* vitriol-tool plan: what an engine of a given shape would take of a device, and whether it is there. */
#include "gguf.h"
#include "opts.h"
#include "resident.h"
#include "sizing.h"
#include "tool.h"

#include "mem_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MIB 1048576.0

struct plan_opts {
    const char *path, *device;
    int64_t slots, ctx, ubatch, snapshots, floor; /* floor: MiB */
};

static void print_term(const char *name, uint64_t bytes)
{
    printf("  %-20s %12.1f MiB\n", name, (double)bytes / MIB);
}

static void print_plan(const struct vt_plan *p, const char *where, uint64_t free_bytes, uint64_t total)
{
    printf("%s\n", where);
    print_term("weights", p->weights);
    print_term("KV cache", p->kv);
    print_term("work space", p->work);
    if (p->code + p->reserve > 0) {
        print_term("kernels and graphs", p->code);
        print_term("reserve", p->reserve);
    }
    print_term("sum", vt_plan_sum(p));
    if (total > 0)
        print_term("on the device", total);
    print_term("available", free_bytes);
}

static int on_host(const struct model *m, const struct sizing *s, struct vt_err *err)
{
    struct vt_plan p;
    uint64_t available = mem_read_available("/proc");
    if (sizing_plan(&p, m, NULL, s, err) < 0)
        return -1;
    print_plan(&p, "cpu", available, 0);
    return vt_plan_fits(&p, "host memory", available, 0, VT_E_NOMEM, err);
}

static int on_gpu(const struct model *m, const struct sizing *s, int n, struct vt_err *err)
{
    struct vt_plan p;
    struct gpu_facts f;
    char where[160];
    if (sizing_gpu(&p, &f, m, s, n, err) < 0)
        return -1;
    snprintf(where, sizeof where, "gpu:%d (%s)", n, f.name);
    print_plan(&p, where, f.free, f.total);
    return vt_plan_fits(&p, where, f.free, f.total, VT_E_DEVICE_MEM, err);
}

/* As the engine chooses (resident.h): "auto" is the first GPU when it holds the model, else this processor. */
static int plan_on(const struct model *m, const struct sizing *s, int n, struct vt_err *err)
{
    if (n >= 0)
        return on_gpu(m, s, n, err);
    if (n == RESIDENT_AUTO && gpu_count(NULL) > 0) {
        if (on_gpu(m, s, 0, err) == 0)
            return 0;
        printf("on the CPU: %s\n", err->text);
    }
    return on_host(m, s, err);
}

static int check(const struct plan_opts *o, struct vt_err *err)
{
    if (!o->path)
        return vt_fail(err, VT_E_USAGE, "which file? usage: vitriol-tool plan FILE");
    if (o->ctx % BE_PAGE != 0)
        return vt_fail(err, VT_E_USAGE, "--ctx is %" PRId64 "; a multiple of %d is needed", o->ctx, BE_PAGE);
    return 0;
}

int tool_plan(int argc, char **argv, struct vt_err *err)
{
    struct plan_opts o = {.device = "auto",
                          .slots = 8,
                          .ctx = 4096,
                          .ubatch = 256,
                          .snapshots = 8,
                          .floor = SIZING_RESERVE >> 20};
    const struct opt table[] = {
        {"--device", NULL, OPT_STR, &o.device, 0, 0, "cpu, gpu:0 …, or auto"},
        {"--slots", NULL, OPT_INT, &o.slots, 1, 256, "engine.slots (8)"},
        {"--ctx", NULL, OPT_INT, &o.ctx, BE_PAGE, 1 << 24, "engine.ctx_tokens (4096)"},
        {"--ubatch", NULL, OPT_INT, &o.ubatch, 1, 4096, "engine.ubatch_tokens (256)"},
        {"--snapshots", NULL, OPT_INT, &o.snapshots, 1, 1024, "engine.rec_snapshots (8)"},
        {"--floor", NULL, OPT_INT, &o.floor, 0, 1 << 20, "engine.vram_floor_mib (256)"},
        {0},
    };
    struct gguf_file *f;
    struct model *m = NULL;
    int n, rc = opts_parse(table, "plan FILE [--device D] [--slots N] [--ctx N] …", argc, argv, &o.path, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (check(&o, err) < 0 || resident_parse(o.device, &n, err) < 0 || gguf_open(&f, o.path, false, err) < 0)
        return -1;
    struct sizing s = {.slots = (uint32_t)o.slots,
                       .ctx_tokens = (uint32_t)o.ctx,
                       .ubatch = (uint32_t)o.ubatch,
                       .rec_snapshots = (uint32_t)o.snapshots,
                       .reserve = (uint64_t)o.floor << 20};
    rc = model_load(&m, f, o.path, err);
    if (rc == 0)
        rc = plan_on(m, &s, n, err);
    model_free(m);
    gguf_close(f);
    return rc;
}
