#include "serve_priv.h"

#include <stdlib.h>
#include <string.h>

#define FRAME_MAX   ((size_t)8 << 20)
#define SAVES_MAX   512 /* frames of one peer's save that may wait: the ring's slots bound an honest one */
#define READS_MAX   256
#define WRITES_MAX  1024
#define ASKS_MAX    16
#define SCRUB_PACE  VT_MS(50) /* 20 MiB/s */
#define UPKEEP_PACE VT_SEC(60)

/* ---- queues ---- */

void jobs_init(struct jobs *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->n = 0;
}

void jobs_put(struct jobs *q, struct job *j)
{
    j->next = NULL;
    *q->tail = j;
    q->tail = &j->next;
    q->n++;
}

struct job *jobs_take(struct jobs *q)
{
    struct job *j = q->head;
    if (j == NULL)
        return NULL;
    q->head = j->next;
    if (q->head == NULL)
        q->tail = &q->head;
    q->n--;
    return j;
}

void job_free(struct job *j)
{
    vt_frame_close(&j->f);
    free(j->bytes);
    free(j);
}

static void jobs_clear(struct serve *v, struct jobs *q)
{
    for (struct job *j; (j = jobs_take(q)) != NULL; v->queued--)
        job_free(j);
}

/* Drops the frames of one operation. */
static void jobs_drop(struct serve *v, struct jobs *q, uint64_t id)
{
    struct jobs keep;
    jobs_init(&keep);
    for (struct job *j; (j = jobs_take(q)) != NULL;) {
        if (j->f.id == id) {
            job_free(j);
            v->queued--;
        } else {
            jobs_put(&keep, j);
        }
    }
    for (struct job *j; (j = jobs_take(&keep)) != NULL;)
        jobs_put(q, j);
}

/* ---- out ---- */

void serve_send(struct serve *v, uint32_t link)
{
    struct vt_err err;
    if (vt_enc_end(&v->enc, &err) < 0) {
        vt_log(v->o.store.log, VT_LOG_ERR, "an answer could not be written: %s", err.text);
        return;
    }
    v->ops->send(v->arg, link, v->enc.buf, v->enc.len);
}

void serve_fail(struct serve *v, struct peer *p, const struct vt_err *why)
{
    if (p->broken)
        return;
    p->broken = true;
    v->ops->fail(v->arg, p->link, why);
}

/* ---- peers ---- */

struct peer *serve_peer(struct serve *v, uint32_t link)
{
    for (int i = 0; i < SERVE_PEERS; i++)
        if (v->peers[i].used && v->peers[i].link == link)
            return &v->peers[i];
    return NULL;
}

void serve_link_up(struct serve *v, uint32_t link, void *base, size_t bytes)
{
    struct vt_err err;
    struct peer *p = NULL;
    for (int i = 0; i < SERVE_PEERS && p == NULL; i++)
        if (!v->peers[i].used)
            p = &v->peers[i];
    if (p == NULL || serve_peer(v, link) != NULL) {
        vt_fail(&err, VT_E_LIMIT, "no room for another engine's link");
        v->ops->fail(v->arg, link, &err);
        return;
    }
    *p = (struct peer){.used = true, .link = link};
    jobs_init(&p->saves);
    jobs_init(&p->reads);
    if (base == NULL)
        return;
    if (vt_ring_wrap(&p->ring, base, bytes, link, &err) < 0) {
        serve_fail(v, p, &err);
        return;
    }
    p->slot_out = calloc(p->ring.n_slots, 1);
    if (p->slot_out == NULL || p->ring.slot_size < CKPT_PIECE) {
        vt_fail(&err, VT_E_LIMIT, "ring slots of %u bytes; pieces need %u", p->ring.slot_size, CKPT_PIECE);
        serve_fail(v, p, &err);
        return;
    }
    p->has_ring = true;
}

void serve_link_down(struct serve *v, uint32_t link)
{
    struct peer *p = serve_peer(v, link);
    if (p == NULL)
        return;
    jobs_clear(v, &p->saves);
    jobs_clear(v, &p->reads);
    answer_abort(v, p, NULL);
    answer_end_load(v, p, NULL);
    store_plan_free(&p->plan);
    if (v->s != NULL)
        store_unpin(v->s, p->pins, p->n_pins);
    free(p->pins);
    free(p->slot_out);
    p->used = false;
}

