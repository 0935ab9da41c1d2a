#include "fingerprint.h"

#include "hash.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define DIFF_MAX 12

/* Keys that say where and when, not what. */
static bool bears(const char *key)
{
    static const char *const not_these[] = {
        "model.path",          "engine.program",    "engine.hang_budget_s",
        "engine.load_stall_s", "engine.load_max_s", "engine.hello_timeout_s",
        "engine.drain_s",      "engine.canary_s",   "engine.orphan_s",
        "log.level",           "profile.name",      "engine.spec_floor_pct",
        "engine.spec_floor_s"};
    for (size_t i = 0; i < sizeof not_these / sizeof not_these[0]; i++) {
        if (strcmp(key, not_these[i]) == 0)
            return false;
    }
    return strncmp(key, "paths.", 6) != 0 && strncmp(key, "http.", 5) != 0 &&
           strncmp(key, "supervisor.", 11) != 0 && strncmp(key, "store.", 6) != 0 &&
           strncmp(key, "gateway.", 8) != 0;
}

int fingerprint_map(const struct fingerprint_in *in, struct kv *out)
{
    int rc = 0;
    kv_clear(out);
    for (unsigned i = 0; i < in->effective->n; i++) {
        if (bears(in->effective->key[i]))
            rc |= kv_set(out, in->effective->key[i], in->effective->value[i]);
    }
    for (unsigned i = 0; i < in->facts->n; i++) {
        char key[160];
        if (strcmp(in->facts->key[i], "free") == 0 || strcmp(in->facts->key[i], "plan_delta") == 0)
            continue;
        snprintf(key, sizeof key, "fact.%s", in->facts->key[i]);
        rc |= kv_set(out, key, in->facts->value[i]);
    }
    rc |= kv_set(out, "build", in->build);
    rc |= kv_set(out, "env", in->boot_env);
    rc |= kv_set(out, "args", in->args);
    return rc;
}

void fingerprint_fp(const struct kv *map, char out[FINGERPRINT_FP])
{
    struct vt_enc e;
    uint8_t digest[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    vt_enc_init(&e);
    msgpack_pack_map(&e.pk, map->n);
    for (unsigned i = 0; i < map->n; i++) {
        vt_enc_put_str(&e, map->key[i]);
        vt_enc_put_str(&e, map->value[i]);
    }
    vt_sha256(e.sb.data, e.sb.size, digest);
    vt_enc_fini(&e);
    vt_hex(digest, sizeof digest, hex);
    memcpy(out, hex, FINGERPRINT_FP - 1);
    out[FINGERPRINT_FP - 1] = '\0';
}

/* Appends with blanks and control characters made harmless. */
static size_t put(char *out, size_t size, size_t len, const char *text)
{
    for (; *text != '\0' && len + 1 < size; text++)
        out[len++] = isspace((unsigned char)*text) || iscntrl((unsigned char)*text) ? '_' : *text;
    out[len] = '\0';
    return len;
}

/* The keys' names in a diff are the short ones that the line uses. */
static const char *short_key(const char *key)
{
    if (strncmp(key, "engine.", 7) == 0)
        return key + 7;
    return strncmp(key, "fact.", 5) == 0 ? key + 5 : key;
}

static size_t put_change(char *out, size_t size, size_t len, const char *key, const char *old,
                         const char *now, bool first)
{
    if (!first)
        len = put(out, size, len, ",");
    len = put(out, size, len, short_key(key));
    len = put(out, size, len, ":");
    len = put(out, size, len, old != NULL ? old : "-");
    len = put(out, size, len, ">");
    return put(out, size, len, now != NULL ? now : "-");
}

void fingerprint_diff(const struct kv *old, const struct kv *now, char *out, size_t size)
{
    unsigned a = 0, b = 0, n = 0;
    size_t len = 0;
    out[0] = '\0';
    while (a < old->n || b < now->n) {
        int c = a == old->n ? 1 : b == now->n ? -1 : strcmp(old->key[a], now->key[b]);
        const char *key = c <= 0 ? old->key[a] : now->key[b];
        const char *was = c <= 0 ? old->value[a] : NULL;
        const char *is = c >= 0 ? now->value[b] : NULL;
        a += c <= 0;
        b += c >= 0;
        if (was != NULL && is != NULL && strcmp(was, is) == 0)
            continue;
        if (n < DIFF_MAX)
            len = put_change(out, size, len, key, was, is, n == 0);
        n++;
    }
    if (n == 0)
        put(out, size, 0, "none");
    if (n > DIFF_MAX) {
        char more[24];
        snprintf(more, sizeof more, ",\xe2\x80\xa6+%u", n - DIFF_MAX);
        put(out, size, len, more);
    }
}

static size_t field(char *out, size_t size, size_t len, const char *name, const char *value)
{

    if (len + 1 < size)
        out[len++] = ' ';
    out[len] = '\0';
    len = put(out, size, len, name);
    len = put(out, size, len, "=");
    return put(out, size, len, value != NULL && value[0] != '\0' ? value : "-");
}

static size_t number(char *out, size_t size, size_t len, const char *name, uint64_t n)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    return field(out, size, len, name, text);
}

void fingerprint_line(const struct fingerprint_in *in, const char *fp, char *out, size_t size)
{
    const struct kv *f = in->facts, *e = in->effective;
    if (size > FINGERPRINT_LINE)
        size = FINGERPRINT_LINE;
    size_t n = put(out, size, 0, "VITRIOL-FINGERPRINT:");
    n = field(out, size, n, "v", "1");
    n = field(out, size, n, "fp", fp);
    n = field(out, size, n, "child", in->child);
    n = number(out, size, n, "gen", in->gen);
    n = field(out, size, n, "build", in->build);
    n = field(out, size, n, "numerics", kv_get(f, "numerics"));
    n = field(out, size, n, "profile", in->profile);
    if (in->rolled_back_from != NULL && in->rolled_back_from[0] != '\0')
        n = field(out, size, n, "rolled-back-from", in->rolled_back_from);
    n = field(out, size, n, "blessed", in->blessed != NULL && in->blessed[0] != '\0' ? in->blessed : "none");
    n = field(out, size, n, "model", kv_get(f, "model"));
    n = field(out, size, n, "sha", kv_get(f, "sha"));
    n = field(out, size, n, "bytes", kv_get(f, "bytes"));
    n = field(out, size, n, "arch", kv_get(f, "arch"));
    n = field(out, size, n, "kv", kv_get(f, "kv"));
    n = number(out, size, n, "pool", in->pool_tokens);
    n = number(out, size, n, "slots", in->slots);
    n = number(out, size, n, "window", in->window);
    n = field(out, size, n, "batch", kv_get(e, "engine.ubatch_tokens"));
    n = field(out, size, n, "ubatch", kv_get(e, "engine.ubatch_tokens"));
    n = field(out, size, n, "spec", kv_get(f, "spec") != NULL ? kv_get(f, "spec") : "none");
    n = field(out, size, n, "split", kv_get(f, "split") != NULL ? kv_get(f, "split") : "none");
    n = field(out, size, n, "gpus", kv_get(f, "gpus") != NULL ? kv_get(f, "gpus") : "none");
    n = field(out, size, n, "driver", kv_get(f, "driver") != NULL ? kv_get(f, "driver") : "none");
    n = field(out, size, n, "free", kv_get(f, "free"));
    n = field(out, size, n, "plan_delta", kv_get(f, "plan_delta"));
    n = field(out, size, n, "env", in->boot_env);
    n = field(out, size, n, "args", in->args);
    n = field(out, size, n, "diff", in->diff);
    field(out, size, n, "bdiff", in->bdiff);
}
