#include "checkpoint_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_new(struct checkpoint **out, const struct checkpoint_opts *o, struct vt_err *err)
{
    struct checkpoint *c = *out = calloc(1, sizeof *c);
    if (c == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the store's client");
    c->o = *o;
    c->next_autosave = vt_mono(o->clock) + o->autosave_us;
    return 0;
}

void checkpoint_free(struct checkpoint *c)
{
    struct vt_err why;
    if (c == NULL)
        return;
    vt_fail(&why, VT_E_DRAINING, "the engine ends");
    c->o.fetched = NULL; /* whoever waits ends, too */
    checkpoint_link_down(c);
    load_fail(c, &why);
    fill_end_all(c, &why);
    for (unsigned i = 0; i < MAX_SLOTS; i++)
        free(c->mark[i].restored);
    free(c);
}

const struct eng_facts *ck_facts(const struct checkpoint *c)
{
    return compute_facts(c->o.compute);
}

/* ---- link ---- */

void checkpoint_link_up(struct checkpoint *c, struct vt_link *l, void *bulk, size_t bytes)
{
    struct vt_err err;
    if (vt_ring_wrap(&c->ring, bulk, bytes, vt_link_id(l), &err) < 0) {
        vt_link_fail(l, &err);
        return;
    }
    c->half = c->ring.n_slots / 2;
    if (c->half > VT_RING_SLOTS * 2)
        c->half = VT_RING_SLOTS * 2;
    if (c->ring.slot_size < CKPT_PIECE) {
        vt_fail(&err, VT_E_LIMIT, "the ring's slots are smaller than a piece");
        vt_link_fail(l, &err);
        return;
    }
    c->link = l;
    c->bulk = bulk;
    c->bulk_bytes = bytes;
    c->silent = false;
    c->ids_before_link = c->next_id;
    c->n_salts = 0; /* a rebuilt store has others */
}

static void order_over(struct checkpoint *c)
{
    checkpoint_done done = c->order.done;
    c->order.result.us = vt_mono(c->o.clock) - c->order.started;
    struct checkpoint_result r = c->order.result;
    void *arg = c->order.arg;
    memset(&c->order, 0, sizeof c->order);
    if (done != NULL)
        done(arg, &r);
}

void checkpoint_link_down(struct checkpoint *c)
{
    struct vt_err why;
    vt_fail(&why, VT_E_UNAVAILABLE, "the store is gone");
    c->link = NULL;
    if (c->pinned)
        compute_unpin(c->o.compute, c->bulk);
    c->pinned = false;
    memset(&c->ring, 0, sizeof c->ring);
    save_fail(c, &why);
    if (c->load.state != LOAD_IDLE)
        load_cut(c, &why);
    fetch_end_all(c);
    while (c->n_named > 0) {
        struct checkpoint_result r = {.failed = 1, .err = why};
        struct named_op op = c->named[--c->n_named];
        op.done(op.arg, &r);
    }
    if (c->order.active) {
        for (unsigned i = 0; i < MAX_SLOTS; i++) {
            c->order.result.failed += c->mark[i].due != 0;
            c->mark[i].due = 0;
        }
        c->order.result.err = why;
        order_over(c);
    }
}

bool checkpoint_linked(const struct checkpoint *c)
{
    return c->link != NULL;
}

bool ck_post(struct checkpoint *c)
{
    struct vt_err err;
    if (vt_link_post(c->link, &err) == 0)
        return true;
    vt_log(c->o.log, VT_LOG_WARNING, "store link: %s", err.text);
    return false;
}

void ck_free_import(struct checkpoint *c, void *imp)
{
    struct cmd *m = imp != NULL ? compute_cmd(CMD_IMPORT_FREE) : NULL;
    if (m == NULL)
        return;
    m->ptr = imp;
    compute_put(c->o.compute, m);
}

/* ---- salts and names ---- */

const uint8_t *ck_salt(struct checkpoint *c, const char *tenant, uint64_t id)
{
    for (unsigned i = 0; i < c->n_salts && i < SALTS; i++) {
        if (strcmp(c->salts[i].tenant, tenant) == 0)
            return c->salts[i].salt;
    }
    if (c->link != NULL) {
        vt_enc_str(vt_link_begin(c->link, VT_F_CK_SALT, id), VT_CK_SALT_TENANT, tenant);
        ck_post(c);
    }
    return NULL;
}

static void forget_tenant(struct checkpoint *c, const struct vt_frame *f)
{
    char tenant[65];
    vt_frame_str(f, VT_CK_SALT_IS_TENANT, tenant, sizeof tenant);
    for (unsigned i = 0; i < c->n_salts;) {
        if (strcmp(c->salts[i].tenant, tenant) == 0)
            memmove(c->salts + i, c->salts + i + 1, (--c->n_salts - i) * sizeof c->salts[0]);
        else
            i++;
    }
    for (unsigned i = 0; i < MAX_SLOTS; i++)
        c->mark[i].forgotten |= strcmp(c->mark[i].tenant, tenant) == 0;
}

static int take_salt(struct checkpoint *c, const struct vt_frame *f)
{
    size_t len;
    const uint8_t *salt = vt_frame_bin(f, VT_CK_SALT_IS_SALT, &len);
    struct vt_err why = {.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL),
                         .text = "the store gives no salt"};
    if (len != CKPT_SALT_LEN && f->id == 0) {
        forget_tenant(c, f);
        return 0;
    }
    if (len != CKPT_SALT_LEN) {
        if (c->save.state == SAVE_SALT && c->save.id == f->id)
            save_fail(c, &why);
        if (c->load.state == LOAD_SALT && c->load.id == f->id)
            load_fail(c, &why);
        return 0;
    }
    if (c->n_salts == SALTS) { /* the oldest makes room */
        memmove(c->salts, c->salts + 1, (SALTS - 1) * sizeof c->salts[0]);
        c->n_salts--;
    }
    vt_frame_str(f, VT_CK_SALT_IS_TENANT, c->salts[c->n_salts].tenant, sizeof c->salts[0].tenant);
    memcpy(c->salts[c->n_salts++].salt, salt, CKPT_SALT_LEN);
    save_salt(c);
    load_salt(c);
    return 0;
}

