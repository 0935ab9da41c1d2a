#include "ext/ext.h"

#include "ext/server.h"
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
};

const struct ext_options *ext_options_of(const struct ext *x)
{
    return &x->o;
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

/* Words of a value, "quoted ones" whole. NULL-terminated. */
static char **split(const char *s, const char *first)
{
    char **v = NULL;
    size_t n = 0, cap = 0;
    if (first) {
        v = mem_room(v, n, &cap, sizeof *v);
        v[n++] = mem_dup(first);
    }
    while (*s) {
        s += strspn(s, " \t,");
        bool quoted = *s == '"';
        size_t k = quoted ? strcspn(s + 1, "\"") : strcspn(s, " \t,");
        if (!*s)
            break;
        v = mem_room(v, n, &cap, sizeof *v);
        v[n++] = mem_dupn(s + quoted, k);
        s += k + quoted;
        s += quoted && *s == '"';
    }
    v = mem_room(v, n, &cap, sizeof *v);
    v[n] = NULL;
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

/* ext/NAME/ext.conf of the user or the project: `command`, `args`, `timeout`, `plan`. */
struct own {
    struct ext *x;
    struct ext_server *s;
    const char *dir;
};

static int take_own(void *arg, const struct conf_line *l, struct vt_err *err)
{
    struct own *o = arg;
    struct text t = {0};
    if (!l->key)
        return 0;
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
        server_free(s);
    }
    text_free(&dir);
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
        server_call(x, s, id, tool, arguments);
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

/* ---- skills and commands ---- */

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

/* Behind the head. */
static const char *body(const char *s)
{
    const char *end = strncmp(s, "---\n", 4) == 0 ? strstr(s + 4, "\n---\n") : NULL;
    return end ? end + 5 : s;
}

static int read_named(struct ext *x, const char *kind, const char *name, const char *tail, struct text *out)
{
    const char *bases[2] = {x->home, x->root};
    for (int i = 0; i < 1 + x->o.trusted; i++) {
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

static void each_skill(struct ext *x, struct text *out)
{
    const char *bases[2] = {x->home, x->root};
    for (int i = 0; i < 1 + x->o.trusted; i++) {
        struct text dir = {0};
        text_printf(&dir, "%s%s/skills", bases[i], i ? "/.officina" : "");
        struct dirent **names = NULL;
        int n = scandir(text_str(&dir), &names, NULL, alphasort);
        for (int k = 0; k < n; k++) {
            struct text t = {0};
            if (names[k]->d_name[0] != '.' &&
                read_named(x, "skills", names[k]->d_name, "/SKILL.md", &t) == 0) {
                char *d = head_value(text_str(&t), "description");
                text_printf(out, "skill %s: %.300s\n", names[k]->d_name, d ? d : "");
                free(d);
            }
            text_free(&t);
            free(names[k]);
        }
        free(names);
        text_free(&dir);
    }
}

int ext_skill(struct ext *x, const char *name, struct text *out, struct vt_err *err)
{
    struct text t = {0}, names = {0};
    if (read_named(x, "skills", name, "/SKILL.md", &t) == 0) {
        text_puts(out, body(text_str(&t)));
        text_free(&t);
        return 0;
    }
    each_skill(x, &names);
    vt_fail(err, VT_E_NOT_FOUND, "there is no skill '%.60s'. %.400s", name,
            names.len ? text_str(&names)
                      : "There are none: skills are folders with SKILL.md in skills/ of the state folder");
    text_free(&names);
    return -1;
}

void ext_note(struct ext *x, struct text *out)
{
    each_skill(x, out);
    for (const struct ext_server *s = x->servers; s; s = s->next)
        text_printf(out, "server %s: reached with the tool mcp\n", s->name);
}

/* $1 … $9 and $ARGUMENTS; nothing else is expanded here. */
static void fill(const char *s, const char *arguments, struct text *out)
{
    char **words = split(arguments, NULL);
    size_t n = 0;
    while (words[n])
        n++;
    while (*s) {
        if (strncmp(s, "$ARGUMENTS", 10) == 0) {
            text_puts(out, arguments);
            s += 10;
        } else if (s[0] == '$' && s[1] >= '1' && s[1] <= '9') {
            size_t i = (size_t)(s[1] - '1');
            text_puts(out, i < n ? words[i] : "");
            s += 2;
        } else {
            text_add(out, s++, 1);
        }
    }
    set_list(&words, NULL);
}

int ext_command(struct ext *x, const char *name, const char *arguments, struct text *out, struct vt_err *err)
{
    struct text t = {0};
    int rc = read_named(x, "commands", name, ".md", &t);
    if (rc == 0)
        fill(body(text_str(&t)), arguments ? arguments : "", out);
    else
        vt_fail(err, VT_E_NOT_FOUND, "no such command: /%.60s", name);
    text_free(&t);
    return rc;
}

char **ext_page(struct ext *x, const char *page, size_t *n)
{
    struct text t = {0};
    bool note = strcmp(page, "note") == 0;
    if (note)
        ext_note(x, &t);
    else if (strcmp(page, "skills") == 0)
        each_skill(x, &t);
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
