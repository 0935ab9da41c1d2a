/* The status word: derived from what runs, what waits, and the engine's link. */
#include "core/core_priv.h"

#include <string.h>

static void set(struct model *m, enum status s)
{
    if (m->status != s)
        m->status_since = m->now;
    m->status = s;
}

static enum status of_link(const struct model *m, enum status dflt)
{
    switch (m->engine.link) {
    case LINK_AWAY: return ST_AWAY;
    case LINK_LOADING: return ST_LOADING;
    case LINK_BOUNCING: return ST_BOUNCING;
    case LINK_WARMING: return ST_WARMING;
    default: return dflt;
    }
}

static enum status of_stream(const struct model *m)
{
    const struct core *c = m->core;
    enum status dflt = c->purpose == FOR_DISTIL                        ? ST_DISTIL
                       : c->answer.text != 0 || c->answer.n_calls != 0 ? ST_WRITING
                       : c->answer.reasoning != 0                      ? ST_THINKING
                       : m->gauges.read_of > 0                         ? ST_READING
                       : m->engine.slots > 0 && m->engine.slots_busy == m->engine.slots &&
                               c->heard_at == c->sent_at && m->now - c->sent_at > SEC(2)
                           ? ST_SLOT
                           : ST_SENDING;
    return of_link(m, dflt);
}

static enum status of_calls(struct model *m)
{
    size_t first = m->n_turns != 0 ? m->turns[m->n_turns - 1].first_item : 0;
    enum status s = ST_RUNNING;
    bool found = false;
    m->n_asking = 0;
    for (size_t i = first; i < m->n_items; i++) {
        const struct item *it = &m->items[i];
        if (it->kind != ITEM_CALL || !it->live)
            continue;
        if (it->call->state == CALL_ASKING) {
            if (m->n_asking++ == 0) {
                m->asking = i;
                s = it->call->approval != NULL ? ST_APPROVAL : ST_ANSWER;
            }
        } else if ((it->call->state == CALL_RUNNING || it->call->state == CALL_PENDING) && !found) {
            m->running = i;
            found = true;
        }
    }
    return s;
}

void status_update(struct model *m)
{
    struct core *c = m->core;
    enum status kept =
        m->status == ST_ERROR || m->status == ST_INTERRUPT || m->status == ST_FULL || m->status == ST_CAP
            ? m->status
            : ST_READY;
    switch (c->phase) {
    case PH_STREAM: set(m, of_stream(m)); break;
    case PH_CALLS: set(m, of_calls(m)); break;
    case PH_WANT: set(m, of_link(m, c->purpose == FOR_DISTIL ? ST_DISTIL : ST_SENDING)); break;
    default:
        if (m->sheet.kind == SHEET_REWIND)
            set(m, ST_REWIND);
        else if (m->read_only)
            set(m, ST_READONLY);
        else
            set(m, kept != ST_READY ? kept : of_link(m, ST_READY));
        break;
    }
}
