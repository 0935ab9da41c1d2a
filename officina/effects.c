/* Effects of the core, done. */
#include "app.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void app_notice(struct app *a, enum notice_level level, const char *fmt, ...)
{
    char text[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct event e = {.kind = EV_NOTICE, .n = level, .text = text};
    app_put(a, &e);
}

static struct tool_call call_of(struct app *a, const struct effect *f)
{
    return (struct tool_call){
        .id = f->id, .name = f->name, .args = f->text, .mode = a->m->mode, .window = a->m->gauges.size};
}

static void check(struct app *a, const struct effect *f)
{
    struct tool_call c = call_of(a, f);
    if (strcmp(f->name, "recall") == 0) { /* the store's */
        const struct event e = {.kind = EV_TOOL_CHECKED, .id = f->id, .n = TOOL_ALLOW, .m = TOOL_READS};
        app_put(a, &e);
        return;
    }
    if (strcmp(f->name, "write") == 0 ||
        strcmp(f->name, "edit") == 0) { /* covered by rewind even when ignored */
        json_t *o = js_parse(f->text, strlen(f->text), NULL, 0);
        if (js_str(o, "path") != NULL)
            snap_cover(a->snap, js_str(o, "path"));
        json_decref(o);
    }
    tools_check(a->tools, &c);
}

static void run(struct app *a, const struct effect *f)
{
    struct tool_call c = call_of(a, f);
    if (strcmp(f->name, "recall") != 0) {
        tools_start(a->tools, &c, f->has_bound ? f->bound : NULL);
        return;
    }
    struct text out = {0};
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/out", a->home);
    int rc = store_recall(a->store, a->project, a->m->session, f->text, dir, &out);
    const struct event e = {.kind = EV_TOOL_DONE,
                            .id = f->id,
                            .n = rc == 0 ? TOOL_OK : TOOL_FAILED,
                            .text = text_str(&out),
                            .len = out.len};
    app_put(a, &e);
    text_free(&out);
}

static struct snap_turn *snap_turns(const struct model *m, size_t first, size_t *n)
{
    struct snap_turn *v = mem_new((m->n_turns + 1) * sizeof *v);
    for (size_t i = first; i < m->n_turns; i++)
        if (m->turns[i].state != TURN_REWOUND) /* what it changed was put back */
            v[(*n)++] = (struct snap_turn){m->turns[i].key, m->turns[i].tree_user, m->turns[i].tree_before,
                                           m->turns[i].tree_after};
    return v;
}

static void snapshots(struct app *a, const struct effect *f)
{
    struct model *m = a->m;
    size_t turn = f->id > 0 ? (size_t)f->id : 0;
    if (turn >= m->n_turns && f->kind != FX_REDO)
        return;
    if (f->kind == FX_SNAP && f->n == SNAP_LATE) {
        const struct turn *t = &m->turns[turn];
        snap_take_late(a->snap, turn, t->key, t->tree_before, store_died(a->store));
        return;
    }
    if (f->kind == FX_SNAP) {
        snap_take(a->snap, turn, (enum snap_when)f->n);
        if (f->n == SNAP_AFTER)
            snap_look(a->snap);
        return;
    }
    if (f->kind == FX_REDO) {
        snap_redo(a->snap, f->n);
        return;
    }
    size_t n = 0;
    struct snap_turn *v = snap_turns(m, turn, &n);
    if (f->kind == FX_REWIND_PLAN)
        snap_plan(a->snap, turn, v, n);
    else if (f->kind == FX_REWIND)
        snap_restore(a->snap, turn, v, n, f->n);
    else
        snap_diff(a->snap, f->id < 0 ? "the conversation" : m->turns[turn].key, v,
                  f->id < 0 ? n : m->turns[turn].state != TURN_REWOUND);
    free(v);
}

static void rule(struct app *a, const struct effect *f)
{
    struct vt_err err = {0};
    if (tools_rule(a->tools, f->name, (enum mode)f->m, f->n != 0, f->text, &err) < 0)
        app_notice(a, NOTICE_TROUBLE, "The rule was not taken: %s", err.text);
    else if (f->id != 0)
        app_notice(a, NOTICE_INFO, "%s for this session: %.200s", f->n != 0 ? "Allowed" : "Denied", f->text);
}

static void fact(struct app *a, const struct effect *f)
{
    struct vt_err err = {0};
    if (f->text != NULL) {
        int64_t id = store_remember(a->store, a->project, f->text, off_clock_now(&a->clock), &err);
        if (id >= 0)
            app_notice(a, NOTICE_INFO,
                       "Remembered as %" PRId64 "; new conversations of this project begin with it.", id);
    } else if (store_forget(a->store, a->project, f->id, &err) == 0) {
        app_notice(a, NOTICE_INFO, "Forgotten.");
    }
    if (err.text[0] != '\0')
        app_notice(a, NOTICE_TROUBLE, "%s", err.text);
}

/* asked: the answer to the question, which holds for what was shown and for nothing newer. */
static void trust(struct app *a, bool yes, bool asked)
{
    struct vt_err err = {0};
    char *hash = app_project_hash(a, NULL);
    bool same = !asked || (a->trust_shown != NULL && strcmp(a->trust_shown, hash) == 0);
    if (yes && hash[0] != '\0' && (!same || strcmp(hash, APP_NO_HASH) == 0)) {
        app_notice(
            a, NOTICE_TROUBLE,
            same ? "The folder's configuration cannot be read as a whole, so it stays unread."
                 : "The folder's configuration changed since it was shown; /trust takes it as it is now.");
        yes = false;
    } else if (hash[0] == '\0')
        app_notice(a, NOTICE_INFO, "This folder has no configuration of its own (.officina).");
    else if (store_set_trust(a->store, a->project, yes ? hash : "", &err) < 0)
        app_notice(a, NOTICE_TROUBLE, "%s", err.text);
    else
        app_notice(a, NOTICE_INFO,
                   yes ? "The folder's configuration is read now."
                       : "The folder's configuration stays unread.");
    a->m->trusted = yes;
    tools_trust(a->tools, yes);
    free(hash);
}

static void list(struct app *a, const char *words)
{
    char *text = store_list(a->store, a->project, words, NULL);
    const struct event e = {.kind = EV_SHEET, .n = SHEET_RESUME, .name = "RESUME", .text = text};
    app_put(a, &e);
    free(text);
}

static void conversation(struct app *a, const struct effect *f)
{
    struct vt_err err = {0};
    int rc = 0;
    if (f->kind == FX_NEW)
        rc = app_new_session(a, &err);
    else if (f->kind == FX_OPEN)
        rc = app_switch(a, f->text, f->n != 0, &err);
    else if (f->kind == FX_COUPLE)
        rc = app_couple(a, f->name, &err);
    else
        rc = store_title(a->store, a->m->session, f->text, &err);
    if (rc < 0)
        app_notice(a, NOTICE_TROUBLE, "%s", err.text);
}

static void quit(struct app *a, const struct effect *f)
{
    a->quit = true;
    a->exit = (int)f->n;
    app_result(a, f->text);
}

void app_do(struct app *a, const struct effect *f)
{
    switch (f->kind) {
    case FX_SEND: net_send(a->net, f->id, f->text); break;
    case FX_CLOSE: net_drop(a->net, f->id); break;
    case FX_ASK: net_ask(a->net, f->id, f->name, f->text); break;
    case FX_CHECK: check(a, f); break;
    case FX_RUN: run(a, f); break;
    case FX_CANCEL: tools_cancel(a->tools, f->id); break;
    case FX_KILL: tools_kill(a->tools, f->id); break;
    case FX_RULE: rule(a, f); break;
    case FX_USER_RUN: tools_user_run(a->tools, f->text, f->m != 0); break;
    case FX_TELL: tools_tell(a->tools, f->name, f->text); break;
    case FX_SNAP:
    case FX_REWIND_PLAN:
    case FX_REWIND:
    case FX_REDO:
    case FX_DIFF: snapshots(a, f); break;
    case FX_LIST: list(a, f->text); break;
    case FX_COUPLE:
    case FX_NEW:
    case FX_OPEN:
    case FX_TITLE: conversation(a, f); break;
    case FX_EXPORT: app_export(a, f->text); break;
    case FX_FACT: fact(a, f); break;
    case FX_PAGE: app_page(a, f->name, f->text); break;
    case FX_TRUST: trust(a, f->n != 0, f->id == 0); break;
    case FX_HISTORY: store_prompt(a->store, a->project, f->text, off_clock_now(&a->clock), NULL); break;
    case FX_EMIT: app_emit(a, f->text); break;
    case FX_QUIT: quit(a, f); break;
    }
}
