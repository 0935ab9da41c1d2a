#include "core/command.h"

#include "core/core_priv.h"

#include "suggest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command commands[] = {
    {"/help", "", "what there is", false, true},
    {"/keys", "", "the keys", false, true},
    {"/status", "", "versions, coupling, window, sandbox, folders", false, true},
    {"/plan", "", "look and propose; nothing is changed", false, true},
    {"/build", "", "change files and run commands", false, true},
    {"/panel", "[on|off]", "the panel", true, true},
    {"/history", "[word]", "turns of this conversation", false, true},
    {"/resume", "[word|id]", "earlier conversations of this project", false, false},
    {"/new", "", "a new conversation", false, false},
    {"/fork", "", "go on in a copy", false, false},
    {"/title", "text", "name the conversation", false, true},
    {"/export", "file", "write it as Markdown", false, true},
    {"/rewind", "[turn]", "back to before a turn: files, talk or both", false, false},
    {"/redo", "", "undo the rewind", false, false},
    {"/diff", "[turn|all]", "what a turn changed", false, true},
    {"/couple", "[name]", "where requests go", false, true},
    {"/cap", "", "money: spent and allowed", false, true},
    {"/window", "", "where the context's numbers come from", false, true},
    {"/context", "", "what fills the window", false, true},
    {"/drop", "id", "replace a result by a stub", false, false},
    {"/offload", "", "replace old output by stubs now", false, false},
    {"/distil", "[focus]", "replace the conversation by a summary", false, false},
    {"/recall", "words", "search memory", false, true},
    {"/remember", "text", "a fact for every conversation of this project", false, true},
    {"/forget", "id", "a remembered fact", false, true},
    {"/checkpoint", "", "ask the engine to save", false, false},
    {"/warm", "", "ask the engine to restore", false, false},
    {"/rules", "", "permission rules and where each comes from", false, true},
    {"/allow", "rule", "allow for this session, e.g. bash:make *", false, true},
    {"/deny", "rule", "deny for this session", false, true},
    {"/tasks", "", "the model's list", false, true},
    {"/jobs", "", "background jobs", false, true},
    {"/kill", "n", "end a job", false, true},
    {"/mcp", "", "MCP servers", false, true},
    {"/ext", "", "extensions", false, true},
    {"/skills", "", "skills", false, true},
    {"/add-dir", "folder", "one more folder for tools and commands", false, false},
    {"/trust", "", "read this folder's configuration", false, true},
    {"/theme", "[name]", "colours", true, true},
    {"/glyphs", "[full|plain|ascii]", "characters of gauges", true, true},
    {"/mouse", "[on|off]", "mouse", true, true},
    {"/motion", "[on|off]", "motion", true, true},
    {"/copy", "[n]", "last answer, or its code block n", true, true},
    {"/init", "", "propose an AGENTS.md", false, false},
    {"/report", "", "what a bug report would contain", false, true},
    {"/quit", "", "leave", false, true},
};
#define N_COMMANDS (sizeof commands / sizeof commands[0])

const struct command *command_list(size_t *n)
{
    *n = N_COMMANDS;
    return commands;
}

/* ---- pages ---- */

void page_begin(struct model *m, const char *title)
{
    sheet_clear(&m->sheet);
    m->sheet.kind = SHEET_PAGE;
    m->sheet.title = mem_dup(title);
    m->sheet.keys = mem_dup("Esc closes");
}

