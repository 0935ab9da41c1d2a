#include "tools/rules.h"

#include "tools/tool.h"
#include "tools/wild.h"
#include "util/conf.h"
#include "util/file.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rule {
    enum rule_scope scope;
    enum rule_verdict verdict;
    int mode; /* enum mode, or UNKNOWN: both */
    char *tool, *pattern;
    char *owner; /* of a line of the user's file that belongs to another project; kept for writing */
};

struct rules {
    char *root, *file, *folder; /* folder: the project's own file */
    bool trusted;
    struct rule *v;
    size_t n, cap;
    char why[256];
};

static const char *const VERDICTS[] = {"", "allow", "ask", "deny"};
static const char *const SCOPES[] = {"on the command line", "for this session", "for this project",
                                     "by the project's file", "by your rules"};

static void rule_free(struct rule *r)
{
    free(r->tool);
    free(r->pattern);
    free(r->owner);
}

void rules_free(struct rules *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n; i++)
        rule_free(&r->v[i]);
    free(r->v);
    free(r->root);
    free(r->file);
    free(r->folder);
    free(r);
}

static struct rule *put(struct rules *r, enum rule_scope scope, int mode, enum rule_verdict v,
                        const char *pattern, struct vt_err *err)
{
    size_t n = strcspn(pattern, ":");
    char *tool = mem_dupn(pattern, n);
    if (!tool_find(tool) && strcmp(tool, "net") != 0) {
        vt_fail(err, VT_E_CONFIG, "rule '%s': no tool '%s'; a rule is tool:pattern, for example bash:make *",
                pattern, tool);
        free(tool);
        return NULL;
    }
    r->v = mem_room(r->v, r->n, &r->cap, sizeof *r->v);
    struct rule *new = &r->v[r->n++];
    *new = (struct rule){scope, v, mode, tool, mem_dup(pattern[n] ? pattern + n + 1 : "*"), NULL};
    return new;
}

struct load {
    struct rules *r;
    bool folder; /* reading the project's own file */
};

static int verdict_of(const char *word)
{
    for (int i = RULE_ALLOW; i <= RULE_DENY; i++)
        if (strcmp(word, VERDICTS[i]) == 0)
            return i;
    return RULE_NONE;
}

/* Keys may repeat in this file (a list of verdicts), so it is read by its own lines, not by conf.h's
 * sections. */
static int take_line(struct load *l, char *line, unsigned number, char **owner, struct vt_err *err)
{
    char *eq, *key = line + strspn(line, " \t");
    size_t len = strlen(key);
    while (len && strchr(" \t\r", key[len - 1]))
        key[--len] = 0;
    if (!*key || *key == '#')
        return 0;
    if (*key == '[' && key[len - 1] == ']') {
        key[len - 1] = 0;
        free(*owner);
        *owner = strncmp(key + 1, "project ", 8) == 0 ? mem_dup(key + 9) : NULL;
        return *owner || strcmp(key + 1, "user") == 0
                   ? 0
                   : vt_fail(err, VT_E_CONFIG,
                             "%s:%u: no such section [%s]; there are [user] and [project FOLDER]",
                             l->folder ? l->r->folder : l->r->file, number, key + 1);
    }
    int mode = UNKNOWN, verdict = RULE_NONE;
    if ((eq = strchr(key, '='))) {
        *eq = 0;
        char word[16] = "", m[16] = "";
        if (sscanf(key, "%15s %15s", word, m) >= 1)
            verdict = verdict_of(word);
        mode = strcmp(m, "plan") == 0 ? MODE_PLAN : strcmp(m, "build") == 0 ? MODE_BUILD : *m ? -2 : UNKNOWN;
    }
    if (verdict == RULE_NONE || mode == -2)
        return vt_fail(
            err, VT_E_CONFIG,
            "%s:%u: a line is allow, ask or deny, then plan or build if only there, = tool:pattern",
            l->folder ? l->r->folder : l->r->file, number);
    enum rule_scope scope = l->folder ? RULE_FOLDER : *owner ? RULE_PROJECT : RULE_USER;
    eq++;
    struct rule *r = put(l->r, scope, mode, (enum rule_verdict)verdict, eq + strspn(eq, " \t"), err);
    if (r && *owner)
        r->owner = mem_dup(*owner);
    return r ? 0 : vt_fail_prefix(err, "%s:%u", l->folder ? l->r->folder : l->r->file, number);
}

static int load(struct rules *r, const char *path, bool folder, struct vt_err *err)
{
    struct text t = {0};
    struct vt_err none;
    struct load l = {r, folder};
    char *owner = NULL;
    int rc = 0;
    unsigned number = 0;
    if (file_read(path, 1 << 20, &t, &none) < 0) {
        text_free(&t);
        return none.code == VT_E_NOT_FOUND || none.code == VT_E_NO_INPUT
                   ? 0
                   : vt_fail(err, none.code, "%s", none.text);
    }
    char *all = text_take(&t), *save, *line = all;
    for (; rc == 0 && line; line = save) {
        save = strchr(line, '\n');
        if (save)
            *save++ = 0;
        rc = take_line(&l, line, ++number, &owner, err);
    }
    free(owner);
    free(all);
    return rc;
}

