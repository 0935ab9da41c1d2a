#include "request.h"

#include "automaton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define IDS_PER_FRAME 1024
#define VECTOR_BYTES  (1u << 20) /* of a frame, unless one vector is longer */
#define STEP_ROWS     256
#define STEP_IDS      64 /* more go out in a frame of their own */

/* ---- SUBMIT ---- */

static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 64 &&
           strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == n;
}

/* Copies a list of u32le into the blob. Frames are little endian and so are the machines this runs on. */
static const uint32_t *take_ids(uint8_t **at, const uint8_t *src, size_t len)
{
    uint32_t *p = (uint32_t *)*at;
    if (len > 0)
        memcpy(p, src, len);
    *at += len;
    return p;
}

static int check_ids(const uint32_t *ids, size_t n, uint32_t n_vocab, const char *what, struct vt_err *err)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= n_vocab)
            return vt_fail(err, VT_E_PARAM, "%s: token id %u is outside the vocabulary of %u", what, ids[i],
                           n_vocab);
    }
    return 0;
}

/* What this engine cannot do is refused by name, never left out in silence. */
static int check_asked(const struct vt_frame *f, struct vt_err *err)
{
    size_t n;
    if (vt_frame_u64(f, VT_SUBMIT_OP, 0) > 1)
        return vt_fail(err, VT_E_CAPABILITY, "this engine generates text and gives vectors, nothing else");
    if (vt_frame_array(f, VT_SUBMIT_MEDIA) != NULL && vt_frame_array(f, VT_SUBMIT_MEDIA)->size > 0)
        return vt_fail(err, VT_E_CAPABILITY, "this model takes text only");
    vt_frame_bin(f, VT_SUBMIT_GRAMMAR, &n);
    if (n > VT_AUTOMATON_BYTES || (n == 0 && vt_frame_has(f, VT_SUBMIT_GRAMMAR)))
        return vt_fail(err, VT_E_GRAMMAR, "a grammar of %zu bytes; 1 to %u are possible", n,
                       VT_AUTOMATON_BYTES);
    if (vt_frame_u64(f, VT_SUBMIT_CHOICES, 1) > 1)
        return vt_fail(err, VT_E_CAPABILITY, "one choice a request");
    if (vt_frame_u64(f, VT_SUBMIT_MAX_NEW, 0) > UINT32_MAX)
        return vt_fail(err, VT_E_PARAM, "max_new is out of range");
    return 0;
}

