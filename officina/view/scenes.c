#include "view/scenes.h"
#include "util/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S 1000000ull

static void set(char **to, const char *s)
{
    *to = mem_dup(s);
}

static struct model *base(void)
{
    static const float speed[] = {3, 7, 8, 11, 9, 11, 11.3f, 11.3f, 9, 11, 11, 11.3f};
    struct model *m = model_new();
    m->now = SCENE_NOW;
    set(&m->folder, "~/my-project");
    set(&m->branch, "main");
    m->git_new = 2;
    m->git_changed = 1;
    set(&m->coupling, "lapis");
    set(&m->coupling_title, "Lapis Occultus – VITRIOL");
    set(&m->sandbox, "project");
    m->engine.link = LINK_LIVE;
    set(&m->engine.model, "qwen-27b-q3km");
    m->engine.slot = 0;
    m->engine.slots = 2;
    m->engine.slots_busy = 0;
    m->engine.slot_warm = true;
    m->engine.window = 131100;
    m->engine.certified = 96800;
    m->engine.boot_decoded = 1840000;
    m->engine.evicted = 0;
    m->engine.last_seen = SCENE_NOW;
    m->gauges.used = 3000;
    m->gauges.size = 96800;
    m->gauges.size_certified = true;
    m->gauges.live = 3000;
    m->gauges.offload = 0;
    m->gauges.read_last = 8100;
    m->gauges.speed_max = 12;
    for (size_t i = 0; i < SPEED_SAMPLES; i++)
        m->gauges.speed[i] = i < SPEED_SAMPLES - 12 ? -1 : speed[i - (SPEED_SAMPLES - 12)];
    return m;
}

static void turn(struct model *m, const char *key)
{
    m->turns = mem_room(m->turns, m->n_turns, &m->cap_turns, sizeof *m->turns);
    struct turn *t = &m->turns[m->n_turns++];
    memset(t, 0, sizeof *t);
    snprintf(t->key, sizeof t->key, "%s", key);
    t->first_item = m->n_items;
    t->files_changed = UNKNOWN;
}

static struct item *say(struct model *m, enum item_kind kind, const char *s)
{
    struct item *it = model_add(m, kind);
    text_puts(&it->body, s);
    it->at = SCENE_NOW - 60 * S;
    it->ended = SCENE_NOW - 30 * S;
    it->live = true;
    it->turn = m->n_turns - 1;
    return it;
}

static struct item *call(struct model *m, const char *name, const char *gist, enum call_state st)
{
    struct item *it = model_add(m, ITEM_CALL);
    struct call *c = it->call;
    it->live = true;
    it->turn = m->n_turns - 1;
    c->state = st;
    set(&c->name, name);
    set(&c->gist, gist);
    c->started = SCENE_NOW - 20 * S;
    c->ended = st >= CALL_OK ? c->started : 0;
    if (st >= CALL_OK)
        text_puts(&c->result, "…\n");
    return it;
}

static struct file_change *change(struct call *c, size_t n)
{
    c->change = mem_new(n * sizeof *c->change);
    c->n_changes = n;
    return c->change;
}

static void file(struct file_change *f, const char *path, const char *before, const char *after, int added,
                 int removed)
{
    set(&f->path, path);
    set(&f->before, before);
    set(&f->after, after);
    f->before_len = before ? strlen(before) : 0;
    f->after_len = after ? strlen(after) : 0;
    f->added = added;
    f->removed = removed;
}

static void task(struct model *m, const char *s, enum task_state st)
{
    m->tasks = mem_room(m->tasks, m->n_tasks, &m->cap_tasks, sizeof *m->tasks);
    struct task *t = &m->tasks[m->n_tasks++];
    set(&t->text, s);
    t->state = st;
}

static void touched(struct model *m, char sign, const char *path, int added, int removed)
{
    m->touched = mem_room(m->touched, m->n_touched, &m->cap_touched, sizeof *m->touched);
    struct touched *t = &m->touched[m->n_touched++];
    set(&t->path, path);
    t->sign = sign;
    t->added = added;
    t->removed = removed;
}

