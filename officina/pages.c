/* Pages and lists that the program fills, and the conversation as a file. */
#include "app.h"

#include "core/command.h"

#include "build_id.h"
#include "core/core_priv.h"
#include "util/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static void line(json_t *lines, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void line(json_t *lines, const char *fmt, ...)
{
    char buf[800];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    json_t *s = json_string(buf);
    json_array_append_new(lines, s != NULL ? s : json_string("?"));
}

static void show(struct app *a, enum sheet_kind kind, const char *title, json_t *o)
{
    char *text = js_dump(o);
    const struct event e = {.kind = EV_SHEET, .n = kind, .name = title, .text = text};
    app_put(a, &e);
    free(text);
}

static const char *dash(const char *s)
{
    return s != NULL && s[0] != '\0' ? s : "–";
}

static void status_lines(struct app *a, json_t *l)
{
    const struct model *m = a->m;
    char *home = file_tilde(a->home);
    line(l, "officina      %s", VT_BUILD_ID);
    line(l, "conversation  %s  %s", m->session, m->title != NULL ? m->title : "");
    line(l, "folder        %s%s", m->folder, m->trusted ? "" : "  (its configuration is not trusted)");
    line(l, "state         %s", home);
    line(l, "coupling      %s  %s", m->coupling, m->coupling_title);
    line(l, "model         %s", dash(m->engine.model));
    line(l, "engine        %s  boot %s", dash(m->engine.build), dash(m->engine.boot));
    char n[24], k[24];
    line(l, "window        %s  certified %s", amount(n, m->engine.window), amount(k, m->engine.certified));
    line(l, "slots         %s, checkpoints %s", amount(n, m->engine.slots),
         m->engine.can_save               ? "on"
         : m->engine.save_why_not != NULL ? m->engine.save_why_not
                                          : "off");
    line(l, "sandbox       %s", tools_sandbox(a->tools));
    line(l, "mode          %s", mode_name(m->mode));
    free(home);
}

/* What a bug report may contain: no text of the conversation, no paths above the home folder, no keys. */
static void report_lines(struct app *a, json_t *l)
{
    const struct model *m = a->m;
    struct utsname u;
    size_t by[8] = {0};
    line(l, "This is all that a report would contain; copy it if you agree with it.");
    line(l, "%s", "");
    if (uname(&u) == 0)
        line(l, "system        %s %s %s", u.sysname, u.release, u.machine);
    line(l, "officina      %s", VT_BUILD_ID);
    line(l, "engine        %s, model %s", dash(m->engine.build), dash(m->engine.model));
    line(l, "coupling      kind %d, window %" PRId64 ", certified %" PRId64, (int)m->core->cpl.kind,
         m->engine.window, m->engine.certified);
    line(l, "sandbox       %s, mode %s", tools_sandbox(a->tools), mode_name(m->mode));
    line(l, "status        %s", status_word(m->status));
    for (size_t i = 0; i < m->n_items; i++)
        by[m->items[i].kind]++;
    line(l, "items         user %zu, text %zu, calls %zu, cuts %zu, notices %zu; turns %zu", by[ITEM_USER],
         by[ITEM_TEXT], by[ITEM_CALL], by[ITEM_CUT], by[ITEM_NOTICE], m->n_turns);
    line(l, "context       used %" PRId64 " of %" PRId64 ", live %" PRId64 ", offloaded %" PRId64,
         m->gauges.used, m->gauges.size, m->gauges.live, m->gauges.offload);
    line(l, "%s", "");
    line(l, "Last notices of trouble (texts of the program, not of the conversation):");
    int shown = 0;
    for (size_t i = m->n_items; i-- > 0 && shown < 5;) {
        if (m->items[i].kind != ITEM_NOTICE || m->items[i].level != NOTICE_TROUBLE)
            continue;
        line(l, "  %.*s", 100, text_str(&m->items[i].body));
        shown++;
    }
}

