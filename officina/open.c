/* Conversations open: new ones get their opening note, which is frozen; earlier ones come back from the store. */
#include "app.h"

#include "build_id.h"
#include "ext/trust.h"
#include "hash.h"
#include "tools/root.h"
#include "tools/secrets.h"
#include "util/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define INSTRUCTIONS_MAX 16384
#define CONFIG_MAX       (1024u * 1024u)

char *app_tools_json(void)
{
    size_t n;
    const struct tool_spec *list = tool_list(&n);
    struct text t = {0};
    for (size_t i = 0; i < n; i++) {
        text_printf(&t, "%s{\"type\":\"function\",\"function\":{\"name\":", i == 0 ? "[" : ",");
        js_quote(&t, list[i].name, strlen(list[i].name));
        text_puts(&t, ",\"description\":");
        js_quote(&t, list[i].description, strlen(list[i].description));
        text_printf(&t, ",\"parameters\":%s}}", list[i].schema);
    }
    text_puts(&t, "]");
    return text_take(&t);
}

/* ---- trust ---- */

char *app_project_hash(const struct app *a, struct text *list)
{
    char hex[2 * VT_SHA256_LEN + 1];
    uint8_t digest[VT_SHA256_LEN];
    struct text lines = {0};
    struct vt_err err = {0};
    int rc = trust_look(a->root, digest, list != NULL ? list : &lines, &err);
    if (rc < 0 && list != NULL)
        text_printf(list, "It cannot be trusted: %s\n", err.text);
    text_free(&lines);
    if (rc <= 0)
        return mem_dup(rc < 0 ? APP_NO_HASH : "");
    vt_hex(digest, sizeof digest, hex);
    return mem_dup(hex);
}

static void ask_trust(struct app *a)
{
    struct text list = {0};
    char *hash = app_project_hash(a, &list);
    if (hash[0] != '\0' && !a->m->trusted && !a->headless) {
        json_t *o = json_object(), *lines = json_array();
        json_array_append_new(
            lines,
            json_string("This folder brings its own configuration. Trusted, it can add rules that allow "
                        "calls, commands, skills and servers; it never loosens the sandbox."));
        json_array_append_new(lines, json_string(""));
        for (char *save = NULL, *line = strtok_r(list.s, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save))
            json_array_append_new(lines, json_string(line));
        json_object_set_new(o, "lines", lines);
        char *text = js_dump(o);
        const struct event e = {
            .kind = EV_SHEET, .n = SHEET_TRUST, .name = "TRUST THIS FOLDER?", .text = text};
        app_put(a, &e);
        free(text);
    }
    free(a->trust_shown);
    a->trust_shown = hash;
    text_free(&list);
}

/* ---- the opening note ---- */

/* A file's section of the note; nothing when there is none. Its last line says where it ends, so that a shorter file is
 * no part of a longer one. */
static void add_file(struct app *a, struct text *t, const char *name)
{
    struct text body = {0}, safe = {0};
    struct root root;
    bool in_key = false;
    if (root_open(&root, a->root, NULL) < 0)
        return;
    /* a link that leads out of the project would send what is not the project's */
    if (root_read(&root, name, &body, NULL, NULL) == 0 && body.len != 0) {
        secrets_redact(body.s, body.len < CONFIG_MAX ? body.len : CONFIG_MAX, &safe, &in_key);
        text_free(&body);
        body = safe;
        size_t n = body.len < INSTRUCTIONS_MAX ? body.len : INSTRUCTIONS_MAX;
        char *good = utf8_mend(body.s, n);
        text_printf(t, "Instructions of the project (%s):\n%s\n", name, good);
        text_printf(t, n < body.len ? "[%s is longer; read the rest when it matters]\n" : "[end of %s]\n",
                    name);
        free(good);
    }
    text_free(&body);
    root_close(&root);
}

static void add_branch(struct app *a, struct text *t)
{
    char path[PATH_MAX];
    struct text head = {0};
    snprintf(path, sizeof path, "%s/.git/HEAD", a->root);
    if (file_read(path, 1024, &head, NULL) == 0 && strncmp(text_str(&head), "ref: refs/heads/", 16) == 0)
        text_printf(t, "Git branch: %.*s\n", (int)strcspn(head.s + 16, "\n"), head.s + 16);
    text_free(&head);
}