static void types(struct ui *u, const char *s)
{
    edit_insert(&u->edit, s, strlen(s), EDIT_TYPE);
}

static void flow(struct model *m)
{
    m->gauges.in = 212000;
    m->gauges.cached = 201000;
    m->gauges.out = 9400;
    m->gauges.reread = 11000;
    m->gauges.live = 20100;
    m->gauges.offload = 198000;
    m->engine.evicted = 12000;
    m->gauges.decode = 11.3;
    m->engine.slots_busy = 1;
    touched(m, '~', "src/parse.c", 12, 4);
    touched(m, '+', "tests/parse_test.c", 48, 0);
    task(m, "read the failing test", TASK_DONE);
    task(m, "fix next_token", TASK_DOING);
    task(m, "add a regression test", TASK_OPEN);
}

static struct model *empty(struct ui *u)
{
    struct model *m = base();
    m->engine.evicted = UNKNOWN;
    return m;
}

static struct model *plan(struct ui *u)
{
    struct model *m = base();
    m->mode = MODE_PLAN;
    return m;
}

static struct model *approval(struct ui *u)
{
    struct model *m = base();
    turn(m, "t0007");
    say(m, ITEM_USER, "Run the parser tests and fix what fails.");
    say(m, ITEM_TEXT, "I will run the suite first.");
    call(m, "read", "src/parse.c  1–140", CALL_OK);
    struct call *grep = call(m, "grep", "\"next_token\" 6 hits in 3 files", CALL_OK)->call;
    grep->ended = grep->started + 100000;
    struct item *it = call(m, "bash", "make test && rm -rf build/tmp", CALL_ASKING);
    struct approval *a = mem_new(sizeof *a);
    it->call->approval = a;
    set(&a->what, "make test && rm -rf build/tmp");
    a->parts = mem_new(2 * sizeof *a->parts);
    a->n_parts = 2;
    set(&a->parts[0].text, "make test");
    set(&a->parts[0].reason, "allowed for this session");
    a->parts[0].allowed = true;
    set(&a->parts[1].text, "rm -rf build/tmp");
    set(&a->parts[1].reason, "NOT allowed: deletes files");
    set(&a->where, "in ~/my-project · project sandbox · no network · 120 s");
    set(&a->rule_session, "bash:rm -rf build/tmp");
    set(&a->rule_project, "bash:rm -rf build/tmp");
    m->status = ST_APPROVAL;
    m->asking = m->n_items - 1;
    m->n_asking = 1;
    m->gauges.used = 20700;
    m->gauges.decode = 11.3;
    m->engine.slots_busy = 1;
    types(u, "keep build/tmp please");
    return m;
}

static const char lexer_before[] = "static int next_token(lexer *lx) {\n"
                                   "    while (isspace((unsigned char)lx->p[0])) lx->p++;\n"
                                   "    if (lx->p >= lx->end) return TOK_EOF;\n";
static const char lexer_after[] = "static int next_token(lexer *lx) {\n"
                                  "    while (lx->p < lx->end && isspace((unsigned char)*lx->p))\n"
                                  "        lx->p++;\n"
                                  "    if (lx->p >= lx->end) return TOK_EOF;\n";

static struct model *running(struct ui *u)
{
    struct model *m = base();
    turn(m, "t0007");
    say(m, ITEM_USER, "Run the parser tests and fix what fails.");
    say(m, ITEM_TEXT,
        "The failing case is `parse_empty`. `next_token()` reads one byte past the end when the buffer is "
        "empty:\n\n"
        "```c\n118  static int next_token(lexer *lx) {\n119      while (isspace((unsigned char)lx->p[0])) "
        "lx->p++;\n"
        "120      if (lx->p >= lx->end) return TOK_EOF;\n```\n\nThe bound has to be tested before the byte "
        "is read. I will:\n\n"
        "1. swap the two tests,\n2. add a regression test,\n3. run the suite again.\n");
    call(m, "read", "tests/parse_test.c  1–80", CALL_OK);
    struct item *edit = call(m, "edit", "src/parse.c   +3 −2", CALL_OK);
    file(change(edit->call, 1), "src/parse.c", lexer_before, lexer_after, 3, 2);
    ui_fold(u, edit, true);
    struct item *it = call(m, "bash", "make test", CALL_RUNNING);
    it->call->started = SCENE_NOW - 12 * S;
    text_puts(&it->call->tail, "cc -O2 -Wall -c src/parse.c\n[ 41/118 ] parse_numbers ............. ok\n"
                               "[ 42/118 ] parse_strings ............. ok");
    m->status = ST_RUNNING;
    m->running = m->n_items - 1;
    m->gauges.used = 41200;
    flow(m);
    types(u, "and please keep the old error text");
    return m;
}

