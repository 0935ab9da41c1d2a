#include "core/model.h"

#include "core/core_priv.h"

#include <stdlib.h>
#include <string.h>

struct model *model_new(void)
{
    struct model *m = mem_new(sizeof *m);
    m->git_new = m->git_changed = UNKNOWN;
    m->engine = (struct engine){.bounce_eta = UNKNOWN,
                                .slot = UNKNOWN,
                                .slots = UNKNOWN,
                                .slots_busy = UNKNOWN,
                                .window = UNKNOWN,
                                .certified = UNKNOWN,
                                .boot_decoded = UNKNOWN,
                                .evicted = UNKNOWN};
    struct gauges *g = &m->gauges;
    g->used = g->size = g->live = g->offload = g->target = g->read = g->read_of = g->read_last = UNKNOWN;
    g->in = g->cached = g->out = g->reread = g->spent = UNKNOWN;
    g->read_speed = g->decode = UNKNOWN;
    for (int i = 0; i < SPEED_SAMPLES; i++)
        g->speed[i] = -1;
    m->core = core_new();
    return m;
}

void change_free(struct file_change *c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(c[i].path);
        free(c[i].before);
        free(c[i].after);
        free(c[i].remark);
    }
    free(c);
}

void approval_free(struct approval *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < a->n_parts; i++) {
        free(a->parts[i].text);
        free(a->parts[i].reason);
    }
    free(a->parts);
    change_free(a->changes, a->n_changes);
    free(a->what);
    free(a->where);
    free(a->rule_session);
    free(a->rule_project);
    free(a);
}

static void lines_free(char **v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(v[i]);
    free(v);
}

void call_free(struct call *c)
{
    if (c == NULL)
        return;
    free(c->id);
    free(c->wire_id);
    free(c->name);
    free(c->args);
    free(c->gist);
    text_free(&c->tail);
    text_free(&c->result);
    free(c->reason);
    free(c->repair);
    free(c->fault);
    change_free(c->change, c->n_changes);
    approval_free(c->approval);
    free(c->question);
    lines_free(c->options, c->n_options);
    free(c);
}

void sheet_clear(struct sheet *s)
{
    free(s->title);
    for (size_t i = 0; i < sizeof s->heads / sizeof s->heads[0]; i++)
        free(s->heads[i]);
    for (size_t i = 0; i < s->n_rows; i++) {
        for (size_t k = 0; k < sizeof s->rows[i].cells / sizeof s->rows[i].cells[0]; k++)
            free(s->rows[i].cells[k]);
        free(s->rows[i].key);
    }
    free(s->rows);
    lines_free(s->detail, s->n_detail);
    lines_free(s->lines, s->n_lines);
    change_free(s->changes, s->n_changes);
    free(s->keys);
    free(s->hint);
    *s = (struct sheet){0};
}

void set_str(char **at, const char *s)
{
    char *copy = mem_dup(s);
    free(*at);
    *at = copy;
}

void turn_clear(struct turn *t)
{
    free(t->coupling);
    free(t->tree_user);
    free(t->tree_before);
    free(t->tree_after);
    free(t->partial);
    free(t->checkpoint);
}

void model_empty(struct model *m)
{
    for (size_t i = 0; i < m->n_items; i++) {
        text_free(&m->items[i].body);
        call_free(m->items[i].call);
    }
    for (size_t i = 0; i < m->n_turns; i++)
        turn_clear(&m->turns[i]);
    for (size_t i = 0; i < m->n_queue; i++)
        free(m->queue[i].text);
    for (size_t i = 0; i < m->n_touched; i++)
        free(m->touched[i].path);
    for (size_t i = 0; i < m->n_tasks; i++)
        free(m->tasks[i].text);
    m->n_items = m->n_turns = m->n_queue = m->n_touched = m->n_tasks = 0;
    text_clear(&m->composer.text);
    m->composer.caret = 0;
    sheet_clear(&m->sheet);
}

