/* Projection and wire: the messages that the model sees, and their bytes. Bytes of a unit are made once; only a new
 * epoch (offload, distil, rewind, another coupling) makes others. */
#include "core/core_priv.h"
#include "couple/dialect.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STUB_HEAD 40

void unit_clear(struct unit *u)
{
    free(u->bytes);
    free(u->note);
    free(u->steer);
    *u = (struct unit){0};
}

/* All units anew in the present dialect and their present forms; the next request starts an epoch. */
void wire_reset(struct model *m)
{
    struct core *c = m->core;
    for (size_t i = 0; i < c->n_units; i++)
        unit_build(m, &c->units[i]);
    c->epoch++;
    text_clear(&c->sent);
}

static void stub_of(const struct model *m, const struct unit *u, struct text *t)
{
    const struct item *it = &m->items[u->item];
    const char *s = it->kind == ITEM_CALL ? text_str(&it->call->result) : text_str(&it->body);
    size_t lines = *s != '\0';
    for (const char *p = s; *p != '\0'; p++)
        lines += *p == '\n' && p[1] != '\0';
    char *head = utf8_mend(s, strnlen(s, STUB_HEAD));
    for (char *p = head; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
    const char *name = it->kind == ITEM_CALL ? it->call->name : "text";
    const char *gist = it->kind == ITEM_CALL && it->call->gist != NULL ? it->call->gist : "";
    text_printf(t, "[m-%04" PRId64 " %s %.80s: %zu lines, begins \"%s\"; recall m-%04" PRId64 "]", u->id,
                name, gist, lines, head, u->id);
    free(head);
}

void unit_build(struct model *m, struct unit *u)
{
    struct core *c = m->core;
    struct text t = {0};
    free(u->bytes);
    u->bytes = NULL;
    u->stored = false;
    if (u->form == FORM_GONE) {
        u->tokens = 0;
        return;
    }
    struct item *it = &m->items[u->item];
    if (u->role == ROLE_USER) {
        struct text stub = {0};
        if (u->form == FORM_STUB)
            stub_of(m, u, &stub);
        const struct text *body = u->form == FORM_STUB ? &stub : &it->body;
        dialect_user(&t, &c->cpl, u->note, text_str(body), body->len);
        text_free(&stub);
    } else if (u->role == ROLE_ANSWER) {
        struct coupling bare = c->cpl;
        if (u->form == FORM_STUB) /* an old answer without its reasoning */
            bare.reasoning = REASONING_DROP;
        /* A (stopped) that was put in has no item of its own. */
        dialect_answer(&t, &bare, it, u->count);
    } else if (u->form == FORM_STUB) {
        struct call short_call = *it->call;
        short_call.result = (struct text){0};
        short_call.repair = NULL;
        stub_of(m, u, &short_call.result);
        dialect_result(&t, &c->cpl, &short_call, u->note, u->steer);
        text_free(&short_call.result);
    } else {
        dialect_result(&t, &c->cpl, it->call, u->note, u->steer);
    }
    u->tokens = (int64_t)((double)t.len / c->bytes_per_token) + 4;
    u->bytes = text_take(&t);
}

static struct unit *unit_add(struct model *m, enum role role, size_t item, size_t count, int64_t id)
{
    struct core *c = m->core;
    c->units = mem_room(c->units, c->n_units, &c->cap_units, sizeof *c->units);
    struct unit *u = &c->units[c->n_units++];
    *u = (struct unit){.role = role, .item = item, .count = count, .id = id};
    return u;
}

static bool is_answer(const struct item *it)
{
    return it->kind == ITEM_REASONING || it->kind == ITEM_TEXT ||
           (it->kind == ITEM_CALL && it->answer != 0); /* the others are calls of a command */
}

/* An answer and its results. Returns the index behind it. */
static size_t add_answer(struct model *m, size_t i)
{
    size_t end = i + 1;
    /* Notices may stand between its parts. */
    for (size_t k = end; k < m->n_items && (is_answer(&m->items[k]) || m->items[k].kind == ITEM_NOTICE);
         k++) {
        if (m->items[k].kind == ITEM_NOTICE || !m->items[k].live)
            continue;
        if (m->items[k].answer != m->items[i].answer)
            break;
        end = k + 1;
    }
    unit_build(m, unit_add(m, ROLE_ANSWER, i, end - i, m->items[i].id));
    for (size_t k = i; k < end; k++)
        if (m->items[k].kind == ITEM_CALL && m->items[k].live)
            unit_build(m, unit_add(m, ROLE_RESULT, k, 1, m->items[k].call->result_id));
    return end;
}

static void add_user(struct model *m, size_t i, struct text *note, size_t first_new)
{
    struct core *c = m->core;
    struct unit *last = c->n_units != 0 ? &c->units[c->n_units - 1] : NULL;
    if (last != NULL && last->role == ROLE_RESULT && c->cpl.steer_in_result && c->n_units > first_new) {
        last->steer = mem_dup(text_str(&m->items[i].body));
        unit_build(m, last);
        return;
    }
    if (last != NULL && last->role == ROLE_USER) /* stopped before any word of the model */
        unit_build(m, unit_add(m, ROLE_ANSWER, i, 0, -m->items[i].id));
    struct unit *u = unit_add(m, ROLE_USER, i, 1, m->items[i].id);
    if (note->len != 0)
        u->note = text_take(note);
    unit_build(m, u);
}

/* What was said last, before the request, stands behind what was said before the message. */
static void add_to_note(struct unit *u, struct text *note)
{
    struct text t = {0};
    text_printf(&t, "%s%s%s", u->note != NULL ? u->note : "", u->note != NULL ? "\n" : "", text_str(note));
    free(u->note);
    u->note = text_take(&t);
}

void wire_update(struct model *m)
{
    struct core *c = m->core;
    struct text note = {0};
    size_t first_new = c->n_units, i = c->covered, note_at = m->n_items;
    if (c->phase == PH_STREAM || c->phase == PH_CALLS)
        return; /* an answer without its results is no message yet */
    while (i < m->n_items) {
        struct item *it = &m->items[i];
        if (it->live && it->kind == ITEM_NOTE) {
            note_at = note.len == 0 ? i : note_at;
            text_printf(&note, "%s[officina] %s", note.len != 0 ? "\n" : "", text_str(&it->body));
        } else if (it->live && it->kind == ITEM_USER) {
            add_user(m, i, &note, first_new);
        } else if (it->live && is_answer(it)) {
            i = add_answer(m, i);
            continue;
        }
        i++;
    }
    c->covered = m->n_items;
    if (note.len != 0) {
        struct unit *last = c->n_units > first_new ? &c->units[c->n_units - 1] : NULL;
        if (last != NULL && last->role != ROLE_ANSWER) {
            add_to_note(last, &note);
            unit_build(m, last);
        } else {
            c->covered = note_at; /* it waits for the next message */
        }
    }
    text_free(&note);
}

char *wire_body(struct model *m, const char *extra, int64_t max_tokens)
{
    struct core *c = m->core;
    struct text t = {0};
    dialect_head(&t, &c->cpl, c->tools, c->opening);
    for (size_t i = 0; i < c->n_units; i++) {
        if (c->units[i].bytes == NULL)
            continue;
        text_puts(&t, ",");
        text_puts(&t, c->units[i].bytes);
    }
    /* Law 1: what was sent stands unchanged at the front of what is sent now. */
    assert(t.len >= c->sent.len && memcmp(text_str(&t), text_str(&c->sent), c->sent.len) == 0);
    text_clear(&c->sent);
    text_add(&c->sent, t.s, t.len);
    if (extra != NULL) {
        struct unit *last = c->n_units != 0 ? &c->units[c->n_units - 1] : NULL;
        if (last != NULL && last->role == ROLE_USER) {
            text_puts(&t, ",");
            dialect_answer(&t, &c->cpl, NULL, 0);
        }
        text_puts(&t, ",");
        dialect_user(&t, &c->cpl, NULL, extra, strlen(extra));
    }
    dialect_tail(&t, &c->cpl, m->engine.model, max_tokens, true);
    return text_take(&t);
}

int64_t wire_tokens(const struct model *m)
{
    const struct core *c = m->core;
    int64_t sum = 0;
    for (size_t i = 0; i < c->n_units; i++)
        sum += c->units[i].tokens;
    return sum;
}
