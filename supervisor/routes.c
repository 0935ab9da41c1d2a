#include "routes.h"

#include "child.h"
#include "links.h"
#include "tele.h"

#include <stdlib.h>

#define RETRY_MIN_MS 1000u
#define RETRY_MAX_MS 600000u

struct routes {
    uint64_t epoch;
    bool dirty;
    bool holding; /* what the gateway was told last */
    sd_event_source *flush;
};

/* ---- how long ---- */

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t p90_start(const struct child *c)
{
    uint64_t t[SUP_START_TIMES];
    unsigned n = c->n_starts < SUP_START_TIMES ? c->n_starts : SUP_START_TIMES;
    if (n == 0)
        return 0;
    for (unsigned i = 0; i < n; i++)
        t[i] = c->start_us[i];
    qsort(t, n, sizeof t[0], by_size);
    return t[(n * 9 - 1) / 10];
}

/* A load's own progress tells more than other loads once a part of it is done. */
static uint64_t rest_of_load(const struct child *c, uint64_t now)
{
    uint64_t elapsed = now - c->spawned_at;
    uint64_t usual = p90_start(c);
    double done = child_load_ratio(c);
    if (done >= 0.02 && c->load_began != 0) {
        double loading = (double)(now - c->load_began);
        return (uint64_t)(loading * (1.0 - done) / done);
    }
    if (usual > elapsed)
        return usual - elapsed;
    return usual == 0 ? VT_SEC(30) : VT_SEC(1);
}

uint32_t routes_retry_ms(const struct sup *s, const struct child *c)
{
    uint64_t now = sup_now(s), us = 0;
    uint64_t usual = p90_start(c) != 0 ? p90_start(c) : VT_SEC(5);
    switch (c->state) {
    case VT_CHILD_READY: return 0;
    case VT_CHILD_STARTING:
    case VT_CHILD_LOADING: us = rest_of_load(c, now); break;
    case VT_CHILD_BACKOFF: us = (c->next_start > now ? c->next_start - now : 0) + usual; break;
    case VT_CHILD_FAILED: us = c->next_start > now ? c->next_start - now : VT_MS(RETRY_MAX_MS); break;
    case VT_CHILD_DOWN: us = c->want ? usual : VT_MS(RETRY_MAX_MS); break;
    case VT_CHILD_DRAINING:
    case VT_CHILD_HUNG:
    case VT_CHILD_REAPING: us = VT_SEC(2) + usual; break;
    }
    uint64_t ms = us / 1000;
    return ms < RETRY_MIN_MS ? RETRY_MIN_MS : ms > RETRY_MAX_MS ? RETRY_MAX_MS : (uint32_t)ms;
}

/* ---- what ---- */

void routes_put(struct sup *s, struct vt_enc *e, unsigned key_epoch, unsigned key_list)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n_children; i++)
        n += s->child[i].role == ROLE_ENGINE;
    vt_enc_u64(e, key_epoch, s->routes->epoch);
    vt_enc_array(e, key_list, n);
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE)
            continue;
        vt_enc_put_array(e, 17);
        vt_enc_put_str(e, c->name);
        vt_enc_put_u64(e, c->gen);
        vt_enc_put_u64(e, c->state == VT_CHILD_READY && !c->unrouted ? links_up(s, 'd', c) : 0);
        /* One that only waits for its turn to start is on its way, not down. */
        vt_enc_put_u64(e, c->state == VT_CHILD_DOWN && c->want ? VT_CHILD_STARTING : (unsigned)c->state);
        vt_enc_put_u64(e, c->launch.window);
        vt_enc_put_u64(e, c->launch.slots);
        vt_enc_put_u64(e, c->launch.modalities);
        vt_enc_put_str(e, s->model_name);
        vt_enc_put_u64(e, routes_retry_ms(s, c));
        vt_enc_put_str(e, c->launch.fp);
        vt_enc_put_u64(e, (uint64_t)(child_load_ratio(c) * 1000.0));
        vt_enc_put_u64(e, c->want && !s->stopping);
        vt_enc_put_u64(e, c->launch.depth.tokens);
        vt_enc_put_u64(e, c->launch.depth.decode_milli);
        vt_enc_put_u64(e, c->launch.depth.prompt_milli);
        vt_enc_put_u64(e, c->launch.depth.at_us > 0 ? (uint64_t)c->launch.depth.at_us / 1000000u : 0);
        vt_enc_put_str(e, vt_config_str(s->cfg, VT_CFG_PROFILE_NAME));
    }
}

