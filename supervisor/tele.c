#include "tele.h"

#include "child.h"
#include "ctl.h"
#include "device.h"
#include "memory.h"
#include "routes.h"

#include "series.h"
#include "sock_ctl.h"

#include <stdlib.h>

struct tele {
    struct vt_pub *pub; /* NULL while it could not be made anew */
    struct vt_enc enc;
    uint64_t relistens;
};

int tele_open(struct sup *s, struct vt_err *err)
{
    s->tele = calloc(1, sizeof *s->tele);
    if (s->tele == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    vt_enc_init(&s->tele->enc);
    return vt_pub_listen(&s->tele->pub, s->dir.tele, 0660, err);
}

void tele_close(struct sup *s)
{
    if (s->tele == NULL)
        return;
    vt_pub_close(s->tele->pub);
    vt_enc_fini(&s->tele->enc);
    free(s->tele);
    s->tele = NULL;
}

int tele_relisten(struct sup *s, struct vt_err *err)
{
    s->tele->relistens++;
    return vt_pub_relisten(s->tele->pub, err);
}

uint64_t tele_relistens(const struct sup *s)
{
    return s->tele != NULL ? s->tele->relistens : 0;
}

static void publish(struct sup *s)
{
    struct vt_err err;
    struct vt_enc *e = &s->tele->enc;
    if (vt_enc_end(e, &err) < 0)
        vt_log(s->log, VT_LOG_ERR, "telemetry: %s", err.text);
    else
        vt_pub_send(s->tele->pub, e->buf, e->len, NULL);
}

void tele_event(struct sup *s, const struct event *ev)
{
    if (s->tele == NULL)
        return;
    struct vt_enc *e = &s->tele->enc;
    vt_enc_begin(e, VT_F_EVENT, 0, 0);
    vt_enc_u64(e, VT_EVENT_SEQ, ev->seq);
    vt_enc_u64(e, VT_EVENT_EVENT, ev->kind);
    if (ev->child[0] != '\0') {
        vt_enc_str(e, VT_EVENT_CHILD, ev->child);
        vt_enc_u64(e, VT_EVENT_GEN, ev->gen);
    }
    if (ev->from != NULL)
        vt_enc_str(e, VT_EVENT_FROM, ev->from);
    if (ev->to != NULL)
        vt_enc_str(e, VT_EVENT_TO, ev->to);
    if (ev->class != NULL)
        vt_enc_str(e, VT_EVENT_CLASS, ev->class);
    if (ev->text[0] != '\0')
        vt_enc_str(e, VT_KEY_TEXT, ev->text);
    vt_enc_u64(e, VT_KEY_T_US, ev->t_us);
    publish(s);
}

/* T_ENGINE and T_STORE have the same keys. */
static void copy_series(struct vt_enc *e, const struct vt_frame *f)
{
    char child[64];
    const msgpack_object_map *counters = vt_frame_map(f, VT_T_ENGINE_COUNTERS);
    const msgpack_object_map *gauges = vt_frame_map(f, VT_T_ENGINE_GAUGES);
    vt_enc_str(e, VT_T_ENGINE_CHILD, vt_frame_str(f, VT_T_ENGINE_CHILD, child, sizeof child));
    vt_enc_u64(e, VT_T_ENGINE_GEN, vt_frame_u64(f, VT_T_ENGINE_GEN, 0));
    vt_enc_map(e, VT_T_ENGINE_COUNTERS, counters != NULL ? counters->size : 0);
    for (uint32_t i = 0; counters != NULL && i < counters->size; i++) {
        vt_enc_put_u64(e, counters->ptr[i].key.via.u64);
        vt_enc_put_u64(e, counters->ptr[i].val.type == MSGPACK_OBJECT_POSITIVE_INTEGER
                              ? counters->ptr[i].val.via.u64
                              : 0);
    }
    vt_enc_map(e, VT_T_ENGINE_GAUGES, gauges != NULL ? gauges->size : 0);
    for (uint32_t i = 0; gauges != NULL && i < gauges->size; i++) {
        unsigned key = (unsigned)gauges->ptr[i].key.via.u64;
        vt_enc_put_u64(e, key);
        vt_enc_put_f64(e, vt_map_f64(gauges, key, 0));
    }
}

void tele_relay(struct sup *s, const struct vt_frame *f)
{
    vt_enc_begin(&s->tele->enc, f->type, 0, 0);
    copy_series(&s->tele->enc, f);
    publish(s);
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    if (gw == NULL || !gw->welcomed)
        return;
    copy_series(child_begin(gw, f->type, 0), f);
    child_send(gw);
}

static void put_restarts(const struct child *c, struct vt_enc *e)
{
    unsigned n = 0;
    for (int k = 0; k < CLASS_COUNT; k++)
        n += c->restarts_by_class[k] > 0;
    vt_enc_put_array(e, 2 * n);
    for (int k = 0; k < CLASS_COUNT; k++) {
        if (c->restarts_by_class[k] == 0)
            continue;
        vt_enc_put_str(e, exit_class_name((enum exit_class)k));
        vt_enc_put_u64(e, c->restarts_by_class[k]);
    }
}

static void put_children(struct sup *s, struct vt_enc *e)
{
    uint64_t now = sup_now(s);
    vt_enc_array(e, VT_T_CHILDREN_LIST, s->n_children);
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct child *c = &s->child[i];
        vt_enc_put_array(e, 7);
        vt_enc_put_str(e, c->name);
        vt_enc_put_u64(e, c->gen);
        vt_enc_put_u64(e, (unsigned)c->state);
        vt_enc_put_u64(e, c->restarts);
        vt_enc_put_u64(e, live_step_age(&c->live, now) / 1000);
        vt_enc_put_str(e, c->class != CLASS_NONE ? exit_class_name(c->class) : "");
        put_restarts(c, e);
    }
    vt_enc_map(e, VT_T_CHILDREN_COUNTERS, 3);
    vt_enc_put_u64(e, VT_SERIES_HUNG);
    vt_enc_put_u64(e, s->hung_total);
    vt_enc_put_u64(e, VT_SERIES_CTL_RELISTEN);
    vt_enc_put_u64(e, ctl_relistens(s));
    vt_enc_put_u64(e, VT_SERIES_BOUNCES);
    vt_enc_put_u64(e, s->bounces_total);
    const struct child *engine = sup_role(s, ROLE_ENGINE);
    struct memory_view v;
    struct device_view dev;
    memory_look(s, &v);
    device_look(s, &dev);
    const struct mem_psi *psi = v.sample == NULL      ? NULL
                                : v.sample->own.valid ? &v.sample->own
                                                      : &v.sample->host;
    vt_enc_map(e, VT_T_CHILDREN_GAUGES, 7);
    vt_enc_put_u64(e, VT_SERIES_LOAD_PROGRESS);
    vt_enc_put_f64(e, engine != NULL ? child_load_ratio(engine) : 0.0);
    vt_enc_put_u64(e, VT_SERIES_MEM_LEVEL);
    vt_enc_put_f64(e, (double)v.level);
    vt_enc_put_u64(e, VT_SERIES_MEM_AVAIL);
    vt_enc_put_f64(e, (double)v.usable);
    vt_enc_put_u64(e, VT_SERIES_PSI_SOME);
    vt_enc_put_f64(e, psi != NULL ? psi->some10 : 0.0);
    vt_enc_put_u64(e, VT_SERIES_PSI_FULL);
    vt_enc_put_f64(e, psi != NULL ? psi->full10 : 0.0);
    vt_enc_put_u64(e, VT_SERIES_DEVICE_LOST);
    vt_enc_put_f64(e, dev.lost);
    vt_enc_put_u64(e, VT_SERIES_VRAM_RUNG);
    vt_enc_put_f64(e, dev.rung);
}

