#include "checkpoint_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void next_head(struct checkpoint *c);

/* ---- end ---- */

/* Of one slot; the list of heads stays. */
static void clear_slot(struct checkpoint *c)
{
    struct load *l = &c->load;
    ck_free_import(c, l->imp);
    free(l->items);
    free(l->names);
    l->imp = NULL;
    l->items = NULL;
    l->names = NULL;
    l->n_items = l->n_blocks = l->rec_pos = l->next_block = l->next_piece = l->good = l->writing = 0;
    l->want_rec = l->rec_ok = l->spoilt = l->ended = false;
    l->manifest = 0;
}

static void finish(struct checkpoint *c)
{
    struct load *l = &c->load;
    struct checkpoint_result r = l->result;
    checkpoint_done done = l->done;
    void *arg = l->arg;
    uint64_t handle = l->prefix ? l->handle : 0;
    r.us = vt_mono(c->o.clock) - l->started;
    if (l->all) {
        c->stats.restored_tokens = r.tokens;
        c->stats.restore_us = r.us;
    }
    clear_slot(c);
    free(l->heads);
    *l = (struct load){0};
    c->kick = true;
    if (handle != 0)
        fetch_told(c, handle);
    if (done != NULL)
        done(arg, &r);
}

/* One slot is through; with more heads on the list the next one follows. */
static void slot_over(struct checkpoint *c, const struct vt_err *why)
{
    struct load *l = &c->load;
    if (why != NULL) {
        l->result.failed++;
        if (l->prefix && why->code != VT_E_NOT_FOUND)
            vt_log(c->o.log, VT_LOG_NOTICE, "a prompt's beginning does not come from the store: %s",
                   why->text);
        if (!l->all)
            l->result.err = *why;
        else if (why->code != VT_E_NOT_FOUND)
            vt_log(c->o.log, VT_LOG_NOTICE, "slot %u is not restored: %s", l->slot, why->text);
    }
    if (!l->all || c->link == NULL) {
        finish(c);
        return;
    }
    clear_slot(c);
    next_head(c);
}

void load_fail(struct checkpoint *c, const struct vt_err *why)
{
    if (c->load.state == LOAD_IDLE)
        return;
    c->load.all = false; /* no next one */
    slot_over(c, why);
}

/* Data that is on its way still comes, and its ring slots go back. */
static void tell_store(struct checkpoint *c, const struct vt_err *why)
{
    if (c->link == NULL || c->load.state != LOAD_DATA || c->load.ended)
        return;
    vt_enc_err(vt_link_begin(c->link, VT_F_CK_ABORT, c->load.id), why);
    ck_post(c);
}

static void slot_fails(struct checkpoint *c, int code, const char *text)
{
    struct vt_err why;
    vt_fail(&why, code, "%s", text);
    tell_store(c, &why);
    slot_over(c, &why);
}

/* ---- heads ---- */

void checkpoint_restore(struct checkpoint *c, uint64_t max_us, checkpoint_done done, void *arg)
{
    struct load *l = &c->load;
    const struct eng_facts *f = ck_facts(c);
    uint64_t now = vt_mono(c->o.clock);
    struct checkpoint_result none = {0};
    if (c->link == NULL || l->state != LOAD_IDLE || max_us == 0) {
        done(arg, &none);
        return;
    }
    *l = (struct load){.state = LOAD_HEADS,
                       .all = true,
                       .id = ++c->next_id,
                       .started = now,
                       .op_started = now,
                       .deadline = now + max_us,
                       .done = done,
                       .arg = arg};
    vt_enc_bin(vt_link_begin(c->link, VT_F_CK_FIND, l->id), VT_CK_FIND_LAYOUT_FP, f->layout_fp,
               sizeof f->layout_fp);
    if (!ck_post(c))
        finish(c);
}

