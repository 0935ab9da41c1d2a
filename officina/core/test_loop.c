/* The agent loop, played: answers, calls, faults, steering, stopping. */
#include "core/play.h"

#define CALL(index, id, name, args)                                                                          \
    "{\"index\":" #index ",\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name           \
    "\",\"arguments\":\"" args "\"}}"
#define READ "[" CALL(0, "x", "read", "{\\\"path\\\":\\\"a\\\"}") "]"

static void a_question_is_answered(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "hello");
    assert_int_equal(p.m->status, ST_SENDING);
    assert_non_null(strstr(p.body, "\"content\":\"hello\""));
    play_answer(&p, "hi", NULL);
    assert_int_equal(p.m->status, ST_READY);
    assert_int_equal(p.m->turns[0].state, TURN_DONE);
    play_say(&p, "again");
    play_extends(&p);
    play_valid(p.body);
    play_end(&p);
}

static void calls_run_and_go_back(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "look");
    play_answer(&p, "I look.", READ);
    play_tool(&p, TOOL_ALLOW, "line one");
    play_extends(&p);
    play_valid(p.body);
    assert_non_null(strstr(p.body, "line one"));
    play_answer(&p, "seen", NULL);
    assert_int_equal(p.m->status, ST_READY);
    play_end(&p);
}

static void broken_calls_do_not_kill_the_talk(void **state)
{
    static const char *const calls[] = {
        "[" CALL(0, "x", "read", "{\\\"path\\\":") "]",            /* cut */
        "[" CALL(0, "x", "read", "[1]") "]",                       /* no object */
        "[" CALL(0, "x", "read", "{}") "]",                        /* an argument is missing */
        "[" CALL(0, "x", "nothing", "{}") "]",                     /* no such tool */
        "[" CALL(0, "x", "read", "{\\\"a\\\":1,\\\"a\\\":2}") "]", /* twice */
        "[" CALL(0, "x", "", "") "]",
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct play p;
        play_open(&p, "");
        play_say(&p, "do");
        play_answer(&p, NULL, calls[i]);
        assert_null(play_find(&p, FX_CHECK));
        play_valid(p.body);
        play_extends(&p);
        play_answer(&p, "sorry", NULL);
        assert_int_equal(p.m->status, ST_READY);
        play_end(&p);
    }
}

static void stopping_leaves_a_valid_history(void **state)
{
    for (int at = 0; at < 4; at++) {
        struct play p;
        play_open(&p, "");
        play_say(&p, "do");
        if (at >= 1)
            play_data(&p, "{\"choices\":[{\"delta\":{\"content\":\"I w\"}}]}");
        if (at >= 2)
            play_answer(&p, NULL, READ);
        if (at >= 3) {
            struct effect *f = play_find(&p, FX_CHECK);
            play_step(&p,
                      (struct event){.kind = EV_TOOL_CHECKED, .id = f->id, .n = TOOL_ALLOW, .m = TOOL_READS});
            assert_int_equal(p.m->status, ST_RUNNING);
        }
        play_step(&p, (struct event){.kind = EV_STOP});
        assert_int_equal(p.m->status, ST_INTERRUPT);
        assert_non_null(play_find(&p, at == 3 ? FX_CANCEL : at < 2 ? FX_CLOSE : FX_CHECK));
        play_say(&p, "go on");
        play_valid(p.body);
        if (at >= 1)
            assert_non_null(strstr(p.body, at == 1 ? "I w" : "read"));
        else
            assert_non_null(strstr(p.body, "(stopped)"));
        play_extends(&p);
        play_end(&p);
    }
}

static void steering_comes_at_the_boundary(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "look");
    play_answer(&p, NULL,
                "[" CALL(0, "x", "read", "{\\\"path\\\":\\\"a\\\"}") "," CALL(
                    1, "y", "bash", "{\\\"command\\\":\\\"ls\\\"}") "]");
    play_say(&p, "look at b too");
    assert_int_equal(p.m->n_queue, 1);
    play_tool(&p, TOOL_ALLOW, "line one");
    assert_int_equal(p.m->n_queue, 0);
    play_valid(p.body);
    play_extends(&p);
    assert_non_null(strstr(p.body, "look at b too"));
    assert_non_null(strstr(p.body, "not run: a new message came"));
    /* Without tools a queued line is the next turn. */
    play_say(&p, "and then c");
    play_answer(&p, "done", NULL);
    assert_int_equal(p.m->n_turns, 2);
    play_extends(&p);
    play_end(&p);
}

