#include "requests_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_IDS_US VT_SEC(30)
#define TOPS_MAX    100 /* alternatives kept for each token; the gateway asks for no more */

/* ---- the table ---- */

static void forget(struct requests *rs, struct request *r)
{
    rs->at[r->handle % TABLE] = NULL;
    while (rs->n_used > 0 && rs->at[rs->n_used - 1] == NULL)
        rs->n_used--;
    request_release(r);
}

static struct request *add(struct requests *rs)
{
    unsigned i = 0;
    while (i < TABLE && rs->at[i] != NULL)
        i++;
    struct request *r = i < TABLE ? calloc(1, sizeof *r) : NULL;
    if (r == NULL)
        return NULL;
    r->handle = ++rs->serial * TABLE + i;
    rs->at[i] = r;
    if (i >= rs->n_used)
        rs->n_used = i + 1;
    return r;
}

struct request *requests_by_handle(struct requests *rs, uint64_t handle)
{
    struct request *r = rs->at[handle % TABLE];
    return r != NULL && r->handle == handle ? r : NULL;
}

static struct request *by_rid(struct requests *rs, const uint8_t rid[16])
{
    for (unsigned i = 0; i < rs->n_used; i++) {
        if (rs->at[i] != NULL && !rs->at[i]->dropped && memcmp(rs->at[i]->rid, rid, 16) == 0)
            return rs->at[i];
    }
    return NULL;
}

static struct request *by_gid(struct requests *rs, uint64_t gid)
{
    for (unsigned i = 0; i < rs->n_used; i++) {
        struct request *r = rs->at[i];
        if (r != NULL && r->linked && r->gid == gid)
            return r;
    }
    return NULL;
}

bool requests_in_core(const struct request *r)
{
    return r->state == R_RUNNING || r->state == R_PARKING;
}

unsigned requests_running(const struct requests *rs)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rs->n_used; i++)
        n += rs->at[i] != NULL && requests_in_core(rs->at[i]);
    return n;
}

unsigned requests_unsent(const struct requests *rs)
{
    unsigned n = 0;
    for (unsigned i = 0; i < rs->n_used; i++)
        n += rs->at[i] != NULL && request_owes(rs->at[i]);
    return n;
}

uint64_t requests_sent(const struct requests *rs)
{
    return rs->sent;
}

uint64_t requests_parked(const struct requests *rs)
{
    return rs->parked;
}

/* Towards the core every run has an id of its own, since a parked request runs again under the same rid. */
static void core_rid(uint64_t handle, uint8_t out[16])
{
    memset(out, 0, 16);
    memcpy(out, "core", 4);
    memcpy(out + 8, &handle, sizeof handle);
}

const uint8_t *requests_rid(const struct requests *rs, const uint8_t rid[16])
{
    uint64_t handle;
    if (memcmp(rid, "core", 4) != 0)
        return NULL;
    memcpy(&handle, rid + 8, sizeof handle);
    const struct request *r = rs->at[handle % TABLE];
    return r != NULL && r->handle == handle ? r->rid : NULL;
}

/* ---- towards the core ---- */

void requests_tell_core(struct requests *rs, enum cmd_type type, uint64_t handle, uint32_t n)
{
    struct cmd *m = compute_cmd(type);
    if (m == NULL)
        return;
    m->handle = handle;
    m->n = n;
    compute_put(rs->o.compute, m);
}

/* The command owns a copy, for the request may be needed again. */
int requests_put(struct requests *rs, struct request *r, bool look)
{
    const struct eng_request *q = &r->submit;
    const struct {
        const void *src;
        size_t len;
    } part[] = {{q->ids, q->n_ids * 4},
                {q->emitted, q->n_emitted * 4},
                {q->forced, q->n_forced * 4},
                {q->stop_ids, q->n_stop_ids * 4},
                {q->sampling.bias_ids, q->sampling.n_bias * 4},
                {q->sampling.bias, q->sampling.n_bias * 4},
                {q->sampling.breakers, q->sampling.breakers_len},
                {q->grammar, q->n_grammar},
                {q->tenant, strlen(q->tenant) + 1}};
    enum { PARTS = sizeof part / sizeof part[0] };
    const void *copy[PARTS];
    size_t total = 0;
    struct cmd *m = compute_cmd(CMD_SUBMIT);
    for (int i = 0; i < PARTS; i++)
        total += part[i].len;
    uint8_t *at = m != NULL ? malloc(total) : NULL;
    if (at == NULL) {
        compute_cmd_free(m);
        return -1;
    }
    m->blob = at;
    for (int i = 0; i < PARTS; i++) {
        if (part[i].len > 0)
            memcpy(at, part[i].src, part[i].len);
        copy[i] = at;
        at += part[i].len;
    }
    m->submit = *q;
    m->submit.ids = copy[0];
    m->submit.emitted = copy[1];
    m->submit.forced = copy[2];
    m->submit.stop_ids = copy[3];
    m->submit.sampling.bias_ids = copy[4];
    m->submit.sampling.bias = copy[5];
    m->submit.sampling.breakers = copy[6];
    m->submit.grammar = copy[7];
    m->submit.tenant = copy[8];
    m->submit.handle = r->handle;
    m->look = look;
    core_rid(r->handle, m->submit.rid);
    compute_put(rs->o.compute, m);
    return 0;
}

