#include "drafting.h"

#include <stdio.h>
#include <string.h>

static bool turns_blind(struct drafting *d, const struct eng_counters *c, char *text, size_t size)
{
    if (c->spec_refuted != d->refuted) {
        d->refuted = c->spec_refuted;
        d->since = c->spec_accepted;
        d->blind = false;
    }
    uint64_t n = c->spec_accepted - d->since;
    if (d->blind || n < DRAFTING_BLIND)
        return false;
    snprintf(text, size, "1.0 over %llu tokens, wrong ones among them", (unsigned long long)n);
    return d->blind = true;
}

static bool turns_poor(struct drafting *d, const struct eng_counters *c, uint64_t floor_pct, uint64_t span_us,
                       uint64_t now, char *text, size_t size)
{
    if (d->from_us != 0 && now - d->from_us < span_us)
        return false;
    uint64_t drafted = c->spec_drafted - d->drafted, accepted = c->spec_accepted - d->accepted;
    bool first = d->from_us == 0, was = d->poor;
    d->from_us = now;
    d->drafted = c->spec_drafted;
    d->accepted = c->spec_accepted;
    if (first || drafted < DRAFTING_LEAST)
        return false;
    d->poor = accepted * 100 < drafted * floor_pct;
    snprintf(text, size, "%llu of %llu tokens in %llu s, engine.spec_floor_pct is %llu",
             (unsigned long long)accepted, (unsigned long long)drafted,
             (unsigned long long)(span_us / 1000000), (unsigned long long)floor_pct);
    return d->poor && !was;
}

enum drafting_verdict drafting_judge(struct drafting *d, const struct eng_counters *c, uint64_t floor_pct,
                                     uint64_t span_us, uint64_t now, char *text, size_t size)
{
    if (turns_blind(d, c, text, size))
        return DRAFTING_BLINDLY;
    return turns_poor(d, c, floor_pct, span_us, now, text, size) ? DRAFTING_POOR : DRAFTING_FINE;
}

void drafting_name(const struct vt_config *cfg, char *out, size_t size)
{
    const char *word = vt_config_str(cfg, VT_CFG_ENGINE_SPEC);
    if (strcmp(word, "none") == 0)
        snprintf(out, size, "none");
    else
        snprintf(out, size, "%s:%lld", word, (long long)vt_config_int(cfg, VT_CFG_ENGINE_SPEC_N));
}