static void take_heads(struct checkpoint *c, const struct vt_frame *f)
{
    struct load *l = &c->load;
    const msgpack_object_array *list = vt_frame_array(f, VT_CK_HEADS_LIST);
    bool seen[MAX_SLOTS] = {false};
    uint32_t slots = ck_facts(c)->slots;
    l->heads = calloc(list->size + 1, sizeof *l->heads);
    for (uint32_t i = 0; l->heads != NULL && i < list->size; i++) {
        const msgpack_object_array *row = vt_array_array(list, i);
        uint64_t slot = vt_array_u64(row, 0, UINT64_MAX);
        /* Newest first: an older head of the same slot belongs to another tenant whose turn is over. */
        if (slot >= slots || slot >= MAX_SLOTS || seen[slot] || !vt_array_u64(row, 4, 0) ||
            vt_array_u64(row, 3, 0) == 0)
            continue;
        seen[slot] = true;
        l->heads[l->n_heads].slot = (uint32_t)slot;
        vt_array_str(row, 1, l->heads[l->n_heads++].tenant, sizeof l->tenant);
    }
    next_head(c);
}

static void ask_plan(struct checkpoint *c)
{
    struct load *l = &c->load;
    const struct eng_facts *f = ck_facts(c);
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_FIND, l->id);
    vt_enc_bin(e, VT_CK_FIND_LAYOUT_FP, f->layout_fp, sizeof f->layout_fp);
    vt_enc_str(e, VT_CK_FIND_TENANT, l->tenant);
    if (l->prefix)
        vt_enc_bin(e, VT_CK_FIND_NAMES, l->names, l->n_items / ENG_PAGE * (size_t)CKPT_NAME_LEN);
    else if (l->name[0] != 0)
        vt_enc_str(e, VT_CK_FIND_NAME, l->name);
    else
        vt_enc_u64(e, VT_CK_FIND_SLOT, l->slot);
    l->state = LOAD_PLAN;
    if (!ck_post(c))
        slot_fails(c, VT_E_BUSY, "the store does not read");
}

void load_salt(struct checkpoint *c)
{
    struct load *l = &c->load;
    const uint8_t *salt = l->state == LOAD_SALT ? ck_salt(c, l->tenant, l->id) : NULL;
    if (salt == NULL)
        return;
    if (l->prefix) {
        l->names = malloc(l->n_items / ENG_PAGE * (size_t)CKPT_NAME_LEN);
        if (l->names == NULL) {
            slot_fails(c, VT_E_NOMEM, "no memory for the names of a prompt");
            return;
        }
        ck_names(c, salt, l->items, l->n_items / ENG_PAGE, l->names);
    }
    ask_plan(c);
}

static void open_slot(struct checkpoint *c)
{
    struct load *l = &c->load;
    l->id = ++c->next_id;
    l->op_started = vt_mono(c->o.clock);
    l->state = LOAD_SALT;
    load_salt(c);
}

static void next_head(struct checkpoint *c)
{
    struct load *l = &c->load;
    if (l->at_head >= l->n_heads || vt_mono(c->o.clock) >= l->deadline) {
        finish(c);
        return;
    }
    l->retried = false;
    const struct head *h = &l->heads[l->at_head++];
    l->slot = h->slot;
    memcpy(l->tenant, h->tenant, sizeof l->tenant);
    open_slot(c);
}

void load_named(struct checkpoint *c, const struct named_op *op)
{
    struct load *l = &c->load;
    *l = (struct load){.slot = op->slot,
                       .started = vt_mono(c->o.clock),
                       .deadline = UINT64_MAX,
                       .done = op->done,
                       .arg = op->arg};
    snprintf(l->tenant, sizeof l->tenant, "%s", op->tenant);
    snprintf(l->name, sizeof l->name, "%s", op->name);
    open_slot(c);
}

void load_prefix(struct checkpoint *c, const struct fetch *f)
{
    struct load *l = &c->load;
    *l = (struct load){.prefix = true,
                       .handle = f->handle,
                       .resident = f->resident,
                       .slot = ENG_CACHE,
                       .items = f->ids,
                       .n_items = f->n_ids,
                       .started = vt_mono(c->o.clock),
                       .deadline = f->deadline};
    memcpy(l->tenant, f->tenant, sizeof l->tenant);
    open_slot(c);
}

void load_forget(struct checkpoint *c)
{
    struct vt_err why;
    vt_fail(&why, VT_E_CANCELLED, "the request is over");
    tell_store(c, &why);
    c->load.handle = 0;
    finish(c);
}

/* ---- plan and import ---- */