static int submit(struct requests *rs, struct request *r, bool look)
{
    r->granted = r->n + (uint64_t)r->submit.credit;
    r->stalled_at = 0;
    r->park = r->cancelled = r->hurried = false;
    r->state = R_RUNNING;
    r->pending = true;
    return requests_put(rs, r, look);
}

void requests_end(struct requests *rs, struct request *r, enum eng_done why)
{
    r->state = R_ENDED;
    r->reason = (uint8_t)why;
    r->owes_done = true;
    r->ended_at = vt_mono(rs->o.clock);
    free(r->blob);
    r->blob = NULL;
    memset(&r->submit, 0, sizeof r->submit);
}

void requests_end_with(struct requests *rs, struct request *r, const struct vt_err *why)
{
    free(r->error);
    r->error = malloc(sizeof *why);
    if (r->error != NULL)
        *r->error = *why;
    requests_end(rs, r, ENG_ERROR);
}

/* Continues after a park: what was emitted is the prefix, and the core finds its KV. */
static void unpark(struct requests *rs, struct request *r)
{
    struct eng_request *q = &r->submit;
    struct vt_err err;
    uint64_t handle = ++rs->serial * TABLE + r->handle % TABLE;
    r->handle = handle; /* late events of the run before mean nobody now */
    r->attach = false;
    r->n_vec = r->vec_sent = 0; /* they come again */
    q->emitted = r->ids;
    q->n_emitted = r->n;
    q->state = r->sampler_state;
    q->credit = REQUEST_CREDIT;
    q->sampling.has_seed = true;
    q->sampling.seed = r->seed;
    if (submit(rs, r, false) == 0)
        return;
    vt_fail(&err, VT_E_NOMEM, "no memory to go on after a park");
    requests_end_with(rs, r, &err);
}

/* ---- output ---- */

static void take_token(struct requests *rs, struct request *r, const struct event *ev)
{
    /* A gap exists only when memory ran out between the threads; then the request ends at what is whole. */
    if (ev->pos == r->n && request_add_id(r, ev->n, ev->logprob, ev->top, ev->n_top)) {
        r->sampler_state = ev->state;
        return;
    }
    if (ev->pos < r->n)
        return;
    r->park = true;
    requests_cancel(rs, r);
}

static void take_vectors(struct requests *rs, struct request *r, const struct event *ev)
{
    if (request_add_vectors(r, ev->a, ev->vec, ev->n, ev->b))
        return;
    r->park = true;
    requests_cancel(rs, r);
}

static void take_done(struct requests *rs, struct request *r, struct event *ev)
{
    bool parked = r->state == R_PARKING && ev->kind == ENG_CANCELLED;
    r->usage = ev->usage;
    if (r->dropped) {
        forget(rs, r);
        return;
    }
    if (parked && r->attach) {
        unpark(rs, r);
        return;
    }
    if (parked) {
        r->state = R_PARKED;
        r->parked_at = vt_mono(rs->o.clock);
        return;
    }
    r->error = ev->err;
    ev->err = NULL;
    if (r->timed_out && ev->kind == ENG_CANCELLED) {
        struct vt_err late;
        vt_fail(&late, VT_E_DEADLINE, "the request's time is over");
        requests_end_with(rs, r, &late);
        return;
    }
    /* Stalled by its client or cut short between the threads: it goes on when it is asked for again. */
    if (ev->kind == ENG_CANCELLED && r->park)
        ev->kind = ENG_PARKED;
    rs->parked += ev->kind == ENG_PARKED;
    requests_end(rs, r, (enum eng_done)ev->kind);
}