void ck_names(const struct checkpoint *c, const uint8_t *salt, const uint32_t *items, uint32_t n_blocks,
              uint8_t *names)
{
    uint8_t h[CKPT_NAME_LEN];
    ckpt_h0(ck_facts(c)->layout_fp, salt, h);
    for (uint32_t i = 0; i < n_blocks; i++) {
        ckpt_next(h, items + (size_t)i * ENG_PAGE, ENG_PAGE, h);
        memcpy(names + i * (size_t)CKPT_NAME_LEN, h, sizeof h);
    }
}

/* ---- frames and events ---- */

int checkpoint_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    if (c->link == NULL)
        return 0;
    c->heard = vt_mono(c->o.clock);
    c->silent = false;
    switch (f->type) {
    case VT_F_CK_SALT_IS: return take_salt(c, f);
    case VT_F_CK_NEED:
    case VT_F_CK_CREDIT:
    case VT_F_CK_COMMITTED: return save_frame(c, f, err);
    case VT_F_CK_ABORT:
        return c->save.state != SAVE_IDLE && f->id == c->save.id ? save_frame(c, f, err)
                                                                 : load_frame(c, f, err);
    default: return load_frame(c, f, err);
    }
}

static void take_dirty(struct checkpoint *c, const struct event *ev)
{
    struct slot_mark *m = &c->mark[ev->slot % MAX_SLOTS];
    uint64_t now = vt_mono(c->o.clock);
    if (m->changed_at == 0)
        m->changed_at = now;
    /* A page more waits for the autosave; the ends of prompts and turns are worth a save soon. */
    if (ev->kind == DIRTY_PAGE || (m->due != 0 && m->due <= now + c->o.turn_save_us))
        return;
    m->due = now + c->o.turn_save_us;
    m->reason = CKPT_AUTOSAVE;
}