void tele_memory(struct sup *s)
{
    struct memory_view v;
    struct vt_enc *e = &s->tele->enc;
    memory_look(s, &v);
    if (v.sample == NULL)
        return;
    vt_enc_begin(e, VT_F_T_MEM, 0, 0);
    vt_enc_u64(e, VT_T_MEM_LEVEL, v.level);
    vt_enc_u64(e, VT_T_MEM_AVAIL_EFF, v.usable);
    vt_enc_map(e, VT_T_MEM_SOURCES,
               4); /* unsigned keys: 1 meminfo, 2 kind of cgroup, 3 its pressure, 4 the host's */
    const uint64_t sources[] = {v.sample->valid, v.sample->cgroup.kind, v.sample->own.valid,
                                v.sample->host.valid};
    for (unsigned i = 0; i < 4; i++) {
        vt_enc_put_u64(e, i + 1);
        vt_enc_put_u64(e, sources[i]);
    }
    vt_enc_map(e, VT_T_MEM_PSI, 4);
    const double psi[] = {v.sample->own.some10, v.sample->own.full10, v.sample->host.some10,
                          v.sample->host.full10};
    for (unsigned i = 0; i < 4; i++) {
        vt_enc_put_u64(e, i + 1);
        vt_enc_put_f64(e, psi[i]);
    }
    vt_enc_array(e, VT_T_MEM_CHILDREN, s->n_children);
    for (unsigned i = 0; i < s->n_children; i++) {
        const struct memory_child *c = memory_of(s, &s->child[i]);
        vt_enc_put_array(e, 4);
        vt_enc_put_str(e, s->child[i].name);
        vt_enc_put_u64(e, c->foot.rss_anon);
        vt_enc_put_u64(e, c->foot.rss_file);
        vt_enc_put_u64(e, c->foot.swap);
    }
    publish(s);
}

void tele_children(struct sup *s)
{
    vt_enc_begin(&s->tele->enc, VT_F_T_CHILDREN, 0, 0);
    put_children(s, &s->tele->enc);
    publish(s);
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    if (gw == NULL || !gw->welcomed)
        return;
    put_children(s, child_begin(gw, VT_F_T_CHILDREN, 0));
    child_send(gw);
}

void tele_routes(struct sup *s)
{
    vt_enc_begin(&s->tele->enc, VT_F_T_ROUTES, 0, 0);
    routes_put(s, &s->tele->enc, VT_T_ROUTES_EPOCH, VT_T_ROUTES_LIST);
    publish(s);
}