/* An engine that served before and is on its way back. */
static bool should_hold(const struct sup *s)
{
    bool away = false;
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE || !c->ever_ready || s->stopping)
            continue;
        if (c->state == VT_CHILD_READY && !c->unrouted && links_up(s, 'd', c) != 0)
            return false;
        away = away || (c->want && c->state != VT_CHILD_FAILED && c->state != VT_CHILD_DOWN);
    }
    return away;
}

static void send_hold(struct sup *s, struct child *gw, bool on)
{
    struct vt_enc *e = child_begin(gw, VT_F_HOLD, 0);
    vt_enc_u64(e, VT_HOLD_ON, on);
    vt_enc_u64(e, VT_HOLD_MAX_MS, (uint64_t)vt_config_int(s->cfg, VT_CFG_GATEWAY_HOLD_S) * 1000u);
    child_send(gw);
}

static void send_all(struct sup *s, bool fresh)
{
    struct routes *r = s->routes;
    bool hold = should_hold(s);
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    if (gw != NULL && gw->welcomed) {
        if (hold && (fresh || !r->holding))
            send_hold(s, gw, true);
        routes_put(s, child_begin(gw, VT_F_ROUTES, 0), VT_ROUTES_EPOCH, VT_ROUTES_LIST);
        vt_enc_u64(&gw->enc, VT_ROUTES_STOPPING, s->stopping);
        child_send(gw);
        if (!hold && (fresh || r->holding))
            send_hold(s, gw, false);
    }
    r->holding = hold;
    tele_routes(s);
}

static int on_flush(sd_event_source *src, void *arg)
{
    struct sup *s = arg;
    s->routes->dirty = false;
    s->routes->epoch++;
    send_all(s, false);
    tele_children(s); /* counters of restarts belong to the change */
    return 0;
}

void routes_changed(struct sup *s)
{
    if (s->routes == NULL || s->routes->dirty)
        return;
    s->routes->dirty = true;
    sd_event_source_set_enabled(s->routes->flush, SD_EVENT_ONESHOT);
}

void routes_resend(struct sup *s)
{
    s->routes->epoch++;
    send_all(s, true);
}

void routes_interrupted(struct sup *s, const struct child *engine, uint32_t link)
{
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    if (gw == NULL || !gw->welcomed)
        return;
    struct vt_enc *e = child_begin(gw, VT_F_INTERRUPTED, 0);
    vt_enc_u64(e, VT_INTERRUPTED_LINK, link);
    vt_enc_u64(e, VT_INTERRUPTED_CLASS, (unsigned)engine->class);
    vt_enc_u64(e, VT_INTERRUPTED_RESUME, exit_class_resumable(engine->class) && engine->want && !s->stopping);
    vt_enc_u64(e, VT_INTERRUPTED_RETRY_MS, routes_retry_ms(s, engine));
    child_send(gw);
}

uint64_t routes_epoch(const struct sup *s)
{
    return s->routes->epoch;
}

int routes_open(struct sup *s, struct vt_err *err)
{
    s->routes = calloc(1, sizeof *s->routes);
    if (s->routes == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    /* A deferred source runs after the handlers of this turn: several changes make one frame. */
    if (sd_event_add_defer(s->ev, &s->routes->flush, on_flush, s) < 0 ||
        sd_event_source_set_enabled(s->routes->flush, SD_EVENT_OFF) < 0)
        return vt_fail(err, VT_E_OS, "event source for routes");
    return 0;
}

void routes_close(struct sup *s)
{
    if (s->routes == NULL)
        return;
    sd_event_source_disable_unref(s->routes->flush);
    free(s->routes);
    s->routes = NULL;
}