/* 61 lines that stay, between the two places of the change. */
static char *parser(const char *name)
{
    struct text t = {0};
    for (int i = 0; i < 116; i++)
        text_printf(&t, "/* line %d */\n", i + 1);
    text_printf(&t,
                "\nstatic int %s(lexer *lx) {\n    while (lx->p < lx->end && isspace((unsigned "
                "char)*lx->p))\n        lx->p++;\n",
                name);
    for (int i = 0; i < 62; i++)
        text_printf(&t, "/* line %d */\n", i + 121);
    text_printf(&t, "    int t = %s(&p->lx);\n    if (t == TOK_EOF) return NULL;\n", name);
    return text_take(&t);
}

static char *header(const char *name)
{
    struct text t = {0};
    for (int i = 0; i < 21; i++)
        text_printf(&t, "%s", i == 20 ? "\n" : "extern int x;\n");
    text_printf(&t, "int %s(lexer *);\n", name);
    return text_take(&t);
}

static char *test_file(const char *name)
{
    struct text t = {0};
    for (int i = 0; i < 40; i++)
        text_puts(&t, "\n");
    text_printf(&t,
                "    assert(%s(&lx) == TOK_EOF);\n    assert(%s(&lx) == TOK_EOF);   /* stays at the end */\n",
                name, name);
    return text_take(&t);
}

static struct model *change_waits(struct ui *u)
{
    struct model *m = base();
    char *(*const make[3])(const char *) = {parser, header, test_file};
    static const char *const path[3] = {"src/parse.c", "src/parse.h", "tests/parse_test.c"};
    turn(m, "t0008");
    say(m, ITEM_USER, "Rename next_token to lex_next everywhere and show me the change before you write it.");
    say(m, ITEM_TEXT,
        "Three files use the name. The edit below touches all of them; nothing is written until you "
        "approve.");
    struct item *it = call(m, "edit", "3 files", CALL_ASKING);
    struct approval *a = mem_new(sizeof *a);
    it->call->approval = a;
    a->changes = mem_new(3 * sizeof *a->changes);
    a->n_changes = 3;
    for (int i = 0; i < 3; i++) {
        char *before = make[i]("next_token"), *after = make[i]("lex_next");
        file(&a->changes[i], path[i], before, after,
             i == 1   ? 1
             : i == 0 ? 6
                      : 2,
             i == 1   ? 1
             : i == 0 ? 6
                      : 2);
        free(before);
        free(after);
    }
    set(&a->rule_session, "edit:**");
    set(&a->rule_project, "edit:**");
    m->status = ST_APPROVAL;
    m->asking = m->n_items - 1;
    m->n_asking = 1;
    m->gauges.used = 44500;
    flow(m);
    m->gauges.live = 22000;
    m->jobs = mem_room(m->jobs, m->n_jobs, &m->cap_jobs, sizeof *m->jobs);
    struct job *j = &m->jobs[m->n_jobs++];
    memset(j, 0, sizeof *j);
    j->id = 1;
    set(&j->command, "make -j2");
    j->started = SCENE_NOW - 12 * S;
    j->lines = 61;
    return m;
}