void section_clear(struct section *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->lines[i]);
    free(s->lines);
    s->lines = NULL;
    s->n = 0;
}

struct own_command *commands_free(struct own_command *v, size_t *n)
{
    for (size_t i = 0; i < *n; i++) {
        free(v[i].name);
        free(v[i].args);
        free(v[i].help);
    }
    free(v);
    *n = 0;
    return NULL;
}

void model_free(struct model *m)
{
    if (m == NULL)
        return;
    model_empty(m);
    text_free(&m->composer.text);
    for (size_t i = 0; i < m->n_jobs; i++)
        free(m->jobs[i].command);
    for (size_t i = 0; i < m->n_servers; i++) {
        free(m->servers[i].name);
        free(m->servers[i].word);
    }
    for (size_t i = 0; i < m->n_sections; i++) {
        section_clear(&m->sections[i]);
        free(m->sections[i].name);
    }
    free(m->sections);
    commands_free(m->commands, &m->n_commands);
    void *owned[] = {m->items,
                     m->turns,
                     m->queue,
                     m->touched,
                     m->tasks,
                     m->jobs,
                     m->servers,
                     m->session,
                     m->title,
                     m->folder,
                     m->root,
                     m->branch,
                     m->coupling,
                     m->coupling_title,
                     m->sandbox,
                     m->status_text,
                     m->engine.boot,
                     m->engine.model,
                     m->engine.build,
                     m->engine.warming,
                     m->engine.save_why_not,
                     m->engine.certified_how};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    core_free(m->core);
    free(m);
}

struct item *model_add(struct model *m, enum item_kind kind)
{
    m->items = mem_room(m->items, m->n_items, &m->cap_items, sizeof *m->items);
    struct item *it = &m->items[m->n_items++];
    *it = (struct item){.kind = kind,
                        .turn = m->n_turns != 0 ? m->n_turns - 1 : 0,
                        .at = m->now,
                        .tokens = UNKNOWN,
                        .times = 1,
                        .live = true,
                        .dirty = true};
    /* A call's number is followed by its result's. */
    const struct item *last = m->n_items > 1 ? it - 1 : NULL;
    it->id = last != NULL ? last->id + (last->kind == ITEM_CALL ? 2 : 1) : 1;
    if (kind == ITEM_CALL) {
        it->call = mem_new(sizeof *it->call);
        it->call->result_tokens = UNKNOWN;
        it->call->result_id = it->id + 1;
    }
    return it;
}

bool model_is_empty(const struct model *m)
{
    return m->n_items == 0 && m->composer.text.len == 0;
}

const char *mode_name(enum mode mode)
{
    return mode == MODE_PLAN ? "PLAN" : "BUILD";
}

const char *status_word(enum status s)
{
    static const char *const words[] = {
        [ST_READY] = "READY",
        [ST_SENDING] = "SENDING",
        [ST_READING] = "READING",
        [ST_THINKING] = "THINKING",
        [ST_WRITING] = "WRITING",
        [ST_RUNNING] = "RUNNING",
        [ST_APPROVAL] = "AWAITING APPROVAL",
        [ST_ANSWER] = "AWAITING ANSWER",
        [ST_INTERRUPT] = "INTERRUPTED",
        [ST_ERROR] = "ERROR",
        [ST_AWAY] = "ENGINE AWAY",
        [ST_LOADING] = "ENGINE LOADING",
        [ST_BOUNCING] = "ENGINE BOUNCING",
        [ST_WARMING] = "WARMING",
        [ST_SLOT] = "WAITING SLOT",
        [ST_OFFLOAD] = "OFFLOADING",
        [ST_DISTIL] = "DISTILLING",
        [ST_FULL] = "CONTEXT FULL",
        [ST_CAP] = "CAP REACHED",
        [ST_REWIND] = "REWIND",
        [ST_READONLY] = "READ ONLY",
        [ST_OPENING] = "OPENING",
    };
    return words[s];
}