/* ---- in ---- */

static bool is_launch(uint8_t type)
{
    return type == VT_F_LAUNCH_LAST || type == VT_F_LAUNCH_PUT || type == VT_F_LAUNCH_END;
}

/* ctl asks seldom; what it may have waiting is a handful. */
static void queue_ask(struct serve *v, struct job *j)
{
    struct vt_err err;
    if (v->asks.n < ASKS_MAX) {
        jobs_put(&v->asks, j);
        v->queued++;
        return;
    }
    vt_fail(&err, VT_E_BUSY, "the store has %d questions waiting", ASKS_MAX);
    ask_refuse(v, &j->f, &err);
    job_free(j);
}

static void queue(struct serve *v, struct jobs *q, struct job *j, size_t max, struct peer *p)
{
    struct vt_err err;
    if (q->n >= max) {
        vt_fail(&err, VT_E_LIMIT, "more frames than the ring has slots");
        if (p != NULL)
            serve_fail(v, p, &err);
        job_free(j);
        return;
    }
    jobs_put(q, j);
    v->queued++;
}

static void take_abort(struct serve *v, struct peer *p, uint64_t id)
{
    jobs_drop(v, &p->saves, id);
    if (p->save != NULL && p->save_id == id)
        answer_abort(v, p, NULL);
}

static void take_end(struct serve *v, struct peer *p, uint64_t id)
{
    jobs_drop(v, &p->reads, id);
    if (p->load != NULL && p->load_id == id)
        answer_end_load(v, p, NULL);
}

static void dispatch(struct serve *v, struct peer *p, struct job *j)
{
    struct vt_err err;
    switch (j->f.type) {
    case VT_F_CK_BEGIN:
    case VT_F_CK_CHUNK:
    case VT_F_CK_COMMIT:
        if (p->save != NULL && p->save_id == j->f.id)
            p->save_heard_us = vt_mono(v->o.store.clock);
        queue(v, &p->saves, j, SAVES_MAX, p);
        return;
    case VT_F_CK_FIND:
    case VT_F_CK_LOAD:
    case VT_F_CK_SALT: queue(v, &p->reads, j, READS_MAX, p); return;
    case VT_F_CK_ABORT:
    case VT_F_CK_END: /* an operation is a save or a restore, and ends in either way */
        take_abort(v, p, j->f.id);
        take_end(v, p, j->f.id);
        break;
    case VT_F_CK_DATA_ACK: answer_ack(v, p, &j->f); break;
    case VT_F_CK_PIN: answer_pin(v, p, &j->f, true); break;
    case VT_F_CK_UNPIN: answer_pin(v, p, &j->f, false); break;
    default:
        vt_fail(&err, VT_E_BAD_FRAME, "an engine does not send %s to the store", vt_frame_name(j->f.type));
        serve_fail(v, p, &err);
        break;
    }
    job_free(j);
}

void serve_frame(struct serve *v, const uint8_t *frame, size_t len)
{
    struct vt_err err;
    struct job *j = calloc(1, sizeof *j);
    uint8_t *bytes = malloc(len > 0 ? len : 1);
    if (j == NULL || bytes == NULL) {
        vt_log(v->o.store.log, VT_LOG_ERR, "no memory for a frame of %zu bytes", len);
        free(j);
        free(bytes);
        return;
    }
    memcpy(bytes, frame, len);
    if (vt_frame_open(&j->f, bytes, len, FRAME_MAX, &err) < 0) {
        vt_log(v->o.store.log, VT_LOG_ERR, "a frame was refused: %s", err.text);
        free(j);
        free(bytes);
        return;
    }
    j->bytes = bytes;
    struct peer *p = serve_peer(v, j->f.link);
    if (p != NULL && !p->broken)
        dispatch(v, p, j);
    else if (p == NULL && is_launch(j->f.type))
        queue(v, &v->writes, j, WRITES_MAX, NULL);
    else if (p == NULL && j->f.type == VT_F_STORE_ASK)
        queue_ask(v, j);
    else
        job_free(j);
}

/* ---- steps ---- */