/* Gives the items to the compute thread: to make room for blocks, or, with the blocks that came, to evaluate the others. */
static void give_items(struct checkpoint *c, enum cmd_type type, uint32_t n)
{
    struct load *l = &c->load;
    struct cmd *m = compute_cmd(type);
    if (m != NULL)
        m->blob = malloc((n + 1) * sizeof *l->items);
    if (m == NULL || m->blob == NULL) {
        compute_cmd_free(m);
        slot_fails(c, VT_E_NOMEM, "no memory for a restore");
        return;
    }
    memcpy(m->blob, l->items, n * sizeof *l->items);
    memcpy(m->import.tenant, l->tenant, sizeof l->tenant);
    m->slot = l->slot;
    m->tag = l->id;
    m->import.n_items = n;
    m->import.n_blocks = type == CMD_IMPORT_BEGIN ? l->n_blocks : l->good;
    m->import.rec_pos = l->rec_pos;
    m->import.rec_ok = l->rec_ok;
    m->import.fill = n > 0 ? FILL_MAX : 0;
    m->ptr = l->imp;
    l->imp = NULL; /* the publishing command frees it */
    l->state = type == CMD_IMPORT_BEGIN ? LOAD_BEGIN : LOAD_PUBLISH;
    compute_put(c->o.compute, m);
}

/* Blocks that are worth a load; UINT64_MAX: the store says what cannot be. */
static uint64_t usable(const struct checkpoint *c, const struct vt_frame *f, uint64_t n_items, uint64_t rec)
{
    const struct load *l = &c->load;
    uint64_t have = vt_frame_u64(f, VT_CK_PLAN_HAVE, 0);
    if (ck_facts(c)->rec_bytes > 0)
        have = rec / ENG_PAGE < have ? rec / ENG_PAGE : have;
    if (have > n_items / ENG_PAGE || rec % ENG_PAGE != 0 || rec > have * ENG_PAGE)
        return UINT64_MAX;
    return l->prefix && have * ENG_PAGE <= l->resident ? 0 : have;
}

/* Items of a manifest; those of a prompt are here. */
static int take_items(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    struct load *l = &c->load;
    size_t len;
    const uint8_t *items = vt_frame_bin(f, VT_CK_PLAN_ITEMS, &len);
    l->manifest = vt_frame_u64(f, VT_CK_PLAN_MANIFEST, 0);
    if (l->prefix)
        return l->manifest == 0 ? 0 : vt_fail(err, VT_E_CORRUPT, "the store's plan is of something else");
    if (len % sizeof *l->items != 0 || items == NULL)
        return vt_fail(err, VT_E_CORRUPT, "the store's plan does not fit its own items");
    l->items = malloc(len + 1);
    if (l->items == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a restore");
    memcpy(l->items, items, len);
    l->n_items = (uint32_t)(len / sizeof *l->items);
    return 0;
}

/* Of a hybrid model only what lies before the newest snapshot can be used. A slot file's items behind that are evaluated in
 * the slot; those of a head when a request wants them. */
static void take_plan(struct checkpoint *c, const struct vt_frame *f)
{
    struct load *l = &c->load;
    const struct eng_facts *facts = ck_facts(c);
    uint64_t rec = facts->rec_bytes > 0 ? vt_frame_u64(f, VT_CK_PLAN_REC_POS, 0) : 0;
    struct vt_err err;
    if (take_items(c, f, &err) < 0) {
        slot_fails(c, err.code, err.text);
        return;
    }
    uint64_t have = usable(c, f, l->n_items, rec);
    bool file = l->name[0] != 0 && l->n_items <= facts->window;
    l->all_items = file ? l->n_items : 0;
    if (have == UINT64_MAX) {
        slot_fails(c, VT_E_CORRUPT, "the store's plan does not fit its own items");
    } else if (have > facts->window / ENG_PAGE) {
        slot_fails(c, VT_E_WINDOW, "the checkpoint is longer than the window");
    } else if (have == 0 && l->all_items > 0 && l->all_items <= FILL_MAX) {
        give_items(c, CMD_IMPORT_PUBLISH, l->all_items);
    } else if (have == 0) {
        slot_fails(c, VT_E_NOT_FOUND, "the checkpoint holds no whole block that could be used");
    } else {
        l->n_blocks = (uint32_t)have;
        l->rec_pos = (uint32_t)rec;
        l->want_rec = rec > 0;
        l->n_items = l->n_blocks * ENG_PAGE;
        give_items(c, CMD_IMPORT_BEGIN, l->n_items);
    }
}

static void begun(struct checkpoint *c, struct event *ev)
{
    struct load *l = &c->load;
    if (ev->err != NULL) {
        slot_over(c, ev->err);
        return;
    }
    l->imp = ev->ptr;
    l->next_block = l->good = ev->n;
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_LOAD, l->id);
    if (!l->prefix)
        vt_enc_u64(e, VT_CK_LOAD_MANIFEST, l->manifest);
    vt_enc_u64(e, VT_CK_LOAD_CREDIT, c->half);
    if (l->prefix)
        vt_enc_bin(e, VT_CK_LOAD_NAMES, l->names, l->n_blocks * (size_t)CKPT_NAME_LEN);
    if (l->rec_pos > 0)
        vt_enc_u64(e, VT_CK_LOAD_REC_POS, l->rec_pos);
    if (ev->n > 0)
        vt_enc_u64(e, VT_CK_LOAD_SKIP, ev->n);
    l->state = LOAD_DATA;
    if (!ck_post(c))
        slot_fails(c, VT_E_BUSY, "the store does not read");
}

