#include "resident.h"

#include "clock.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int resident_parse(const char *device, int *out, struct vt_err *err)
{
    *out = strcmp(device, "auto") == 0 || device[0] == '\0' ? RESIDENT_AUTO
           : strcmp(device, "cpu") == 0                     ? RESIDENT_CPU
                                                            : 0;
    if (*out < 0)
        return 0;
    if (strncmp(device, "gpu:", 4) == 0 && isdigit((unsigned char)device[4]) && strlen(device) <= 6) {
        char *end;
        *out = (int)strtol(device + 4, &end, 10);
        if (*end == '\0')
            return 0;
    }
    return vt_fail(err, VT_E_CONFIG, "device \"%s\" is unknown: auto, cpu, or gpu:0 and up", device);
}

static int fits(const struct resident *r, uint64_t weights, const struct resident_config *c,
                struct vt_err *err)
{
    struct vt_plan p = c->plan;
    char where[160];
    uint64_t held = c->keep ? keep_held(c->keep) : 0;
    p.weights = weights;
    snprintf(where, sizeof where, "%s (%s)", r->device, r->gpu.name);
    return vt_plan_fits(&p, where, r->gpu.free + held, r->gpu.total, VT_E_DEVICE_MEM, err);
}

static uint64_t now(void)
{
    struct vt_clock clock = vt_clock_real();
    return vt_mono(&clock);
}

/* Where the weights go when somebody keeps them. A device without such memory keeps nothing. */
static int place(struct resident *r, const struct resident_config *c, struct upload_place *at, uint64_t *seal,
                 struct vt_err *err)
{
    *at = (struct upload_place){0};
    if (!c->keep)
        return 0;
    if (keep_map(c->keep, 0, r->be, &at->memory, &at->whole, seal, err) == 0)
        return 0;
    return err->code == VT_E_CAPABILITY ? 0 : -1;
}

/* Weights that were kept are those that were uploaded, or they are uploaded again. */
static int settle(struct resident *r, const struct model *m, const struct resident_config *c,
                  struct upload_place *at, uint64_t seal, struct vt_err *err)
{
    uint64_t have;
    if (!at->memory)
        return 0;
    if (upload_seal(r->up, &have, err) < 0)
        return -1;
    r->kept = at->whole;
    if (at->whole && have != seal) {
        r->kept = at->whole = false;
        upload_free(r->up);
        r->up = NULL;
        if (upload_new(&r->up, m, r->be, at, c->progress, c->arg, err) < 0 ||
            upload_seal(r->up, &have, err) < 0)
            return -1;
    }
    keep_whole(c->keep, 0, have);
    return 0;
}

/* A vault lets go what is not wanted any more before it answers, so that more is free than before. The difference is added: the
 * backend has taken something meanwhile, which belongs to what is planned. */
static int claim(struct resident *r, const struct resident_config *c, int n, uint64_t weights,
                 struct vt_err *err)
{
    struct gpu_facts before, after;
    bool known = gpu_facts(&before, n, NULL) == 0;
    int rc = c->claim(c->claim_arg, r, weights, err);
    if (known && gpu_facts(&after, n, NULL) == 0 && after.free > before.free)
        r->gpu.free += after.free - before.free;
    return rc;
}

/* What a silent vault holds is missing, which the next process may find otherwise: this is no word on the plan. */
static int claim_and_fit(struct resident *r, const struct resident_config *c, int n, uint64_t weights,
                         struct vt_err *err)
{
    struct vt_err why = {0};
    bool silent = c->keep && claim(r, c, n, weights, &why) < 0 && why.code == VT_E_BUSY;
    if (fits(r, weights, c, err) == 0)
        return 0;
    return silent ? vt_fail(err, VT_E_BUSY, "%s; what it holds is missing on %s", why.text, r->device) : -1;
}

static int open_gpu(struct resident *r, const struct model *m, const struct resident_config *c, int n,
                    struct vt_err *err)
{
    struct upload_place at;
    uint64_t weights, seal = 0, start = now();
    snprintf(r->device, sizeof r->device, "gpu:%d", n);
    if (gpu_facts(&r->gpu, n, err) < 0 || gpu_backend(&r->be, n, err) < 0 ||
        upload_plan(m, r->be, &weights, err) < 0)
        return -1;
    r->device_us = now() - start;
    if (claim_and_fit(r, c, n, weights, err) < 0 || place(r, c, &at, &seal, err) < 0 ||
        upload_new(&r->up, m, r->be, &at, c->progress, c->arg, err) < 0 ||
        settle(r, m, c, &at, seal, err) < 0)
        return -1;
    r->m = upload_model(r->up);
    r->weights_us = now() - start - r->device_us;
    return 0;
}

static void close_gpu(struct resident *r, const struct resident_config *c)
{
    if (c->keep && r->be)
        keep_release(c->keep, r->be);
    upload_free(r->up);
    be_free(r->be);
    r->up = NULL;
    r->be = NULL;
    memset(&r->gpu, 0, sizeof r->gpu);
}

/* What "auto" may answer with the processor: a GPU that cannot hold or read the model, but not one that fails. */
static bool may_do_without(const struct vt_err *err)
{
    return err->code == VT_E_DEVICE_MEM || err->code == VT_E_CAPABILITY || err->code == VT_E_CONFIG;
}

void resident_warm(const char *device)
{
    struct gpu_facts ignored;
    int n;
    if (resident_parse(device, &n, NULL) == 0 && n != RESIDENT_CPU && gpu_count(NULL) > 0)
        gpu_facts(&ignored, n == RESIDENT_AUTO ? 0 : n, NULL);
}

int resident_open(struct resident *r, const struct model *m, const struct resident_config *c,
                  struct vt_err *err)
{
    int n;
    struct vt_err e;
    *r = (struct resident){0};
    if (resident_parse(c->device, &n, err) < 0 || be_pool_new(&r->pool, c->threads, err) < 0)
        return -1;
    bool any = n == RESIDENT_AUTO;
    if (any)
        n = gpu_count(NULL) > 0 ? 0 : RESIDENT_CPU;
    if (n >= 0 && open_gpu(r, m, c, n, &e) == 0)
        return 0;
    if (n >= 0) {
        close_gpu(r, c);
        if (!any || !may_do_without(&e)) {
            resident_close(r);
            if (err)
                *err = e;
            return -1;
        }
        snprintf(r->note, sizeof r->note, "%.*s", (int)sizeof r->note - 1, e.text);
    }
    snprintf(r->device, sizeof r->device, "cpu");
    r->m = m;
    if (be_new(&r->be, r->pool, c->simd, err) == 0) {
        if (c->keep)
            c->claim(c->claim_arg, r, 0, NULL); /* without a vault it goes on, too */
        return 0;
    }
    resident_close(r);
    return -1;
}

void resident_close(struct resident *r)
{
    upload_free(r->up);
    be_free(r->be);
    be_pool_free(r->pool);
    *r = (struct resident){0};
}