int request_read(struct request *r, const struct vt_frame *f, uint32_t n_vocab, struct vt_err *err)
{
    const msgpack_object_map *s = vt_frame_map(f, VT_SUBMIT_SAMPLING),
                             *resume = vt_frame_map(f, VT_SUBMIT_RESUME);
    struct vt_sampling_raw raw;
    size_t items_len, stop_len, emitted_len, forced_len, grammar_len;
    const uint8_t *items = vt_frame_bin(f, VT_SUBMIT_ITEMS, &items_len);
    const uint8_t *stop = vt_frame_bin(f, VT_SUBMIT_STOP_IDS, &stop_len);
    const uint8_t *forced = vt_frame_bin(f, VT_SUBMIT_FORCED, &forced_len);
    const uint8_t *emitted = vt_map_bin(resume, VT_RESUME_EMITTED, &emitted_len);
    const uint8_t *grammar = vt_frame_bin(f, VT_SUBMIT_GRAMMAR, &grammar_len);
    struct eng_request *q = &r->submit;
    char tenant[80];
    if (check_asked(f, err) < 0 || vt_sampling_get(&q->sampling, &raw, s, err) < 0)
        return -1;
    vt_frame_str(f, VT_SUBMIT_TENANT, tenant, sizeof tenant);
    if (!name_ok(tenant))
        return vt_fail(err, VT_E_PARAM, "tenant name: 1 to 64 letters, digits, dots, dashes or underscores");
    if (items_len % 4 || stop_len % 4 || emitted_len % 4 || forced_len % 4)
        return vt_fail(err, VT_E_PARAM, "a list of ids is not a whole number of ids");
    uint8_t *at = r->blob = malloc(items_len + stop_len + emitted_len + forced_len + 8 * raw.n_bias +
                                   raw.breakers_len + grammar_len + sizeof tenant);
    if (at == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for a prompt of %zu tokens", items_len / 4);
    q->ids = take_ids(&at, items, items_len);
    q->n_ids = items_len / 4;
    q->stop_ids = take_ids(&at, stop, stop_len);
    q->n_stop_ids = stop_len / 4;
    q->emitted = take_ids(&at, emitted, emitted_len);
    q->n_emitted = emitted_len / 4;
    q->forced = take_ids(&at, forced, forced_len);
    q->n_forced = forced_len / 4;
    q->sampling.bias_ids = take_ids(&at, raw.bias_ids, 4 * raw.n_bias);
    q->sampling.bias = (const float *)take_ids(&at, raw.bias, 4 * raw.n_bias);
    q->sampling.n_bias = raw.n_bias;
    q->sampling.breakers = raw.breakers_len > 0 ? memcpy(at, raw.breakers, raw.breakers_len) : NULL;
    q->sampling.breakers_len = raw.breakers_len;
    at += raw.breakers_len;
    q->grammar = grammar_len > 0 ? memcpy(at, grammar, grammar_len) : NULL;
    q->n_grammar = grammar_len;
    q->tenant = strcpy((char *)at + grammar_len, tenant);
    r->sampler_state = q->state = vt_map_f64(resume, VT_RESUME_STATE, NAN);
    if (resume != NULL && vt_map_get(resume, VT_RESUME_SEED) != NULL) {
        q->sampling.has_seed = true;
        q->sampling.seed = vt_map_u64(resume, VT_RESUME_SEED, 0);
    }
    q->slot = (int32_t)vt_frame_i64(f, VT_SUBMIT_SLOT, -1);
    q->max_new = (uint32_t)vt_frame_u64(f, VT_SUBMIT_MAX_NEW, 0);
    q->credit = (uint32_t)vt_frame_u64(f, VT_SUBMIT_CREDIT, REQUEST_CREDIT);
    uint64_t logprobs = vt_frame_u64(f, VT_SUBMIT_LOGPROBS, 0);
    q->logprobs = logprobs < UINT8_MAX ? (uint8_t)logprobs : UINT8_MAX;
    q->reuse = vt_frame_u64(f, VT_SUBMIT_REUSE, 1) != 0;
    if (vt_frame_u64(f, VT_SUBMIT_OP, 0) == 1) {
        uint64_t pool = vt_frame_u64(f, VT_SUBMIT_POOL, ENG_POOL_MEAN);
        if (pool < ENG_POOL_ROWS || pool > ENG_POOL_LAST)
            return vt_fail(err, VT_E_CAPABILITY, "pooling %llu is not known", (unsigned long long)pool);
        q->pool = (enum eng_pool)pool;
    }
    if (check_ids(q->ids, q->n_ids, n_vocab, "prompt", err) < 0 ||
        check_ids(q->emitted, q->n_emitted, n_vocab, "resume", err) < 0 ||
        check_ids(q->forced, q->n_forced, n_vocab, "forced ids", err) < 0 ||
        check_ids(q->sampling.bias_ids, q->sampling.n_bias, n_vocab, "logit bias", err) < 0)
        return -1;
    return 0;
}

/* ---- what goes out ---- */

bool request_owes(const struct request *r)
{
    return r->linked && (r->owes_accepted || (r->told_accepted && (r->owes_prefill || r->sent < r->n ||
                                                                   r->vec_sent < r->n_vec || r->owes_done)));
}

bool request_may_wait(const struct request *r)
{
    return !r->owes_accepted && !r->owes_prefill && !r->owes_done && r->sent > r->resumed;
}

static int send_accepted(struct request *r, struct vt_link *l, struct vt_err *err)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_ACCEPTED, r->gid);
    vt_enc_u64(e, VT_ACCEPTED_SLOT, r->slot);
    vt_enc_u64(e, VT_ACCEPTED_REUSED, r->reused);
    vt_enc_u64(e, VT_ACCEPTED_QUEUE_POS, r->queue_pos);
    vt_enc_u64(e, VT_ACCEPTED_DUP, r->dup);
    vt_enc_u64(e, VT_ACCEPTED_SEED, r->seed);
    if (vt_link_send(l, err) < 0)
        return -1;
    r->owes_accepted = false;
    r->told_accepted = true;
    return 0;
}