static struct model *rewind_picker(struct ui *u)
{
    static const char *const rows[4][5] = {
        {"now", "11:58", "(stay here)", "–", "–"},
        {"t0008", "11:51", "Rename next_token to lex_next everywhere", "3 changed", "44.5k→41.2k"},
        {"t0007", "11:42", "Run the parser tests and fix what fails.", "2 changed", "41.2k→20.7k"},
        {"t0006", "11:30", "What does the lexer do?", "none", "20.7k→14.9k"}};
    static const char *const detail[] = {
        "t0008 · before this turn", "  restore  src/parse.c  src/parse.h  tests/parse_test.c",
        "  keep     notes.txt (changed by you after the turn)", "  not covered: build/ (ignored)",
        "  context  checkpoint ck-31 is warm: no re-reading (about 0.3 s)"};
    static const char *const heads[5] = {"turn", "when", "what you asked", "files", "context"};
    struct model *m = base();
    struct sheet *s = &m->sheet;
    turn(m, "t0008");
    say(m, ITEM_USER, "Rename next_token to lex_next everywhere");
    s->kind = SHEET_REWIND;
    s->rows = mem_new(4 * sizeof *s->rows);
    s->n_rows = 4;
    for (int c = 0; c < 5; c++) {
        set(&s->heads[c], heads[c]);
        for (int i = 0; i < 4; i++)
            set(&s->rows[i].cells[c], rows[i][c]);
    }
    s->detail = mem_new(5 * sizeof *s->detail);
    s->n_detail = 5;
    for (int i = 0; i < 5; i++)
        set(&s->detail[i], detail[i]);
    set(&s->keys, "Enter both   f files only   c context only   d diff   Esc stay");
    set(&s->hint, "nothing changes until you press Enter, f or c");
    m->status = ST_REWIND;
    m->gauges.used = 44500;
    m->engine.evicted = 12000;
    return m;
}

static struct model *talk(void)
{
    struct model *m = base();
    turn(m, "t0007");
    say(m, ITEM_USER, "Run the parser tests and fix what fails.");
    say(m, ITEM_TEXT, "The bound has to be tested before the byte is read.");
    m->gauges.used = 44500;
    return m;
}

static struct item *notice(struct model *m, enum notice_level level, const char *s)
{
    struct item *it = say(m, ITEM_NOTICE, s);
    it->level = level;
    it->times = 1;
    return it;
}

static struct model *away(struct ui *u)
{
    struct model *m = talk();
    m->items[1].partial = true;
    notice(m, NOTICE_TROUBLE, "The engine stopped answering while writing. What had arrived is kept.")
        ->times = 3;
    m->status = ST_AWAY;
    m->engine.link = LINK_AWAY;
    m->engine.retry_at = SCENE_NOW + 4 * S;
    m->engine.last_seen = SCENE_NOW - 12 * S;
    m->queue = mem_room(m->queue, 0, &m->cap_queue, sizeof *m->queue);
    m->n_queue = 1;
    m->queue[0] = (struct queued){.text = mem_dup("go on")};
    types(u, "you can go on typing; it will be sent when the engine is back");
    return m;
}

static struct model *bouncing(struct ui *u)
{
    struct model *m = talk();
    notice(m, NOTICE_INFO, "The engine announced a clean restart. Nothing is lost; the turn goes on.");
    m->status = ST_BOUNCING;
    m->engine.link = LINK_BOUNCING;
    m->engine.bounce_eta = 20;
    return m;
}

static struct model *warming(struct ui *u)
{
    struct model *m = talk();
    notice(m, NOTICE_INFO, "The engine is back (boot 7f3a, same model, same window).");
    m->status = ST_WARMING;
    m->engine.link = LINK_WARMING;
    set(&m->engine.warming, "ck-31");
    return m;
}

static struct model *loading(struct ui *u)
{
    struct model *m = talk();
    m->status = ST_LOADING;
    m->engine.link = LINK_LOADING;
    m->status_since = SCENE_NOW - 7 * S;
    return m;
}

static struct model *reading(struct ui *u)
{
    struct model *m = base();
    turn(m, "t0008");
    say(m, ITEM_USER, "What does the lexer do?");
    m->mode = MODE_PLAN;
    m->status = ST_READING;
    m->gauges.read = 25500;
    m->gauges.read_of = 41200;
    m->gauges.read_speed = 131;
    return m;
}