static void take_refused(struct requests *rs, struct request *r, const struct event *ev)
{
    struct vt_err why = {.code = VT_E_INTERNAL, .text = "refused"};
    if (ev->err != NULL)
        why = *ev->err;
    if (r->linked && rs->link != NULL && !r->told_accepted && !r->dropped) {
        request_send_refused(rs->link, r->gid, &why, ev->n);
    } else if (r->linked && r->told_accepted && !r->dropped) {
        /* It ran before and was parked: its end is a DONE like any other. */
        requests_end_with(rs, r, &why);
        return;
    }
    forget(rs, r); /* nothing ran: the same rid may come again */
}

void requests_event(struct requests *rs, struct event *ev)
{
    struct request *r = requests_by_handle(rs, ev->handle);
    if (r != NULL && requests_in_core(r)) {
        switch (ev->type) {
        case EV_WANTS: requests_wants(rs, r, ev->n); break;
        case EV_ACCEPTED:
            r->pending = false;
            r->slot = ev->slot;
            r->reused = ev->n;
            r->queue_pos = ev->a;
            r->seed = ev->pos;
            r->owes_accepted = !r->told_accepted;
            if (ev->a == 0 && rs->o.placed != NULL)
                rs->o.placed(rs->o.arg, ev->handle, ev->slot, r->submit.ids, r->submit.n_ids, ev->n);
            break;
        case EV_REFUSED: take_refused(rs, r, ev); break;
        case EV_PREFILL:
            r->pf_done = ev->n;
            r->pf_total = ev->a;
            r->pf_reused = ev->b;
            r->owes_prefill = true;
            break;
        case EV_TOKEN: take_token(rs, r, ev); break;
        case EV_VECTORS: take_vectors(rs, r, ev); break;
        case EV_DONE: take_done(rs, r, ev); break;
        default: break;
        }
    }
    free(ev->err);
    free(ev->top);
    free(ev->vec);
    ev->err = NULL;
    ev->top = NULL;
    ev->vec = NULL;
}

/* ---- frames ---- */

/* A request that is known: its progress goes to the new handle from `next` on. */
static void attach(struct requests *rs, struct request *r, uint64_t gid, uint64_t next)
{
    r->gid = gid;
    r->linked = true;
    r->gateway = vt_link_peer(rs->link);
    r->sent = (uint32_t)next;
    r->vec_sent = 0;
    r->owes_done = r->state == R_ENDED;
    if (r->state == R_PARKED)
        unpark(rs, r);
    else if (r->state == R_PARKING)
        r->attach = true;
}

/* Out of sight: whatever it still is in the core ends there. */
static void drop(struct requests *rs, struct request *r)
{
    if (!requests_in_core(r)) {
        forget(rs, r);
        return;
    }
    if (r->state == R_RUNNING)
        requests_cancel(rs, r);
    r->dropped = true;
    r->linked = false;
}

/* 1: the SUBMIT is a repetition and has been dealt with. */
static int repeated(struct requests *rs, const struct vt_frame *f, const uint8_t *rid)
{
    struct request *r = by_rid(rs, rid);
    struct vt_err why;
    size_t emitted;
    if (r == NULL)
        return 0;
    bool again =
        (r->state == R_ENDED && r->reason == ENG_PARKED) || r->state == R_PARKED || r->state == R_PARKING;
    if (again) {
        drop(rs, r); /* SUBMIT brings all that is needed to go on */
        return 0;
    }
    vt_map_bin(vt_frame_map(f, VT_SUBMIT_RESUME), VT_RESUME_EMITTED, &emitted);
    if (emitted / 4 > r->n || (r->state == R_ENDED && !request_whole(r))) {
        vt_fail(&why, VT_E_PARAM, "this request ran already and its output is no longer kept");
        request_send_refused(rs->link, f->id, &why, 0);
        return 1;
    }
    r->dup = true;
    r->owes_accepted = r->told_accepted || r->owes_accepted;
    r->told_accepted = false;
    attach(rs, r, f->id, emitted / 4);
    return 1;
}

static int start(struct requests *rs, struct request *r, const struct vt_frame *f, struct vt_err *err)
{
    uint64_t deadline = vt_frame_u64(f, VT_SUBMIT_DEADLINE_MS, 0);
    if (request_read(r, f, compute_facts(rs->o.compute)->n_vocab, err) < 0)
        return -1;
    r->n_top = r->submit.logprobs > 1 ? r->submit.logprobs - 1 : 0;
    if (r->n_top > TOPS_MAX)
        return vt_fail(err, VT_E_PARAM, "at most %d alternatives a token", TOPS_MAX);
    for (size_t i = 0; i < r->submit.n_emitted; i++) {
        if (!request_add_id(r, r->submit.emitted[i], 0, NULL, 0))
            return vt_fail(err, VT_E_NOMEM, "no memory for what was emitted before");
    }
    r->resumed = r->sent = r->n;
    if (deadline > 0)
        r->deadline = vt_mono(rs->o.clock) + VT_MS(deadline);
    bool look = rs->o.may_fetch != NULL && rs->o.may_fetch(rs->o.arg);
    return submit(rs, r, look) < 0 ? vt_fail(err, VT_E_NOMEM, "no memory for the request") : 0;
}

