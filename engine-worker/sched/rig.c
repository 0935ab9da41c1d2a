#include "rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct rig_req *rig_at(struct rig *r, uint64_t handle)
{
    assert_true(handle < RIG_HANDLES);
    return &r->reqs[handle];
}

static struct rig_req *open_at(void *arg, uint64_t handle)
{
    struct rig_req *q = rig_at(arg, handle);
    assert_true(q->submitted);
    assert_int_equal(q->n_terminal, 0);
    return q;
}

static void on_accepted(void *arg, uint64_t handle, uint32_t slot, uint32_t reused, uint32_t queue_pos,
                        uint64_t seed)
{
    struct rig_req *q = open_at(arg, handle);
    q->accepted = true;
    q->n_accepted++;
    q->slot = slot;
    q->reused = reused;
    q->queue_pos = queue_pos;
    q->seed = seed;
}

static void on_refused(void *arg, uint64_t handle, const struct vt_err *why, uint32_t retry_ms)
{
    struct rig_req *q = open_at(arg, handle);
    assert_false(q->accepted);
    q->refused = true;
    q->n_terminal++;
    q->err = *why;
}

static void on_prefill(void *arg, uint64_t handle, uint32_t done, uint32_t total, uint32_t reused)
{
    struct rig_req *q = open_at(arg, handle);
    assert_true(q->accepted);
    assert_true(done >= q->prefill_done && done <= total);
    q->n_prefill_events++;
    q->prefill_done = done;
    q->prefill_total = total;
    q->reused = reused;
}

static void on_token(void *arg, uint64_t handle, const struct eng_token *t)
{
    struct rig_req *q = open_at(arg, handle);
    assert_true(q->accepted);
    if (q->n == 0)
        q->first = t->pos;
    assert_int_equal(t->pos, q->first + q->n);
    assert_true(q->n < RIG_OUT);
    q->logprobs[q->n] = t->logprob;
    for (unsigned i = 0; i < t->n_top && i < 4; i++)
        q->top[q->n][i] = t->top[i];
    q->state = t->state;
    q->ids[q->n++] = t->id;
}

static void on_vectors(void *arg, uint64_t handle, uint32_t first, uint32_t n, uint32_t dim, const float *v)
{
    struct rig_req *q = open_at(arg, handle);
    assert_true(q->accepted);
    assert_int_equal(first, q->n_vectors);
    q->vectors = realloc(q->vectors, (size_t)(first + n) * dim * sizeof *v);
    assert_non_null(q->vectors);
    memcpy(q->vectors + (size_t)first * dim, v, (size_t)n * dim * sizeof *v);
    q->n_vectors += n;
    q->dim = dim;
}

static void on_done(void *arg, uint64_t handle, enum eng_done why, uint64_t emitted,
                    const struct eng_usage *usage, const struct vt_err *err)
{
    struct rig_req *q = open_at(arg, handle);
    assert_true(q->accepted);
    assert_int_equal(err != NULL, why == ENG_ERROR);
    q->done = true;
    q->n_terminal++;
    q->why = why;
    q->emitted = emitted;
    q->usage = *usage;
    if (err)
        q->err = *err;
    if (q->n > 0)
        assert_int_equal(emitted, q->first + q->n);
}

static void on_dirty(void *arg, uint32_t slot, bool turn_end)
{
    struct rig *r = arg;
    r->n_dirty++;
    r->n_turn_end += turn_end;
}

static const struct eng_events events = {.accepted = on_accepted,
                                         .refused = on_refused,
                                         .prefill = on_prefill,
                                         .token = on_token,
                                         .vectors = on_vectors,
                                         .done = on_done,
                                         .dirty = on_dirty};

void rig_open(struct rig *r, const struct tiny *t, const struct rig_opts *o)
{
    const char *path = tiny_path("rig");
    struct eng_config c = {.model_path = path,
                           .slots = o && o->slots ? o->slots : 4,
                           .ctx_tokens = o && o->ctx ? o->ctx : 512,
                           .ubatch = o && o->ubatch ? o->ubatch : 64,
                           .threads = o && o->threads ? o->threads : 1,
                           .simd = -1,
                           .spec = o && o->spec_n ? ENG_SPEC_NGRAM : ENG_SPEC_NONE,
                           .spec_n = o ? o->spec_n : 0,
                           .rec_snapshots = o && o->snaps ? o->snaps : 4};
    struct vt_err err = {0};
    *r = (struct rig){.reqs = calloc(RIG_HANDLES, sizeof *r->reqs), .next_handle = 1};
    assert_non_null(r->reqs);
    tiny_write(t, path);
    if (eng_real.load(&r->e, &c, &events, r, &err) < 0)
        fail_msg("%s", err.text);
    unlink(path);
}

