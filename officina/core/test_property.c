/* Properties over random sequences of events: the history that is sent is always valid, its bytes only grow unless a cut lies
 * between, nothing typed is lost, and no event in any state does harm. */
#include "core/play.h"

#include <stdio.h>

#define STEPS 400
#define RUNS  60

static unsigned next_random(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 8) % below;
}

static void some_data(struct play *p, unsigned r)
{
    static const char *const data[] = {
        "{\"choices\":[{\"delta\":{\"content\":\"some words \"}}]}",
        "{\"choices\":[{\"delta\":{\"reasoning_content\":\"hm \"}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"read\","
        "\"arguments\":\"{\\\"pa\"}}]}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"th\\\":"
        "\\\"a\\\"}\"}}]}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"name\":\"bash\","
        "\"arguments\":\"{\\\"command\\\":\\\"x\\\"}\"}}]}}]}",
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":99,\"function\":{\"name\":\"x\"}}]}}]}",
        "{\"choices\":[],\"usage\":{\"prompt_tokens\":900,\"completion_tokens\":20}}",
        "{\"error\":{\"message\":\"broken\"}}",
        "no json",
        "{\"prompt_progress\":{\"total\":400,\"cache\":0,\"processed\":100,\"time_ms\":10}}",
    };
    play_data(p, data[r % (sizeof data / sizeof data[0])]);
}

static void finish_stream(struct play *p, unsigned r)
{
    if (r % 4 != 0) {
        play_data(p, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}");
        play_data(p, "[DONE]");
    }
    static const int statuses[] = {200, 200, 200, 200, 500, 503, 429, 400, 0};
    play_step(
        p, (struct event){
               .kind = EV_STREAM_END, .id = p->request, .n = statuses[r % 9], .m = r % 4 == 0, .text = "{}"});
}

static void some_tool(struct play *p, unsigned r)
{
    struct effect *f = play_find(p, r % 2 ? FX_CHECK : FX_RUN);
    if (f == NULL)
        return;
    if (r % 2)
        play_step(p, (struct event){.kind = EV_TOOL_CHECKED,
                                    .id = f->id,
                                    .n = (int64_t)(r / 2 % 5),
                                    .m = (int64_t)(r / 10 % 4),
                                    .text = "why"});
    else
        play_step(
            p, (struct event){
                   .kind = EV_TOOL_DONE, .id = f->id, .n = (int64_t)(r / 2 % 4), .text = "result", .len = 6});
}

static void some_event(struct play *p, unsigned *seed)
{
    unsigned r = next_random(seed, 1u << 20);
    switch (next_random(seed, 16)) {
    case 0: play_say(p, "do this"); break;
    case 1:
    case 2:
    case 3: some_data(p, r); break;
    case 4:
    case 5: finish_stream(p, r); break;
    case 6:
    case 7:
    case 8: some_tool(p, r); break;
    case 9:
        if (r % 5 == 0)
            play_step(p, (struct event){.kind = EV_STOP});
        break;
    case 10: play_step(p, (struct event){.kind = EV_MODE, .n = r % 2}); break;
    case 11:
        p->now += r * 20u;
        play_step(p, (struct event){.kind = EV_TICK});
        break;
    case 12:
        play_step(p, (struct event){.kind = EV_SNAP,
                                    .id = (int64_t)p->m->n_turns - 1,
                                    .n = (int64_t)(r % 3),
                                    .name = r % 2 ? "tree" : NULL});
        break;
    case 13:
        play_step(p, (struct event){.kind = EV_ANSWER,
                                    .id = (int64_t)(r % (p->m->n_items + 1)),
                                    .n = (int64_t)(r / 7 % 5),
                                    .text = "so"});
        break;
    case 14: {
        static const char *const lines[] = {"/rewind t0001 context",
                                            "/redo",
                                            "/offload",
                                            "/context",
                                            "/rewind",
                                            "/nonsense",
                                            "/drop m-3",
                                            "/help"};
        if (r % 3 == 0)
            play_say(p, lines[r / 3 % 8]);
        break;
    }
    default:
        play_step(p, (struct event){.kind = EV_REPLY,
                                    .name = "/health",
                                    .n = r % 3   ? 200
                                         : r % 2 ? 503
                                                 : 0,
                                    .text = "{}"});
        break;
    }
}