static bool shed(const struct requests *rs, const struct vt_frame *f)
{
    if (rs->short_of_memory < 2 || vt_frame_map(f, VT_SUBMIT_RESUME) != NULL)
        return false;
    return rs->short_of_memory >= 3 || requests_running(rs) > 0;
}

static int take_submit(struct requests *rs, const struct vt_frame *f, struct vt_err *err)
{
    const uint8_t *rid = vt_frame_bin_n(f, VT_SUBMIT_RID, 16);
    struct vt_err why;
    if (rid == NULL)
        return vt_fail(err, VT_E_BAD_FRAME, "SUBMIT with a request id that is not 16 bytes");
    if (repeated(rs, f, rid))
        return 0;
    struct request *r = NULL;
    if (rs->closed != 0)
        vt_fail(&why, rs->closed, "%s", rs->closed_text);
    else if (shed(rs, f))
        vt_fail(&why, VT_E_MEM_PRESSURE, "memory is short");
    else if (requests_running(rs) >= OPEN_MAX || (r = add(rs)) == NULL)
        vt_fail(&why, VT_E_QUEUE_FULL, "%d requests are open already", OPEN_MAX);
    if (r == NULL) {
        uint32_t retry = rs->closed != 0 ? rs->closed_retry : why.code == VT_E_MEM_PRESSURE ? 5000 : 1000;
        request_send_refused(rs->link, f->id, &why, retry);
        return 0;
    }
    memcpy(r->rid, rid, sizeof r->rid);
    r->gid = f->id;
    r->linked = true;
    r->gateway = vt_link_peer(rs->link);
    if (start(rs, r, f, &why) < 0) {
        request_send_refused(rs->link, f->id, &why, 0);
        forget(rs, r);
    }
    return 0;
}

static int take_attach(struct requests *rs, const struct vt_frame *f, struct vt_err *err)
{
    const uint8_t *rid = vt_frame_bin_n(f, VT_ATTACH_RID, 16);
    uint64_t next = vt_frame_u64(f, VT_ATTACH_NEXT, 0);
    if (rid == NULL)
        return vt_fail(err, VT_E_BAD_FRAME, "ATTACH with a request id that is not 16 bytes");
    struct request *r = by_rid(rs, rid);
    bool whole = r != NULL && next <= r->n && request_whole(r);
    request_send_attached(rs->link, f->id, whole, next, whole && r->state == R_ENDED);
    if (whole)
        attach(rs, r, f->id, next);
    return 0;
}

static void take_credit(struct requests *rs, const struct vt_frame *f)
{
    struct request *r = by_gid(rs, f->id);
    uint64_t add_n = vt_frame_u64(f, VT_CREDIT_ADD, 0);
    if (r == NULL || !requests_in_core(r) || add_n == 0 || add_n > UINT32_MAX)
        return;
    r->granted += add_n;
    r->stalled_at = 0;
    if (r->pending) /* in case that it is submitted again */
        r->submit.credit += add_n < UINT32_MAX - r->submit.credit ? (uint32_t)add_n : 0;
    requests_tell_core(rs, CMD_CREDIT, r->handle, (uint32_t)add_n);
}

int requests_frame(struct requests *rs, const struct vt_frame *f, struct vt_err *err)
{
    struct request *r;
    if (rs->link == NULL)
        return 0;
    switch (f->type) {
    case VT_F_SUBMIT: return take_submit(rs, f, err);
    case VT_F_ATTACH: return take_attach(rs, f, err);
    case VT_F_CREDIT: take_credit(rs, f); return 0;
    case VT_F_CANCEL:
        r = by_gid(rs, f->id);
        if (r != NULL && requests_in_core(r))
            requests_cancel(rs, r);
        return 0;
    default: return 0;
    }
}

/* ---- the link ---- */

void requests_link_up(struct requests *rs, struct vt_link *l)
{
    rs->link = l;
    /* Transcripts die with a gateway: what another process asked for will not be asked for again. */
    for (unsigned i = rs->n_used; i-- > 0;) {
        struct request *r = rs->at[i];
        if (r != NULL && (r->state == R_PARKED || r->state == R_PARKING) && r->gateway != vt_link_peer(l))
            drop(rs, r);
    }
}

