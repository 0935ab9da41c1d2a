/* What ctl asks by hand: the list of checkpoints, a pass over every block, forgetting. */
#include "serve_priv.h"

#include <stdlib.h>

enum ask_verb { ASK_LIST = 1, ASK_VERIFY = 2, ASK_FORGET = 3 };

static struct vt_enc *begin(struct serve *v, uint64_t id, uint32_t link, uint64_t verb, bool ok)
{
    vt_enc_begin(&v->enc, VT_F_STORE_SAID, id, link);
    vt_enc_u64(&v->enc, VT_STORE_SAID_VERB, verb);
    vt_enc_u64(&v->enc, VT_STORE_SAID_OK, ok);
    return &v->enc;
}

/* In the order of their names, as the wire wants it. */
static void put_count(struct vt_enc *e, const char *name, uint64_t n)
{
    vt_enc_put_str(e, name);
    vt_enc_put_u64(e, n);
}

void ask_refuse(struct serve *v, const struct vt_frame *f, const struct vt_err *why)
{
    vt_enc_err(begin(v, f->id, f->link, vt_frame_u64(f, VT_STORE_ASK_VERB, 0), false), why);
    serve_send(v, f->link);
}

static void list(struct serve *v, const struct vt_frame *f, const char *tenant)
{
    struct store_row *rows;
    struct vt_err err;
    size_t n;
    if (store_rows(v->s, tenant, &rows, &n, &err) < 0) {
        ask_refuse(v, f, &err);
        return;
    }
    struct vt_enc *e = begin(v, f->id, f->link, ASK_LIST, true);
    vt_enc_array(e, VT_STORE_SAID_LIST, (unsigned)n);
    for (size_t i = 0; i < n; i++) {
        vt_enc_put_array(e, 6);
        vt_enc_put_str(e, rows[i].tenant);
        vt_enc_put_u64(e, rows[i].slot);
        vt_enc_put_str(e, rows[i].name);
        vt_enc_put_u64(e, rows[i].ntok);
        vt_enc_put_u64(e, rows[i].good);
        vt_enc_put_u64(e, rows[i].created_us);
    }
    serve_send(v, f->link);
    free(rows);
}

/* ---- forgetting ---- */

/* Restores that run would read what is being erased; their engines evaluate the prompt instead. */
static void end_reads(struct serve *v)
{
    struct vt_err why;
    vt_fail(&why, VT_E_NOT_FOUND, "checkpoints are being forgotten");
    for (int i = 0; i < SERVE_PEERS; i++) {
        struct peer *p = &v->peers[i];
        if (!p->used)
            continue;
        answer_end_load(v, p, &why);
        store_plan_free(&p->plan);
        p->has_plan = false;
    }
}

/* Engines know which blocks of a slot are here, and the salt of their names: neither holds any more. */
static void tell_engines(struct serve *v, const char *tenant)
{
    for (int i = 0; i < SERVE_PEERS; i++) {
        if (!v->peers[i].used || v->peers[i].broken)
            continue;
        vt_enc_begin(&v->enc, VT_F_CK_SALT_IS, 0, v->peers[i].link);
        vt_enc_str(&v->enc, VT_CK_SALT_IS_TENANT, tenant);
        serve_send(v, v->peers[i].link);
    }
}

static void forget(struct serve *v, const struct vt_frame *f, const char *tenant)
{
    struct store_erased gone;
    struct vt_err err;
    int64_t slot = vt_frame_has(f, VT_STORE_ASK_SLOT) ? (int64_t)vt_frame_u64(f, VT_STORE_ASK_SLOT, 0) : -1;
    if (slot > UINT16_MAX) {
        vt_fail(&err, VT_E_PARAM, "there is no slot of this number");
        ask_refuse(v, f, &err);
        return;
    }
    end_reads(v);
    int rc = store_forget(v->s, tenant, slot, &gone, &err);
    if (rc == 0 || err.code != VT_E_PARAM)
        tell_engines(v, tenant); /* of half a success, too */
    if (rc < 0) {
        ask_refuse(v, f, &err);
        return;
    }
    struct vt_enc *e = begin(v, f->id, f->link, ASK_FORGET, true);
    vt_enc_map(e, VT_STORE_SAID_COUNTS, 3);
    put_count(e, "blocks", gone.blocks);
    put_count(e, "bytes", gone.bytes);
    put_count(e, "checkpoints", gone.manifests);
    serve_send(v, f->link);
}

/* ---- verifying ---- */

static void verify(struct serve *v, const struct vt_frame *f)
{
    struct store_facts x;
    struct vt_err err;
    if (v->verify.active) {
        vt_fail(&err, VT_E_BUSY, "the store is being verified already");
        ask_refuse(v, f, &err);
        return;
    }
    store_facts(v->s, &x);
    v->verify.active = true;
    v->verify.own = false;
    v->verify.id = f->id;
    v->verify.link = f->link;
    v->verify.bad = x.bad_found;
}

void ask_verify_fail(struct serve *v, const struct vt_err *why)
{
    if (!v->verify.active)
        return;
    v->verify.active = false;
    vt_enc_err(begin(v, v->verify.id, v->verify.link, ASK_VERIFY, false), why);
    serve_send(v, v->verify.link);
}

static void verified(struct serve *v)
{
    struct store_facts x;
    struct vt_err err;
    if (store_check_tables(v->s, &err) < 0) {
        ask_verify_fail(v, &err);
        return;
    }
    store_facts(v->s, &x);
    v->verify.active = false;
    struct vt_enc *e = begin(v, v->verify.id, v->verify.link, ASK_VERIFY, true);
    vt_enc_map(e, VT_STORE_SAID_COUNTS, 3);
    put_count(e, "bad", x.bad_found - v->verify.bad);
    put_count(e, "blocks", x.scrubbed - v->verify.blocks);
    put_count(e, "bytes", x.scrubbed_bytes - v->verify.bytes);
    serve_send(v, v->verify.link);
}

int ask_verify_step(struct serve *v, struct vt_err *err)
{
    struct store_facts x;
    if (!v->verify.active)
        return 0;
    if (!v->verify.own && store_scrub_all(v->s)) {
        v->verify.own = true;
        store_facts(v->s, &x);
        v->verify.blocks = x.scrubbed;
        v->verify.bytes = x.scrubbed_bytes;
        return 1;
    }
    if (store_scrub(v->s, err) < 0) {
        ask_verify_fail(v, err);
        return -1;
    }
    if (v->verify.own && !store_scrubbing(v->s))
        verified(v);
    return 1;
}

void ask_answer(struct serve *v, const struct vt_frame *f)
{
    char tenant[STORE_TENANT_MAX + 2];
    struct vt_err err;
    uint64_t verb = vt_frame_u64(f, VT_STORE_ASK_VERB, 0);
    vt_frame_str(f, VT_STORE_ASK_TENANT, tenant, sizeof tenant);
    switch (verb) {
    case ASK_LIST: list(v, f, tenant); return;
    case ASK_VERIFY: verify(v, f); return;
    case ASK_FORGET: forget(v, f, tenant); return;
    default:
        vt_fail(&err, VT_E_PARAM, "the store knows no question %llu", (unsigned long long)verb);
        ask_refuse(v, f, &err);
    }
}