void checkpoint_event(struct checkpoint *c, struct event *ev)
{
    if (ev->handle >= COMPUTE_FILLS)
        fill_event(c, ev);
    else if (ev->type == EV_DIRTY)
        take_dirty(c, ev);
    else if (ev->type == EV_EXPORT)
        save_event(c, ev);
    else
        load_event(c, ev);
    free(ev->err);
    free(ev->top);
    ev->err = NULL;
    ev->top = NULL;
}

/* ---- what is next ---- */

static void start_named(struct checkpoint *c)
{
    for (unsigned i = 0; i < c->n_named; i++) {
        struct named_op op = c->named[i];
        if (op.load ? c->load.state != LOAD_IDLE : c->save.state != SAVE_IDLE)
            continue;
        memmove(c->named + i, c->named + i + 1, (--c->n_named - i) * sizeof op);
        if (op.load)
            load_named(c, &op);
        else
            save_start(c, op.slot, CKPT_EXPLICIT, op.name, op.done, op.arg);
        return;
    }
}

static void start_due(struct checkpoint *c, uint64_t now)
{
    uint32_t slots = ck_facts(c)->slots, best = MAX_SLOTS;
    for (uint32_t i = 0; i < slots && i < MAX_SLOTS; i++) {
        const struct slot_mark *m = &c->mark[i];
        if (m->due != 0 && m->due <= now && (best == MAX_SLOTS || m->due < c->mark[best].due))
            best = i;
    }
    if (best < MAX_SLOTS)
        save_start(c, best, c->mark[best].reason, NULL, NULL, NULL);
    else if (c->order.active)
        order_over(c);
}

static void start_next(struct checkpoint *c)
{
    if (c->link == NULL)
        return;
    start_named(c);
    fetch_start(c);
    if (c->save.state == SAVE_IDLE)
        start_due(c, vt_mono(c->o.clock));
}

bool checkpoint_pump(struct checkpoint *c)
{
    if (c->link == NULL)
        return false;
    while (c->kick) {
        c->kick = false;
        start_next(c);
    }
    return save_pump(c) || c->kick;
}

/* ---- time ---- */

static void plan_autosave(struct checkpoint *c, uint64_t now)
{
    if (now < c->next_autosave)
        return;
    c->next_autosave = now + c->o.autosave_us;
    for (uint32_t i = 0; i < c->status.n_slots; i++) {
        const struct eng_slot_info *s = &c->status.slot[i];
        struct slot_mark *m = &c->mark[s->slot % MAX_SLOTS];
        if (s->epoch == m->epoch || m->due != 0 || s->n_tokens < ENG_PAGE)
            continue;
        m->due = now;
        m->reason = CKPT_AUTOSAVE;
    }
}

static void check_time(struct checkpoint *c, uint64_t now)
{
    struct vt_err why;
    if (c->save.state > SAVE_EXPORT && now - c->save.started > OP_US) {
        vt_fail(&why, VT_E_DEADLINE, "the store did not answer");
        save_fail(c, &why);
    }
    if (c->order.active && now > c->order.deadline) {
        vt_fail(&c->order.result.err, VT_E_DEADLINE, "the time for saving is over");
        for (unsigned i = 0; i < MAX_SLOTS; i++) {
            bool mine = c->mark[i].due != 0 && c->mark[i].reason != CKPT_AUTOSAVE;
            c->order.result.failed += mine;
            if (mine)
                c->mark[i].due = 0;
        }
        order_over(c);
    }
}

void checkpoint_tick(struct checkpoint *c)
{
    uint64_t now = vt_mono(c->o.clock);
    compute_status(c->o.compute, &c->status);
    for (uint32_t i = 0; i < c->status.n_slots; i++)
        if (c->status.slot[i].n_prompt > 0)
            c->mark[c->status.slot[i].slot % MAX_SLOTS].prompt = c->status.slot[i].n_prompt;
    load_tick(c);
    fetch_tick(c);
    check_time(c, now);
    if (c->link == NULL)
        return;
    plan_autosave(c, now);
    start_next(c);
}

/* ---- orders ---- */