static void an_approval_counts_only_after_a_while(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "do");
    play_answer(&p, NULL, "[" CALL(0, "x", "bash", "{\\\"command\\\":\\\"ls\\\"}") "]");
    int64_t id = play_find(&p, FX_CHECK)->id;
    /* a remark on the first snapshot does not stand for the second */
    play_step(&p,
              (struct event){.kind = EV_SNAP, .id = 0, .n = SNAP_USER, .name = "t", .text = "a big file"});
    struct approval *a = mem_new(sizeof *a);
    a->what = mem_dup("ls");
    play_step(&p, (struct event){
                      .kind = EV_TOOL_CHECKED, .id = id, .n = TOOL_ASK, .m = TOOL_WRITES, .approval = a});
    assert_int_equal(p.m->status, ST_APPROVAL);
    play_step(&p, (struct event){.kind = EV_ANSWER, .id = id, .n = ANSWER_ONCE});
    assert_int_equal(p.m->status, ST_APPROVAL);
    p.now += 500000;
    play_step(&p, (struct event){.kind = EV_ANSWER, .id = id, .n = ANSWER_SESSION}); /* not offered */
    assert_int_equal(p.m->status, ST_APPROVAL);
    play_step(&p, (struct event){.kind = EV_ANSWER, .id = id, .n = ANSWER_ONCE});
    assert_null(play_find(&p, FX_RUN)); /* the snapshot comes first */
    play_step(&p, (struct event){.kind = EV_SNAP, .id = 0, .n = SNAP_BEFORE, .name = "tree"});
    assert_non_null(play_find(&p, FX_RUN));
    assert_true(play_find(&p, FX_RUN)->has_bound);
    play_end(&p);
}

static void a_line_waits_for_the_rewind(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "one");
    play_answer(&p, "1", NULL);
    play_say(&p, "two");
    play_answer(&p, "2", NULL);
    play_say(&p, "/rewind t0001");
    assert_non_null(play_find(&p, FX_REWIND));
    play_say(&p, "three");
    assert_int_equal(p.m->n_turns, 2);
    play_say(&p, "/new");
    assert_null(play_find(&p, FX_NEW));
    play_step(&p, (struct event){.kind = EV_REWIND_DONE, .id = 0});
    assert_int_equal(p.m->n_turns, 3);
    assert_int_equal(p.m->turns[0].state, TURN_REWOUND);
    assert_int_equal(p.m->turns[2].state, TURN_OPEN);
    play_end(&p);
}

static void headless_denies_what_would_ask(void **state)
{
    struct play p;
    play_open(&p, ",\"headless\":true,\"once\":true");
    play_step(&p, (struct event){.kind = EV_SUBMIT, .n = 1, .text = "do"});
    play_answer(&p, NULL, "[" CALL(0, "x", "bash", "{\\\"command\\\":\\\"ls\\\"}") "]");
    play_step(
        &p, (struct event){
                .kind = EV_TOOL_CHECKED, .id = play_find(&p, FX_CHECK)->id, .n = TOOL_ASK, .m = TOOL_WRITES});
    play_valid(p.body);
    play_answer(&p, "I could not", NULL);
    assert_non_null(play_find(&p, FX_QUIT));
    assert_int_equal(play_find(&p, FX_QUIT)->n, 3);
    play_end(&p);
}

static void an_engine_that_is_away_is_waited_for(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "hello");
    play_step(&p, (struct event){.kind = EV_STREAM_END, .id = p.request, .n = 0, .m = 1, .text = "refused"});
    assert_int_equal(p.m->status, ST_AWAY);
    p.now += 1100000;
    play_clear(&p);
    play_step(&p, (struct event){.kind = EV_TICK});
    assert_string_equal(play_find(&p, FX_ASK)->name, "/health");
    play_step(&p, (struct event){.kind = EV_REPLY,
                                 .name = "/health",
                                 .n = 503,
                                 .text = "{\"error\":{\"message\":\"Loading model\"}}"});
    assert_int_equal(p.m->status, ST_LOADING);
    play_step(&p,
              (struct event){.kind = EV_REPLY, .name = "/health", .n = 200, .text = "{\"status\":\"ok\"}"});
    assert_non_null(play_find(&p, FX_SEND));
    play_answer(&p, "back", NULL);
    assert_int_equal(p.m->status, ST_READY);
    play_end(&p);
}

