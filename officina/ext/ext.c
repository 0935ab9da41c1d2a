#include "ext/ext.h"

#include "ext/hook.h"
#include "ext/named.h"
#include "ext/template.h"
#include "hash.h"
#include "suggest.h"
#include "tools/root.h"
#include "util/conf.h"
#include "util/file.h"
#include "util/json.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct ext {
    struct ext_options o;
    char *root, *home, *session;
    struct ext_server *servers;
    struct hook *hook;
};

const struct ext_options *ext_options_of(const struct ext *x)
{
    return &x->o;
}

struct ext_server *ext_servers(const struct ext *x)
{
    return x->servers;
}

struct hook *ext_hook(struct ext *x)
{
    return x->hook;
}

void ext_done(struct ext *x, int64_t call, bool ok, const char *text, size_t n)
{
    struct event e = {.kind = EV_TOOL_DONE, .id = call, .n = ok ? 0 : 1, .text = text, .len = n};
    x->o.sink(x->o.arg, &e);
}

void ext_told(struct ext *x, const struct ext_server *s)
{
    bool well = s->state != SERVER_OFF && (s->running || s->marks == 0);
    struct event e = {.kind = EV_SERVER, .name = s->name, .n = well, .text = s->word};
    x->o.sink(x->o.arg, &e);
}

