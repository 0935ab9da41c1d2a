#include "stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t stub_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

uint32_t stub_token(const struct stub_opts *o, uint64_t seed, uint64_t pos)
{
    return o->vocab_lo + (uint32_t)(stub_mix(stub_mix(seed) + pos) % (o->vocab_hi - o->vocab_lo + 1));
}

static int number(const char *key, const char *text, uint64_t *out, struct vt_err *err)
{
    char *end;
    errno = 0;
    *out = text != NULL ? strtoull(text, &end, 10) : 0;
    if (text == NULL || errno != 0 || *end != 0 || end == text || text[0] == '-')
        return vt_fail(err, VT_E_USAGE, "stub option %s needs a number", key);
    return 0;
}

static int range(struct stub_opts *o, const char *text, struct vt_err *err)
{
    unsigned lo, hi;
    char rest;
    if (text == NULL || sscanf(text, "%u-%u%c", &lo, &hi, &rest) != 2 || lo > hi || hi >= 1u << 30)
        return vt_fail(err, VT_E_USAGE, "stub option vocab needs LO-HI");
    o->vocab_lo = lo;
    o->vocab_hi = hi;
    return 0;
}

static int text_option(const char *key, const char *value, struct stub_opts *o, struct worker_faults *f)
{
    const struct {
        const char *key;
        char *out;
        size_t size;
    } list[] = {{"script", o->script, sizeof o->script},
                {"once", o->once, sizeof o->once},
                {"crash-on", o->crash_on, sizeof o->crash_on},
                {"drop-option", f->drop_option, sizeof f->drop_option},
                {"lie-effective", f->lie_effective, sizeof f->lie_effective}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (strcmp(key, list[i].key) != 0)
            continue;
        snprintf(list[i].out, list[i].size, "%s", value != NULL ? value : "");
        return 1;
    }
    return 0;
}

static int flag_option(const char *key, struct stub_opts *o, struct worker_faults *f)
{
    const struct {
        const char *key;
        bool *out;
    } list[] = {
        {"hybrid", &o->hybrid},          {"oom-load", &o->oom_load},     {"fail-selftest", &o->fail_selftest},
        {"flood-log", &o->flood_log},    {"grandchild", &o->grandchild}, {"ignore-term", &f->ignore_stop},
        {"double-send", &f->send_twice}, {"lose-state", &o->lose_state}, {"spec-blind", &o->spec_blind}};
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (strcmp(key, list[i].key) != 0)
            continue;
        *list[i].out = true;
        return 1;
    }
    return 0;
}

static int number_option(const char *key, const char *value, struct stub_opts *o, struct worker_faults *f,
                         struct vt_err *err)
{
    uint64_t n;
    const struct {
        const char *key;
        uint32_t *u32;
        uint64_t *u64;
    } list[] = {{"load", &o->load_ms, NULL},
                {"ticks", &o->ticks, NULL},
                {"rate", &o->rate, NULL},
                {"prefill", &o->prefill_rate, NULL},
                {"price", &o->price, NULL},
                {"grow", &o->grow_mib, NULL},
                {"plan-delta", &o->plan_delta, NULL},
                {"spec-accept", &o->spec_accept, NULL},
                {"slow-prefill", &o->slow_prefill_ms, NULL},
                {"corrupt-chunk", &f->corrupt_chunk, NULL},
                {"exit0-after", NULL, &o->exit0_after},
                {"segv-at", NULL, &o->segv_at},
                {"hang-step", NULL, &o->hang_step},
                {"heartbeat-only", NULL, &o->heartbeat_only},
                {"nan-at", NULL, &o->nan_at},
                {"device_sticky", NULL, &o->device_sticky}};
    if (strcmp(key, "stall-load") == 0) {
        if (number(key, value, &n, err) < 0)
            return -1;
        o->stall_load = (int)n;
        return 1;
    }
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        if (strcmp(key, list[i].key) != 0)
            continue;
        if (number(key, value, &n, err) < 0)
            return -1;
        if (list[i].u32 != NULL)
            *list[i].u32 = (uint32_t)n;
        else
            *list[i].u64 = n;
        return 1;
    }
    return 0;
}

static int one(char *item, struct stub_opts *o, struct worker_faults *f, struct vt_err *err)
{
    char *value = strchr(item, '=');
    if (value != NULL)
        *value++ = 0;
    if (strcmp(item, "vocab") == 0)
        return range(o, value, err);
    if (strcmp(item, "plain") == 0) {
        o->hybrid = false;
        return 0;
    }
    if (text_option(item, value, o, f) || flag_option(item, o, f))
        return 0;
    int rc = number_option(item, value, o, f, err);
    return rc != 0 ? (rc < 0 ? -1 : 0) : vt_fail(err, VT_E_USAGE, "stub option %s is unknown", item);
}

int stub_opts_read(const char *text, struct stub_opts *o, struct worker_faults *f, struct vt_err *err)
{
    char copy[1024];
    char *at = copy, *item;
    *o = (struct stub_opts){.spec_accept = 100,
                            .ticks = 4,
                            .rate = 1000,
                            .price = 1024,
                            .vocab_lo = 33,
                            .vocab_hi = 126,
                            .stall_load = -1};
    if (text == NULL)
        return 0;
    if (strlen(text) >= sizeof copy)
        return vt_fail(err, VT_E_USAGE, "stub options are longer than %zu bytes", sizeof copy - 1);
    strcpy(copy, text); /* checked: it fits */
    while ((item = strsep(&at, ",")) != NULL) {
        if (item[0] != 0 && one(item, o, f, err) < 0)
            return -1;
    }
    return 0;
}
