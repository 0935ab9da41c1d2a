#include "store_ask.h"

#include "child.h"
#include "ops.h"

#include <stdlib.h>
#include <string.h>

#define KEPT      16 /* more than may wait at once where the number of calls is limited */
#define ROWS_MAX  1024
#define PER_REPLY 200
/* A list waits for a save that is under way and its sync. */
#define LIST_US   VT_SEC(10)
#define FORGET_US VT_SEC(120)
#define VERIFY_US VT_SEC(24 * 3600)

struct row {
    char tenant[65], file[256];
    uint64_t slot, tokens, restorable, created_us;
};

struct answer {
    uint64_t op; /* 0: none */
    enum store_question q;
    struct row *rows;
    unsigned n_rows;
    uint64_t bad, blocks, bytes, checkpoints;
};

struct store_asked {
    struct answer kept[KEPT];
};

static void drop(struct answer *a)
{
    free(a->rows);
    *a = (struct answer){0};
}

void store_ask_close(struct sup *s)
{
    for (int i = 0; s->asked != NULL && i < KEPT; i++)
        drop(&s->asked->kept[i]);
    free(s->asked);
    s->asked = NULL;
}

static struct answer *answer_of(struct sup *s, uint64_t op)
{
    for (int i = 0; s->asked != NULL && i < KEPT; i++) {
        if (op != 0 && s->asked->kept[i].op == op)
            return &s->asked->kept[i];
    }
    return NULL;
}

/* The oldest makes room. */
static struct answer *new_answer(struct sup *s)
{
    if (s->asked == NULL)
        s->asked = calloc(1, sizeof *s->asked);
    struct answer *a = s->asked != NULL ? &s->asked->kept[0] : NULL;
    for (int i = 1; a != NULL && i < KEPT; i++)
        a = s->asked->kept[i].op < a->op ? &s->asked->kept[i] : a;
    if (a != NULL)
        drop(a);
    return a;
}

static int may_ask(struct sup *s, const struct child *store, struct vt_err *err)
{
    if (s->stopping)
        return vt_fail(err, VT_E_DRAINING, "vitriold is stopping");
    if (store == NULL)
        return vt_fail(err, VT_E_UNAVAILABLE, "this appliance has no store");
    if (store->state != VT_CHILD_READY)
        return vt_fail(err, VT_E_UNAVAILABLE, "the store is %s; vitriolctl status says more",
                       child_state_name((unsigned)store->state));
    return 0;
}

uint64_t store_ask(struct sup *s, enum store_question q, const char *tenant, int64_t slot, struct vt_err *err)
{
    static const struct {
        const char *verb;
        uint64_t limit;
    } kind[] = {[STORE_LIST] = {"store.list", LIST_US},
                [STORE_VERIFY] = {"store.verify", VERIFY_US},
                [STORE_FORGET] = {"store.forget", FORGET_US}};
    struct child *store = sup_role(s, ROLE_STORE);
    if (may_ask(s, store, err) < 0)
        return 0;
    struct answer *a = new_answer(s);
    if (a == NULL) {
        vt_fail(err, VT_E_NOMEM, "out of memory");
        return 0;
    }
    a->q = q;
    a->op = ops_begin(s, kind[q].verb, store, kind[q].limit);
    struct vt_enc *e = child_begin(store, VT_F_STORE_ASK, a->op);
    vt_enc_u64(e, VT_STORE_ASK_VERB, q);
    if (tenant[0] != '\0')
        vt_enc_str(e, VT_STORE_ASK_TENANT, tenant);
    if (slot >= 0)
        vt_enc_u64(e, VT_STORE_ASK_SLOT, (uint64_t)slot);
    if (child_send(store) < 0)
        ops_end(s, a->op, VT_E_UNAVAILABLE, "the store does not read its lifeline");
    return a->op;
}

/* ---- what it says ---- */