static void ack_piece(struct checkpoint *c, uint64_t id, uint64_t ring_slot, bool ok)
{
    struct vt_enc *e = vt_link_begin(c->link, VT_F_CK_DATA_ACK, id);
    vt_enc_u64(e, VT_CK_DATA_ACK_RING_SLOT, ring_slot);
    vt_enc_u64(e, VT_CK_DATA_ACK_OK, ok);
    ck_post(c);
}

/* All pieces that were good lie in fresh pages: one swap, and the slot has them. */
static void publish_if_whole(struct checkpoint *c)
{
    struct load *l = &c->load;
    if (!l->ended || l->writing > 0 || l->state != LOAD_DATA)
        return;
    if (l->good > 0 || (l->all_items > 0 && l->all_items <= FILL_MAX))
        give_items(c, CMD_IMPORT_PUBLISH, l->all_items);
    else
        slot_fails(c, VT_E_CORRUPT, "no whole block came from the store");
}

static void mark_restored(struct checkpoint *c, uint32_t tokens)
{
    struct load *l = &c->load;
    const uint8_t *salt = ck_salt(c, l->tenant, l->id);
    struct slot_mark *m = &c->mark[l->slot];
    uint32_t blocks = tokens / ENG_PAGE;
    uint8_t *names = malloc(blocks * (size_t)CKPT_NAME_LEN + 1);
    /* What has just come from the store need not go there. */
    if (l->name[0] == 0 && names != NULL && salt != NULL && blocks > 0 && blocks <= l->n_blocks) {
        ck_names(c, salt, l->items, blocks, names);
        memcpy(m->name, names + (blocks - 1) * (size_t)CKPT_NAME_LEN, CKPT_NAME_LEN);
        m->blocks = blocks;
        m->rec = l->rec_pos;
        m->items = tokens;
        m->forgotten = false;
        memcpy(m->tenant, l->tenant, sizeof m->tenant);
    }
    free(names);
    free(m->restored);
    m->restored = l->items;
    m->n_restored = tokens;
    l->items = NULL; /* the mark has them */
}

static void published(struct checkpoint *c, struct event *ev)
{
    struct load *l = &c->load;
    uint32_t blocks = ev->n / ENG_PAGE;
    if (ev->err != NULL) {
        slot_over(c, ev->err);
        return;
    }
    if (blocks == 0 && ev->a == 0 && !l->prefix && !l->rec_ok && l->rec_pos > 0 && !l->retried &&
        c->link != NULL) {
        /* The store has put the damaged snapshot aside; its next plan ends at the one before. */
        clear_slot(c);
        l->retried = true;
        open_slot(c);
        return;
    }
    l->result.saved++;
    l->result.tokens += ev->n;
    l->result.bytes += l->all_items * sizeof *l->items + blocks * ck_facts(c)->block_bytes +
                       (l->rec_ok ? ck_facts(c)->rec_bytes : 0);
    uint32_t come = l->prefix && ev->n <= l->resident ? 0 : l->prefix ? ev->n - l->resident : ev->n;
    worth_restored(&c->worth, come, vt_mono(c->o.clock) - l->op_started);
    if (!l->prefix) {
        mark_restored(c, ev->n);
    } else if (come > 0) {
        c->stats.fetched_tokens += come;
        fetch_arrived(c, l->handle, l->resident, ev->n);
    }
    if (ev->a != 0)
        fill_start(c);
    slot_over(c, NULL);
}