void checkpoint_save(struct checkpoint *c, int32_t slot, enum ckpt_reason reason, uint64_t max_us,
                     checkpoint_done done, void *arg)
{
    uint64_t now = vt_mono(c->o.clock);
    struct checkpoint_result r = {0};
    if (c->link == NULL)
        vt_fail(&r.err, VT_E_UNAVAILABLE, "the checkpoint store is down");
    else if (c->order.active)
        vt_fail(&r.err, VT_E_BUSY, "an order to save is being carried out");
    if (r.err.code != 0) {
        r.failed = 1;
        done(arg, &r);
        return;
    }
    compute_status(c->o.compute, &c->status);
    for (uint32_t i = 0; i < c->status.n_slots; i++) {
        const struct eng_slot_info *s = &c->status.slot[i];
        struct slot_mark *m = &c->mark[s->slot % MAX_SLOTS];
        if ((slot >= 0 && s->slot != (uint32_t)slot) || s->n_tokens < ENG_PAGE)
            continue;
        if (s->epoch == m->epoch && (reason == CKPT_AUTOSAVE || (s->n_tokens == m->items && !m->forgotten))) {
            r.skipped++;
            continue;
        }
        m->due = now;
        m->reason = reason;
    }
    c->order.active = true;
    c->order.started = now;
    c->order.deadline = max_us > 0 ? now + max_us : UINT64_MAX;
    c->order.result = r;
    c->order.done = done;
    c->order.arg = arg;
    checkpoint_tick(c);
}

static void queue_named(struct checkpoint *c, const struct named_op *op)
{
    struct checkpoint_result r = {.failed = 1};
    if (c->link == NULL)
        vt_fail(&r.err, VT_E_UNAVAILABLE, "the checkpoint store is down");
    else if (c->n_named == NAMED_MAX)
        vt_fail(&r.err, VT_E_BUSY, "too many slots are being saved and restored");
    if (r.err.code != 0) {
        op->done(op->arg, &r);
        return;
    }
    c->named[c->n_named++] = *op;
    c->kick = true;
}

void checkpoint_save_named(struct checkpoint *c, uint32_t slot, const char *name, checkpoint_done done,
                           void *arg)
{
    struct named_op op = {.slot = slot, .done = done, .arg = arg};
    snprintf(op.name, sizeof op.name, "%s", name);
    queue_named(c, &op);
}

void checkpoint_load_named(struct checkpoint *c, uint32_t slot, const char *tenant, const char *name,
                           checkpoint_done done, void *arg)
{
    struct named_op op = {.load = true, .slot = slot, .done = done, .arg = arg};
    snprintf(op.name, sizeof op.name, "%s", name);
    snprintf(op.tenant, sizeof op.tenant, "%s", tenant);
    queue_named(c, &op);
}

bool checkpoint_placed(struct checkpoint *c, uint64_t handle, uint32_t slot, const uint32_t *ids,
                       size_t n_ids, uint32_t reused)
{
    struct slot_mark *m = &c->mark[slot % MAX_SLOTS];
    uint32_t same = 0, n = m->n_restored;
    while (same < n && same < n_ids && ids[same] == m->restored[same])
        same++;
    free(m->restored);
    m->restored = NULL;
    m->n_restored = 0;
    /* Only a request that goes on behind all of it must find all of it, but for a block; recurrent state is at its end. */
    bool paid = worth_followed(&c->worth, n, same, n_ids, reused, ENG_PAGE);
    return fetch_used(c, handle, n_ids, reused) && paid;
}

bool checkpoint_turns_poor(struct checkpoint *c, double us_per_token, struct worth *out)
{
    bool poor = worth_turns_poor(&c->worth, us_per_token);
    *out = c->worth;
    return poor;
}

void checkpoint_erased(struct checkpoint *c, uint32_t slot)
{
    c->mark[slot % MAX_SLOTS].erased = true;
}

void checkpoint_stats(const struct checkpoint *c, struct checkpoint_stats *out)
{
    uint64_t now = vt_mono(c->o.clock), oldest = now;
    *out = c->stats;
    for (unsigned i = 0; i < MAX_SLOTS; i++) {
        if (c->mark[i].changed_at != 0 && c->mark[i].changed_at < oldest)
            oldest = c->mark[i].changed_at;
    }
    out->age_s = (double)(now - oldest) / 1e6;
}