static void take_rows(struct answer *a, const msgpack_object_array *list)
{
    unsigned n = list != NULL && list->size < ROWS_MAX ? list->size : list != NULL ? ROWS_MAX : 0;
    a->rows = calloc(n + 1, sizeof *a->rows);
    for (unsigned i = 0; a->rows != NULL && i < n; i++) {
        const msgpack_object_array *in = vt_array_array(list, i);
        struct row *r = &a->rows[a->n_rows];
        if (in == NULL || in->size < 6)
            continue;
        vt_array_str(in, 0, r->tenant, sizeof r->tenant);
        r->slot = vt_array_u64(in, 1, 0);
        vt_array_str(in, 2, r->file, sizeof r->file);
        r->tokens = vt_array_u64(in, 3, 0);
        r->restorable = vt_array_u64(in, 4, 0);
        r->created_us = vt_array_u64(in, 5, 0);
        a->n_rows++;
    }
}

static uint64_t count(const msgpack_object_map *m, const char *name)
{
    const msgpack_object *o = m != NULL ? vt_map_get_str(m, name) : NULL;
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? o->via.u64 : 0;
}

void store_ask_said(struct sup *s, const struct vt_frame *f)
{
    struct answer *a = answer_of(s, f->id);
    char text[200];
    if (a == NULL || a->rows != NULL)
        return; /* nobody waits for it any more */
    if (vt_frame_u64(f, VT_STORE_SAID_OK, 0) == 0) {
        vt_frame_str(f, VT_KEY_TEXT, text, sizeof text);
        uint64_t code = vt_frame_u64(f, VT_KEY_CODE, 0);
        ops_end(s, a->op, code > 0 && code < 1000 ? (int)code : VT_E_INTERNAL, text);
        return;
    }
    const msgpack_object_map *m = vt_frame_map(f, VT_STORE_SAID_COUNTS);
    a->bad = count(m, "bad");
    a->blocks = count(m, "blocks");
    a->bytes = count(m, "bytes");
    a->checkpoints = count(m, "checkpoints");
    if (a->q == STORE_LIST)
        take_rows(a, vt_frame_array(f, VT_STORE_SAID_LIST));
    ops_end(s, a->op, 0, "");
}

/* ---- what is told on ---- */

static void put_num(struct vt_enc *e, const char *key, uint64_t v)
{
    vt_enc_put_str(e, key);
    vt_enc_put_u64(e, v);
}

static void put_row(struct vt_enc *e, const struct row *r)
{
    vt_enc_put_map(e, 6);
    put_num(e, "created_us", r->created_us);
    vt_enc_put_str(e, "file");
    vt_enc_put_str(e, r->file);
    put_num(e, "restorable", r->restorable);
    put_num(e, "slot", r->slot);
    vt_enc_put_str(e, "tenant");
    vt_enc_put_str(e, r->tenant);
    put_num(e, "tokens", r->tokens);
}

static void put_list(struct vt_enc *e, const struct answer *a, uint64_t from)
{
    unsigned left = from < a->n_rows ? a->n_rows - (unsigned)from : 0,
             n = left < PER_REPLY ? left : PER_REPLY;
    vt_enc_map(e, VT_CTL_REP_RESULT, 2);
    vt_enc_put_str(e, "checkpoints");
    vt_enc_put_array(e, n);
    for (unsigned i = 0; i < n; i++)
        put_row(e, &a->rows[from + i]);
    put_num(e, "total", a->n_rows);
}

int store_ask_result(struct sup *s, uint64_t id, uint64_t from, struct vt_enc *e, struct vt_err *err)
{
    const struct op *op = ops_get(s, id);
    const struct answer *a = answer_of(s, id);
    if (op == NULL || a == NULL)
        return vt_fail(err, VT_E_NOT_FOUND, "no answer of the store under that number; the last %d are kept",
                       KEPT);
    if (op->state == OP_RUNNING)
        return vt_fail(err, VT_E_BUSY, "the store has not answered yet");
    if (op->state == OP_FAILED)
        return vt_fail(err, op->code, "%s", op->text[0] != '\0' ? op->text : "the store refused");
    if (a->q == STORE_LIST) {
        put_list(e, a, from);
        return 0;
    }
    vt_enc_map(e, VT_CTL_REP_RESULT, 3);
    if (a->q == STORE_VERIFY)
        put_num(e, "bad", a->bad);
    put_num(e, "blocks", a->blocks);
    put_num(e, "bytes", a->bytes);
    if (a->q == STORE_FORGET)
        put_num(e, "checkpoints", a->checkpoints);
    return 0;
}
