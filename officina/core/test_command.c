/* Commands with silly arguments: each gets a word that is true, and nothing of it reaches the model. */
#include "core/play.h"

static void a_silly_command_is_answered(void **state)
{
    static const struct {
        const char *line, *words;
    } lines[] = {
        {"/", "no such command: /"},
        {"//", "no such command: //"},
        {"/rewnd", NULL}, /* the program looks among the commands of extensions first */
        {"!", "! needs a command"},
        {"!!  ", "!! needs a command"},
        {"/kill abc", "No job abc runs"},
        {"/kill 7", "No job 7 runs"},
        {"/kill -1", "No job -1 runs"},
        {"/forget abc", "not abc"},
        {"/forget", "/forget needs: id"},
        {"/drop m-99", "No result m-99"},
        {"/checkpoint", "nothing to save yet"},
        {"/warm", "has no checkpoint"},
        {"/diff t99", "no turn t99"},
        {"/rewind nowhere", "no turn nowhere"},
        {"/panel", "/panel is for the screen"},
        {"/allow bash", "A rule is tool:pattern"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct play p;
        play_open(&p, "");
        play_say(&p, lines[i].line);
        assert_null(play_find(&p, FX_SEND));
        assert_int_equal(p.m->n_turns, 0);
        const struct effect *page = play_find(&p, FX_PAGE);
        if (page == NULL) {
            assert_int_equal(p.m->n_items, 1);
            assert_int_equal(p.m->items[0].kind, ITEM_NOTICE);
            if (strstr(text_str(&p.m->items[0].body), lines[i].words) == NULL)
                fail_msg("%s: %s", lines[i].line, text_str(&p.m->items[0].body));
        } else {
            assert_string_equal(page->name, "command");
            assert_string_equal(page->text, lines[i].line);
        }
        play_end(&p);
    }
}

static void a_rule_is_told_when_it_was_taken(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "/allow nonsense:x");
    assert_non_null(play_find(&p, FX_RULE));
    assert_int_equal(play_find(&p, FX_RULE)->id, 1);
    assert_int_equal(p.m->n_items, 0); /* the program says what became of it */
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_silly_command_is_answered),
        cmocka_unit_test(a_rule_is_told_when_it_was_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
