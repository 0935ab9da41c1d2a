/* What a step changed goes into the store; a stored conversation comes back as events. */
#include "core/core_priv.h"
#include "core/item_json.h"
#include "store/store_priv.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char *const kinds[] = {"user", "note", "reasoning", "text", "call", "cut", "notice"};

/* ---- saving ---- */

static const char *state_of(const struct item *it)
{
    static const char *const states[] = {"arriving", "pending", "asking",  "running", "ok",
                                         "failed",   "denied",  "refused", "closed"};
    return it->call != NULL ? states[it->call->state] : it->partial ? "partial" : NULL;
}

static int remember(struct store *s, const char *session, int64_t row, int64_t ref, const char *title,
                    const struct text *body, struct vt_err *err)
{
    char name[24];
    snprintf(name, sizeof name, "m-%04lld", (long long)ref);
    if (body->len == 0)
        return 0;
    return sql_run(s, err,
                   "INSERT OR REPLACE INTO memory(rowid, title, body, ref, session) VALUES(?, ?, ?, ?, ?)",
                   "isbss", row, title, text_str(body), body->len, name, session);
}

/* The call and its result are rows of one transaction: a call is never without exactly one result. */
static int save_call(struct store *s, const struct item *it, const char *meta, struct vt_err *err)
{
    const struct call *c = it->call;
    const char *state = state_of(it);
    if (sql_run(
            s, err,
            "INSERT OR REPLACE INTO item(id, session, turn, kind, call_id, name, state, body, meta, created) "
            "VALUES(?, ?, ?, 'call', ?, ?, ?, ?, ?, ?)",
            "iiisssssi", ROW(s->num, it->id), s->num, (int64_t)it->turn, c->id, c->name, state, c->args, meta,
            (int64_t)it->at) < 0)
        return -1;
    return sql_run(
        s, err,
        "INSERT OR REPLACE INTO item(id, session, turn, kind, call_id, name, state, body, meta, created) "
        "VALUES(?, ?, ?, 'result', ?, ?, ?, ?, '{}', ?)",
        "iiisssbi", ROW(s->num, c->result_id), s->num, (int64_t)it->turn, c->id, c->name, state,
        text_str(&c->result), c->result.len, (int64_t)(c->ended != 0 ? c->ended : it->at));
}

static int save_item(struct store *s, struct model *m, struct item *it, struct vt_err *err)
{
    char *meta = js_dump(item_to_json(it));
    int rc;
    if (it->kind == ITEM_CALL)
        rc = save_call(s, it, meta, err);
    else
        rc = sql_run(s, err,
                     "INSERT OR REPLACE INTO item(id, session, turn, kind, state, body, meta, created) "
                     "VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
                     "iiissbsi", ROW(s->num, it->id), s->num, (int64_t)it->turn, kinds[it->kind],
                     state_of(it), text_str(&it->body), it->body.len, meta, (int64_t)it->at);
    free(meta);
    if (rc == 0 && it->kind == ITEM_CALL && it->call->state >= CALL_OK)
        rc = remember(s, s->held, ROW(s->num, it->call->result_id), it->call->result_id, it->call->gist,
                      &it->call->result, err);
    else if (rc == 0 && (it->kind == ITEM_USER || (it->kind == ITEM_TEXT && it->ended != 0)))
        rc = remember(s, s->held, ROW(s->num, it->id), it->id, NULL, &it->body, err);
    if (rc == 0)
        it->dirty = false;
    return rc;
}

static int save_turn(struct store *s, struct model *m, size_t i, struct vt_err *err)
{
    struct turn *t = &m->turns[i];
    char *meta = js_dump(turn_to_json(t));
    int rc =
        sql_run(s, err, "INSERT OR REPLACE INTO turn(session, idx, key, state, meta) VALUES(?, ?, ?, ?, ?)",
                "iisis", s->num, (int64_t)i, t->key, (int64_t)t->state, meta);
    free(meta);
    if (rc == 0)
        t->dirty = false;
    return rc;
}