static struct model *fault(struct ui *u)
{
    struct model *m = talk();
    notice(m, NOTICE_TROUBLE,
           "The served template does not know tools. Nothing ran; nothing is lost.\n"
           "Choose another model or coupling, or ask without tools: /couple, /status");
    m->status = ST_ERROR;
    set(&m->status_text, "the engine refused the request (400)");
    m->gauges.used = 41200;
    return m;
}

static struct model *small_run(struct ui *u)
{
    struct model *m = base();
    turn(m, "t0007");
    say(m, ITEM_USER, "Run the parser tests and fix what fails.");
    struct item *it = call(m, "bash", "make test", CALL_RUNNING);
    it->call->started = SCENE_NOW - 12 * S;
    text_puts(&it->call->tail, "[ 41/118 ] parse_numbers ... ok\n[ 42/118 ] parse_strings ... ok");
    m->status = ST_RUNNING;
    m->running = 1;
    m->gauges.used = 41200;
    return m;
}

static struct model *plain_state(enum status st)
{
    struct model *m = talk();
    m->status = st;
    m->status_since = SCENE_NOW - 3 * S;
    return m;
}

static struct model *sending(struct ui *u)
{
    return plain_state(ST_SENDING);
}

static struct model *thinking(struct ui *u)
{
    struct model *m = plain_state(ST_THINKING);
    struct item *it = say(m, ITEM_REASONING,
                          "The test fails at the first byte.\nThe buffer is empty.\nSo the loop reads past "
                          "it.\nI should look.");
    it->ended = 0;
    it->at = SCENE_NOW - 41 * S;
    it->tokens = 612;
    m->engine.can_end_think = true;
    m->gauges.decode = 11.3;
    m->engine.slots_busy = 1;
    return m;
}

static struct model *writing(struct ui *u)
{
    struct model *m = plain_state(ST_WRITING);
    struct item *thought = say(m, ITEM_REASONING, "hm");
    thought->tokens = 612;
    thought->at = thought->ended - 41 * S;
    say(m, ITEM_TEXT,
        "## Result\n\n- **one** with `code`\n- two\n\n> quoted\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nand [a "
        "link](http://a.example)")
        ->ended = 0;
    m->gauges.decode = 11.3;
    m->engine.slots_busy = 1;
    return m;
}

static struct model *answer(struct ui *u)
{
    struct model *m = plain_state(ST_ANSWER);
    struct item *it = call(m, "ask", "which parser", CALL_ASKING);
    set(&it->call->question, "Which of the two parsers shall I keep?");
    it->call->options = mem_new(2 * sizeof(char *));
    it->call->n_options = 2;
    set(&it->call->options[0], "the hand-written one");
    set(&it->call->options[1], "the generated one");
    m->asking = m->n_items - 1;
    return m;
}

static struct model *interrupted(struct ui *u)
{
    struct model *m = plain_state(ST_INTERRUPT);
    struct item *it = call(m, "bash", "make test", CALL_CLOSED);
    set(&it->call->reason, "stopped by you");
    it = call(m, "bash", "rm -rf build", CALL_DENIED);
    set(&it->call->reason, "denied by you: keep build/tmp");
    it = call(m, "edit", "src/x.c", CALL_REFUSED);
    set(&it->call->reason, "Plan mode does not write");
    it = call(m, "bash", "make all", CALL_FAILED);
    text_puts(&it->call->result, "cc: error: no such file: x.c\nexit 1\n");
    return m;
}

static struct model *waiting_slot(struct ui *u)
{
    struct model *m = plain_state(ST_SLOT);
    m->engine.slots_busy = 2;
    return m;
}

static struct model *offloading(struct ui *u)
{
    struct model *m = plain_state(ST_OFFLOAD);
    set(&m->status_text, "61.0k to 30.0k");
    return m;
}

static struct model *distilling(struct ui *u)
{
    struct model *m = plain_state(ST_DISTIL);
    say(m, ITEM_CUT, "distilled 61.0k → 14.2k");
    set(&m->status_text, "61.0k");
    return m;
}

static struct model *full(struct ui *u)
{
    struct model *m = plain_state(ST_FULL);
    set(&m->status_text, "96.1k of 96.8k");
    m->gauges.used = 96100;
    return m;
}