void load_event(struct checkpoint *c, struct event *ev)
{
    struct load *l = &c->load;
    bool mine = ev->handle == l->id && l->state != LOAD_IDLE;
    if (ev->type == EV_IMPORT_BEGUN) {
        if (mine && l->state == LOAD_BEGIN && c->link != NULL) {
            begun(c, ev);
            return;
        }
        ck_free_import(c, ev->err == NULL ? ev->ptr : NULL);
        if (mine && l->state == LOAD_BEGIN)
            slot_fails(c, VT_E_UNAVAILABLE, "the store is gone");
    } else if (ev->type == EV_IMPORT_WRITTEN) {
        /* Also of a load that was given up: the ring slot goes back, or it would be lost to the next one. */
        if (c->link != NULL && ev->handle > c->ids_before_link)
            ack_piece(c, ev->handle, ev->n, ev->err == NULL);
        if (!mine || l->state != LOAD_DATA)
            return;
        l->writing--;
        if (ev->err != NULL)
            l->spoilt = true;
        publish_if_whole(c);
    } else if (ev->type == EV_IMPORT_DONE && mine && l->state == LOAD_PUBLISH) {
        published(c, ev);
    }
}

/* ---- data ---- */

/* Pieces come in order: the snapshot, then the blocks. Anything else is a protocol error. */
static int expect(struct checkpoint *c, uint64_t kind, uint64_t index, uint64_t piece, uint64_t len,
                  struct vt_err *err)
{
    struct load *l = &c->load;
    const struct eng_facts *f = ck_facts(c);
    bool rec = l->want_rec;
    uint64_t bytes = rec ? f->rec_bytes : f->block_bytes;
    if (kind != (rec ? CKPT_REC : CKPT_KV) || index != (rec ? l->rec_pos / ENG_PAGE : l->next_block) ||
        piece != l->next_piece || len != ckpt_piece_len(bytes, (uint32_t)piece) ||
        (!rec && l->next_block >= l->n_blocks))
        return vt_fail(err, VT_E_BAD_FRAME,
                       "CK_DATA kind %llu index %llu piece %llu of %llu bytes is not what is next",
                       (unsigned long long)kind, (unsigned long long)index, (unsigned long long)piece,
                       (unsigned long long)len);
    if (++l->next_piece < ckpt_pieces(bytes))
        return 0;
    l->next_piece = 0;
    if (rec) {
        l->want_rec = false;
        l->rec_ok = !l->spoilt;
    } else {
        l->next_block++;
    }
    return 0;
}

