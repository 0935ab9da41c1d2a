#include "core/event_log.h"

#include "util/json.h"

#include <stdlib.h>
#include <string.h>

static json_t *changes_json(const struct file_change *v, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *o = json_object();
        js_set_str(o, "path", v[i].path);
        if (v[i].before != NULL)
            js_set_strn(o, "before", v[i].before, v[i].before_len);
        if (v[i].after != NULL)
            js_set_strn(o, "after", v[i].after, v[i].after_len);
        js_set_int(o, "added", v[i].added);
        js_set_int(o, "removed", v[i].removed);
        js_set_str(o, "remark", v[i].remark);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *approval_json(const struct approval *a)
{
    json_t *o = json_object(), *parts = json_array();
    js_set_str(o, "what", a->what);
    js_set_str(o, "where", a->where);
    js_set_str(o, "rule_session", a->rule_session);
    js_set_str(o, "rule_project", a->rule_project);
    for (size_t i = 0; i < a->n_parts; i++) {
        json_t *p = json_object();
        js_set_str(p, "text", a->parts[i].text);
        js_set_str(p, "reason", a->parts[i].reason);
        json_object_set_new(p, "allowed", json_boolean(a->parts[i].allowed));
        json_array_append_new(parts, p);
    }
    json_object_set_new(o, "parts", parts);
    json_object_set_new(o, "changes", changes_json(a->changes, a->n_changes));
    return o;
}

void event_log_write(FILE *out, const struct event *e)
{
    json_t *o = json_object();
    js_set_str(o, "event", event_name(e->kind));
    js_set_int(o, "at", (int64_t)e->at);
    if (e->id != 0)
        js_set_int(o, "id", e->id);
    if (e->n != 0)
        js_set_int(o, "n", e->n);
    if (e->m != 0)
        js_set_int(o, "m", e->m);
    if (e->x > 0 || e->x < 0)
        json_object_set_new(o, "x", json_real(e->x));
    js_set_str(o, "name", e->name);
    if (e->text != NULL)
        js_set_strn(o, "text", e->text, e->len != 0 ? e->len : strlen(e->text));
    if (e->approval != NULL)
        json_object_set_new(o, "approval", approval_json(e->approval));
    if (e->changes != NULL)
        json_object_set_new(o, "changes", changes_json(e->changes, e->n_changes));
    char *s = js_dump(o);
    fprintf(out, "%s\n", s);
    fflush(out);
    free(s);
}

/* ---- reading ---- */

static char *dup_field(const json_t *o, const char *key)
{
    return mem_dup(js_str(o, key));
}

static struct file_change *changes_of(const json_t *list, size_t *n)
{
    *n = json_array_size(list);
    struct file_change *v = *n != 0 ? mem_new(*n * sizeof *v) : NULL;
    for (size_t i = 0; i < *n; i++) {
        const json_t *o = json_array_get(list, i);
        v[i] = (struct file_change){.path = dup_field(o, "path"),
                                    .before = dup_field(o, "before"),
                                    .after = dup_field(o, "after"),
                                    .remark = dup_field(o, "remark"),
                                    .added = (int)js_int(o, "added", 0),
                                    .removed = (int)js_int(o, "removed", 0)};
        if (v[i].path == NULL)
            v[i].path = mem_dup("?");
        v[i].before_len = v[i].before != NULL ? strlen(v[i].before) : 0;
        v[i].after_len = v[i].after != NULL ? strlen(v[i].after) : 0;
    }
    return v;
}

static struct approval *approval_of(const json_t *o)
{
    struct approval *a = mem_new(sizeof *a);
    const json_t *parts = json_object_get(o, "parts");
    a->what = dup_field(o, "what");
    a->where = dup_field(o, "where");
    a->rule_session = dup_field(o, "rule_session");
    a->rule_project = dup_field(o, "rule_project");
    a->n_parts = json_array_size(parts);
    a->parts = mem_new((a->n_parts + 1) * sizeof *a->parts);
    for (size_t i = 0; i < a->n_parts; i++) {
        const json_t *p = json_array_get(parts, i);
        a->parts[i] = (struct approval_part){dup_field(p, "text"), dup_field(p, "reason"),
                                             js_bool(p, "allowed", false)};
    }
    a->changes = changes_of(json_object_get(o, "changes"), &a->n_changes);
    return a;
}

static int kind_of(const char *name)
{
    for (int k = 0; name != NULL && k < EV_COUNT; k++)
        if (strcmp(event_name((enum event_kind)k), name) == 0)
            return k;
    return -1;
}

static int one(const char *line, size_t n, const char *name, unsigned number, event_sink sink, void *arg,
               struct vt_err *err)
{
    char why[200];
    json_t *o = js_parse(line, n, why, sizeof why);
    int kind = kind_of(js_str(o, "event"));
    if (o == NULL || kind < 0) {
        json_decref(o);
        return vt_fail(err, VT_E_PAYLOAD, "%.100s:%u: %s", name, number, o == NULL ? why : "no known event");
    }
    struct event e = {.kind = (enum event_kind)kind,
                      .at = (uint64_t)js_int(o, "at", 0),
                      .id = js_int(o, "id", 0),
                      .n = js_int(o, "n", 0),
                      .m = js_int(o, "m", 0),
                      .x = js_num(o, "x", 0),
                      .name = js_str(o, "name"),
                      .text = js_str(o, "text")};
    e.len = e.text != NULL ? strlen(e.text) : 0;
    if (json_is_object(json_object_get(o, "approval")))
        e.approval = approval_of(json_object_get(o, "approval"));
    e.changes = changes_of(json_object_get(o, "changes"), &e.n_changes);
    sink(arg, &e);
    json_decref(o);
    return 0;
}

int event_log_read(FILE *in, const char *name, event_sink sink, void *arg, struct vt_err *err)
{
    char *line = NULL;
    size_t room = 0;
    unsigned number = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = getline(&line, &room, in)) > 0) {
        number++;
        while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r'))
            n--;
        if (n != 0 && line[0] != '#')
            rc = one(line, (size_t)n, name, number, sink, arg, err);
    }
    free(line);
    return rc;
}
