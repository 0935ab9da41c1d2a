#include "liveness.h"

#include "clock.h"

#include <string.h>

#define MIN_SAMPLES 16
#define LATE_US     VT_SEC(2)

void live_enter(struct liveness *l, enum live_phase phase, uint64_t now)
{
    if (phase == LIVE_STARTING) {
        struct live_hist keep[LIVE_OPS];
        memcpy(keep, l->hist, sizeof keep);
        memset(l, 0, sizeof *l);
        memcpy(l->hist, keep, sizeof keep);
    }
    l->phase = phase;
    l->since = now;
    l->canary_done = now;
    live_grace(l, 0, now);
}

void live_grace(struct liveness *l, uint64_t extend, uint64_t now)
{
    l->since = l->since + extend < now ? l->since + extend : now;
    if (l->phase == LIVE_STARTING)
        l->since = now;
    l->beat_at = l->step_at = l->tick_at = now;
    if (l->canary_at != 0)
        l->canary_at = now;
}

/* A time stamp taken later in the same turn of the loop has no age yet. */
static uint64_t age(uint64_t now, uint64_t at)
{
    return now > at ? now - at : 0;
}

static unsigned bucket_of(uint64_t us)
{
    unsigned b = 0;
    for (uint64_t ms = us / 1000; ms > 0 && b < LIVE_BUCKETS - 1; ms >>= 1)
        b++;
    return b;
}

static void record(struct liveness *l, uint8_t op, uint64_t age)
{
    struct live_hist *h = &l->hist[op % LIVE_OPS];
    h->bucket[bucket_of(age)]++;
    h->n++;
    if (h->n >= 4096) { /* old shapes fade */
        h->n = 0;
        for (unsigned i = 0; i < LIVE_BUCKETS; i++) {
            h->bucket[i] /= 2;
            h->n += h->bucket[i];
        }
    }
}

/* Standing still on somebody else's account. */
static bool excused(const struct liveness *l)
{
    return l->wait == LIVE_WAIT_NEIGHBOUR || l->wait == LIVE_WAIT_STORE || l->wait == LIVE_WAIT_CREDIT;
}

void live_beat(struct liveness *l, const struct live_beat *b, uint64_t now)
{
    l->beat_at = now;
    l->suspect = false;
    bool moved = b->step != l->step;
    bool began = (l->in_flight == 0 && b->in_flight > 0) || (excused(l) && b->wait != l->wait);
    if (moved && l->in_flight > 0 && b->in_flight > 0) {
        uint64_t taken = age(now, l->step_at);
        record(l, l->op, taken > b->step_age_us ? taken - b->step_age_us : 0);
    }
    if (moved || began)
        l->step_at = now;
    if (moved && l->phase == LIVE_SERVING)
        l->proved_at = now;
    l->step = b->step;
    l->in_flight = b->in_flight;
    l->op = b->op;
    l->wait = b->wait;
}

void live_tick(struct liveness *l, unsigned phase, uint64_t done, uint64_t now)
{
    uint64_t sum = ((uint64_t)phase << 56) ^ done;
    if (sum == l->tick_sum)
        return;
    l->tick_sum = sum;
    l->tick_at = now;
}

void live_canary_sent(struct liveness *l, uint64_t now)
{
    l->canary_at = now;
}

void live_canary_answered(struct liveness *l, uint64_t now)
{
    l->canary_at = 0;
    l->canary_done = now;
    if (l->phase == LIVE_SERVING)
        l->proved_at = now;
}

bool live_served(const struct liveness *l, uint64_t ready_at, uint64_t after)
{
    return ready_at != 0 && l->proved_at >= ready_at + after;
}

bool live_canary_due(const struct liveness *l, uint64_t every, uint64_t soon, uint64_t now)
{
    if (l->proved_at < l->since + soon && soon < every)
        every = soon;
    return l->phase == LIVE_SERVING && l->in_flight == 0 && l->canary_at == 0 &&
           age(now, l->canary_done) >= every && age(now, l->step_at) >= every;
}

static uint64_t p99(const struct live_hist *h)
{
    if (h->n < MIN_SAMPLES)
        return 0;
    uint64_t above = 0;
    for (unsigned i = LIVE_BUCKETS; i-- > 0;) {
        above += h->bucket[i];
        if (above * 100 > h->n)
            return VT_MS(1) << i;
    }
    return 0;
}

uint64_t live_hang_budget(const struct liveness *l, const struct live_budget *b)
{
    uint64_t learned = 8 * p99(&l->hist[l->op % LIVE_OPS]);
    return learned > b->hang ? learned : b->hang;
}

uint64_t live_step_age(const struct liveness *l, uint64_t now)
{
    return l->phase == LIVE_SERVING && l->in_flight > 0 && !excused(l) ? age(now, l->step_at) : 0;
}

static enum live_verdict judge_serving(struct liveness *l, const struct live_budget *b, uint64_t now)
{
    uint64_t budget = live_hang_budget(l, b);
    if (l->in_flight > 0 && !excused(l) && age(now, l->step_at) >= budget)
        return LIVE_HUNG;
    if (age(now, l->beat_at) >= budget)
        return LIVE_SILENT;
    if (l->canary_at != 0 && age(now, l->canary_at) >= budget)
        return LIVE_CANARY_LOST;
    if (!l->suspect && age(now, l->beat_at) >= b->suspect) {
        l->suspect = true;
        return LIVE_SUSPECT;
    }
    return LIVE_OK;
}

enum live_verdict live_judge(struct liveness *l, const struct live_budget *b, uint64_t now)
{
    switch (l->phase) {
    case LIVE_OFF: return LIVE_OK;
    case LIVE_STARTING: return age(now, l->since) >= b->hello ? LIVE_HELLO_TIMEOUT : LIVE_OK;
    case LIVE_LOADING:
        if (age(now, l->tick_at) >= b->load_stall)
            return LIVE_LOAD_STALL;
        return age(now, l->since) >= b->load_max ? LIVE_LOAD_MAX : LIVE_OK;
    case LIVE_SERVING: return judge_serving(l, b, now);
    }
    return LIVE_OK;
}

const char *live_verdict_name(enum live_verdict v)
{
    static const char *const names[] = {"ok",
                                        "suspect",
                                        "no HELLO in time",
                                        "load stalled",
                                        "load took too long",
                                        "no step with work in flight",
                                        "silent",
                                        "canary unanswered"};
    return (unsigned)v < sizeof names / sizeof names[0] ? names[v] : "?";
}

uint64_t live_guard_turn(struct live_guard *g, uint64_t mono, uint64_t boot, uint64_t period, bool *suspended)
{
    uint64_t asleep = boot > mono ? boot - mono : 0;
    uint64_t extend = 0;
    *suspended = false;
    if (g->started) {
        uint64_t turn = mono - g->mono;
        if (turn > period + LATE_US)
            extend = turn - period;
        if (asleep > g->suspended + LATE_US) {
            extend += asleep - g->suspended;
            *suspended = true;
        }
    }
    g->started = true;
    g->mono = mono;
    g->suspended = asleep;
    return extend;
}
