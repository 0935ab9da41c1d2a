#include "spec_law.h"

#include "shape.h"

#include <string.h>

#define FIGURE "depth_decode_per_s"

uint32_t spec_law_n(const struct vt_config *cfg)
{
    return strcmp(vt_config_str(cfg, VT_CFG_ENGINE_SPEC), "none") == 0
               ? 0
               : (uint32_t)vt_config_int(cfg, VT_CFG_ENGINE_SPEC_N);
}

int spec_law_twin(const struct kv *shape, struct kv *out)
{
    int rc = 0;
    kv_clear(out);
    for (unsigned i = 0; i < shape->n; i++) {
        if (strcmp(shape->key[i], "engine.spec_n") != 0)
            rc |= kv_set(out, shape->key[i],
                         strcmp(shape->key[i], "engine.spec") == 0 ? "none" : shape->value[i]);
    }
    return rc;
}

static void put_figure(json_t *pair, const char *name, const struct kv *shape, const json_t *measures)
{
    char key[SHAPE_KEY];
    double v;
    shape_key(shape, key);
    if (measure_get(measures, key, FIGURE, &v) && v > 0)
        json_object_set_new(pair, name, json_real(v));
}

json_t *spec_law_pair(const struct kv *shape, const json_t *measures)
{
    struct kv twin = {0};
    json_t *o = json_object(), *keys = json_object();
    for (unsigned i = 0; i < shape->n; i++)
        json_object_set_new(keys, shape->key[i], json_string(shape->value[i]));
    json_object_set_new(o, "shape", keys);
    put_figure(o, "with", shape, measures);
    if (spec_law_twin(shape, &twin) == 0)
        put_figure(o, "without", &twin, measures);
    kv_clear(&twin);
    return o;
}

static bool same_shape(const json_t *keys, const struct kv *shape, bool devices)
{
    if (json_object_size(keys) != shape->n)
        return false;
    for (unsigned i = 0; i < shape->n; i++) {
        const char *v = json_string_value(json_object_get(keys, shape->key[i]));
        if (v == NULL ||
            (strcmp(v, shape->value[i]) != 0 && (devices || strcmp(shape->key[i], "devices") != 0)))
            return false;
    }
    return true;
}

int spec_law_allows(const json_t *blessed, const struct kv *shape, bool devices, struct vt_err *err)
{
    const char *tag, *half = NULL, *spec = kv_get(shape, "engine.spec");
    json_t *record;
    if (spec == NULL || strcmp(spec, "none") == 0)
        return 0;
    json_object_foreach((json_t *)(uintptr_t)blessed, tag, record)
    {
        const json_t *pair = json_object_get(record, "pair");
        if (!same_shape(json_object_get(pair, "shape"), shape, devices))
            continue;
        if (json_number_value(json_object_get(pair, "with")) > 0 &&
            json_number_value(json_object_get(pair, "without")) > 0)
            return 0;
        half = tag;
    }
    if (half != NULL)
        return vt_fail(
            err, VT_E_CONFIG,
            "engine.spec is %s, but the blessed record %s does not hold the speed of this shape both with "
            "and without it: vitriolctl certify each, then bless (--unblessed runs it all the same)",
            spec, half);
    return vt_fail(
        err, VT_E_CONFIG,
        "engine.spec is %s, but no blessed record holds the speed of this shape: vitriolctl certify it with "
        "and without, then bless (--unblessed runs it all the same)",
        spec);
}