static const char *const instructions[] = {"AGENTS.md", "OFFICINA.md"};
#define N_INSTRUCTIONS (sizeof instructions / sizeof instructions[0])

static void today(struct app *a, char out[32])
{
    time_t now = (time_t)(off_clock_now(&a->clock) / 1000000);
    struct tm tm;
    localtime_r(&now, &tm);
    strftime(out, 32, "%Y-%m-%d", &tm);
}

void app_around(struct app *a, struct event *out)
{
    char date[32];
    json_t *o = json_object(), *files = json_object(), *list = json_array();
    size_t n;
    today(a, date);
    js_set_str(o, "date", date);
    for (size_t i = 0; i < N_INSTRUCTIONS; i++) {
        struct text t = {0};
        add_file(a, &t, instructions[i]);
        js_set_str(files, instructions[i], text_str(&t));
        text_free(&t);
    }
    json_object_set_new(o, "files", files);
    char **lines = tools_page(a->tools, "note", &n);
    for (size_t i = 0; i < n; i++) {
        json_t *line = json_string(lines[i]);
        if (line != NULL)
            json_array_append_new(list, line);
        free(lines[i]);
    }
    free(lines);
    json_object_set_new(o, "lines", list);
    *out = (struct event){.kind = EV_AROUND, .text = js_dump(o)};
}

static char *opening_note(struct app *a)
{
    struct text t = {0};
    char date[32];
    today(a, date);
    text_printf(&t, "Date: %s\nProject folder: %s\n", date, a->folder);
    add_branch(a, &t);
    for (size_t i = 0; i < N_INSTRUCTIONS; i++) {
        struct text section = {0};
        add_file(a, &section, instructions[i]);
        if (section.len != 0)
            text_printf(&t, "\n%s", text_str(&section));
        text_free(&section);
    }
    char *facts = store_facts(a->store, a->project);
    if (facts[0] != '\0')
        text_printf(&t, "\nRemembered about this project:\n%s", facts);
    free(facts);
    size_t n;
    char **skills = tools_page(a->tools, "note", &n);
    for (size_t i = 0; i < n; i++) {
        text_printf(&t, "%s%s\n", i == 0 ? "\n" : "", skills[i]);
        free(skills[i]);
    }
    free(skills);
    return text_take(&t);
}

/* ---- opening ---- */

static uint64_t day_start(uint64_t now, bool month)
{
    time_t t = (time_t)(now / 1000000);
    struct tm tm;
    localtime_r(&t, &tm);
    tm.tm_hour = tm.tm_min = tm.tm_sec = 0;
    if (month)
        tm.tm_mday = 1;
    tm.tm_isdst = -1;
    time_t at = mktime(&tm);
    return at > 0 ? (uint64_t)at * 1000000 : 0;
}

static void put_opened(struct app *a, json_t *o, const char *session, bool read_only)
{
    uint64_t now = off_clock_now(&a->clock);
    char *coupling = coupling_json(a->coupling);
    js_set_str(o, "session", session);
    js_set_str(o, "root", a->root);
    js_set_str(o, "folder", a->folder);
    js_set_str(o, "sandbox", tools_sandbox(a->tools));
    js_set_str(o, "tools", a->tools_json);
    js_set_str(o, "version", VT_BUILD_ID);
    json_object_set_new(o, "coupling", js_parse(coupling, strlen(coupling), NULL, 0));
    if (a->o.mode_given)
        js_set_int(o, "mode", a->o.mode);
    json_object_set_new(o, "headless", json_boolean(a->headless));
    json_object_set_new(o, "once", json_boolean(a->once));
    json_object_set_new(o, "emit", json_boolean(a->o.output == OUT_STREAM));
    json_object_set_new(o, "answers", json_boolean(a->o.stream_input && !a->eof));
    json_object_set_new(o, "read_only", json_boolean(read_only));
    json_object_set_new(o, "trusted", json_boolean(a->m->trusted));
    js_set_int(o, "max_requests", a->o.max_turns != 0 ? a->o.max_turns : a->headless ? 60 : 200);
    js_set_int(o, "spent_day", store_spent(a->store, a->coupling->name, day_start(now, false)));
    js_set_int(o, "spent_month", store_spent(a->store, a->coupling->name, day_start(now, true)));
    free(coupling);
    char *text = js_dump(o);
    const struct event e = {.kind = EV_OPENED, .text = text};
    app_put(a, &e);
    free(text);
    tools_session(a->tools, session);
    json_t *told = json_pack("{s:s, s:s, s:b}", "session", session, "root", a->root, "read_only", read_only);
    char *fields = js_dump(told);
    tools_tell(a->tools, "session_start", fields);
    free(fields);
    snap_session(a->snap, session);
    snap_look(a->snap);
    ask_trust(a);
}