static bool step_read(struct serve *v, struct peer *p)
{
    /* A plan belongs to the last find, so a load that runs keeps the next find of its link waiting. */
    if (p->reads.head == NULL)
        return false;
    uint8_t type = p->reads.head->f.type;
    if (type != VT_F_CK_SALT && p->load != NULL)
        return false;
    struct job *j = jobs_take(&p->reads);
    v->queued--;
    if (type == VT_F_CK_FIND) {
        answer_find(v, p, &j->f);
    } else if (type == VT_F_CK_LOAD) {
        answer_load(v, p, &j->f);
    } else if (!rows_salt_read(v, &j->f)) {
        queue(v, &v->writes, j, WRITES_MAX, p);
        return true;
    }
    job_free(j);
    return true;
}

static bool step_reads(struct serve *v)
{
    for (unsigned i = 0; i < SERVE_PEERS; i++) {
        struct peer *p = &v->peers[(v->turn + i) % SERVE_PEERS];
        if (!p->used || p->broken)
            continue;
        if (step_read(v, p) || answer_load_step(v, p)) {
            v->turn = (v->turn + i + 1) % SERVE_PEERS;
            return true;
        }
    }
    return false;
}

static struct peer *saver(struct serve *v)
{
    for (int i = 0; i < SERVE_PEERS; i++)
        if (v->peers[i].used && v->peers[i].save != NULL)
            return &v->peers[i];
    return NULL;
}

static void step_save_frame(struct serve *v, struct peer *p)
{
    struct job *j = jobs_take(&p->saves);
    struct vt_err err;
    v->queued--;
    if (j->f.type == VT_F_CK_BEGIN) {
        if (p->save == NULL) {
            answer_begin(v, p, &j->f);
        } else {
            vt_fail(&err, VT_E_BUSY, "this engine has a save open already");
            vt_enc_begin(&v->enc, VT_F_CK_ABORT, j->f.id, p->link);
            vt_enc_err(&v->enc, &err);
            serve_send(v, p->link);
        }
    } else if (p->save != NULL && p->save_id == j->f.id) {
        p->save_heard_us = vt_mono(v->o.store.clock);
        if (j->f.type == VT_F_CK_CHUNK)
            answer_chunk(v, p, &j->f);
        else
            answer_commit(v, p, &j->f);
    } /* else: of an operation that has ended; its sender has been told */
    job_free(j);
}

static bool step_save(struct serve *v)
{
    struct vt_err err;
    struct peer *p = saver(v);
    if (p == NULL || p->broken)
        return false;
    int more = save_step(p->save, &err);
    if (more < 0) {
        answer_abort(v, p, &err);
        return true;
    }
    if (more > 0)
        return true;
    if (p->saves.head != NULL) {
        step_save_frame(v, p);
        return true;
    }
    if (vt_mono(v->o.store.clock) - p->save_heard_us >= v->o.ck_idle_us) {
        vt_fail(&err, VT_E_DEADLINE, "the save was rolled back: nothing came for store.ck_idle_ms");
        answer_abort(v, p, &err);
        return true;
    }
    return false;
}

static bool step_write(struct serve *v)
{
    struct job *j = jobs_take(&v->writes);
    if (j == NULL)
        return false;
    v->queued--;
    switch (j->f.type) {
    case VT_F_CK_SALT: rows_salt_write(v, &j->f); break;
    case VT_F_LAUNCH_LAST: rows_launch_last(v, &j->f); break;
    case VT_F_LAUNCH_PUT: rows_launch_put(v, &j->f); break;
    default: rows_launch_end(v, &j->f); break;
    }
    job_free(j);
    return true;
}

static bool step_ask(struct serve *v)
{
    struct job *j = jobs_take(&v->asks);
    if (j == NULL)
        return false;
    v->queued--;
    ask_answer(v, &j->f);
    job_free(j);
    return true;
}

static bool step_next_save(struct serve *v)
{
    struct vt_err ignored;
    for (int i = 0; i < SERVE_PEERS; i++) {
        struct peer *p = &v->peers[i];
        if (!p->used || p->broken || p->saves.head == NULL)
            continue;
        /* What a read found bad is marked first, or the save would count on it. */
        if (store_quarantine(v->s, &ignored) == 1)
            return true;
        step_save_frame(v, p);
        return true;
    }
    return false;
}