static int save_units(struct store *s, struct model *m, struct vt_err *err)
{
    struct core *c = m->core;
    int rc = 0;
    if (s->epoch != c->epoch || s->units > c->n_units) {
        rc = sql_run(s, err, "DELETE FROM unit WHERE session = ?", "i", s->num);
        s->epoch = c->epoch;
        s->units = 0;
    }
    for (size_t i = s->units; rc == 0 && i < c->n_units; i++) {
        const struct unit *u = &c->units[i];
        json_t *o = json_object();
        js_set_int(o, "id", u->id);
        js_set_int(o, "item", (int64_t)u->item);
        js_set_int(o, "count", (int64_t)u->count);
        js_set_int(o, "role", u->role);
        js_set_int(o, "form", u->form);
        js_set_str(o, "note", u->note);
        js_set_str(o, "steer", u->steer);
        char *meta = js_dump(o);
        rc = sql_run(s, err,
                     "INSERT OR REPLACE INTO unit(session, ord, epoch, coupling, meta, bytes) VALUES(?, ?, "
                     "?, ?, ?, ?)",
                     "iiisss", s->num, (int64_t)i, c->epoch, m->coupling, meta, u->bytes);
        free(meta);
    }
    if (rc == 0)
        s->units = c->n_units;
    return rc;
}

static uint64_t hash_of(const char *t, size_t n)
{
    return XXH3_64bits(t, n) | 1;
}

static int save_small(struct store *s, struct model *m, struct vt_err *err)
{
    struct text t = {0};
    int rc = 0;
    text_add(&t, text_str(&m->composer.text), m->composer.text.len);
    text_printf(&t, "\n%zu", m->composer.caret);
    uint64_t h = hash_of(t.s, t.len);
    if (h != s->draft_hash)
        rc = sql_run(s, err, "INSERT OR REPLACE INTO draft(session, text, caret) VALUES(?, ?, ?)", "isi",
                     s->num, text_str(&m->composer.text), (int64_t)m->composer.caret);
    s->draft_hash = h;
    text_clear(&t);
    for (size_t i = 0; i < m->n_tasks; i++)
        text_printf(&t, "%d%s\n", m->tasks[i].state, m->tasks[i].text);
    h = hash_of(text_str(&t), t.len);
    if (rc == 0 && h != s->tasks_hash) {
        rc = sql_run(s, err, "DELETE FROM todo WHERE session = ?", "i", s->num);
        for (size_t i = 0; rc == 0 && i < m->n_tasks; i++)
            rc = sql_run(s, err, "INSERT INTO todo VALUES(?, ?, ?, ?)", "iisi", s->num, (int64_t)i,
                         m->tasks[i].text, (int64_t)m->tasks[i].state);
    }
    s->tasks_hash = h;
    text_clear(&t);
    for (size_t i = 0; i < m->n_queue; i++)
        text_printf(&t, "%zu%s\n", i, m->queue[i].text);
    h = hash_of(text_str(&t), t.len);
    if (rc == 0 && h != s->queue_hash) {
        rc = sql_run(s, err, "DELETE FROM queue WHERE session = ?", "i", s->num);
        for (size_t i = 0; rc == 0 && i < m->n_queue; i++)
            rc = sql_run(s, err, "INSERT INTO queue VALUES(?, ?, ?)", "iis", s->num, (int64_t)i,
                         m->queue[i].text);
    }
    s->queue_hash = h;
    text_free(&t);
    return rc;
}

static int save_meta(struct store *s, struct model *m, bool force, struct vt_err *err)
{
    const struct core *c = m->core;
    json_t *o = json_object();
    js_set_int(o, "spent", c->spent_session);
    js_set_int(o, "offload", m->gauges.offload);
    js_set_int(o, "used", m->gauges.used);
    js_set_int(o, "epoch", c->epoch);
    js_set_int(o, "covered", (int64_t)c->covered);
    js_set_int(o, "told_mode", c->told_mode);
    js_set_int(o, "last_rewind", c->last_rewind);
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_rewinds; i++)
        json_array_append_new(list,
                              json_pack("[I, i]", (json_int_t)c->rewinds[i].number, c->rewinds[i].what));
    json_object_set_new(o, "rewinds", list);
    json_object_set_new(o, "bytes_per_token", json_real(c->bytes_per_token));
    js_set_str(o, "notes", text_str(&c->notes));
    js_set_int(o, "mode", m->mode);
    js_set_str(o, "coupling", m->coupling);
    char *meta = js_dump(o);
    uint64_t h = hash_of(meta, strlen(meta));
    int rc = 0;
    if (force || h != s->meta_hash)
        rc = sql_run(s, err, "UPDATE session SET meta = ?, mode = ?, coupling = ?, updated = ? WHERE num = ?",
                     "sisii", meta, (int64_t)m->mode, m->coupling, (int64_t)m->now, s->num);
    s->meta_hash = h;
    free(meta);
    return rc;
}