static int send_prefill(struct request *r, struct vt_link *l, struct vt_err *err)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_PREFILL, r->gid);
    vt_enc_u64(e, VT_PREFILL_DONE, r->pf_done);
    vt_enc_u64(e, VT_PREFILL_TOTAL, r->pf_total);
    vt_enc_u64(e, VT_PREFILL_REUSED, r->pf_reused);
    if (vt_link_send(l, err) < 0)
        return -1;
    r->owes_prefill = false;
    return 0;
}

static void put_top(struct vt_enc *e, const struct request *r, uint32_t from, uint32_t n)
{
    vt_enc_array(e, VT_TOKENS_TOP, n);
    for (uint32_t i = from; i < from + n; i++) {
        const struct eng_top *t = r->top + (size_t)i * r->n_top;
        unsigned m = 0;
        while (m < r->n_top && !isnan(t[m].logprob))
            m++;
        vt_enc_put_array(e, 2u * m);
        for (unsigned k = 0; k < m; k++) {
            vt_enc_put_u64(e, t[k].id);
            vt_enc_put_f64(e, (double)t[k].logprob);
        }
    }
}

static int send_tokens(struct request *r, struct vt_link *l, struct vt_err *err)
{
    uint32_t most = r->n_top > 0 ? IDS_PER_FRAME / (1 + 2u * r->n_top) : IDS_PER_FRAME;
    uint32_t n = r->n - r->sent < most ? r->n - r->sent : most;
    struct vt_enc *e = vt_link_begin(l, VT_F_TOKENS, r->gid);
    vt_enc_u64(e, VT_TOKENS_FIRST, r->sent);
    vt_enc_bin(e, VT_TOKENS_IDS, r->ids + r->sent, n * sizeof *r->ids);
    if (r->logprob != NULL)
        vt_enc_bin(e, VT_TOKENS_LOGPROBS, r->logprob + r->sent, n * sizeof *r->logprob);
    if (r->n_top > 0)
        put_top(e, r, r->sent, n);
    if (!isnan(r->sampler_state) && r->sent + n == r->n)
        vt_enc_f64(e, VT_TOKENS_STATE, r->sampler_state);
    if (vt_link_send(l, err) < 0)
        return -1;
    r->sent += n;
    return 0;
}

static int send_vectors(struct request *r, struct vt_link *l, struct vt_err *err)
{
    uint32_t most = VECTOR_BYTES / (r->dim * (uint32_t)sizeof *r->vec), n = r->n_vec - r->vec_sent;
    if (n > most)
        n = most > 0 ? most : 1;
    struct vt_enc *e = vt_link_begin(l, VT_F_VECTOR, r->gid);
    vt_enc_u64(e, VT_VECTOR_INDEX, r->vec_sent);
    vt_enc_u64(e, VT_VECTOR_DIM, r->dim);
    vt_enc_bin(e, VT_VECTOR_VALUES, r->vec + (size_t)r->vec_sent * r->dim,
               (size_t)n * r->dim * sizeof *r->vec);
    if (vt_link_send(l, err) < 0)
        return -1;
    r->vec_sent += n;
    return 0;
}

static bool in_step(const struct request *r)
{
    return r != NULL && r->linked && r->told_accepted && !r->owes_accepted && !r->owes_prefill &&
           r->sent < r->n && r->n - r->sent <= STEP_IDS && r->logprob == NULL && r->n_top == 0 &&
           isnan(r->sampler_state);
}