struct rules *rules_open(const char *root, const char *home, bool trusted, struct vt_err *err)
{
    struct rules *r = mem_new(sizeof *r);
    struct text t = {0};
    r->root = mem_dup(root);
    text_printf(&t, "%s/rules", home);
    r->file = text_take(&t);
    text_printf(&t, "%s/.officina/rules", root);
    r->folder = text_take(&t);
    if (load(r, r->file, false, err) < 0) {
        rules_free(r);
        return NULL;
    }
    if (trusted)
        rules_trust(r, true);
    return r;
}

void rules_clear(struct rules *r, enum rule_scope scope)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->v[i].scope == scope)
            rule_free(&r->v[i]);
        else
            r->v[n++] = r->v[i];
    }
    r->n = n;
}

void rules_trust(struct rules *r, bool trusted)
{
    struct vt_err err;
    rules_clear(r, RULE_FOLDER);
    r->trusted = trusted;
    /* a faulty file of the project gives no rules: fewer rules mean more questions */
    if (trusted && load(r, r->folder, true, &err) < 0)
        rules_clear(r, RULE_FOLDER);
}

static int save(const struct rules *r, struct vt_err *err)
{
    struct text t = {0};
    const char *section = "";
    text_puts(&t, "# Rules that you gave when Officina asked. Deny beats ask beats allow.\n");
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < r->n; i++) {
            const struct rule *v = &r->v[i];
            if (v->scope != (pass ? RULE_PROJECT : RULE_USER))
                continue;
            const char *owner = v->owner ? v->owner : "user";
            if (strcmp(section, owner) != 0)
                text_printf(&t, v->owner ? "[project %s]\n" : "[%s]\n", owner);
            section = owner;
            text_printf(&t, "%s%s = %s:%s\n", VERDICTS[v->verdict],
                        v->mode == UNKNOWN     ? ""
                        : v->mode == MODE_PLAN ? " plan"
                                               : " build",
                        v->tool, v->pattern);
        }
    int rc = file_write(r->file, text_str(&t), t.len, err);
    text_free(&t);
    return rc;
}

int rules_add(struct rules *r, enum rule_scope scope, int mode, enum rule_verdict v, const char *pattern,
              struct vt_err *err)
{
    if (strpbrk(pattern, "\n\r"))
        return vt_fail(err, VT_E_CONFIG, "a rule is one line");
    struct rule *new = put(r, scope, mode, v, pattern, err);
    if (!new)
        return -1;
    if (scope == RULE_PROJECT)
        new->owner = mem_dup(r->root);
    if (scope != RULE_PROJECT && scope != RULE_USER)
        return 0;
    if (save(r, err) == 0)
        return 0;
    rule_free(&r->v[--r->n]); /* what is not kept does not count */
    return -1;
}

static bool counts(const struct rules *r, const struct rule *v, enum mode mode)
{
    return (v->mode == UNKNOWN || v->mode == (int)mode) && (!v->owner || strcmp(v->owner, r->root) == 0);
}

enum rule_verdict rules_judge(struct rules *r, const char *tool, const char *subject, enum mode mode,
                              const char **by)
{
    enum rule_verdict best = RULE_NONE;
    for (size_t i = 0; i < r->n; i++) {
        const struct rule *v = &r->v[i];
        if (v->verdict <= best || strcmp(v->tool, tool) != 0 || !counts(r, v, mode))
            continue;
        bool paths = strcmp(tool, "bash") != 0 && strcmp(tool, "net") != 0 && strcmp(tool, "mcp") != 0;
        bool hit = paths ? strcmp(v->pattern, "*") == 0 || wild_path(v->pattern, subject)
                         : wild_rule(v->pattern, subject);
        if (!hit)
            continue;
        best = v->verdict;
        static const char *const words[] = {"", "allowed", "to be asked", "denied"};
        snprintf(r->why, sizeof r->why, "%s %s (%s:%s)", words[best], SCOPES[v->scope], v->tool, v->pattern);
    }
    if (by)
        *by = best == RULE_NONE ? "no rule allows it" : r->why;
    return best;
}

char **rules_page(const struct rules *r, size_t *n)
{
    char **lines = mem_new((r->n + 1) * sizeof *lines);
    *n = 0;
    for (size_t i = 0; i < r->n; i++) {
        const struct rule *v = &r->v[i];
        if (v->owner && strcmp(v->owner, r->root) != 0)
            continue;
        struct text t = {0};
        text_printf(&t, "%-5s %s:%s   %s%s", VERDICTS[v->verdict], v->tool, v->pattern, SCOPES[v->scope],
                    v->mode == UNKNOWN     ? ""
                    : v->mode == MODE_PLAN ? ", in Plan"
                                           : ", in Build");
        lines[(*n)++] = text_take(&t);
    }
    if (!*n)
        lines[(*n)++] = mem_dup("no rules: reading is allowed, everything else is asked");
    return lines;
}
