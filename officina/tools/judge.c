#include "tools/change.h"
#include "tools/secrets.h"
#include "tools/shell.h"
#include "tools/tools_priv.h"

#include "ext/ext.h"
#include "hash.h"
#include "util/file.h"
#include "util/json.h"

#include <stdlib.h>
#include <string.h>

void judged_free(struct judged *j)
{
    free(j->gist);
    text_free(&j->reason);
    if (j->approval)
        approval_free(j->approval);
    free(j->path);
    text_free(&j->before);
    text_free(&j->after);
    if (j->change)
        change_free(j->change, 1);
}

static void gistf(struct judged *j, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void gistf(struct judged *j, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    free(j->gist);
    j->gist = utf8_mend(text, strlen(text));
}

static void decide(struct judged *j, enum tool_verdict v, const char *reason)
{
    j->verdict = v;
    text_set(&j->reason, reason);
}

/* Verdict of the rules as the runner's; `unasked` where no rule speaks. */
static enum tool_verdict by_rules(struct tools *t, const char *tool, const char *subject, enum mode mode,
                                  enum tool_verdict unasked, const char **by)
{
    switch (rules_judge(t->rules, tool, subject, mode, by)) {
    case RULE_ALLOW: return TOOL_ALLOW;
    case RULE_ASK: return TOOL_ASK;
    case RULE_DENY: return TOOL_DENY;
    default: return unasked;
    }
}

/* Bound to the call, its place and mode, and for files what they hold now. */
static void bind(struct tools *t, const struct tool_call *c, struct judged *j)
{
    struct vt_sha256 *h = vt_sha256_new();
    int64_t head[2] = {c->id, c->mode};
    vt_sha256_add(h, head, sizeof head);
    vt_sha256_add(h, c->name, strlen(c->name) + 1);
    vt_sha256_add(h, c->args, strlen(c->args) + 1);
    vt_sha256_add(h, t->root.path, strlen(t->root.path) + 1);
    vt_sha256_add(h, j->path ? j->path : "", j->path ? strlen(j->path) + 1 : 1);
    vt_sha256_add(h, text_str(&j->before), j->before.len);
    vt_sha256_end(h, j->approval->bound);
    vt_sha256_free(h);
}

static struct approval *ask(struct tools *t, const struct tool_call *c, struct judged *j, const char *what)
{
    struct approval *a = mem_new(sizeof *a);
    j->approval = a;
    a->what = mem_dup(what);
    bind(t, c, j);
    return a;
}

static void add_part(struct approval *a, const char *text, const char *reason, bool allowed)
{
    a->parts = mem_grow(a->parts, (a->n_parts + 1) * sizeof *a->parts);
    a->parts[a->n_parts++] = (struct approval_part){mem_dup(text), mem_dup(reason), allowed};
}

static char *where(const struct tools *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *where(const struct tools *t, const char *fmt, ...)
{
    struct text s = {0};
    char text[200], *folder = file_tilde(t->root.path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    text_printf(&s, "in %s · %s", folder, text);
    free(folder);
    return text_take(&s);
}

/* ---- tools that read ---- */

static void judge_reading(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    static const char *const keys[] = {"path", "pattern", "query", "id", "name", "question", NULL};
    const char *path = js_str(args, "path"), *by;
    const char *subject = path ? path : "";
    struct vt_err err;
    j->bits = TOOL_READS;
    for (size_t i = 0; keys[i] && !j->gist; i++)
        if (js_str(args, keys[i]))
            gistf(j, "%.200s", js_str(args, keys[i]));
    if (strcmp(c->name, "job") == 0)
        gistf(j, "%lld %s", (long long)js_int(args, "id", 0), js_str(args, "action"));
    char *rel = path ? root_relative(&t->root, path, &err) : NULL;
    bool files = strcmp(c->name, "read") == 0 || strcmp(c->name, "grep") == 0 || strcmp(c->name, "glob") == 0;
    if (path && !rel) {
        decide(j, TOOL_FAULT, err.text);
        return;
    }
    char *real = rel ? root_real(&t->root, rel, &err) : NULL; /* what a link leads to counts too */
    bool secret = files && rel && (secrets_path(rel) || (real && secrets_path(real)));
    enum tool_verdict v =
        by_rules(t, c->name, rel ? rel : subject, c->mode, secret ? TOOL_ASK : TOOL_ALLOW, &by);
    const char *also;
    if (real && by_rules(t, c->name, real, c->mode, TOOL_ALLOW, &also) == TOOL_DENY) {
        v = TOOL_DENY;
        by = also;
    }
    free(real);
    if (v == TOOL_DENY)
        decide(j, v, by);
    else
        decide(j, v, "");
    if (v == TOOL_ASK) {
        struct approval *a = ask(t, c, j, c->args);
        add_part(a, rel ? rel : subject, secret ? "names a file of credentials" : by, false);
        a->where = where(t, "reading");
    }
    free(rel);
}

/* ---- files ---- */

static void judge_file(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    const char *by, *also;
    gistf(j, "%.200s", js_str(args, "path"));
    j->bits = TOOL_WRITES;
    if (c->mode == MODE_PLAN) {
        decide(j, TOOL_REFUSE,
               "Plan mode writes nothing; say what you would change, the user switches to Build");
        return;
    }
    if (file_prepare(t, c, args, j) < 0) {
        j->verdict = TOOL_FAULT;
        return;
    }
    gistf(j, "%.200s   +%d −%d", j->path, j->change->added, j->change->removed);
    bool own = box_guarded(root_inner(&t->root, j->path));
    enum tool_verdict v = by_rules(t, "edit", j->path, c->mode, TOOL_ASK, &by);
    if (strcmp(c->name, "write") == 0) { /* a rule for write, or one for edit, whichever is stricter */
        enum tool_verdict w = by_rules(t, "write", j->path, c->mode, v, &also);
        if (w != v)
            by = also;
        v = v == TOOL_DENY ? v : w;
    }
    if (v == TOOL_ALLOW && (own || secrets_path(j->path))) {
        v = TOOL_ASK;
        by = own ? "other programs run or obey what stands there" : "names a file of credentials";
    }
    decide(j, v, v == TOOL_DENY ? by : "");
    if (v != TOOL_ASK)
        return;
    struct approval *a = ask(t, c, j, j->path);
    add_part(a, j->path, by, false);
    a->changes = change_new(j->path, j->exists ? text_str(&j->before) : NULL, j->before.len,
                            text_str(&j->after), j->after.len);
    a->n_changes = 1;
    a->where = where(t, j->exists ? "changes a file" : "makes a file");
    if (own)
        return;
    const char *slash = strrchr(j->path, '/');
    struct text rule = {0};
    text_printf(&rule, "edit:%.*s**", slash ? (int)(slash + 1 - j->path) : 0, j->path);
    a->rule_session = mem_dup("edit:**");
    a->rule_project = text_take(&rule);
}

/* ---- bash ---- */

/* A prefix rule for a command: its name, and its second word where that is a subcommand. NULL: none is
 * offered. */
static char *rule_for(const struct shell_part *p)
{
    static const char *const never[] = {"rm",      "sudo", "doas", "su",    "sh",  "bash",  "python",
                                        "python3", "perl", "node", "eval",  "dd",  "chmod", "chown",
                                        "curl",    "wget", "ssh",  "xargs", "env", "find",  "kill"};
    struct text t = {0};
    if (p->why || p->sets || !p->argc || p->dynamic[0] || strpbrk(p->argv[0], "*\n:"))
        return NULL;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strcmp(p->argv[0], never[i]) == 0)
            return NULL;
    text_printf(&t, "bash:%s", p->argv[0]);
    static const char *const subs[] = {"git",    "cargo", "npm",   "go",   "meson", "apt",
                                       "docker", "pip",   "cmake", "yarn", "pnpm"};
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++)
        if (p->argc > 1 && strcmp(p->argv[0], subs[i]) == 0 && p->argv[1][0] != '-' && !p->dynamic[1] &&
            !strpbrk(p->argv[1], "*\n"))
            text_printf(&t, " %s", p->argv[1]);
    text_puts(&t, " *");
    return text_take(&t);
}

/* A rule allows writing where the redirection really leads. moved: the line changes its folder, so a relative
 * name is not known. */
static bool may_write(struct tools *t, const struct shell_redirect *r, enum mode mode, bool moved)
{
    const char *rule;
    if (strcmp(r->target, "/dev/null") == 0)
        return true;
    char *rel =
        r->dynamic || (moved && r->target[0] != '/') ? NULL : root_relative(&t->root, r->target, NULL);
    char *real = rel ? root_real(&t->root, rel, NULL) : NULL;
    bool yes = real && !box_guarded(root_inner(&t->root, real)) && !secrets_path(real) &&
               by_rules(t, "edit", rel, mode, TOOL_ASK, &rule) == TOOL_ALLOW &&
               by_rules(t, "edit", real, mode, TOOL_ASK, &rule) == TOOL_ALLOW;
    free(rel);
    free(real);
    return yes;
}

static enum tool_verdict judge_part(struct tools *t, const struct shell_part *p, enum mode mode, bool moved,
                                    const char **by)
{
    char *words = shell_words(p);
    enum tool_verdict v = by_rules(t, "bash", words, mode, TOOL_FAULT, by);
    if (v == TOOL_ALLOW && p->why && strchr(*by, '*')) {
        v = TOOL_ASK; /* a program text is never allowed by a pattern */
        *by = p->why;
    } else if (v == TOOL_ALLOW && p->sets) {
        v = TOOL_ASK;
        *by = shell_why_not(p);
    }
    for (size_t i = 0; v == TOOL_ALLOW && i < p->n_redirects; i++) {
        const struct shell_redirect *r = &p->redirects[i];
        if (r->writes && !may_write(t, r, mode, moved)) {
            v = TOOL_ASK;
            *by = "writes a file";
        }
    }
    if (v == TOOL_FAULT) { /* no rule speaks */
        v = shell_reads(p) ? TOOL_ALLOW : TOOL_ASK;
        *by = v == TOOL_ALLOW ? "only reads" : shell_why_not(p);
    }
    free(words);
    return v;
}

struct bash {
    enum tool_verdict v;
    bool reads; /* all parts only read */
    size_t asked;
    char *rule, *by; /* the rule that would allow what is asked, where one would; who denied */
    struct approval *a;
};

static void judge_parts(struct tools *t, const struct shell_line *l, enum mode mode, struct bash *b)
{
    bool moved = false;
    for (size_t i = 0; i < l->n; i++)
        moved = moved || (l->parts[i].argc && strcmp(l->parts[i].argv[0], "cd") == 0);
    for (size_t i = 0; i < l->n; i++) {
        const struct shell_part *p = &l->parts[i];
        const char *by;
        enum tool_verdict v = judge_part(t, p, mode, moved, &by);
        b->reads = b->reads && shell_reads(p);
        if (v == TOOL_DENY && !b->by)
            b->by = mem_dup(by);
        if (v == TOOL_DENY || (v == TOOL_ASK && b->v == TOOL_ALLOW))
            b->v = v;
        add_part(b->a, p->text, by, v == TOOL_ALLOW);
        if (v == TOOL_ALLOW)
            continue;
        char *rule = rule_for(p);
        bool same = b->rule && rule && strcmp(b->rule, rule) == 0;
        if (b->asked++ && !same) { /* one rule for all that is asked, or none */
            free(rule);
            rule = NULL;
        }
        free(b->rule);
        b->rule = rule;
    }
}

static void judge_bash(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    const char *command = js_str(args, "command"), *by;
    bool network = js_bool(args, "network", false), background = js_bool(args, "background", false);
    struct shell_line l;
    struct bash b = {.v = TOOL_ALLOW, .reads = true};
    gistf(j, "%.200s", command);
    b.a = ask(t, c, j, command);
    shell_read(&l, command);
    judge_parts(t, &l, c->mode, &b);
    if (l.why || !l.n) {
        b.reads = false;
        b.v = b.v == TOOL_DENY ? b.v : TOOL_ASK;
        add_part(b.a, command, l.why ? l.why : "it holds no command", false);
        free(b.rule);
        b.rule = NULL;
    }
    if (network) {
        enum tool_verdict v = by_rules(t, "net", command, c->mode, TOOL_ASK, &by);
        if (v != TOOL_ALLOW) {
            b.v = v == TOOL_DENY || b.v == TOOL_ALLOW ? v : b.v;
            add_part(b.a, "network", v == TOOL_DENY ? by : "asks for the network", false);
            free(b.rule);
            b.rule = NULL;
        }
    }
    if (background && b.v == TOOL_ALLOW && !b.reads)
        add_part(b.a, "background", "goes on in the background", true);
    j->bits = b.reads ? TOOL_READS : c->mode == MODE_PLAN ? 0 : TOOL_WRITES;
    b.a->where =
        where(t, "%s sandbox · %s · %lld s%s", c->mode == MODE_PLAN ? "read-only" : box_name(&t->box),
              network ? "network" : "no network", (long long)js_int(args, "timeout", 120),
              background ? " · background" : "");
    if (t->box.level == BOX_NONE) {
        decide(j, TOOL_REFUSE,
               "there is no sandbox on this machine (bubblewrap does not start, the kernel has no Landlock); "
               "the user "
               "can start Officina with --sandbox off");
    } else if (c->mode == MODE_PLAN && !b.reads && t->box.level < BOX_PROJECT) {
        decide(j, TOOL_REFUSE, "Plan without a full sandbox runs only commands that are known to read");
    } else {
        decide(j, b.v, b.by ? b.by : "");
    }
    if (j->verdict == TOOL_ASK) {
        b.a->rule_session = b.rule ? mem_dup(b.rule) : NULL;
        b.a->rule_project = b.rule ? mem_dup(b.rule) : NULL;
    }
    free(b.rule);
    free(b.by);
    shell_free(&l);
}

/* ---- MCP and extensions ---- */

static void judge_mcp(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    const char *server = js_str(args, "server"), *tool = js_str(args, "tool"), *by;
    struct text subject = {0};
    if (!tool) {
        gistf(j, "%.100s", server);
        j->bits = TOOL_READS;
        decide(j, TOOL_ALLOW, "");
        return;
    }
    gistf(j, "%.100s/%.100s", server, tool);
    text_printf(&subject, "%s/%s", server, tool);
    j->bits = TOOL_WRITES;
    enum tool_verdict v = by_rules(t, "mcp", text_str(&subject), c->mode, TOOL_ASK, &by);
    if (c->mode == MODE_PLAN && !ext_plan_allows(t->ext, server, tool))
        decide(j, TOOL_REFUSE,
               "Plan refuses tools of servers unless the user's mcp.conf says plan = yes for them");
    else
        decide(j, v, v == TOOL_DENY ? by : "");
    if (j->verdict == TOOL_ASK) {
        struct approval *a = ask(t, c, j, c->args);
        add_part(a, text_str(&subject), by, false);
        a->where = where(t, "runs outside the sandbox");
        struct text rule = {0};
        text_printf(&rule, "mcp:%s", text_str(&subject));
        a->rule_session = mem_dup(text_str(&rule));
        a->rule_project = text_take(&rule);
    }
    text_free(&subject);
}

void judged_ask(struct tools *t, const struct tool_call *c, struct judged *j, const char *reason)
{
    if (j->approval)
        approval_free(j->approval);
    struct approval *a = ask(t, c, j, j->path ? j->path : c->args);
    add_part(a, j->gist ? j->gist : c->name, reason, false);
    if (j->path)
        a->changes = change_new(j->path, j->exists ? text_str(&j->before) : NULL, j->before.len,
                                text_str(&j->after), j->after.len);
    a->n_changes = j->path != NULL;
    a->where = where(t, "an extension asks");
    decide(j, TOOL_ASK, reason);
}

void tools_judge(struct tools *t, const struct tool_call *c, json_t *args, struct judged *j)
{
    memset(j, 0, sizeof *j);
    if (strcmp(c->name, "bash") == 0)
        judge_bash(t, c, args, j);
    else if (strcmp(c->name, "write") == 0 || strcmp(c->name, "edit") == 0)
        judge_file(t, c, args, j);
    else if (strcmp(c->name, "mcp") == 0)
        judge_mcp(t, c, args, j);
    else
        judge_reading(t, c, args, j);
}