static void a_break_before_text_is_asked_again_once(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "hello");
    play_data(&p, "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}");
    play_clear(&p);
    play_step(&p, (struct event){.kind = EV_STREAM_END, .id = p.request, .n = 200, .m = 1, .text = "reset"});
    play_step(&p, (struct event){.kind = EV_TICK});
    assert_non_null(play_find(&p, FX_SEND));
    play_data(&p, "{\"choices\":[{\"delta\":{\"content\":\"par\"}}]}");
    play_step(&p, (struct event){.kind = EV_STREAM_END, .id = p.request, .n = 200, .m = 1, .text = "reset"});
    assert_int_equal(p.m->status, ST_ERROR);
    play_say(&p, "go on");
    play_valid(p.body);
    assert_non_null(strstr(p.body, "\"par\""));
    play_end(&p);
}

static void circles_end(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "do");
    for (int i = 0; i < 5; i++) {
        assert_int_equal(p.m->turns[0].state, TURN_OPEN);
        play_answer(&p, NULL, READ);
        play_tool(&p, TOOL_ALLOW, "same");
    }
    assert_int_equal(p.m->turns[0].state, TURN_DONE);
    play_say(&p, "write");
    for (int i = 0; i < 100 && p.m->core->phase == PH_STREAM; i++)
        play_data(&p, "{\"choices\":[{\"delta\":{\"content\":\"the same words again and again \"}}]}");
    assert_int_equal(p.m->core->phase, PH_IDLE);
    play_end(&p);
}

static void plan_is_told_and_not_denied(void **state)
{
    struct play p;
    play_open(&p, ",\"headless\":true,\"once\":true,\"mode\":1");
    play_step(&p, (struct event){.kind = EV_SUBMIT, .n = 1, .text = "do"});
    assert_non_null(strstr(p.body, "Plan mode"));
    play_answer(&p, NULL, "[" CALL(0, "x", "bash", "{\\\"command\\\":\\\"rm a\\\"}") "]");
    play_tool(&p, TOOL_REFUSE, "");
    play_valid(p.body);
    play_answer(&p, "a plan", NULL);
    assert_int_equal(play_find(&p, FX_QUIT)->n, 0);
    play_end(&p);
}

/* The panel's list is bounded, too; what runs stays in it. */
static void jobs_are_bounded(void **state)
{
    struct play p;
    play_open(&p, "");
    play_step(&p, (struct event){.kind = EV_JOB, .id = 1, .text = "sleep", .n = -1});
    for (int i = 2; i <= 60; i++) {
        play_step(&p, (struct event){.kind = EV_JOB, .id = i, .text = "true", .n = -1});
        play_step(&p, (struct event){.kind = EV_JOB, .id = i, .text = "true", .n = 0});
    }
    assert_int_equal(p.m->n_jobs, JOBS_MAX);
    assert_int_equal(p.m->jobs[0].id, 1);
    assert_int_equal(p.m->jobs[0].ended, 0);
    assert_int_equal(p.m->jobs[p.m->n_jobs - 1].id, 60);
    for (int i = 61; i <= 100; i++) /* none has ended: none is forgotten */
        play_step(&p, (struct event){.kind = EV_JOB, .id = i, .text = "sleep", .n = -1});
    size_t running = 0;
    for (size_t i = 0; i < p.m->n_jobs; i++)
        running += p.m->jobs[i].ended == 0;
    assert_int_equal(running, 41);
    play_end(&p);
}