static void requests_are_valid_and_grow(void **state)
{
    size_t sent = 0;
    for (unsigned run = 1; run <= RUNS; run++) {
        struct play p;
        unsigned seed = run;
        play_open(&p, "");
        int64_t epoch = 0;
        for (int i = 0; i < STEPS; i++) {
            int64_t request = p.request;
            some_event(&p, &seed);
            if (p.request != request) {
                play_valid(p.body);
                if (p.before != NULL && epoch == p.m->core->epoch)
                    play_extends(&p);
                epoch = p.m->core->epoch;
                sent++;
            }
            if (p.fx.n > 200)
                play_clear(&p);
        }
        play_end(&p);
    }
    assert_true(sent > RUNS * 5); /* the sequences do reach the loop */
}

/* Results of 60 calls are offloaded ten to one, and what is left is valid. */
static void old_output_is_offloaded(void **state)
{
    struct play p;
    struct text big = {0};
    play_open(&p, "");
    for (int i = 0; i < 600; i++)
        text_printf(&big, "line %d of a file that was read in full\n", i);
    for (int i = 0; i < 60; i++) {
        char usage[160];
        play_say(&p, "next");
        if (strstr(p.body, "without calling tools") != NULL) { /* distilled on the way */
            play_answer(&p, "summary", NULL);
        }
        play_answer(
            &p, NULL,
            "[{\"index\":0,\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\"}}]");
        text_printf(&big, "%d\n", i);
        play_tool(&p, TOOL_ALLOW, text_str(&big));
        play_valid(p.body);
        snprintf(usage, sizeof usage,
                 "{\"choices\":[],\"usage\":{\"prompt_tokens\":%zu,\"completion_tokens\":9}}",
                 strlen(p.body) / 4);
        play_data(&p, usage);
        play_answer(&p, "read it", NULL);
        assert_int_equal(p.m->status, ST_READY);
        play_clear(&p);
    }
    assert_true(p.m->gauges.offload >= 10 * p.m->gauges.live);
    assert_true(strlen(p.body) / 4 < 32768);
    play_say(&p, "and?");
    assert_non_null(strstr(p.body, "; recall m-"));
    text_free(&big);
    play_end(&p);
}

static void without_gain_no_loop(void **state)
{
    struct play p;
    struct text big = {0};
    play_open(&p, "");
    while (big.len < 4 * 40000)
        text_puts(&big, "words that the user wrote himself and that are never taken away ");
    play_say(&p, text_str(&big));
    int distils = 0;
    for (int i = 0; i < 10 && p.m->core->phase == PH_STREAM; i++) {
        distils++;
        play_answer(&p, "a summary", NULL);
    }
    assert_int_equal(p.m->status, ST_FULL);
    assert_true(distils <= 2);
    text_free(&big);
    play_end(&p);
}

/* Questions 1 to n, answered. */
static void ask(struct play *p, int n)
{
    for (int i = 0; i < n; i++) {
        char text[32];
        snprintf(text, sizeof text, "question %d", i + 1);
        play_say(p, text);
        play_answer(p, "an answer", NULL);
    }
}

static void rewind_and_redo(void **state)
{
    struct play p;
    play_open(&p, "");
    ask(&p, 3);
    char *whole = mem_dup(p.body);
    play_say(&p, "/rewind t0003 context");
    assert_string_equal(text_str(&p.m->composer.text), "question 3");
    play_say(&p, "/redo");
    play_say(&p, "question 4");
    assert_non_null(strstr(p.body, "question 3"));
    assert_memory_equal(p.body, whole, play_messages(whole));
    play_answer(&p, "an answer", NULL);
    play_say(&p, "/rewind t0002 context");
    play_say(&p, "another question");
    assert_null(strstr(p.body, "question 2"));
    assert_non_null(strstr(p.body, "question 1"));
    play_valid(p.body);
    free(whole);
    play_end(&p);
}