void requests_link_down(struct requests *rs)
{
    rs->link = NULL;
    for (unsigned i = rs->n_used; i-- > 0;) {
        struct request *r = rs->at[i];
        if (r == NULL)
            continue;
        r->linked = false;
        if (r->state != R_RUNNING)
            continue;
        rs->parked++;
        requests_cancel(rs, r);
        r->state = r->state == R_RUNNING ? R_PARKING : r->state;
    }
}

void requests_close(struct requests *rs, int code, const char *text, uint32_t retry_ms)
{
    rs->closed = code;
    rs->closed_retry = retry_ms;
    snprintf(rs->closed_text, sizeof rs->closed_text, "%s", text != NULL ? text : "");
}

void requests_shed(struct requests *rs, unsigned level)
{
    rs->short_of_memory = level;
}

bool requests_pump(struct requests *rs)
{
    struct vt_err err;
    if (rs->link == NULL || requests_gather(rs))
        return false;
    /* What one step of the core made for many clients crosses the link in one frame: each costs the library's threads. */
    int step = !rs->o.send_twice ? request_send_step(rs->at, rs->n_used, rs->link, &err) : 0;
    if (step < 0)
        return err.code == VT_E_BUSY;
    rs->sent += (unsigned)step;
    for (unsigned i = 0; rs->link != NULL && i < rs->n_used; i++) {
        struct request *r = rs->at[i];
        if (r == NULL || !request_owes(r))
            continue;
        uint32_t before = r->sent;
        int rc = request_send(r, rs->link, rs->o.send_twice, &err);
        rs->sent += rc == 0 || r->sent != before;
        if (rc == 0)
            continue;
        if (err.code == VT_E_BUSY)
            return true;
        vt_log(rs->o.log, VT_LOG_ERR, "request %llu: %s", (unsigned long long)r->gid, err.text);
        return rs->link != NULL;
    }
    return false;
}

/* ---- time ---- */

static void tick_running(struct requests *rs, struct request *r, uint64_t now, bool others_wait)
{
    if (r->deadline != 0 && now >= r->deadline && !r->timed_out) {
        r->timed_out = true;
        requests_cancel(rs, r);
        return;
    }
    if (r->n < r->granted) {
        r->stalled_at = 0;
        return;
    }
    if (r->stalled_at == 0)
        r->stalled_at = now;
    else if (now - r->stalled_at > rs->o.credit_stall_us && others_wait) {
        r->park = true;
        requests_cancel(rs, r);
    }
}

/* The oldest ended requests go when there are more than are remembered. */
static void forget_oldest(struct requests *rs)
{
    for (;;) {
        struct request *oldest = NULL;
        unsigned n = 0;
        for (unsigned i = 0; i < rs->n_used; i++) {
            struct request *r = rs->at[i];
            if (r == NULL || r->state != R_ENDED)
                continue;
            n++;
            if (oldest == NULL || r->ended_at < oldest->ended_at)
                oldest = r;
        }
        if (n <= REMEMBER)
            return;
        forget(rs, oldest);
    }
}

void requests_tick(struct requests *rs)
{
    uint64_t now = vt_mono(rs->o.clock);
    struct compute_status *s = malloc(sizeof *s);
    bool others_wait = false;
    if (s != NULL) {
        compute_status(rs->o.compute, s);
        others_wait = s->counters.deferred > 0;
        free(s);
    }
    for (unsigned i = rs->n_used; i-- > 0;) {
        struct request *r = i < rs->n_used ? rs->at[i] : NULL;
        if (r == NULL)
            continue;
        if (r->state == R_RUNNING)
            tick_running(rs, r, now, others_wait);
        else if (r->state == R_PARKED && now - r->parked_at > rs->o.orphan_us)
            drop(rs, r);
        else if (r->state == R_ENDED && (r->ids != NULL || r->vec != NULL) &&
                 now - r->ended_at > KEEP_IDS_US && !request_owes(r))
            request_forget_output(r);
    }
    forget_oldest(rs);
}

int requests_new(struct requests **out, const struct requests_opts *o, struct vt_err *err)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the request table");
    (*out)->o = *o;
    return 0;
}

void requests_free(struct requests *rs)
{
    if (rs == NULL)
        return;
    for (unsigned i = 0; i < rs->n_used; i++) {
        if (rs->at[i] != NULL)
            request_release(rs->at[i]);
    }
    free(rs);
}