/* A note before a request rides in the message; who waits for one can be stopped, and no answer is waited for for ever. */
static void extensions_may_add_a_note(void **state)
{
    struct play p;
    play_open(&p, "");
    play_step(&p, (struct event){.kind = EV_CONTRIBUTED, .n = 1 << TELL_BEFORE_REQUEST, .text = "{}"});
    play_say(&p, "go");
    assert_null(play_find(&p, FX_SEND));
    assert_string_equal(play_find(&p, FX_TELL)->name, "before_request");
    play_step(&p, (struct event){.kind = EV_NOTED, .text = "mind the gap"});
    assert_non_null(strstr(p.body, "[officina] mind the gap"));
    assert_true(strstr(p.body, "mind the gap") < strstr(p.body, "\"go\"") || strstr(p.body, "go\""));
    play_step(&p, (struct event){.kind = EV_NOTED, .text = "too late"});
    play_answer(&p, "done", NULL);
    play_valid(p.body);
    play_clear(&p);
    play_say(&p, "again");
    play_step(&p, (struct event){.kind = EV_STOP});
    assert_int_equal(p.m->turns[1].state, TURN_INTERRUPTED);
    play_step(&p, (struct event){.kind = EV_NOTED, .text = "nobody asked"});
    assert_null(play_find(&p, FX_SEND));
    play_say(&p, "third");
    p.now += SEC(21);
    play_step(&p, (struct event){.kind = EV_TICK});
    assert_non_null(play_find(&p, FX_SEND));
    assert_null(strstr(p.body, "nobody asked"));
    play_answer(&p, "done", NULL);
    play_valid(p.body);
    play_end(&p);
}

/* A command's calls run before the request; a line sent meanwhile waits, and what the model gets is the prompt alone. */
static void a_command_is_prepared(void **state)
{
    static const char parts[] =
        "{\"parts\":[{\"text\":\"Look: \"},{\"tool\":\"bash\",\"arguments\":{\"command\":"
        "\"ls\"}},{\"text\":\" and go\"}]}";
    struct play p;
    play_open(&p, "");
    play_step(&p, (struct event){.kind = EV_TEMPLATE, .name = "/look", .text = parts});
    assert_null(play_find(&p, FX_SEND));
    play_say(&p, "a line meanwhile");
    play_tool(&p, TOOL_ALLOW, "a.c\n");
    assert_non_null(strstr(p.body, "Look: a.c and go"));
    assert_null(strstr(p.body, "\"/look"));
    assert_null(strstr(p.body, "tool_call_id"));
    play_valid(p.body);
    assert_int_equal(p.m->n_queue, 1);
    play_answer(&p, "seen", NULL);
    assert_non_null(strstr(p.body, "a line meanwhile"));
    play_answer(&p, "yes", NULL);
    play_step(&p, (struct event){.kind = EV_TEMPLATE, .name = "/look", .text = parts});
    play_tool(&p, TOOL_DENY, "");
    assert_int_equal(p.m->turns[p.m->n_turns - 1].state, TURN_INTERRUPTED);
    play_step(&p, (struct event){.kind = EV_TEMPLATE, .name = "/look", .text = parts});
    play_step(&p, (struct event){.kind = EV_STOP});
    assert_int_equal(p.m->core->phase, PH_IDLE);
    size_t turns = p.m->n_turns;
    play_step(&p, (struct event){
                      .kind = EV_TEMPLATE, .name = "/empty", .text = "{\"parts\":[{\"text\":\" \\n\"}]}"});
    play_step(&p, (struct event){.kind = EV_TEMPLATE, .name = "/none", .text = "{\"parts\":[]}"});
    assert_int_equal(p.m->n_turns, turns);
    play_say(&p, "after");
    assert_null(strstr(p.body, "/look"));
    play_valid(p.body);
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_answered),
        cmocka_unit_test(a_line_waits_for_the_rewind),
        cmocka_unit_test(calls_run_and_go_back),
        cmocka_unit_test(broken_calls_do_not_kill_the_talk),
        cmocka_unit_test(stopping_leaves_a_valid_history),
        cmocka_unit_test(steering_comes_at_the_boundary),
        cmocka_unit_test(an_approval_counts_only_after_a_while),
        cmocka_unit_test(headless_denies_what_would_ask),
        cmocka_unit_test(an_engine_that_is_away_is_waited_for),
        cmocka_unit_test(a_break_before_text_is_asked_again_once),
        cmocka_unit_test(circles_end),
        cmocka_unit_test(plan_is_told_and_not_denied),
        cmocka_unit_test(jobs_are_bounded),
        cmocka_unit_test(extensions_may_add_a_note),
        cmocka_unit_test(a_command_is_prepared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
