#include "ext/named.h"

#include "ext/template.h"
#include "tools/root.h"
#include "util/file.h"
#include "util/json.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

static bool plain_name(const char *s)
{
    return *s && *s != '.' && !strchr(s, '/') && strlen(s) < 100;
}

/* The value of `key:` in the head of a file (between lines of --- or at its beginning); NULL: none. Caller
 * frees. */
static char *head_value(const char *s, const char *key)
{
    size_t k = strlen(key);
    if (strncmp(s, "---\n", 4) == 0)
        s += 4;
    for (int i = 0; i < 40 && *s && strncmp(s, "---", 3) != 0; i++) {
        size_t n = strcspn(s, "\n");
        if (n == 0)
            break;
        if (strncmp(s, key, k) == 0 && s[k] == ':') {
            const char *v = s + k + 1;
            while (v < s + n && (*v == ' ' || *v == '"'))
                v++;
            while (n && strchr(" \"\r", s[n - 1]))
                n--;
            return s + n > v ? mem_dupn(v, (size_t)(s + n - v)) : NULL;
        }
        s += n + (s[n] == '\n');
    }
    return NULL;
}

/* Behind the head: what stands between lines of ---, or the first lines that are keys of ours. */
static const char *body(const char *s)
{
    static const char *const keys[] = {"description:", "mode:", "arguments:", "name:"};
    const char *end = strncmp(s, "---\n", 4) == 0 ? strstr(s + 4, "\n---\n") : NULL, *from = s;
    if (end)
        return end + 5;
    for (bool key = true; key;) {
        key = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            key = key || strncmp(s, keys[i], strlen(keys[i])) == 0;
        s += key ? strcspn(s, "\n") : 0;
        s += key && *s == '\n';
    }
    return s != from && *s == '\n' ? s + 1 : s;
}

static int read_named(struct ext *x, const char *kind, const char *name, const char *tail, struct text *out)
{
    const struct ext_options *o = ext_options_of(x);
    const char *bases[2] = {o->home, o->root};
    for (int i = 0; i < 1 + o->trusted; i++) {
        struct text path = {0};
        struct vt_err err;
        struct root root;
        int rc = plain_name(name) ? root_open(&root, bases[i], &err) : -1;
        if (rc == 0) {
            text_printf(&path, "%s%s%s/%s%s", i ? ".officina/" : bases[i], i ? "" : "/", kind, name, tail);
            rc = i ? root_read(&root, text_str(&path), out, NULL,
                               &err)                                 /* a link out of a project is refused */
                   : file_read(text_str(&path), 1 << 20, out, &err); /* the user's own may lead anywhere */
            root_close(&root);
        }
        text_free(&path);
        if (rc == 0)
            return 0;
    }
    return -1;
}

/* Names of a kind, sorted, the user's before the project's. Calls with the file's text. */
static void each_named(struct ext *x, const char *kind, const char *tail, void *arg,
                       void (*fn)(void *arg, const char *name, const char *text))
{
    const struct ext_options *o = ext_options_of(x);
    const char *bases[2] = {o->home, o->root};
    size_t cut = tail[0] == '.' ? strlen(tail) : 0;
    for (int i = 0; i < 1 + o->trusted; i++) {
        struct text dir = {0};
        struct dirent **names = NULL;
        text_printf(&dir, "%s%s/%s", bases[i], i ? "/.officina" : "", kind);
        int n = scandir(text_str(&dir), &names, NULL, alphasort);
        for (int k = 0; k < n; k++) {
            struct text t = {0};
            char *name = names[k]->d_name;
            size_t len = strlen(name);
            bool fits = len > cut && strcmp(name + len - cut, cut ? tail : "") == 0;
            name[fits ? len - cut : len] = '\0';
            if (fits && read_named(x, kind, name, tail, &t) == 0)
                fn(arg, name, text_str(&t));
            text_free(&t);
            free(names[k]);
        }
        free(names);
        text_free(&dir);
    }
}

static void skill_line(void *arg, const char *name, const char *text)
{
    char *d = head_value(text, "description");
    text_printf(arg, "skill %s: %.300s\n", name, d ? d : "");
    free(d);
}

