#include "shape.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool shape_has(enum vt_config_key k)
{
    return (vt_config_in(k, "engine") || vt_config_in(k, "external")) &&
           vt_config_reload_class(k) == VT_R_DRAIN;
}

int shape_of(const struct shape_in *in, struct kv *out)
{
    char text[4096];
    int rc = 0;
    bool guesses = strcmp(vt_config_str(in->cfg, VT_CFG_ENGINE_SPEC), "none") != 0;
    kv_clear(out);
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        enum vt_config_key key = (enum vt_config_key)k;
        if (key == VT_CFG_ENGINE_SPEC_N && !guesses)
            continue; /* it makes nothing */
        if (shape_has(key) || key == VT_CFG_ENGINE_ARGS)
            rc |= kv_set(out, vt_config_name(key), vt_config_text(in->cfg, key, text, sizeof text));
    }
    rc |= kv_set(out, "build", in->build);
    rc |= kv_set(out, "devices", in->devices);
    rc |= kv_set(out, "payload", in->payload);
    return rc;
}

void shape_key(const struct kv *shape, char out[SHAPE_KEY])
{
    struct vt_sha256 *h = vt_sha256_new();
    uint8_t digest[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    snprintf(out, SHAPE_KEY, "%s", "?");
    if (h == NULL)
        return;
    for (unsigned i = 0; i < shape->n; i++) {
        vt_sha256_add(h, shape->key[i], strlen(shape->key[i]) + 1);
        vt_sha256_add(h, shape->value[i], strlen(shape->value[i]) + 1);
    }
    vt_sha256_end(h, digest);
    vt_sha256_free(h);
    vt_hex(digest, sizeof digest, hex);
    snprintf(out, SHAPE_KEY, "%.16s", hex);
}

/* ---- shapes known to fail ---- */

static size_t skip_blanks(const char **p, size_t n)
{
    while (n > 0 && **p == ' ')
        (*p)++, n--;
    while (n > 0 && (*p)[n - 1] == ' ')
        n--;
    return n;
}

static int one_condition(const char *p, size_t n, const struct vt_config *cfg, struct vt_err *err)
{
    char name[96], text[4096];
    const char *eq = memchr(p, '=', n);
    if (eq == NULL || eq == p || (size_t)(eq - p) >= sizeof name)
        return vt_fail(err, VT_E_CONFIG, "\"%.*s\" is no key=value", (int)(n < 96 ? n : 96), p);
    snprintf(name, sizeof name, "%.*s", (int)(eq - p), p);
    int k = vt_config_find(name, err);
    if (k < 0)
        return -1;
    size_t m = n - (size_t)(eq - p) - 1;
    vt_config_text(cfg, (enum vt_config_key)k, text, sizeof text);
    return strlen(text) == m && strncmp(text, eq + 1, m) == 0;
}

int shape_matches(const char *conditions, const struct vt_config *cfg, struct vt_err *err)
{
    int all = 1;
    for (const char *p = conditions; *p != '\0';) {
        size_t whole = strcspn(p, ","), n = whole;
        const char *at = p;
        n = skip_blanks(&at, n);
        int one = one_condition(at, n, cfg, err);
        if (one < 0)
            return -1;
        all = all && one;
        p += whole + (p[whole] == ',');
    }
    return conditions[0] == '\0' ? vt_fail(err, VT_E_CONFIG, "a shape without a condition matches everything")
                                 : all;
}

struct ban {
    char shape[512], build[64], date[32], evidence[400];
};

static int judge(const struct ban *b, const char *where, const struct vt_config *cfg, const char *build,
                 enum shape_ban *out, char *evidence, size_t size, struct vt_err *err)
{
    bool ours = strcmp(b->build, build) == 0;
    int rc = shape_matches(b->shape, cfg, err);
    if (rc < 0 && ours) /* another build may have had other keys */
        return vt_fail_prefix(err, "%s: forbidden", where);
    if (rc == 0 || *out == BAN_NOW)
        return 0;
    *out = ours ? BAN_NOW : BAN_EXPIRED;
    snprintf(evidence, size, "%s failed on %s with build %s: %s", b->shape, b->date, b->build, b->evidence);
    return 0;
}

static void part(char *out, size_t size, const char **p, const char *end)
{
    const char *bar = memchr(*p, '|', (size_t)(end - *p));
    const char *at = *p, *stop = bar != NULL ? bar : end;
    size_t n = skip_blanks(&at, (size_t)(stop - *p));
    snprintf(out, size, "%.*s", (int)(n < size ? n : size - 1), at);
    *p = bar != NULL ? bar + 1 : end;
}

static int banned_by_profile(const struct vt_config *cfg, const char *build, enum shape_ban *out,
                             char *evidence, size_t size, struct vt_err *err)
{
    const char *p = vt_config_str(cfg, VT_CFG_PROFILE_FORBIDDEN);
    while (*p != '\0') {
        const char *end = p + strcspn(p, ";"), *at = p;
        struct ban b;
        part(b.shape, sizeof b.shape, &at, end);
        part(b.build, sizeof b.build, &at, end);
        part(b.date, sizeof b.date, &at, end);
        part(b.evidence, sizeof b.evidence, &at, end);
        if (b.evidence[0] == '\0')
            return vt_fail(
                err, VT_E_CONFIG,
                "%s: profile.forbidden: \"%.*s\" lacks its evidence; write key=value | build | date | "
                "evidence",
                vt_config_origin(cfg, VT_CFG_PROFILE_FORBIDDEN), (int)(end - p < 80 ? end - p : 80), p);
        if (judge(&b, vt_config_origin(cfg, VT_CFG_PROFILE_FORBIDDEN), cfg, build, out, evidence, size, err) <
            0)
            return -1;
        p = end + (*end == ';');
        p += strspn(p, " ");
    }
    return 0;
}

static void copy(char *out, size_t size, const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    snprintf(out, size, "%s", v != NULL ? v : "");
}

int shape_banned(const struct vt_config *cfg, const json_t *record, const char *build, enum shape_ban *out,
                 char *evidence, size_t size, struct vt_err *err)
{
    size_t i;
    const json_t *e;
    *out = BAN_NONE;
    evidence[0] = '\0';
    if (banned_by_profile(cfg, build, out, evidence, size, err) < 0)
        return -1;
    json_array_foreach(json_object_get(record, "entries"), i, e)
    {
        struct ban b;
        copy(b.shape, sizeof b.shape, e, "shape");
        copy(b.build, sizeof b.build, e, "build");
        copy(b.date, sizeof b.date, e, "date");
        copy(b.evidence, sizeof b.evidence, e, "evidence");
        if (judge(&b, "records/forbidden.json", cfg, build, out, evidence, size, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- measurements ---- */

static int64_t last_of(const json_t *one)
{
    return json_integer_value(json_object_get(one, "at_us"));
}

static void make_room(json_t *all)
{
    const char *key, *oldest = NULL;
    json_t *v;
    int64_t at = INT64_MAX;
    if (json_object_size(all) < MEASURE_SHAPES)
        return;
    json_object_foreach(all, key, v)
    {
        if (last_of(v) < at) {
            at = last_of(v);
            oldest = key;
        }
    }
    if (oldest != NULL)
        json_object_del(all, oldest);
}

static json_t *shape_json(const struct kv *shape)
{
    json_t *o = json_object();
    for (unsigned i = 0; o != NULL && i < shape->n; i++)
        json_object_set_new(o, shape->key[i], json_string(shape->value[i]));
    return o;
}

int measure_put(json_t *all, const struct kv *shape, const char *name, double planned, double measured,
                int64_t at_us)
{
    char key[SHAPE_KEY];
    shape_key(shape, key);
    json_t *one = json_object_get(all, key);
    if (one == NULL) {
        make_room(all);
        one = json_pack("{s:o, s:{}}", "shape", shape_json(shape), "values");
        if (one == NULL || json_object_set_new(all, key, one) < 0)
            return -1;
    }
    json_t *values = json_object_get(one, "values");
    json_int_t n = json_integer_value(json_object_get(json_object_get(values, name), "n"));
    json_t *v = json_pack("{s:I, s:f, s:I}", "at_us", (json_int_t)at_us, "measured", measured, "n", n + 1);
    if (planned >= 0)
        json_object_set_new(v, "planned", json_real(planned));
    json_object_set_new(one, "at_us", json_integer((json_int_t)at_us));
    return json_object_set_new(values, name, v);
}

bool measure_get(const json_t *all, const char key[SHAPE_KEY], const char *name, double *out)
{
    const json_t *v = json_object_get(json_object_get(json_object_get(all, key), "values"), name);
    const json_t *m = json_object_get(v, "measured");
    if (!json_is_number(m))
        return false;
    *out = json_number_value(m);
    return true;
}

int depth_put(json_t *all, const struct kv *shape, const struct shape_depth *d)
{
    return measure_put(all, shape, "depth_tokens", -1, (double)d->tokens, d->at_us) < 0 ||
                   measure_put(all, shape, "depth_decode_per_s", -1, (double)d->decode_milli / 1000,
                               d->at_us) < 0 ||
                   measure_put(all, shape, "depth_prompt_per_s", -1, (double)d->prompt_milli / 1000,
                               d->at_us) < 0
               ? -1
               : 0;
}

void depth_get(const json_t *all, const char key[SHAPE_KEY], struct shape_depth *out)
{
    double tokens, decode, prompt;
    const json_t *values = json_object_get(json_object_get(all, key), "values");
    *out = (struct shape_depth){0};
    if (!measure_get(all, key, "depth_tokens", &tokens) ||
        !measure_get(all, key, "depth_decode_per_s", &decode) ||
        !measure_get(all, key, "depth_prompt_per_s", &prompt))
        return;
    /* A file may hold anything. */
    if (!(tokens >= 1 && tokens <= UINT32_MAX && decode >= 0 && decode < 1e9 && prompt >= 0 && prompt < 1e9))
        return;
    *out = (struct shape_depth){.tokens = (uint64_t)tokens,
                                .decode_milli = (uint64_t)(decode * 1000 + 0.5),
                                .prompt_milli = (uint64_t)(prompt * 1000 + 0.5),
                                .at_us = last_of(json_object_get(values, "depth_tokens"))};
}