/* The last rewind is undone first, then the one before it: each brings back what it took and no more. */
static void redo_of_older_rewinds(void **state)
{
    struct play p;
    play_open(&p, "");
    ask(&p, 4);
    char *whole = mem_dup(p.body);
    play_say(&p, "/rewind t0004 context");
    play_say(&p, "/rewind t0002 context");
    play_say(&p, "/redo");
    assert_int_equal(p.m->turns[1].state, TURN_DONE);
    assert_int_equal(p.m->turns[3].state, TURN_REWOUND); /* the first one's */
    play_say(&p, "/redo");
    assert_int_equal(p.m->turns[3].state, TURN_DONE);
    size_t n = p.m->core->n_rewinds;
    play_say(&p, "/redo"); /* nothing is left */
    assert_int_equal(n, 0);
    assert_int_equal(p.m->core->rewind_what, 0);
    play_say(&p, "question 5");
    assert_memory_equal(p.body, whole, play_messages(whole));
    assert_non_null(strstr(p.body, "question 4"));
    play_valid(p.body);
    play_answer(&p, "an answer", NULL);
    play_say(&p, "/rewind t0003 files"); /* the talk may go on: files come back all the same */
    play_step(&p, (struct event){.kind = EV_REWIND_DONE, .id = 2});
    play_say(&p, "question 6");
    play_answer(&p, "an answer", NULL);
    play_say(&p, "/redo");
    assert_int_equal(p.m->core->rewind_what, 'r');
    play_step(&p, (struct event){.kind = EV_REWIND_DONE});
    assert_int_equal(p.m->core->n_rewinds, 0);
    play_say(&p, "question 7");
    assert_non_null(strstr(p.body, "took the rewind of the files back"));
    free(whole);
    play_end(&p);
}

static void couplings_are_swapped_and_come_back(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "look");
    play_answer(
        &p, NULL,
        "[{\"index\":0,\"function\":{\"name\":\"read\",\"arguments\":\"{\\\"path\\\":\\\"a\\\"}\"}}]");
    play_tool(&p, TOOL_ALLOW, "line one");
    play_answer(&p, "seen", NULL);
    char *native = mem_dup(p.body);
    play_step(&p, (struct event){.kind = EV_COUPLED,
                                 .text = "{\"name\":\"cloud\",\"kind\":2,\"nine\":true,\"steer_in_result\":"
                                         "true,\"reasoning\":2,\"local\":false}"});
    play_say(&p, "there");
    play_valid(p.body);
    assert_non_null(strstr(p.body, "\"c00000001\""));
    play_answer(&p, "yes", NULL);
    play_step(&p, (struct event){.kind = EV_COUPLED, .text = "{\"name\":\"lapis\",\"kind\":0}"});
    play_step(
        &p, (struct event){
                .kind = EV_REPLY, .n = 200, .name = "/props", .text = "{\"n_ctx\":32768,\"total_slots\":1}"});
    play_say(&p, "back");
    assert_memory_equal(p.body, native, play_messages(native)); /* its prefix is still warm */
    free(native);
    play_end(&p);
}

static void money_has_a_cap(void **state)
{
    struct play p;
    play_open(&p, "");
    play_step(&p, (struct event){.kind = EV_COUPLED,
                                 .text = "{\"name\":\"cloud\",\"kind\":1,\"priced\":true,\"price_in\":10.0,"
                                         "\"price_out\":10.0,\"cap_session\":0.1}"});
    play_say(&p, "one");
    play_data(&p, "{\"choices\":[],\"usage\":{\"prompt_tokens\":3000,\"completion_tokens\":1000}}");
    play_answer(&p, "yes", NULL);
    assert_int_equal(p.m->gauges.spent, 40000);
    play_say(&p, "two");
    assert_int_equal(p.m->status, ST_CAP);
    play_end(&p);
}

static void secrets_do_not_leave(void **state)
{
    struct play p;
    play_open(&p, "");
    play_say(&p, "my API_KEY=sk-abcdefghijklmnopqrstuvwxyz0123456789ABCD");
    assert_non_null(strstr(p.body, "sk-abcdefghijkl"));
    play_answer(&p, "noted", NULL);
    play_step(&p,
              (struct event){.kind = EV_COUPLED,
                             .text = "{\"name\":\"cloud\",\"kind\":1,\"redact\":true,\"ask_send\":true}"});
    play_clear(&p);
    play_say(&p, "go");
    assert_null(play_find(&p, FX_SEND)); /* it asks first */
    assert_int_equal(p.m->status, ST_ERROR);
    play_say(&p, "");
    assert_non_null(play_find(&p, FX_SEND));
    assert_null(strstr(p.body, "sk-abcdefghijkl"));
    assert_non_null(strstr(p.body, "[redacted "));
    play_valid(p.body);
    play_end(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_are_valid_and_grow),
        cmocka_unit_test(old_output_is_offloaded),
        cmocka_unit_test(without_gain_no_loop),
        cmocka_unit_test(rewind_and_redo),
        cmocka_unit_test(redo_of_older_rewinds),
        cmocka_unit_test(couplings_are_swapped_and_come_back),
        cmocka_unit_test(money_has_a_cap),
        cmocka_unit_test(secrets_do_not_leave),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