/* Of all that has no dirty mark of its own: most steps change nothing of it, and then no transaction is made. */
static uint64_t sign_of(const struct model *m)
{
    const struct core *c = m->core;
    const int64_t numbers[] = {(int64_t)m->composer.caret,
                               (int64_t)m->n_queue,
                               (int64_t)m->n_tasks,
                               c->epoch,
                               (int64_t)c->n_units,
                               c->spent_session,
                               m->gauges.offload,
                               m->gauges.used,
                               (int64_t)c->covered,
                               c->told_mode,
                               c->last_rewind,
                               (int64_t)c->n_rewinds,
                               m->mode};
    XXH64_hash_t h = XXH3_64bits(numbers, sizeof numbers);
    h = XXH3_64bits_withSeed(text_str(&m->composer.text), m->composer.text.len, h);
    h = XXH3_64bits_withSeed(text_str(&c->notes), c->notes.len, h);
    for (size_t i = 0; i < m->n_queue; i++)
        h = XXH3_64bits_withSeed(m->queue[i].text, strlen(m->queue[i].text), h);
    for (size_t i = 0; i < m->n_tasks; i++)
        h = XXH3_64bits_withSeed(m->tasks[i].text, strlen(m->tasks[i].text),
                                 h + (XXH64_hash_t)m->tasks[i].state);
    return XXH3_64bits_withSeed(m->coupling, strlen(m->coupling), h) | 1;
}

int store_sync(struct store *s, struct model *m, bool hard, struct vt_err *err)
{
    bool dirty = false, turns = false;
    if (s->held == NULL || m->session == NULL || strcmp(s->held, m->session) != 0)
        return 0;
    for (size_t i = m->n_items; i > 0 && !dirty; i--)
        dirty = m->items[i - 1].dirty;
    for (size_t i = m->n_turns; i > 0 && !turns; i--)
        turns = m->turns[i - 1].dirty;
    uint64_t sign = sign_of(m);
    if (!dirty && !turns && sign == s->sign)
        return 0;
    if (hard)
        sqlite3_exec(s->db, "PRAGMA synchronous=FULL", NULL, NULL, NULL);
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return sql_fail(s, err);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < m->n_turns; i++)
        if (m->turns[i].dirty)
            rc = save_turn(s, m, i, err);
    for (size_t i = 0; rc == 0 && dirty && i < m->n_items; i++)
        if (m->items[i].dirty)
            rc = save_item(s, m, &m->items[i], err);
    if (rc == 0)
        rc = save_units(s, m, err);
    if (rc == 0)
        rc = save_small(s, m, err);
    if (rc == 0)
        rc = save_meta(s, m, dirty, err);
    if (rc == 0 && sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        rc = sql_fail(s, err);
    if (rc == 0)
        s->sign = sign; /* only what is stored counts as stored */
    if (rc != 0) {
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        s->units = 0; /* what is stored is known again after the next whole pass */
        s->epoch = -1;
        s->draft_hash = s->tasks_hash = s->queue_hash = s->meta_hash = s->sign = 0;
        for (size_t i = 0; i < m->n_items; i++)
            m->items[i].dirty = true;
        for (size_t i = 0; i < m->n_turns; i++)
            m->turns[i].dirty = true;
    }
    if (hard)
        sqlite3_exec(s->db, "PRAGMA synchronous=NORMAL", NULL, NULL, NULL);
    return rc;
}

/* ---- loading ---- */

json_t *store_session(struct store *s, const char *session, struct vt_err *err)
{
    sqlite3_stmt *st =
        sql_prepare(s, err,
                    "SELECT title, mode, session.coupling, opening, text, caret, "
                    "(SELECT count(*) FROM turn WHERE session = num) FROM session LEFT JOIN draft "
                    "ON draft.session = num WHERE id = ?",
                    "s", session);
    json_t *o = NULL;
    if (st != NULL && sqlite3_step(st) == SQLITE_ROW) {
        o = json_object();
        js_set_str(o, "title", (const char *)sqlite3_column_text(st, 0));
        js_set_int(o, "mode", sqlite3_column_int64(st, 1));
        js_set_str(o, "coupling", (const char *)sqlite3_column_text(st, 2));
        js_set_str(o, "opening", (const char *)sqlite3_column_text(st, 3));
        js_set_str(o, "draft", (const char *)sqlite3_column_text(st, 4));
        js_set_int(o, "caret", sqlite3_column_int64(st, 5));
        js_set_int(o, "turns", sqlite3_column_int64(st, 6));
    } else {
        vt_fail(err, VT_E_NOT_FOUND, "there is no conversation %.64s", session);
    }
    sqlite3_finalize(st);
    return o;
}