static struct model *cap(struct ui *u)
{
    struct model *m = plain_state(ST_CAP);
    set(&m->status_text, "1.00 of 1.00 EUR this session");
    m->gauges.spent = 1000000;
    return m;
}

static struct model *read_only(struct ui *u)
{
    struct model *m = plain_state(ST_READONLY);
    m->read_only = true;
    return m;
}

static struct model *page(struct ui *u)
{
    static const char *const lines[] = {"engine     qwen-27b-q3km, build 7f3a",
                                        "window     131.1k tokens, certified 96.8k", "sandbox    project",
                                        "store      ~/.vitriol/officina/officina.db"};
    struct model *m = talk();
    m->sheet.kind = SHEET_PAGE;
    set(&m->sheet.title, "STATUS");
    m->sheet.lines = mem_new(4 * sizeof(char *));
    m->sheet.n_lines = 4;
    for (int i = 0; i < 4; i++)
        set(&m->sheet.lines[i], lines[i]);
    set(&m->sheet.keys, "Esc closes");
    return m;
}

static struct model *menu(struct ui *u)
{
    struct model *m = talk();
    types(u, "/re");
    menu_add(&u->menu, "/resume", "conversations of this project");
    menu_add(&u->menu, "/rewind", "go back before a turn: files and context");
    menu_add(&u->menu, "/redo", "take the last rewind back");
    u->menu.cursor = 1;
    u->menu.shown = true;
    return m;
}

static struct model *long_text(struct ui *u)
{
    struct model *m = talk();
    types(u, "first line of a longer prompt\nsecond line\nthird line with 漢字 and "
             "é\nfourth\nfifth\nsixth\nseventh\neighth\nninth\ntenth\neleventh");
    struct item *it = say(m, ITEM_USER, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10");
    it->turn = 0;
    return m;
}

/* What extensions contribute: a section of the panel, whose words are not to be trusted, and how they do. */
static struct model *extended(struct ui *u)
{
    static const char *const lines[] = {"2 faults in src/parse.c", "\x1b[31mred\x07 \xe2\x80\xae mirrored",
                                        "a line that is much longer than the panel is wide"};
    struct model *m = talk();
    m->sections = mem_new(sizeof *m->sections);
    m->sections[0].name = mem_dup("ext:lint");
    m->sections[0].lines = mem_new(sizeof lines);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        m->sections[0].lines[m->sections[0].n++] = mem_dup(lines[i]);
    m->n_sections = 1;
    m->servers = mem_new(2 * sizeof *m->servers);
    m->servers[0] = (struct server){mem_dup("ext:lint"), true, mem_dup("ready, 1 tool")};
    m->servers[1] = (struct server){mem_dup("t"), false, mem_dup("no answer")};
    m->n_servers = 2;
    return m;
}

const struct scene scenes[] = {
    {"empty", 80, 24, empty},
    {"plan", 80, 24, plan},
    {"approval", 80, 24, approval},
    {"running", 120, 40, running},
    {"change", 200, 50, change_waits},
    {"rewind", 80, 24, rewind_picker},
    {"away", 80, 24, away},
    {"bouncing", 80, 24, bouncing},
    {"warming", 80, 24, warming},
    {"loading", 80, 24, loading},
    {"reading", 80, 24, reading},
    {"error", 80, 24, fault},
    {"small", 40, 12, small_run},
    {"sending", 80, 24, sending},
    {"thinking", 80, 24, thinking},
    {"writing", 80, 24, writing},
    {"answer", 80, 24, answer},
    {"interrupted", 80, 24, interrupted},
    {"slot", 80, 24, waiting_slot},
    {"offloading", 80, 24, offloading},
    {"distilling", 80, 24, distilling},
    {"full", 80, 24, full},
    {"cap", 80, 24, cap},
    {"readonly", 80, 24, read_only},
    {"page", 80, 24, page},
    {"menu", 80, 24, menu},
    {"composer", 80, 24, long_text},
    {"extensions", 120, 40, extended},
};
const size_t n_scenes = sizeof scenes / sizeof scenes[0];
