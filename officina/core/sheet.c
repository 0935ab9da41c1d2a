/* What lies over the transcript: shown, moved in, acted on. */
#include "core/core_priv.h"

#include <stdlib.h>
#include <string.h>

static char **strings(const json_t *v, size_t *n)
{
    *n = 0;
    char **out = mem_new((json_array_size(v) + 1) * sizeof *out);
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        out[(*n)++] = mem_dup(s != NULL ? s : "");
    }
    return out;
}

static void fill(struct sheet *s, const json_t *o)
{
    const json_t *heads = json_object_get(o, "heads"), *rows = json_object_get(o, "rows");
    size_t columns = sizeof s->heads / sizeof s->heads[0];
    for (size_t i = 0; i < columns; i++)
        s->heads[i] = mem_dup(json_string_value(json_array_get(heads, i)));
    s->rows = mem_new((json_array_size(rows) + 1) * sizeof *s->rows);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i), *cells = json_object_get(row, "cells");
        struct sheet_row *r = &s->rows[s->n_rows++];
        r->key = mem_dup(js_str(row, "key"));
        for (size_t k = 0; k < columns; k++)
            r->cells[k] = mem_dup(json_string_value(json_array_get(cells, k)));
    }
    s->lines = strings(json_object_get(o, "lines"), &s->n_lines);
    s->detail = strings(json_object_get(o, "detail"), &s->n_detail);
}

void sheet_show(struct model *m, const struct event *e)
{
    struct sheet *s = &m->sheet;
    json_t *o = js_parse(e->text, strlen(e->text), NULL, 0);
    sheet_clear(s);
    s->kind = (enum sheet_kind)e->n;
    s->title = mem_dup(e->name);
    if (o != NULL)
        fill(s, o);
    s->keys = mem_dup(s->kind == SHEET_RESUME || s->kind == SHEET_COUPLE ? "Enter takes it   Esc stay"
                      : s->kind == SHEET_TRUST                           ? "Alt-Y trusts   Esc does not"
                                                                         : "Esc closes");
    json_decref(o);
}

void sheet_move(struct model *m, int64_t rows, struct effects *fx)
{
    struct sheet *s = &m->sheet;
    if (s->n_rows == 0)
        return;
    int64_t at = (int64_t)s->cursor + rows, last = (int64_t)s->n_rows - 1;
    s->cursor = (size_t)(at < 0 ? 0 : at > last ? last : at);
    if (s->kind != SHEET_REWIND)
        return;
    for (size_t i = 0; i < s->n_detail; i++)
        free(s->detail[i]);
    s->n_detail = 0;
    for (size_t i = 0; i < m->n_turns && s->rows[s->cursor].key != NULL; i++)
        if (strcmp(m->turns[i].key, s->rows[s->cursor].key) == 0)
            effect_add(fx, FX_REWIND_PLAN, (int64_t)i, NULL, NULL);
}

static void act(struct model *m, const char *row, int key, struct effects *fx)
{
    size_t turn = m->n_turns;
    for (size_t i = 0; i < m->n_turns && row != NULL; i++)
        if (strcmp(m->turns[i].key, row) == 0)
            turn = i;
    enum sheet_kind kind = m->sheet.kind;
    if (kind == SHEET_TRUST) {
        if (key == 'y') {
            effect_add(fx, FX_TRUST, 0, NULL, NULL)->n = 1;
            sheet_clear(&m->sheet);
        }
    } else if (key == 'd' && turn < m->n_turns) {
        effect_add(fx, FX_DIFF, (int64_t)turn, NULL, NULL);
    } else if (kind == SHEET_REWIND && strchr("\rfc", key) != NULL) {
        sheet_clear(&m->sheet);
        if (turn < m->n_turns)
            rewind_go(m, turn, key == '\r' ? 'b' : key, fx);
    } else if (key == '\r' && kind == SHEET_COUPLE && m->core->phase == PH_STREAM) {
        sheet_clear(&m->sheet);
        notice(m, NOTICE_TROUBLE, "/couple has to wait until the answer has ended; Esc stops it.");
    } else if (key == '\r' && row != NULL && (kind == SHEET_RESUME || kind == SHEET_COUPLE)) {
        effect_add(fx, kind == SHEET_RESUME ? FX_OPEN : FX_COUPLE, 0, row, row);
        sheet_clear(&m->sheet);
    } else if (key == '\r') {
        sheet_clear(&m->sheet);
    }
}

void sheet_do(struct model *m, int key, struct effects *fx)
{
    struct sheet *s = &m->sheet;
    if (s->kind == SHEET_NONE || key == 0)
        return;
    if (key == 27) {
        if (s->kind == SHEET_TRUST)
            effect_add(fx, FX_TRUST, 0, NULL, NULL)->n = 0;
        sheet_clear(s);
        return;
    }
    char *row = s->cursor < s->n_rows ? mem_dup(s->rows[s->cursor].key) : NULL;
    act(m, row, key, fx);
    free(row);
}
