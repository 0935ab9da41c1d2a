#include "internal.h"

#include <assert.h>

/* Guesses of a sequence are rows of the batch behind its newest item. Their K and V go into the pages like those of items, behind
 * the sequence's end, where nothing reads them before the next step writes over them; so a wrong guess leaves nothing
 * behind. What is guessed stays in the page that the newest item is in: no page is taken, and none given up, for a guess.
 *
 * The recurrent state of a hybrid goes through wrong guesses, too. It is kept aside before a step with guesses, and comes back
 * when one is wrong; the items that were evaluated since are rows of the next step once more. Such a guess never fills its page, whose
 * snapshot would be of it.
 *
 * After CONTROL_EVERY right guesses in a row the last one of the next is wrong on purpose. Whatever verifies rightly refutes it; if it is
 * not refuted either, right and wrong are not told apart, and that is an alarm (worker/drafting.h), while a text that
 * copies for pages is none. */
#define CONTROL_EVERY 256

int drafts_new(struct eng *e, struct slot *s, struct vt_err *err)
{
    void *state = NULL;
    if (e->spec_n == 0)
        return 0;
    if (s->seq.state && be_alloc(e->be, &state, kv_snap_bytes(e->kv), err) < 0)
        return -1;
    s->drafts.state = state;
    return ngram_new(&s->drafts.ngram, e->window, err);
}

void drafts_free(struct eng *e, struct slot *s)
{
    ngram_free(s->drafts.ngram);
    if (s->drafts.state)
        be_release(e->be, s->drafts.state, kv_snap_bytes(e->kv));
}

void drafts_clear(struct slot *s)
{
    struct ngram *g = s->drafts.ngram;
    if (g)
        ngram_clear(g);
    s->drafts = (struct drafts){.ngram = g, .state = s->drafts.state};
}

/* More would not be told, or has no place. */
static uint32_t useful(const struct eng *e, const struct slot *s, uint32_t most)
{
    const struct request *r = s->req;
    uint32_t room = s->seq.n_pages * BE_PAGE - r->n_items;
    uint32_t limit[] = {e->spec_n,
                        DRAFT_MAX,
                        r->credit - 1,
                        r->max_new - r->n_emitted - 1,
                        e->window - r->n_items - 1,
                        s->seq.state && room > 0 ? room - 1 : room};
    for (size_t i = 0; i < sizeof limit / sizeof *limit; i++)
        most = limit[i] < most ? limit[i] : most;
    return most;
}

uint32_t drafts_guess(struct eng *e, struct slot *s, uint32_t most)
{
    struct drafts *d = &s->drafts;
    struct request *r = s->req;
    assert(d->n == 0 && d->right == 0 && s->seq.n < r->n_items && r->credit > 0 && r->n_emitted < r->max_new);
    if (!d->ngram || (most = useful(e, s, most)) == 0 || (most = pace_length(&d->pace, most)) == 0)
        return 0;
    d->n = ngram_draft(d->ngram, r->items, r->n_items, pace_agreement(&d->pace, NGRAM_LEAST), most, d->ids);
    if (d->n == 0)
        return 0;
    if (s->seq.state) {
        be_copy(e->be, d->state, s->seq.state, kv_snap_bytes(e->kv));
        d->from = s->seq.n;
    }
    d->control = e->unrefuted >= CONTROL_EVERY;
    if (d->control)
        d->ids[d->n - 1] = (d->ids[d->n - 1] + 1) % (uint32_t)e->model->n_vocab;
    r->n_drafted += d->n - d->control;
    e->counters.spec_drafted += d->n - d->control;
    e->counters.spec_drafts++;
    return d->n;
}

bool drafts_confirm(struct eng *e, struct slot *s, uint32_t id)
{
    struct drafts *d = &s->drafts;
    if (d->right == d->n || d->ids[d->right] != id)
        return false;
    d->right++;
    e->unrefuted++;
    if (!d->control || d->right < d->n) {
        s->req->n_accepted++;
        e->counters.spec_accepted++;
    }
    return true;
}

/* A request that has ended has not judged what came behind its end. */
void drafts_judge(struct eng *e, struct slot *s)
{
    struct drafts *d = &s->drafts;
    uint32_t n = d->n, honest = n - d->control;
    if (s->seq.state && d->right < n && s->seq.n >= d->from) { /* less: it was not finite, and is empty */
        kv_seq_rewind(&s->seq, d->from, d->state);
        slot_changed(s);
    }
    if (n > 0 && s->req) {
        if (d->right < n) {
            e->counters.spec_refuted++;
            e->unrefuted = 0;
        }
        if (honest > 0)
            pace_told(&d->pace, honest, d->right < honest ? d->right : honest);
    }
    d->n = d->right = 0;
    d->control = false;
}