void rig_close(struct rig *r)
{
    for (uint32_t i = 0; i < RIG_HANDLES; i++)
        if (r->reqs[i].submitted)
            assert_int_equal(r->reqs[i].n_terminal, 1);
    eng_real.free(r->e);
    for (uint64_t h = 0; h < r->next_handle; h++)
        free(rig_at(r, h)->vectors);
    free(r->reqs);
}

struct eng_request rig_request(const uint32_t *ids, size_t n, uint32_t max_new)
{
    struct eng_request q = {.tenant = "default",
                            .slot = -1,
                            .ids = ids,
                            .n_ids = n,
                            .max_new = max_new,
                            .credit = 100000,
                            .reuse = true,
                            .state = NAN};
    vt_sampling_init(&q.sampling);
    q.sampling.ignore_eos = 1;
    return q;
}

uint64_t rig_submit(struct rig *r, const struct eng_request *q)
{
    struct eng_request copy = *q;
    copy.handle = r->next_handle++;
    rig_at(r, copy.handle)->submitted = true;
    eng_real.submit(r->e, &copy);
    struct rig_req *a = rig_at(r, copy.handle);
    assert_true(a->accepted || a->refused);
    return copy.handle;
}

unsigned rig_run(struct rig *r)
{
    unsigned steps = 0;
    while (eng_real.step(r->e))
        assert_true(++steps < 100000);
    return steps;
}

void rig_run_to(struct rig *r, uint64_t handle, uint32_t n)
{
    struct rig_req *q = rig_at(r, handle);
    while (q->n < n && !q->done)
        assert_true(eng_real.step(r->e));
}

struct rig_req *rig_answer(struct rig *r, const struct eng_request *q)
{
    uint64_t h = rig_submit(r, q);
    rig_run(r);
    struct rig_req *a = rig_at(r, h);
    assert_int_equal(a->n_terminal, 1);
    return a;
}

uint32_t rig_carry(struct rig *from, struct rig *to, uint32_t slot, uint32_t good_blocks)
{
    const struct eng_facts *f = eng_real.facts(from->e);
    struct eng_export *x;
    void *imp;
    struct vt_err err = {0};
    uint8_t piece[1000];
    uint32_t tokens, held;
    assert_int_equal(eng_real.export_begin(from->e, 0, &x, &err), 0);
    assert_true(x->n_blocks > 0 && x->n_items / ENG_PAGE == x->n_blocks);
    uint32_t rec = x->n_rec ? x->rec_pos[x->n_rec - 1] : 0;
    if (eng_real.import_begin(to->e, slot, x->tenant, x->items, x->n_items, x->n_blocks, rec, &imp, &held,
                              &err) < 0)
        fail_msg("%s", err.text);
    for (uint32_t i = held; i < x->n_blocks; i++)
        for (uint64_t at = 0; at < f->block_bytes; at += sizeof piece) {
            size_t n = f->block_bytes - at < sizeof piece ? f->block_bytes - at : sizeof piece;
            assert_int_equal(eng_real.export_read(from->e, x, 1, i, at, piece, n), 0);
            assert_int_equal(eng_real.import_write(to->e, imp, 1, i, at, piece, n, &err), 0);
        }
    for (uint64_t at = 0; rec && at < f->rec_bytes; at += sizeof piece) {
        size_t n = f->rec_bytes - at < sizeof piece ? f->rec_bytes - at : sizeof piece;
        assert_int_equal(eng_real.export_read(from->e, x, 2, x->n_rec - 1, at, piece, n), 0);
        assert_int_equal(eng_real.import_write(to->e, imp, 2, rec / ENG_PAGE, at, piece, n, &err), 0);
    }
    assert_int_equal(eng_real.export_read(from->e, x, 1, x->n_blocks, 0, piece, 1), -1);
    assert_int_equal(eng_real.export_read(from->e, x, 1, 0, f->block_bytes, piece, 1), -1);
    assert_int_equal(eng_real.import_write(to->e, imp, 1, x->n_blocks, 0, piece, 1, &err), -1);
    assert_int_equal(eng_real.import_publish(to->e, imp, good_blocks, true, &tokens, &err), 0);
    eng_real.import_free(to->e, imp);
    eng_real.export_free(from->e, x);
    return tokens;
}