static void couple_sheet(struct app *a)
{
    json_t *o = json_object(), *rows = json_array();
    json_object_set_new(o, "heads", json_pack("[s, s, s]", "name", "title", "address"));
    for (size_t i = 0; i < a->couplings.n; i++) {
        const struct coupling *c = &a->couplings.v[i];
        json_array_append_new(
            rows, json_pack("{s:s, s:[s, s, s]}", "key", c->name, "cells", c->name, c->title, c->base_url));
    }
    json_object_set_new(o, "rows", rows);
    show(a, SHEET_COUPLE, "COUPLING", o);
}

static void recall_page(struct app *a, const char *words)
{
    struct text out = {0};
    json_t *args = json_object(), *o = json_object(), *lines = json_array();
    char dir[PATH_MAX];
    js_set_str(args,
               words != NULL && (strncmp(words, "m-", 2) == 0 || strncmp(words, "o-", 2) == 0) ? "id"
                                                                                               : "query",
               words);
    char *json = js_dump(args);
    snprintf(dir, sizeof dir, "%s/out", a->home);
    store_recall(a->store, a->project, a->m->session, json, dir, &out);
    for (char *save = NULL, *l = strtok_r(out.s, "\n", &save); l != NULL; l = strtok_r(NULL, "\n", &save))
        line(lines, "%s", l);
    json_object_set_new(o, "lines", lines);
    show(a, SHEET_PAGE, "RECALL", o);
    free(json);
    text_free(&out);
}

static void tools_lines(struct app *a, const char *page, json_t *l)
{
    size_t n;
    char **v = tools_page(a->tools, page, &n);
    for (size_t i = 0; i < n; i++) {
        line(l, "%s", v[i]);
        free(v[i]);
    }
    free(v);
    if (n == 0)
        line(l, "Nothing.");
}

/* A line that is no command of the program's. */
static void own_command(struct app *a, const char *line)
{
    char name[40], hint[220];
    size_t n = strcspn(line, " \t\n");
    if (n < sizeof name && tools_command(a->tools, line) == 0)
        return;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), line);
    command_hint(name, hint, sizeof hint);
    app_notice(a, NOTICE_TROUBLE, "%s", hint);
}

static void add_dir(struct app *a, const char *path)
{
    struct vt_err err = {0};
    if (tools_add_dir(a->tools, path, &err) < 0)
        app_notice(a, NOTICE_TROUBLE, "The folder was not added: %s", err.text);
    else
        app_notice(a, NOTICE_INFO,
                   "Tools and commands reach %.300s now, until the workshop ends. Rewind does not "
                   "cover it.",
                   path);
}

void app_page(struct app *a, const char *page, const char *words)
{
    if (strcmp(page, "command") == 0) {
        own_command(a, words);
        return;
    }
    if (strcmp(page, "couple") == 0) {
        couple_sheet(a);
        return;
    }
    if (strcmp(page, "add-dir") == 0) {
        add_dir(a, words);
        return;
    }
    if (strcmp(page, "recall") == 0) {
        recall_page(a, words);
        return;
    }
    json_t *o = json_object(), *lines = json_array();
    char title[32];
    snprintf(title, sizeof title, "%s", page);
    for (char *p = title; *p != '\0'; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    if (strcmp(page, "status") == 0)
        status_lines(a, lines);
    else if (strcmp(page, "report") == 0)
        report_lines(a, lines);
    else
        tools_lines(a, page, lines);
    json_object_set_new(o, "lines", lines);
    show(a, SHEET_PAGE, title, o);
}

void app_export(struct app *a, const char *path)
{
    FILE *f = fopen(path, "wxe");
    if (f == NULL) {
        app_notice(a, NOTICE_TROUBLE, "%.300s: %m; choose a name that does not exist yet", path);
        return;
    }
    fprintf(f, "# %s\n\n", a->m->title != NULL ? a->m->title : "Conversation");
    app_print_text(a, f);
    if (fclose(f) != 0)
        app_notice(a, NOTICE_TROUBLE, "%.300s: %m", path);
    else
        app_notice(a, NOTICE_INFO, "Written to %.300s.", path);
}
