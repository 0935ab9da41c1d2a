/* What changed around a conversation is told once, at the head of the next message, and again when it was taken away. */
#include "core/play.h"

static void around(struct play *p, const char *date, const char *agents, const char *line)
{
    json_t *o = json_pack("{s:s, s:{s:s}, s:[s]}", "date", date, "files", "AGENTS.md", agents, "lines", line);
    char *text = js_dump(o);
    play_step(p, (struct event){.kind = EV_AROUND, .text = text});
    free(text);
}

#define OLD    "Instructions of the project (AGENTS.md):\none\ntwo\n[end of AGENTS.md]\n"
#define SHORT  "Instructions of the project (AGENTS.md):\none\n[end of AGENTS.md]\n"
#define SERVER "server t: reached with the tool mcp"

static void begin(struct play *p)
{
    play_open(p, "");
    set_str(&p->m->core->opening, "Date: 2026-12-01\n\n" OLD "\n" SERVER "\n");
}

static void ask(struct play *p, const char *date, const char *agents, const char *line)
{
    around(p, date, agents, line);
    play_say(p, "go");
    play_answer(p, "gone", NULL);
    play_valid(p->body);
}

static void nothing_new_is_nothing_told(void **state)
{
    struct play p;
    begin(&p);
    ask(&p, "2026-12-01", OLD, SERVER);
    assert_int_equal(p.m->n_items, 2); /* the prompt and the answer, no note */
    play_end(&p);
}

static void each_change_is_told_once_and_nothing_sent_changes(void **state)
{
    struct play p;
    begin(&p);
    ask(&p, "2026-12-01", OLD, SERVER);
    ask(&p, "2026-12-02", SHORT, "server u: reached with the tool mcp");
    play_extends(&p);
    assert_non_null(strstr(p.body, "the date is 2026-12-02"));
    assert_non_null(strstr(p.body, "in force now. Instructions of the project (AGENTS.md):\\none\\n[end"));
    assert_non_null(strstr(p.body, "There is now: server u"));
    size_t items = p.m->n_items;
    ask(&p, "2026-12-02", SHORT, "server u: reached with the tool mcp");
    play_extends(&p);
    assert_int_equal(p.m->n_items, items + 2); /* the prompt and the answer, no note */
    ask(&p, "2026-12-02", "", SERVER);
    assert_non_null(strstr(p.body, "the file is gone"));
    items = p.m->n_items;
    ask(&p, "2026-12-02", "", SERVER);
    assert_int_equal(p.m->n_items, items + 2);
    ask(&p, "2026-12-02", OLD, SERVER);
    assert_non_null(
        strstr(p.body, "There is something new. Instructions of the project (AGENTS.md):\\none\\ntwo"));
    play_extends(&p);
    play_end(&p);
}

static void what_a_rewind_takes_away_is_told_again(void **state)
{
    struct play p;
    begin(&p);
    ask(&p, "2026-12-01", OLD, SERVER);
    ask(&p, "2026-12-01", SHORT, SERVER);
    for (size_t i = 0; i < p.m->n_items; i++)
        if (p.m->items[i].kind == ITEM_NOTE)
            p.m->items[i].live = false;
    size_t items = p.m->n_items;
    ask(&p, "2026-12-01", SHORT, SERVER);
    assert_int_equal(p.m->n_items, items + 3);
    assert_int_equal(p.m->items[items].kind, ITEM_NOTE);
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_new_is_nothing_told),
        cmocka_unit_test(each_change_is_told_once_and_nothing_sent_changes),
        cmocka_unit_test(what_a_rewind_takes_away_is_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