static int use_coupling(struct app *a, struct vt_err *err)
{
    return net_use(a->net, a->coupling, err);
}

static void put_seen(void *arg, const char *path, const uint64_t *lines, size_t n)
{
    struct app *a = arg;
    tools_seen_put(a->tools, path, lines, n);
}

int app_switch(struct app *a, const char *session, bool fork, struct vt_err *err)
{
    char id[24];
    uint64_t now = off_clock_now(&a->clock);
    if (fork) {
        off_clock_id(&a->clock, (uint64_t)store_count(a->store), id);
        if (store_fork(a->store, session, id, now, err) < 0)
            return -1;
        session = id;
    }
    json_t *o = store_session(a->store, session, err);
    if (o == NULL)
        return -1;
    const struct coupling *before = a->coupling;
    const char *stored = js_str(o, "coupling");
    if (a->o.coupling == NULL && stored != NULL) {
        const struct coupling *c = couplings_find(&a->couplings, stored, NULL);
        a->coupling = c != NULL ? c : a->coupling;
    }
    /* what may fail comes before the lock: the conversation that is open keeps its own until then */
    int held = use_coupling(a, err) < 0 ? -1 : store_hold(a->store, session, err);
    if (held < 0) {
        a->coupling = before;
        use_coupling(a, NULL);
        if (a->m->session != NULL)
            store_hold(a->store, a->m->session, NULL);
        json_decref(o);
        return -1;
    }
    put_opened(a, o, session, held == 0);
    store_each_seen(a->store, session, put_seen, a);
    if (store_load(a->store, session, 0, app_put, a, err) < 0)
        return -1;
    const struct event done = {.kind = EV_RESUMED};
    app_put(a, &done);
    return 0;
}

int app_new_session(struct app *a, struct vt_err *err)
{
    char id[24];
    char *opening = opening_note(a);
    off_clock_id(&a->clock, (uint64_t)store_count(a->store), id);
    int rc = store_new(a->store, a->project, id, a->coupling->name, opening, off_clock_now(&a->clock), err);
    if (rc == 0)
        rc = use_coupling(a, err) < 0 ? -1 : store_hold(a->store, id, err) < 0 ? -1 : 0;
    if (rc < 0 && a->m->session != NULL)
        store_hold(a->store, a->m->session, NULL);
    if (rc == 0) {
        json_t *o = json_object();
        js_set_str(o, "opening", opening);
        put_opened(a, o, id, false);
    }
    free(opening);
    return rc;
}

int app_open_session(struct app *a, struct vt_err *err)
{
    if (a->o.resume == NULL)
        return app_new_session(a, err);
    bool last = strcmp(a->o.resume, "last") == 0;
    char *id = store_find(a->store, a->project, last ? NULL : a->o.resume);
    if (id == NULL)
        return vt_fail(err, VT_E_USAGE, "--resume %.64s: %s", a->o.resume,
                       last ? "this project has no conversation yet" : "there is no such conversation");
    int rc = app_switch(a, id, a->o.fork, err);
    free(id);
    return rc;
}

int app_couple(struct app *a, const char *name, struct vt_err *err)
{
    const struct coupling *c = couplings_find(&a->couplings, name, err);
    if (c == NULL)
        return -1;
    const struct coupling *before = a->coupling;
    a->coupling = c;
    if (use_coupling(a, err) < 0) {
        a->coupling = before;
        use_coupling(a, NULL);
        return -1;
    }
    char *text = coupling_json(c);
    const struct event e = {.kind = EV_COUPLED, .text = text};
    app_put(a, &e);
    free(text);
    return 0;
}