/* Everything that was open is told to begin again; then the file is moved aside and a fresh one made. */
static int rebuild(struct serve *v, struct vt_err *err)
{
    struct vt_err why;
    vt_fail(&why, VT_E_CORRUPT, "the checkpoint database was damaged and is made anew");
    for (int i = 0; i < SERVE_PEERS; i++) {
        struct peer *p = &v->peers[i];
        if (!p->used)
            continue;
        answer_abort(v, p, &why);
        answer_end_load(v, p, &why);
        store_plan_free(&p->plan);
        p->has_plan = false;
        p->n_pins = 0;
    }
    ask_verify_fail(v, &why);
    store_close(v->s, false);
    v->s = NULL;
    struct store_opts o = v->o.store;
    o.condemned = true;
    return store_open(&v->s, &o, err);
}

static enum serve_did after(struct serve *v, bool worked, struct vt_err *err)
{
    if (!store_damaged(v->s))
        return worked ? SERVE_WORK : SERVE_NOTHING;
    return rebuild(v, err) < 0 ? SERVE_BROKEN : SERVE_WORK;
}

enum serve_did serve_step(struct serve *v, struct vt_err *err)
{
    bool worked = step_reads(v) || step_save(v) || (!store_in_txn(v->s) && step_write(v)) ||
                  (saver(v) == NULL && (step_ask(v) || step_next_save(v)));
    return after(v, worked, err);
}

enum serve_did serve_upkeep(struct serve *v, struct vt_err *err)
{
    uint64_t now = vt_mono(v->o.store.clock);
    struct vt_err why;
    int rc = 0;
    if (store_in_txn(v->s) || saver(v) != NULL)
        return SERVE_NOTHING;
    rc = store_idle(v->s, &why);
    if (rc == 0 && v->verify.active) {
        rc = ask_verify_step(v, &why);
    } else if (rc == 0 && now - v->scrub_us >= SCRUB_PACE) {
        v->scrub_us = now;
        rc = store_scrub(v->s, &why);
        v->upkeep_due = rc == 1;
        rc = rc < 0 ? -1 : 0; /* one piece a call: it is paced by serve_wait_us */
    }
    if (rc < 0 && !store_damaged(v->s))
        vt_log(v->o.store.log, VT_LOG_WARNING, "upkeep: %s", why.text);
    return after(v, rc == 1, err);
}

uint64_t serve_wait_us(const struct serve *v)
{
    uint64_t now = vt_mono(v->o.store.clock), wait = v->upkeep_due ? SCRUB_PACE : UPKEEP_PACE;
    for (int i = 0; i < SERVE_PEERS; i++) {
        const struct peer *p = &v->peers[i];
        if (!p->used || p->save == NULL)
            continue;
        uint64_t due = p->save_heard_us + v->o.ck_idle_us, left = due > now ? due - now : 0;
        wait = left < wait ? left : wait;
    }
    return wait;
}

void serve_flush(struct serve *v)
{
    struct vt_err err;
    while (serve_step(v, &err) == SERVE_WORK)
        ;
}

/* ---- life ---- */

int serve_new(struct serve **out, const struct serve_opts *o, const struct serve_ops *ops, void *arg,
              struct vt_err *err)
{
    *out = NULL;
    struct serve *v = calloc(1, sizeof *v);
    if (v == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the store");
    v->o = *o;
    v->ops = ops;
    v->arg = arg;
    jobs_init(&v->writes);
    jobs_init(&v->asks);
    if (store_open(&v->s, &o->store, err) < 0) {
        free(v);
        return -1;
    }
    v->upkeep_due = true;
    vt_enc_init(&v->enc);
    *out = v;
    return 0;
}

void serve_free(struct serve *v, bool clean)
{
    if (v == NULL)
        return;
    for (int i = 0; i < SERVE_PEERS; i++)
        if (v->peers[i].used)
            serve_link_down(v, v->peers[i].link);
    jobs_clear(v, &v->writes);
    jobs_clear(v, &v->asks);
    store_close(v->s, clean);
    vt_enc_fini(&v->enc);
    free(v);
}

struct store *serve_store(struct serve *v)
{
    return v->s;
}

size_t serve_queued(const struct serve *v)
{
    return v->queued;
}

unsigned serve_op(const struct serve *v)
{
    unsigned op = 0;
    for (int i = 0; i < SERVE_PEERS; i++) {
        if (!v->peers[i].used)
            continue;
        if (v->peers[i].load != NULL)
            return 4;
        if (v->peers[i].save != NULL)
            op = 3;
    }
    return op;
}