static int take_data(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    struct load *l = &c->load;
    uint64_t kind = vt_frame_u64(f, VT_CK_DATA_KIND, 0), index = vt_frame_u64(f, VT_CK_DATA_INDEX, 0);
    uint64_t piece = vt_frame_u64(f, VT_CK_DATA_PIECE, 0),
             slot = vt_frame_u64(f, VT_CK_DATA_RING_SLOT, UINT64_MAX);
    uint64_t len = vt_frame_u64(f, VT_CK_DATA_LEN, UINT64_MAX);
    const uint8_t *sum = vt_frame_bin_n(f, VT_CK_DATA_XXH128, VT_XXH128_LEN);
    uint8_t have[VT_XXH128_LEN];
    if (sum == NULL || slot < c->half || slot >= c->ring.n_slots || len > c->ring.slot_size)
        return vt_fail(err, VT_E_BAD_FRAME, "CK_DATA names ring slot %llu and %llu bytes, which cannot be",
                       (unsigned long long)slot, (unsigned long long)len);
    if (l->state != LOAD_DATA || l->ended) {
        ack_piece(c, l->id, slot, false);
        return 0;
    }
    if (expect(c, kind, index, piece, len, err) < 0)
        return -1;
    /* Copied before it is checked, so that what was checked is what is used. */
    struct cmd *m = compute_cmd(CMD_IMPORT_WRITE);
    if (m != NULL)
        m->blob = malloc(len);
    if (m == NULL || m->blob == NULL) {
        compute_cmd_free(m);
        l->spoilt = true;
        ack_piece(c, l->id, slot, false);
        return 0;
    }
    memcpy(m->blob, vt_ring_slot(&c->ring, (uint32_t)slot, len), len);
    vt_xxh128(m->blob, len, have);
    l->spoilt |= memcmp(have, sum, sizeof have) != 0;
    if (l->spoilt) { /* this block and all behind it are lost; the prefix before it is not */
        compute_cmd_free(m);
        l->rec_ok &= kind != CKPT_REC;
        ack_piece(c, l->id, slot, false);
        return 0;
    }
    if (kind == CKPT_KV && l->next_block > index)
        l->good = (uint32_t)index + 1;
    m->tag = l->id;
    m->ptr = l->imp;
    m->n = (uint32_t)slot;
    m->import.kind = (int)kind;
    m->import.index = kind == CKPT_REC ? 0 : (uint32_t)index;
    m->import.off = piece * CKPT_PIECE;
    m->import.len = len;
    l->writing++;
    compute_put(c->o.compute, m);
    return 0;
}

int load_frame(struct checkpoint *c, const struct vt_frame *f, struct vt_err *err)
{
    struct load *l = &c->load;
    struct vt_err why;
    bool mine = f->id == l->id && l->state != LOAD_IDLE;
    if (f->type == VT_F_CK_DATA && !mine) /* of a load that was given up: its slots still go back */
        ack_piece(c, f->id, vt_frame_u64(f, VT_CK_DATA_RING_SLOT, UINT64_MAX), false);
    if (!mine)
        return 0;
    switch (f->type) {
    case VT_F_CK_HEADS:
        if (l->state == LOAD_HEADS)
            take_heads(c, f);
        return 0;
    case VT_F_CK_PLAN:
        if (l->state == LOAD_PLAN)
            take_plan(c, f);
        return 0;
    case VT_F_CK_DATA: return take_data(c, f, err);
    case VT_F_CK_END:
    case VT_F_CK_ABORT:
        if (l->state == LOAD_DATA) {
            l->ended = true;
            if (vt_frame_has(f, VT_CK_END_BLOCKS) && vt_frame_u64(f, VT_CK_END_BLOCKS, 0) < l->good)
                l->good = (uint32_t)vt_frame_u64(f, VT_CK_END_BLOCKS, 0);
            publish_if_whole(c);
            return 0;
        }
        why.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_NOT_FOUND);
        vt_frame_str(f, VT_KEY_TEXT, why.text, sizeof why.text);
        if (why.text[0] == 0)
            vt_fail(&why, why.code, "the store has no such checkpoint");
        slot_over(c, &why);
        return 0;
    default: return 0;
    }
}

void load_cut(struct checkpoint *c, const struct vt_err *why)
{
    struct load *l = &c->load;
    if (l->state == LOAD_PUBLISH || l->state == LOAD_BEGIN)
        return; /* the compute thread answers soon */
    if (!l->prefix || l->state != LOAD_DATA) {
        tell_store(c, why);
        load_fail(c, why);
        return;
    }
    tell_store(c, why);
    l->ended = true;
    publish_if_whole(c);
}

/* Serving beats warmth: a restore that takes too long is given up, what has been published stays. */
void load_tick(struct checkpoint *c)
{
    struct load *l = &c->load;
    uint64_t now = vt_mono(c->o.clock);
    struct vt_err why;
    if (l->state == LOAD_IDLE || l->ended || (now < l->deadline && now - l->op_started < OP_US))
        return;
    if (l->prefix)
        fetch_late(c);
    vt_fail(&why, VT_E_DEADLINE, "%s",
            l->prefix ? "it did not come within store.prefix_wait_ms"
                      : "the restore took longer than store.restore_budget_s");
    load_cut(c, &why);
}