void named_skills(struct ext *x, struct text *out)
{
    each_named(x, "skills", "/SKILL.md", out, skill_line);
}

int ext_skill(struct ext *x, const char *name, struct text *out, struct vt_err *err)
{
    struct text t = {0}, names = {0};
    if (read_named(x, "skills", name, "/SKILL.md", &t) == 0) {
        text_puts(out, body(text_str(&t)));
        text_free(&t);
        return 0;
    }
    named_skills(x, &names);
    vt_fail(err, VT_E_NOT_FOUND, "there is no skill '%.60s'. %.400s", name,
            names.len ? text_str(&names)
                      : "There are none: skills are folders with SKILL.md in skills/ of the state folder");
    text_free(&names);
    return -1;
}

/* ---- commands ---- */

static bool command_name(const char *s)
{
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '-' && s[i] != '_')
            return false;
    return n >= 1 && n <= 32;
}

static void command_entry(void *arg, const char *name, const char *text)
{
    char *d = head_value(text, "description"), *a = head_value(text, "arguments");
    struct text slash = {0};
    text_printf(&slash, "/%s", name);
    if (command_name(name))
        named_add(arg, text_str(&slash), a, d);
    text_free(&slash);
    free(d);
    free(a);
}

void named_add(json_t *list, const char *name, const char *args, const char *help)
{
    size_t i;
    json_t *other, *o;
    json_array_foreach(list, i, other) if (strcmp(js_str(other, "name"), name) == 0) return;
    o = json_object();
    js_set_str(o, "name", name);
    js_set_str(o, "args", args);
    js_set_str(o, "help", help);
    json_array_append_new(list, o);
}

void named_commands(struct ext *x, json_t *list)
{
    each_named(x, "commands", ".md", list, command_entry);
    each_named(x, "skills", "/SKILL.md", list, command_entry);
}

static json_t *part_json(const struct template_part *p)
{
    static const char *const tools[] = {[TEMPLATE_SHELL] = "bash", [TEMPLATE_FILE] = "read"};
    json_t *o = json_object(), *args = json_object();
    if (p->kind == TEMPLATE_TEXT) {
        js_set_str(o, "text", p->text);
        json_decref(args);
        return o;
    }
    js_set_str(o, "tool", tools[p->kind]);
    js_set_str(args, p->kind == TEMPLATE_SHELL ? "command" : "path", p->text);
    if (p->kind == TEMPLATE_FILE)
        json_object_set_new(args, "raw", json_true());
    json_object_set_new(o, "arguments", args);
    return o;
}

/* A skill called by its name: its text as it is, and what stood behind the name. */
static json_t *skill_prompt(const char *name, const char *text, const char *arguments)
{
    struct text t = {0};
    text_printf(&t, "Use the skill %s:\n\n%s", name, text);
    if (*arguments)
        text_printf(&t, "\n\n%s", arguments);
    json_t *o = json_object(), *part = json_object(), *list = json_array();
    js_set_str(part, "text", text_str(&t));
    json_array_append_new(list, part);
    json_object_set_new(o, "parts", list);
    text_free(&t);
    return o;
}

int named_command(struct ext *x, const char *name, const char *arguments, json_t **out, struct vt_err *err)
{
    struct text t = {0};
    struct template_part *parts = NULL;
    size_t n = 0;
    int rc = read_named(x, "commands", name, ".md", &t);
    if (rc < 0 && read_named(x, "skills", name, "/SKILL.md", &t) == 0) {
        *out = skill_prompt(name, body(text_str(&t)), arguments);
        rc = 0;
    } else if (rc < 0) {
        vt_fail(err, VT_E_NOT_FOUND, "no such command: /%.60s", name);
    } else if ((rc = template_fill(body(text_str(&t)), arguments, &parts, &n, err)) == 0) {
        char *mode = head_value(text_str(&t), "mode");
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, part_json(&parts[i]));
        *out = json_object();
        js_set_str(*out, "mode", mode);
        json_object_set_new(*out, "parts", list);
        free(mode);
    }
    template_free(parts, n);
    text_free(&t);
    return rc;
}