int request_send_step(struct request *const *at, unsigned n, struct vt_link *l, struct vt_err *err)
{
    unsigned rows = 0;
    for (unsigned i = 0; i < n; i++)
        rows += in_step(at[i]);
    if (rows > STEP_ROWS)
        rows = STEP_ROWS;
    if (rows < 2)
        return 0;
    struct vt_enc *e = vt_link_begin(l, VT_F_STEP, 0);
    vt_enc_array(e, VT_STEP_TOKENS, rows);
    for (unsigned i = 0, k = 0; i < n && k < rows; i++) {
        const struct request *r = at[i];
        if (!in_step(r))
            continue;
        vt_enc_put_array(e, 3);
        vt_enc_put_u64(e, r->gid);
        vt_enc_put_u64(e, r->sent);
        vt_enc_put_bin(e, r->ids + r->sent, (r->n - r->sent) * sizeof *r->ids);
        k++;
    }
    if (vt_link_send(l, err) < 0)
        return -1;
    for (unsigned i = 0, k = 0; i < n && k < rows; i++) {
        if (!in_step(at[i]))
            continue;
        at[i]->sent = at[i]->n;
        k++;
    }
    return (int)rows;
}

static int send_parked(const struct request *r, struct vt_link *l, struct vt_err *err)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_PARKED, r->gid);
    vt_enc_u64(e, VT_PARKED_EMITTED, r->n);
    vt_enc_u64(e, VT_PARKED_WHY,
               !r->park             ? VT_PARK_ORDER
               : r->stalled_at != 0 ? VT_PARK_SLOW_CLIENT
                                    : VT_PARK_LOST);
    return vt_link_send(l, err);
}

static int send_done(struct request *r, struct vt_link *l, struct vt_err *err)
{
    const struct eng_usage *u = &r->usage;
    const uint64_t usage[] = {u->prompt,   u->reused,   u->generated,  u->drafted,
                              u->accepted, u->queue_us, u->prefill_us, u->decode_us};
    struct vt_enc *e = vt_link_begin(l, VT_F_DONE, r->gid);
    vt_enc_u64(e, VT_DONE_REASON, r->reason);
    vt_enc_u64(e, VT_DONE_EMITTED, r->n);
    vt_enc_map(e, VT_DONE_USAGE, 8);
    for (unsigned i = 0; i < 8; i++) {
        vt_enc_put_u64(e, VT_USAGE_PROMPT + i);
        vt_enc_put_u64(e, usage[i]);
    }
    if (r->reason == ENG_ERROR && r->error != NULL)
        vt_enc_err(e, r->error);
    else if (r->reason == ENG_ERROR)
        vt_enc_u64(e, VT_KEY_CODE, VT_E_INTERNAL);
    if (vt_link_send(l, err) < 0)
        return -1;
    r->owes_done = false;
    return 0;
}

int request_send(struct request *r, struct vt_link *l, bool twice, struct vt_err *err)
{
    if (r->owes_accepted && send_accepted(r, l, err) < 0)
        return -1;
    if (r->told_accepted && r->owes_prefill && send_prefill(r, l, err) < 0)
        return -1;
    while (r->told_accepted && r->sent < r->n) {
        uint32_t from = r->sent;
        if (send_tokens(r, l, err) < 0)
            return -1;
        if (twice) {
            uint32_t to = r->sent;
            r->sent = from;
            send_tokens(r, l, NULL);
            r->sent = to;
        }
    }
    while (r->told_accepted && r->vec_sent < r->n_vec)
        if (send_vectors(r, l, err) < 0)
            return -1;
    if (!r->told_accepted || !r->owes_done)
        return 0;
    if (r->reason == ENG_PARKED && send_parked(r, l, err) < 0)
        return -1;
    return send_done(r, l, err);
}

int request_send_attached(struct vt_link *l, uint64_t gid, bool found, uint64_t from, bool ended)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_ATTACHED, gid);
    vt_enc_u64(e, VT_ATTACHED_FOUND, found);
    vt_enc_u64(e, VT_ATTACHED_FROM, from);
    vt_enc_u64(e, VT_ATTACHED_STATE, ended);
    return vt_link_post(l, NULL);
}

int request_send_refused(struct vt_link *l, uint64_t gid, const struct vt_err *why, uint32_t retry_ms)
{
    struct vt_enc *e = vt_link_begin(l, VT_F_REFUSED, gid);
    vt_enc_err(e, why);
    if (retry_ms > 0)
        vt_enc_u64(e, VT_KEY_RETRY_MS, retry_ms);
    return vt_link_post(l, NULL);
}