void page_line(struct model *m, const char *fmt, ...)
{
    char buf[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    struct sheet *s = &m->sheet;
    s->lines = mem_grow(s->lines, (s->n_lines + 1) * sizeof *s->lines);
    s->lines[s->n_lines++] = mem_dup(buf);
}

const char *amount(char out[24], int64_t v)
{
    if (v < 0)
        snprintf(out, 24, "–");
    else
        snprintf(out, 24, "%" PRId64, v);
    return out;
}

static void help_page(struct model *m)
{
    page_begin(m, "HELP");
    page_line(m,
              "Enter sends, or steers while the model works. TAB changes between Plan and Build. Esc stops.");
    page_line(m,
              "A call that waits is answered with Alt-Y, Alt-S, Alt-P or Alt-N (or Ctrl-X and the letter).");
    page_line(m,
              "@ completes paths; !command runs a command as you; !!command does without telling the model.");
    page_line(m, "%s", "");
    for (size_t i = 0; i < N_COMMANDS; i++)
        page_line(m, "%-12s %-19s %s", commands[i].name, commands[i].args, commands[i].help);
}

static void keys_page(struct model *m)
{
    static const char *const rows[] = {
        "Enter              send; steer while the model works",
        "Alt-Enter, Ctrl-J  new line",
        "TAB                Plan or Build; complete in a menu",
        "Esc                stop the turn; close a menu",
        "Esc Esc            rewind",
        "Ctrl-C             clear the composer; stop; twice leaves",
        "Ctrl-D             leave, when the composer is empty",
        "Alt-Y S P N        approve once, for the session, as project rule; deny",
        "Alt-V              whole call of an approval; unfold a paste",
        "Alt-Q              take a queued line back",
        "Alt-E              end the reasoning early",
        "Alt-R              try the engine now",
        "PgUp PgDn          scroll; End follows",
        "Ctrl-Up Ctrl-Down  select a block; space folds, y copies, d diff",
        "Ctrl-O             fold or open all tool blocks",
        "F2 F3              panel, tasks",
        "Ctrl-P             commands",
        "Ctrl-R             earlier prompts",
        "Ctrl-G             composer in the editor",
        "Ctrl-L             repaint",
        "Ctrl-Z             suspend",
        "F1 F8 F9           help, frame to a file, mouse",
    };
    page_begin(m, "KEYS");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        page_line(m, "%s", rows[i]);
}

static void window_page(struct model *m)
{
    const struct core *c = m->core;
    const struct gauges *g = &m->gauges;
    char n[24];
    page_begin(m, "WINDOW");
    page_line(m, "size       %s tokens: %s", amount(n, g->size),
              c->cpl.window > 0   ? "from couplings.conf"
              : g->size_certified ? "the certified depth of the engine"
                                  : "the engine's window, uncertified");
    page_line(m, "window     %s (/props of the engine)", amount(n, m->engine.window));
    page_line(m, "certified  %s (/props of the engine)%s%s", amount(n, m->engine.certified),
              m->engine.certified_how != NULL ? ": " : "",
              m->engine.certified_how != NULL ? m->engine.certified_how : "");
    page_line(m, "evicted    %s tokens since the engine started", amount(n, m->engine.evicted));
    page_line(m, "high mark  %s: above it old output is offloaded after a turn", amount(n, g->target));
    page_line(m, "used       %s%s", amount(n, g->used),
              g->used_estimated ? " (estimated)" : " (counted by the engine)");
}

static void cap_page(struct model *m)
{
    const struct core *c = m->core;
    const struct coupling *p = &c->cpl;
    page_begin(m, "MONEY");
    if (!p->priced) {
        page_line(m, "%s costs nothing.", m->coupling);
        return;
    }
    page_line(m, "conversation  %.4f € of %.2f €", (double)c->spent_session / 1e6, p->cap_session);
    page_line(m, "today         %.4f € of %.2f €", (double)c->spent_day / 1e6, p->cap_day);
    page_line(m, "this month    %.4f € of %.2f €", (double)c->spent_month / 1e6, p->cap_month);
}

static void tasks_page(struct model *m)
{
    static const char *const marks[] = {"open ", "doing", "done "};
    page_begin(m, "TASKS");
    for (size_t i = 0; i < m->n_tasks; i++)
        page_line(m, "%s  %s", marks[m->tasks[i].state], m->tasks[i].text);
    if (m->n_tasks == 0)
        page_line(m, "No tasks.");
}

static void history_sheet(struct model *m, const char *word)
{
    struct sheet *s = &m->sheet;
    sheet_clear(s);
    s->kind = SHEET_HISTORY;
    s->title = mem_dup("HISTORY");
    s->heads[0] = mem_dup("turn");
    s->heads[1] = mem_dup("what you asked");
    s->keys = mem_dup("Enter jumps   y copies   d diff   Esc stay");
    s->rows = mem_new((m->n_turns + 1) * sizeof *s->rows);
    for (size_t i = m->n_turns; i-- > 0;) {
        const struct turn *t = &m->turns[i];
        const char *asked = NULL;
        for (size_t k = t->first_item; k < m->n_items && asked == NULL; k++)
            asked = m->items[k].kind == ITEM_USER ? text_str(&m->items[k].body) : NULL;
        if (asked == NULL || (word != NULL && word[0] != '\0' && strcasestr(asked, word) == NULL))
            continue;
        struct sheet_row *r = &s->rows[s->n_rows++];
        r->key = mem_dup(t->key);
        r->cells[0] = mem_dup(t->key);
        r->cells[1] = mem_dupn(asked, strcspn(asked, "\n"));
    }
}

/* ---- the commands ---- */

static int turn_index(const struct model *m, const char *key)
{
    for (size_t i = 0; i < m->n_turns; i++)
        if (strcmp(m->turns[i].key, key) == 0)
            return (int)i;
    return -1;
}

static void diff_command(struct model *m, const char *arg, struct effects *fx)
{
    int64_t turn = (int64_t)m->n_turns - 1;
    if (strcmp(arg, "all") == 0)
        turn = -1;
    else if (arg[0] != '\0' && (turn = turn_index(m, arg)) < 0) {
        notice(m, NOTICE_TROUBLE, "There is no turn %.20s.", arg);
        return;
    }
    if (m->n_turns == 0)
        notice(m, NOTICE_INFO, "Nothing was changed yet.");
    else
        effect_add(fx, FX_DIFF, turn, NULL, NULL);
}

static void rule_command(struct model *m, const char *arg, bool allow, struct effects *fx)
{
    if (strchr(arg, ':') == NULL) {
        notice(m, NOTICE_TROUBLE, "A rule is tool:pattern, for example bash:make *");
        return;
    }
    struct effect *e = effect_add(fx, FX_RULE, 1, "session", arg); /* 1: it is told when it was taken */
    e->n = allow;
    e->m = m->mode;
}

static int64_t number_after(const char *arg)
{
    while (*arg != '\0' && strchr("-mo", *arg) != NULL)
        arg++;
    char *end;
    long long v = strtoll(arg, &end, 10);
    return end != arg && *end == '\0' && v > 0 ? v : -1;
}

static void context_command(struct model *m, const char *name, const char *arg, struct effects *fx)
{
    struct core *c = m->core;
    wire_update(m);
    if (strcmp(name, "/offload") == 0) {
        if (economy_offload(m, 0, fx) == 0)
            notice(m, NOTICE_INFO, "There is nothing to offload: the last two turns stay whole.");
    } else if (strcmp(name, "/drop") == 0) {
        if (!economy_drop(m, number_after(arg), fx))
            notice(m, NOTICE_TROUBLE, "No result %.20s is in the context; /context lists them.", arg);
        else
            notice(m, NOTICE_INFO,
                   "Dropped; recall finds it. The next request reads again what stands behind it.");
    } else if (c->n_units < 2 || m->engine.link != LINK_LIVE) {
        notice(m, NOTICE_TROUBLE,
               c->n_units < 2 ? "There is nothing to distil yet." : "The engine is not there.");
    } else {
        economy_distil(m, arg, fx);
    }
}

static void kill_command(struct model *m, const char *arg, struct effects *fx)
{
    int64_t n = number_after(arg);
    bool runs = false;
    for (size_t i = 0; i < m->n_jobs; i++)
        runs = runs || (m->jobs[i].id == n && m->jobs[i].ended == 0);
    if (runs)
        effect_add(fx, FX_KILL, n, NULL, NULL);
    else
        notice(m, NOTICE_TROUBLE, "No job %.20s runs; /jobs lists them.", arg);
}

static void forget_command(struct model *m, const char *arg, struct effects *fx)
{
    int64_t n = number_after(arg);
    if (n > 0)
        effect_add(fx, FX_FACT, n, NULL, NULL);
    else
        notice(m, NOTICE_TROUBLE, "/forget needs the number of a fact, as /remember told it, and not %.20s.",
               arg);
}

static void mode_command(struct model *m, enum mode mode)
{
    m->mode = mode;
}

static void page_of_core(struct model *m, const char *name)
{
    if (strcmp(name, "/help") == 0)
        help_page(m);
    else if (strcmp(name, "/keys") == 0)
        keys_page(m);
    else if (strcmp(name, "/window") == 0)
        window_page(m);
    else if (strcmp(name, "/cap") == 0)
        cap_page(m);
    else if (strcmp(name, "/tasks") == 0)
        tasks_page(m);
    else if (strcmp(name, "/context") == 0)
        economy_page(m);
}

static bool is_one_of(const char *name, const char *list)
{
    size_t n = strlen(name);
    for (const char *p = strstr(list, name); p != NULL; p = strstr(p + 1, name))
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static void init_command(struct model *m, struct effects *fx)
{
    turn_begin(m,
               "Look at this project and propose an AGENTS.md: what it is, how it is built and tested, its "
               "layout and "
               "its conventions, in at most 60 lines. Read before you write.",
               fx);
}

static void run(struct model *m, const char *name, const char *arg, struct effects *fx)
{
    if (is_one_of(name, "/help /keys /window /cap /tasks /context"))
        page_of_core(m, name);
    else if (is_one_of(name, "/status /rules /jobs /mcp /ext /skills /report"))
        effect_add(fx, FX_PAGE, 0, name + 1, NULL);
    else if (is_one_of(name, "/plan /build"))
        mode_command(m, name[1] == 'p' ? MODE_PLAN : MODE_BUILD);
    else if (is_one_of(name, "/offload /drop /distil"))
        context_command(m, name, arg, fx);
    else if (is_one_of(name, "/allow /deny"))
        rule_command(m, arg, name[1] == 'a', fx);
    else if (strcmp(name, "/history") == 0)
        history_sheet(m, arg);
    else if (strcmp(name, "/resume") == 0)
        effect_add(fx, FX_LIST, 0, NULL, arg);
    else if (strcmp(name, "/new") == 0)
        effect_add(fx, FX_NEW, 0, NULL, NULL);
    else if (strcmp(name, "/fork") == 0)
        effect_add(fx, FX_OPEN, 0, NULL, m->session)->n = 1;
    else if (strcmp(name, "/title") == 0) {
        set_str(&m->title, arg);
        effect_add(fx, FX_TITLE, 0, NULL, arg);
    } else if (strcmp(name, "/export") == 0)
        effect_add(fx, FX_EXPORT, 0, NULL, arg);
    else if (strcmp(name, "/rewind") == 0)
        rewind_open(m, arg, fx);
    else if (strcmp(name, "/redo") == 0)
        rewind_redo(m, fx);
    else if (strcmp(name, "/diff") == 0)
        diff_command(m, arg, fx);
    else if (strcmp(name, "/couple") == 0 && arg[0] != '\0' && m->core->phase == PH_STREAM)
        notice(m, NOTICE_TROUBLE, "/couple has to wait until the answer has ended; Esc stops it.");
    else if (strcmp(name, "/couple") == 0)
        effect_add(fx, arg[0] != '\0' ? FX_COUPLE : FX_PAGE, 0, arg[0] != '\0' ? arg : "couple", NULL);
    else if (strcmp(name, "/add-dir") == 0)
        effect_add(fx, FX_PAGE, 0, "add-dir", arg);
    else if (strcmp(name, "/recall") == 0)
        effect_add(fx, FX_PAGE, 0, "recall", arg);
    else if (strcmp(name, "/remember") == 0)
        effect_add(fx, FX_FACT, 0, NULL, arg);
    else if (strcmp(name, "/forget") == 0)
        forget_command(m, arg, fx);
    else if (strcmp(name, "/checkpoint") == 0)
        engine_checkpoint(m, true, fx);
    else if (strcmp(name, "/warm") == 0) {
        for (size_t i = m->n_turns; i-- > 0 && m->core->checkpoint_wanted == NULL;)
            set_str(&m->core->checkpoint_wanted, m->turns[i].checkpoint);
        if (m->core->checkpoint_wanted == NULL)
            notice(m, NOTICE_TROUBLE, "This conversation has no checkpoint.");
        else
            engine_checkpoint(m, true, fx);
    } else if (strcmp(name, "/kill") == 0)
        kill_command(m, arg, fx);
    else if (strcmp(name, "/trust") == 0)
        effect_add(fx, FX_TRUST, 1, NULL, NULL)->n = 1;
    else if (strcmp(name, "/init") == 0)
        init_command(m, fx);
    else if (strcmp(name, "/quit") == 0)
        effect_add(fx, FX_QUIT, 0, NULL, NULL);
}

void command_hint(const char *name, char *out, size_t size)
{
    const char *names[N_COMMANDS];
    char hint[160];
    for (size_t i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    vt_suggest(name, names, N_COMMANDS, hint, sizeof hint);
    char *semi = strstr(hint, "; ");
    snprintf(out, size, "no such command: %.40s%s%s", name, semi != NULL ? " – " : "",
             semi != NULL ? semi + 2 : "");
}

void command_run(struct model *m, const char *line, struct effects *fx)
{
    char name[40];
    size_t n = strcspn(line, " \t\n");
    const struct command *cmd = NULL;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), line);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            cmd = &commands[i];
    char *arg = mem_dup(line + n + strspn(line + n, " \t\n"));
    size_t len = strlen(arg);
    while (len > 0 && strchr(" \t\n", arg[len - 1]) != NULL)
        arg[--len] = '\0';
    if (cmd == NULL)
        effect_add(fx, FX_PAGE, 0, "command", line); /* perhaps one of commands/ or of an extension */
    else if (cmd->screen)
        notice(m, NOTICE_TROUBLE, "%s is for the screen.", name);
    else if (!cmd->busy && m->core->rewind_what != 0)
        notice(m, NOTICE_TROUBLE, "%s has to wait until the files are put back.", name);
    else if (!cmd->busy && m->core->phase != PH_IDLE)
        notice(m, NOTICE_TROUBLE, "%s has to wait until the turn has ended; Esc stops it.", name);
    else if (cmd->args[0] != '\0' && cmd->args[0] != '[' && arg[0] == '\0')
        notice(m, NOTICE_TROUBLE, "%s needs: %s", name, cmd->args);
    else
        run(m, name, arg, fx);
    free(arg);
}