/* The stored object with its type and, of a unit, its bytes. It is read once, by the core: thousands of them are what
 * opening a conversation costs. */
static void send(const char *meta, const char *type, const char *bytes, uint64_t at, event_sink sink,
                 void *arg)
{
    struct text t = {0};
    static const char typed[] = "{\"type\":\"session\","; /* as the first version wrote it */
    if (meta == NULL || meta[0] != '{')
        return;
    if (strncmp(meta, typed, sizeof typed - 1) == 0)
        meta += sizeof typed - 2;
    text_printf(&t, "{\"type\":\"%s\"", type);
    if (bytes != NULL) {
        text_puts(&t, ",\"bytes\":");
        js_quote(&t, bytes, strlen(bytes));
    }
    text_puts(&t, meta[1] == '}' ? "" : ",");
    text_puts(&t, meta + 1);
    const struct event e = {.kind = EV_STORED, .at = at, .text = t.s, .len = t.len};
    sink(arg, &e);
    text_free(&t);
}

/* A unit of the usual form goes as numbers: there are as many as items. */
static bool send_unit(const char *meta, const char *bytes, uint64_t at, event_sink sink, void *arg)
{
    long long id, item, count;
    int role, form, end = 0;
    if (meta == NULL || bytes == NULL ||
        sscanf(meta, "{\"id\":%lld,\"item\":%lld,\"count\":%lld,\"role\":%d,\"form\":%d}%n", &id, &item,
               &count, &role, &form, &end) != 5 ||
        end == 0 || meta[end] != '\0' || role < 0 || role > 9 || form < 0 || form > 9 || count < 0 ||
        count > INT32_MAX)
        return false;
    const struct event e = {.kind = EV_STORED,
                            .at = at,
                            .name = "unit",
                            .id = id,
                            .n = item,
                            .m = count * 100 + role * 10 + form,
                            .text = bytes,
                            .len = strlen(bytes)};
    sink(arg, &e);
    return true;
}

static int each(struct store *s, const char *sql, const char *type, int64_t num, uint64_t at, event_sink sink,
                void *arg, struct vt_err *err)
{
    sqlite3_stmt *st = sql_prepare(s, err, sql, "i", num);
    if (st == NULL)
        return -1;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        const char *meta = (const char *)sqlite3_column_text(st, 0);
        const char *bytes = sqlite3_column_count(st) > 1 ? (const char *)sqlite3_column_text(st, 1) : NULL;
        if (strcmp(type, "unit") != 0 || !send_unit(meta, bytes, at, sink, arg))
            send(meta, type, bytes, at, sink, arg);
    }
    sqlite3_finalize(st);
    return rc == SQLITE_DONE ? 0 : sql_fail(s, err);
}

int store_load(struct store *s, const char *session, uint64_t at, event_sink sink, void *arg,
               struct vt_err *err)
{
    int64_t num = session_num(s, session);
    if (num < 0)
        return vt_fail(err, VT_E_NOT_FOUND, "there is no conversation %.64s", session);
    static const struct {
        const char *sql, *type;
    } parts[] = {
        {"SELECT meta FROM turn WHERE session = ? ORDER BY idx", "turn"},
        {"SELECT meta FROM item WHERE session = ? AND kind != 'result' ORDER BY id", "item"},
        {"SELECT meta FROM session WHERE num = ? AND meta IS NOT NULL", "session"},
        {"SELECT meta, bytes FROM unit WHERE session = ? ORDER BY ord", "unit"},
        {"SELECT json_object('text', text, 'state', state) FROM todo WHERE session = ? ORDER BY ord", "task"},
        {"SELECT json_object('text', text) FROM queue WHERE session = ? ORDER BY ord", "queue"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (each(s, parts[i].sql, parts[i].type, num, at, sink, arg, err) < 0)
            return -1;
    if (s->held != NULL && strcmp(s->held, session) == 0) { /* what is there need not be written again */
        s->epoch = sql_int(s, -1, "SELECT epoch FROM unit WHERE session = ? LIMIT 1", "i", num);
        s->units = (size_t)sql_int(s, 0, "SELECT count(*) FROM unit WHERE session = ?", "i", num);
    }
    return 0;
}