static struct ext_server *find(const struct ext *x, const char *name)
{
    for (struct ext_server *s = x->servers; s; s = s->next)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

static struct ext_server *add(struct ext *x, const char *name)
{
    struct ext_server *s = server_new(name), **p = &x->servers;
    while (*p)
        p = &(*p)->next;
    *p = s;
    return s;
}

/* ---- configuration ---- */

/* A program and its words: first is what stands before them, or NULL. */
static char **split(const char *s, const char *first)
{
    char **v = template_words(s);
    size_t n = 0;
    if (!first)
        return v;
    while (v[n])
        n++;
    v = mem_grow(v, (n + 2) * sizeof *v);
    memmove(v + 1, v, (n + 1) * sizeof *v);
    v[0] = mem_dup(first);
    return v;
}

static void set_list(char ***to, char **list)
{
    for (size_t i = 0; *to && (*to)[i]; i++)
        free((*to)[i]);
    free(*to);
    *to = list;
}

static int take(void *arg, const struct conf_line *l, struct vt_err *err)
{
    struct ext *x = arg;
    struct ext_server *s = find(x, l->name);
    if (strcmp(l->kind, "server") != 0 || !*l->name)
        return conf_fail(l, err, "only [server NAME] sections stand here");
    if (!l->key) {
        if (s)
            return conf_fail(l, err, "server %s stands here twice", l->name);
        s = add(x, l->name);
        s->dir = mem_dup(x->root);
        return 0;
    }
    if (strcmp(l->key, "command") == 0)
        set_list(&s->argv, split("", l->value));
    else if (strcmp(l->key, "args") == 0 && s->argv) {
        char *first = mem_dup(s->argv[0]);
        set_list(&s->argv, split(l->value, first));
        free(first);
    } else if (strcmp(l->key, "env") == 0)
        set_list(&s->env, split(l->value, NULL));
    else if (strcmp(l->key, "enabled_tools") == 0)
        set_list(&s->enabled, split(l->value, NULL));
    else if (strcmp(l->key, "plan") == 0)
        return conf_bool(l, &s->plan, err);
    else if (strcmp(l->key, "timeout") == 0) {
        int n = atoi(l->value);
        if (n < 1 || n > 3600)
            return conf_fail(l, err, "timeout is 1 to 3600 seconds");
        s->timeout = (unsigned)n;
    } else {
        static const char *const keys[] = {"command", "args", "env", "enabled_tools", "timeout", "plan"};
        char near[160];
        return conf_fail(l, err, "no key '%s' here (args stands behind command)%s", l->key,
                         vt_suggest(l->key, keys, 6, near, sizeof near));
    }
    return 0;
}

/* ext/NAME/ext.conf of the user or the project: `command`, `args`, `timeout`, `plan`, `events`, `commands`. */
struct own {
    struct ext *x;
    struct ext_server *s;
    const char *dir;
};

/* A list that the extension is started for: of events or of commands. */
static int take_names(const struct conf_line *l, struct ext_server *s,
                      void (*take_list)(struct ext_server *s, const json_t *names), struct vt_err *err)
{
    char **words = template_words(l->value);
    json_t *list = json_array();
    int rc = 0;
    for (size_t i = 0; words[i]; i++)
        json_array_append_new(list, json_string(words[i]));
    take_list(s, list);
    for (size_t i = 0; words[i] && rc == 0; i++)
        if (l->key[0] == 'e' && ext_event_find(words[i]) < 0)
            rc = conf_fail(
                l, err,
                "there is no event '%.40s': session_start, before_tool, after_tool, before_request, "
                "turn_end",
                words[i]);
        else if (l->key[0] == 'c' && json_array_size(s->commands) <= i)
            rc = conf_fail(l, err, "'%.40s' is no command: / and letters, digits, - and _", words[i]);
    set_list(&words, NULL);
    json_decref(list);
    return rc;
}

static int take_own(void *arg, const struct conf_line *l, struct vt_err *err)
{
    struct own *o = arg;
    struct text t = {0};
    if (!l->key)
        return 0;
    if (strcmp(l->key, "events") == 0)
        return take_names(l, o->s, server_take_events, err);
    if (strcmp(l->key, "commands") == 0)
        return take_names(l, o->s, server_take_commands, err);
    if (strcmp(l->key, "command") == 0) {
        text_printf(&t, "%s/%s", o->dir, l->value);
        set_list(&o->s->argv, split("", strchr(l->value, '/') == l->value ? l->value : text_str(&t)));
        text_free(&t);
        return 0;
    }
    struct conf_line as = *l;
    as.kind = "server";
    as.name = o->s->name;
    return take(o->x, &as, err);
}

static void load_own(struct ext *x, const char *base, bool project)
{
    struct text dir = {0};
    text_printf(&dir, "%s/ext", base);
    DIR *d = opendir(text_str(&dir));
    for (struct dirent *e; d && (e = readdir(d));) {
        struct text path = {0}, name = {0}, conf = {0};
        struct vt_err err;
        text_printf(&path, "%s/%s", text_str(&dir), e->d_name);
        text_printf(&conf, "%s/ext.conf", text_str(&path));
        text_printf(&name, "ext:%s", e->d_name);
        if (e->d_name[0] != '.' && access(text_str(&conf), R_OK) == 0 && !find(x, text_str(&name))) {
            struct ext_server *s = add(x, text_str(&name));
            struct own o = {x, s, text_str(&path)};
            s->own = true;
            s->project = project;
            s->dir = mem_dup(x->root);
            if (conf_file(text_str(&conf), false, false, take_own, &o, &err) < 0 || !s->argv) {
                s->state = SERVER_OFF;
                free(s->word);
                s->word = mem_dup(s->argv ? err.text : "ext.conf names no command");
            }
        }
        text_free(&path);
        text_free(&name);
        text_free(&conf);
    }
    if (d)
        closedir(d);
    text_free(&dir);
}

struct ext *ext_open(const struct ext_options *o, struct vt_err *err)
{
    struct ext *x = mem_new(sizeof *x);
    struct text path = {0};
    x->o = *o;
    x->root = mem_dup(o->root);
    x->home = mem_dup(o->home);
    x->session = mem_dup(o->session);
    x->o.root = x->root;
    x->o.home = x->home;
    x->o.session = x->session;
    x->hook = hook_new();
    text_printf(&path, "%s/mcp.conf", o->home);
    int rc = conf_file(text_str(&path), true, false, take, x, err);
    for (struct ext_server *s = x->servers; s && rc == 0; s = s->next)
        if (!s->argv)
            rc = vt_fail(err, VT_E_CONFIG, "%s: server %s has no command", text_str(&path), s->name);
    text_free(&path);
    if (rc < 0) {
        ext_close(x);
        return NULL;
    }
    load_own(x, x->home, false);
    x->o.trusted = false;
    ext_trust(x, o->trusted);
    ext_contribute(x);
    return x;
}

void ext_close(struct ext *x)
{
    if (!x)
        return;
    while (x->servers) {
        struct ext_server *s = x->servers;
        x->servers = s->next;
        server_free(s);
    }
    hook_free(x->hook);
    free(x->root);
    free(x->home);
    free(x->session);
    free(x);
}

void ext_trust(struct ext *x, bool trusted)
{
    struct text dir = {0};
    if (trusted == x->o.trusted)
        return;
    x->o.trusted = trusted;
    text_printf(&dir, "%s/.officina", x->root);
    if (trusted)
        load_own(x, text_str(&dir), true);
    for (struct ext_server **p = &x->servers; !trusted && *p;) {
        struct ext_server *s = *p;
        if (!s->project) {
            p = &s->next;
            continue;
        }
        *p = s->next;
        server_end(x, s);
    }
    text_free(&dir);
    ext_contribute(x);
}

void ext_session(struct ext *x, const char *session)
{
    free(x->session);
    x->session = mem_dup(session);
    x->o.session = x->session;
}

bool ext_plan_allows(const struct ext *x, const char *server, const char *tool)
{
    const struct ext_server *s = find(x, server);
    return s && s->plan && !s->project && server_enabled(s, tool);
}

/* ---- calls ---- */

static void list_servers(const struct ext *x, struct text *out)
{
    for (const struct ext_server *s = x->servers; s; s = s->next)
        text_printf(out, "%s: %s\n", s->name, s->word);
    if (!out->len)
        text_puts(out, "there are no servers; mcp.conf in the state folder names them\n");
}

void ext_call(struct ext *x, int64_t id, const char *server, const char *tool, const json_t *arguments)
{
    struct ext_server *s = find(x, server);
    struct text t = {0};
    if (s) {
        server_ask(x, s, ASK_TOOL, id, tool, arguments);
        return;
    }
    bool list = strcmp(server, "*") == 0;
    if (!list)
        text_printf(&t, "there is no server '%.60s'. Servers:\n", server);
    struct text names = {0};
    list_servers(x, &names);
    text_puts(&t, text_str(&names));
    ext_done(x, id, list, text_str(&t), t.len);
    text_free(&names);
    text_free(&t);
}

void ext_cancel(struct ext *x, int64_t id)
{
    for (struct ext_server *s = x->servers; s; s = s->next)
        server_cancel(x, s, id);
}

void ext_compare(struct ext *x, const struct ext_server *s)
{
    uint8_t h[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1], *dump = json_dumps(s->tools, JSON_COMPACT | JSON_SORT_KEYS);
    struct text path = {0}, old = {0}, words = {0};
    struct vt_err err;
    vt_sha256(dump ? dump : "", dump ? strlen(dump) : 0, h);
    vt_hex(h, sizeof h, hex);
    text_printf(&path, "%s/servers", x->home);
    if (file_own_dir(text_str(&path), &err) == 0) {
        text_puts(&path, "/");
        for (const char *p = s->name; *p; p++)
            text_printf(&path, "%c", isalnum((unsigned char)*p) ? *p : '_');
        if (file_read(text_str(&path), 1000, &old, &err) == 0 && strcmp(text_str(&old), hex) != 0) {
            text_printf(
                &words,
                "the tools of server %s are not what they were in the last session: look at them with /mcp",
                s->name);
            struct event e = {.kind = EV_NOTICE, .n = NOTICE_TROUBLE, .text = text_str(&words)};
            x->o.sink(x->o.arg, &e);
        }
        if (strcmp(text_str(&old), hex) != 0 && file_write(text_str(&path), hex, strlen(hex), &err) < 0) {
            struct event e = {.kind = EV_NOTICE, .n = NOTICE_TROUBLE, .text = err.text};
            x->o.sink(x->o.arg, &e);
        }
    }
    free(dump);
    text_free(&path);
    text_free(&old);
    text_free(&words);
}

void ext_note(struct ext *x, struct text *out)
{
    named_skills(x, out);
    for (const struct ext_server *s = x->servers; s; s = s->next)
        text_printf(out, "server %s: reached with the tool mcp\n", s->name);
}

char **ext_page(struct ext *x, const char *page, size_t *n)
{
    struct text t = {0};
    bool note = strcmp(page, "note") == 0;
    if (note)
        ext_note(x, &t);
    else if (strcmp(page, "skills") == 0)
        named_skills(x, &t);
    else
        for (const struct ext_server *s = x->servers; s; s = s->next) {
            size_t i;
            json_t *tool;
            if (s->own != (strcmp(page, "ext") == 0))
                continue;
            text_printf(&t, "%s  %s\n", s->name, s->word);
            json_array_foreach(s->tools, i, tool)
            {
                const char *d = js_str(tool, "description");
                text_printf(&t, "    %s  %.120s\n", js_str(tool, "name"), d ? d : "");
            }
            if (s->log.len && s->state != SERVER_READY)
                text_printf(&t, "    last words: %.300s\n",
                            s->log.s + (s->log.len > 300 ? s->log.len - 300 : 0));
        }
    if (!t.len && !note)
        text_printf(&t, "nothing for /%s: see the manual for where it is configured\n", page);
    char **lines = NULL;
    size_t cap = 0;
    *n = 0;
    for (const char *p = text_str(&t); *p;) {
        size_t k = strcspn(p, "\n");
        lines = mem_room(lines, *n, &cap, sizeof *lines);
        lines[(*n)++] = mem_dupn(p, k);
        p += k + (p[k] == '\n');
    }
    text_free(&t);
    return lines;
}

/* ---- the loop ---- */

size_t ext_poll(struct ext *x, struct pollfd *fds, size_t max)
{
    size_t n = 0;
    for (struct ext_server *s = x->servers; s; s = s->next)
        n += server_poll(s, fds + n, max - n);
    return n;
}

int ext_timeout(const struct ext *x)
{
    uint64_t now = proc_now(), first = 0;
    for (const struct ext_server *s = x->servers; s; s = s->next) {
        uint64_t at = server_deadline(s);
        if (at && (!first || at < first))
            first = at;
    }
    return !first ? -1 : first <= now ? 0 : (int)((first - now) / 1000) + 1;
}

void ext_work(struct ext *x, const struct pollfd *fds, size_t n)
{
    for (struct ext_server *s = x->servers; s; s = s->next)
        server_work(x, s, fds, n);
}
