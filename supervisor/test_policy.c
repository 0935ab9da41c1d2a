/* The pure half of vitriold under a clock that moves only when told to: state table, exit classes, backoff and breaker,
 * liveness. Fault cases V01, V03, V04, V05 and V13 as far as they are decisions. */
#include "exits.h"
#include "liveness.h"
#include "restart.h"
#include "state.h"

#include "clock.h"
#include "err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>

/* ---- states ---- */

static void test_states(void **state)
{
    static const char *const want[CHILD_STATES][EV_COUNT] = {
        {"starting", "failed", "backoff", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "down", "down"},
        {0, 0, 0, "loading", 0, 0, 0, "reaping", "reaping", 0, 0, 0, 0, 0, "starting"},
        {0, 0, 0, 0, "ready", "draining", "hung", "reaping", "reaping", 0, 0, 0, 0, 0, "loading"},
        {0, 0, 0, 0, 0, "draining", "hung", "reaping", "reaping", 0, 0, 0, 0, 0, "ready"},
        {0, 0, 0, 0, 0, "draining", "hung", "reaping", "reaping", 0, 0, 0, 0, 0, "draining"},
        {0, 0, 0, 0, 0, 0, 0, "reaping", "reaping", 0, 0, 0, 0, 0, "hung"},
        {0, 0, 0, 0, 0, 0, 0, "reaping", "reaping", "down", "backoff", "failed", "failed", 0, "reaping"},
        {"starting", "failed", "backoff", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, "down", "backoff"},
        {"starting", "failed", "backoff", 0, 0, 0, 0, 0, "reaping", 0, 0, 0, 0, "down", "failed"},
    };
    for (int s = 0; s < CHILD_STATES; s++) {
        for (int e = 0; e < EV_COUNT; e++) {
            int n = state_next((enum vt_child_state)s, (enum child_event)e);
            const char *got = n == STATE_UNDEFINED ? NULL : child_state_name((unsigned)n);
            if ((got == NULL) != (want[s][e] == NULL) || (got != NULL && strcmp(got, want[s][e]) != 0))
                fail_msg("%s at %s: %s", child_state_name((unsigned)s), child_event_name((enum child_event)e),
                         got != NULL ? got : "undefined");
        }
    }
    assert_int_equal(state_next(CHILD_STATES, EV_EXIT), STATE_UNDEFINED);
    assert_int_equal(state_next(VT_CHILD_DOWN, EV_COUNT), STATE_UNDEFINED);
}

/* ---- exits ---- */

static void test_exit_classes(void **state)
{
    static const struct {
        struct exit_facts f;
        enum exit_class want;
    } rows[] = {
        {{.ordered = true}, CLASS_STOPPED},
        {{.state = VT_CHILD_READY}, CLASS_UNEXPECTED_EXIT}, /* V01: exit 0 without an order */
        {{.state = VT_CHILD_LOADING, .status = 1}, CLASS_UNEXPECTED_EXIT},
        {{.ordered = true, .status = 1}, CLASS_UNEXPECTED_EXIT},
        {{.status = VT_EX_USAGE}, CLASS_CONFIG},
        {{.status = VT_EX_CONFIG}, CLASS_CONFIG},
        {{.status = VT_EX_PAYLOAD}, CLASS_PAYLOAD},
        {{.status = VT_EX_NOINPUT}, CLASS_PAYLOAD},
        {{.status = VT_EX_PERM}, CLASS_PERM},
        {{.status = VT_EX_PROTOCOL}, CLASS_VERSION},
        {{.state = VT_CHILD_LOADING, .status = VT_EX_DEVICE_OOM_LOAD}, CLASS_DEVICE_OOM_LOAD},
        {{.state = VT_CHILD_READY, .status = VT_EX_DEVICE_OOM_LOAD}, CLASS_DEVICE_OOM_RUN},
        {{.state = VT_CHILD_READY, .status = VT_EX_DEVICE_OOM_RUN}, CLASS_DEVICE_OOM_RUN},
        {{.status = VT_EX_DEVICE_LOST}, CLASS_DEVICE_LOST},
        {{.status = VT_EX_HOST_MEM}, CLASS_HOST_MEM},
        {{.status = VT_EX_LOST_SUPERVISOR}, CLASS_UNEXPECTED_EXIT},
        {{.signalled = true, .status = SIGSEGV}, CLASS_SIGNAL},
        {{.signalled = true, .status = SIGABRT}, CLASS_SIGNAL},
        {{.signalled = true, .status = SIGKILL}, CLASS_SIGKILL_UNKNOWN},
        {{.signalled = true, .status = SIGKILL, .oom_kill = true}, CLASS_OOM_KILL},
        {{.signalled = true, .status = SIGKILL, .killed_for = CLASS_HUNG}, CLASS_HUNG},
        {{.signalled = true, .status = SIGKILL, .killed_for = CLASS_LOAD_STALL, .oom_kill = true},
         CLASS_LOAD_STALL},
        /* it crashed before our kill arrived */
        {{.signalled = true, .status = SIGSEGV, .killed_for = CLASS_HUNG}, CLASS_SIGNAL},
        {{.status = 0, .killed_for = CLASS_HUNG}, CLASS_UNEXPECTED_EXIT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        enum exit_class got = exit_classify(&rows[i].f);
        if (got != rows[i].want)
            fail_msg("row %zu: %s, not %s", i, exit_class_name(got), exit_class_name(rows[i].want));
    }
    for (int c = 0; c < CLASS_COUNT; c++)
        assert_non_null(exit_class_name((enum exit_class)c));
    assert_true(exit_class_final(CLASS_CONFIG));
    assert_false(exit_class_final(CLASS_HUNG));
}

/* ---- backoff and breaker ---- */

static const struct restart_policy engine_policy = {
    .first_us = VT_SEC(1), .max_us = VT_SEC(60), .breaker = true};
static const struct restart_policy gateway_policy = {
    .first_us = VT_MS(200), .max_us = VT_SEC(60), .breaker = false};

/* The random number that gives no jitter at all. */
static uint64_t middle(uint64_t d)
{
    return d * 2 / 5 / 2;
}

static void test_backoff(void **state)
{
    static const unsigned want_s[] = {1, 2, 4, 8, 16, 32, 60, 60, 60};
    struct restart r = {0};
    uint64_t now = VT_SEC(10000), d;
    for (size_t i = 0; i < 7; i++) {
        uint64_t w = VT_SEC(want_s[i]);
        now += VT_SEC(700); /* slow enough for the breaker of early failures */
        assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_READY, now, middle(w), &d),
                         RESTART_WAIT);
        assert_int_equal(d, w);
    }
    for (uint64_t rnd = 0; rnd < 100; rnd++) {
        struct restart one = {0};
        restart_failed(&one, &engine_policy, CLASS_SIGNAL, LIFE_READY, now, rnd * 7919 * 1000, &d);
        assert_in_range(d, VT_MS(800), VT_MS(1200));
    }
    restart_reset(&r);
    restart_failed(&r, &gateway_policy, CLASS_SIGNAL, LIFE_READY, now, middle(VT_MS(200)), &d);
    assert_int_equal(d, VT_MS(200));
    restart_failed(&r, &gateway_policy, CLASS_SIGNAL, LIFE_READY, now, middle(VT_SEC(1)), &d);
    assert_int_equal(d, VT_SEC(1));
    restart_reset(&r);
    restart_failed(&r, &engine_policy, CLASS_OOM_KILL, LIFE_READY, now, middle(VT_SEC(2)), &d);
    assert_int_equal(d, VT_SEC(2));
    restart_reset(&r);
    assert_int_equal(restart_failed(&r, &engine_policy, CLASS_CONFIG, LIFE_STARTED, now, 0, &d),
                     RESTART_FINAL);
}

static void test_breaker(void **state)
{
    struct restart r = {0};
    uint64_t now = VT_SEC(10000), d;
    for (int i = 0; i < 4; i++, now += VT_SEC(10))
        assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_STARTED, now, 0, &d),
                         RESTART_WAIT);
    for (int i = 0; i < 5; i++) {
        static const unsigned want[] = {900, 1800, 3600, 7200, 7200};
        assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_STARTED, now, 0, &d),
                         RESTART_OPEN);
        assert_int_equal(d, VT_SEC(want[i]));
    }
    restart_reset(&r);
    /* eight in an hour although each had been ready */
    for (int i = 0; i < 7; i++, now += VT_SEC(60))
        assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_READY, now, 0, &d),
                         RESTART_WAIT);
    assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_READY, now, 0, &d), RESTART_OPEN);
    /* the gateway's never opens */
    restart_reset(&r);
    for (int i = 0; i < 50; i++, now += VT_SEC(1))
        assert_int_equal(
            restart_failed(&r, &gateway_policy, CLASS_SIGNAL, LIFE_STARTED, now, middle(VT_SEC(60)), &d),
            RESTART_WAIT);
    assert_int_equal(d, VT_SEC(60));
}

/* Half open means one start: when it fails, the next wait is twice as long; when it serves, the breaker is closed again. */
static void test_half_open(void **state)
{
    struct restart r = {0};
    uint64_t now = VT_SEC(10000), d;
    enum restart_verdict v = RESTART_WAIT;
    for (int i = 0; i < 5; i++, now += VT_SEC(10))
        v = restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_STARTED, now, 0, &d);
    assert_int_equal(v, RESTART_OPEN);
    for (unsigned i = 1; i < 5; i++) {
        now += d;
        assert_int_equal(
            restart_failed(&r, &engine_policy, CLASS_HUNG, i % 2 ? LIFE_STARTED : LIFE_READY, now, 0, &d),
            RESTART_OPEN);
        assert_int_equal(d, VT_SEC(900u << (i < 3 ? i : 3)));
    }
    now += d + VT_SEC(60);
    assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_SERVED, now, 0, &d), RESTART_WAIT);
    assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_STARTED, now + d, 0, &d),
                     RESTART_WAIT);
}

/* What served is back soon, however often it is killed; what it was before does not matter then. */
static void test_served(void **state)
{
    struct restart r = {0};
    uint64_t now = VT_SEC(10000), d;
    for (int i = 0; i < 4; i++, now += VT_SEC(200))
        restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_READY, now, 0, &d);
    for (int i = 0; i < 60; i++, now += VT_SEC(30)) {
        assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGKILL_UNKNOWN, LIFE_SERVED, now,
                                        middle(VT_MS(200)), &d),
                         RESTART_WAIT);
        assert_int_equal(d, VT_MS(200));
    }
    restart_failed(&r, &engine_policy, CLASS_SIGKILL_UNKNOWN, LIFE_READY, now, middle(VT_SEC(1)), &d);
    assert_int_equal(d, VT_SEC(1));
    for (int i = 0; i < 20; i++, now += VT_SEC(30)) {
        restart_failed(&r, &gateway_policy, CLASS_SIGNAL, LIFE_SERVED, now, middle(VT_MS(200)), &d);
        assert_int_equal(d, VT_MS(200));
    }
    /* a request that makes it crash, time after time, after it had served others */
    restart_reset(&r);
    for (int i = 0; i < 7; i++, now += VT_SEC(30)) {
        assert_int_equal(
            restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_SERVED, now, middle(VT_MS(200)), &d),
            RESTART_WAIT);
        assert_int_equal(d, VT_MS(200));
    }
    assert_int_equal(restart_failed(&r, &engine_policy, CLASS_SIGNAL, LIFE_SERVED, now, 0, &d), RESTART_OPEN);
}

/* ---- liveness ---- */

static const struct live_budget budget = {.hello = VT_SEC(10),
                                          .load_stall = VT_SEC(120),
                                          .load_max = VT_SEC(3600),
                                          .hang = VT_SEC(60),
                                          .suspect = VT_SEC(10)};

struct world {
    struct vt_fake_time t;
    struct liveness l;
    struct live_beat b;
    enum live_verdict v;
};

static void begin(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->t.mono = VT_SEC(5000);
    live_enter(&w->l, LIVE_STARTING, w->t.mono);
    live_enter(&w->l, LIVE_LOADING, w->t.mono);
    live_enter(&w->l, LIVE_SERVING, w->t.mono);
}

/* A second passes; the child beats or not. */
static void second(struct world *w, bool beats)
{
    w->t.mono += VT_SEC(1);
    if (beats)
        live_beat(&w->l, &w->b, w->t.mono);
    w->v = live_judge(&w->l, &budget, w->t.mono);
}

/* V03: a control thread goes on answering while the compute thread stands. */
static void test_heartbeat_only(void **state)
{
    struct world w;
    begin(&w);
    w.b = (struct live_beat){.in_flight = 1, .op = 2};
    for (int i = 0; i < 10; i++) {
        w.b.step++;
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
    uint64_t t0 = w.t.mono;
    while (w.v == LIVE_OK)
        second(&w, true);
    assert_int_equal(w.v, LIVE_HUNG);
    assert_in_range(w.t.mono - t0, VT_SEC(58), VT_SEC(62));
}

/* V04: one tick each 20 s for 15 minutes is work. */
static void test_slow_prefill(void **state)
{
    struct world w;
    begin(&w);
    w.b = (struct live_beat){.in_flight = 2, .op = 1};
    for (int i = 0; i < 900; i++) {
        w.b.step = (uint64_t)i / 20;
        w.b.step_age_us = VT_SEC(i % 20);
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
    /* and what it took is learned: the budget is now 8 x its usual step */
    assert_true(live_hang_budget(&w.l, &budget) >= VT_SEC(120));
    w.l.op = 2;
    assert_int_equal(live_hang_budget(&w.l, &budget), VT_SEC(60));
}

/* V05: (a) 900 s with a tick each 30 s is a load; (b) no tick for 120 s is none. */
static void test_loads(void **state)
{
    struct world w;
    begin(&w);
    live_enter(&w.l, LIVE_STARTING, w.t.mono);
    live_enter(&w.l, LIVE_LOADING, w.t.mono);
    for (int i = 0; i < 900; i++) {
        if (i % 30 == 0)
            live_tick(&w.l, 1, (uint64_t)i, w.t.mono);
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
    live_enter(&w.l, LIVE_STARTING, w.t.mono);
    live_enter(&w.l, LIVE_LOADING, w.t.mono);
    live_tick(&w.l, 1, 40, w.t.mono);
    uint64_t t0 = w.t.mono;
    while (w.v == LIVE_OK) {
        live_tick(&w.l, 1, 40, w.t.mono); /* saying the same again is no tick */
        second(&w, true);
    }
    assert_int_equal(w.v, LIVE_LOAD_STALL);
    assert_in_range(w.t.mono - t0, VT_SEC(118), VT_SEC(122));
    live_enter(&w.l, LIVE_LOADING, w.t.mono);
    t0 = w.t.mono;
    for (uint64_t i = 0; (live_tick(&w.l, 1, i, w.t.mono), second(&w, true), w.v) == LIVE_OK; i++) {
    }
    assert_int_equal(w.v, LIVE_LOAD_MAX);
    assert_in_range(w.t.mono - t0, VT_SEC(3598), VT_SEC(3602));
}

static void test_hello_timeout(void **state)
{
    struct world w;
    begin(&w);
    live_enter(&w.l, LIVE_STARTING, w.t.mono);
    for (int i = 0; i < 9; i++) {
        second(&w, false);
        assert_int_equal(w.v, LIVE_OK);
    }
    second(&w, false);
    assert_int_equal(w.v, LIVE_HELLO_TIMEOUT);
}

/* A stopped process sends nothing at all: suspect after 10 s, hung after the budget, working or idle. */
static void test_silence(void **state)
{
    for (unsigned in_flight = 0; in_flight < 2; in_flight++) {
        struct world w;
        begin(&w);
        w.b.in_flight = in_flight;
        second(&w, true);
        for (int i = 0; i < 9; i++) {
            second(&w, false);
            assert_int_equal(w.v, LIVE_OK);
        }
        second(&w, false);
        assert_int_equal(w.v, LIVE_SUSPECT);
        for (int i = 0; i < 49; i++) {
            second(&w, false);
            assert_int_equal(w.v, LIVE_OK);
        }
        second(&w, false);
        assert_int_equal(w.v, in_flight > 0 ? LIVE_HUNG : LIVE_SILENT);
    }
}

/* V13 (c): 30 s stopped, then continued. */
static void test_stopped_and_continued(void **state)
{
    struct world w;
    begin(&w);
    w.b = (struct live_beat){.in_flight = 1, .op = 2};
    second(&w, true);
    for (int i = 0; i < 30; i++)
        second(&w, false);
    for (int i = 0; i < 100; i++) {
        w.b.step++;
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
}

/* V13 (a) and (b): suspend, and a supervisor that was stopped itself. */
static void test_late_loop(void **state)
{
    struct live_guard g = {0};
    bool suspended;
    uint64_t mono = VT_SEC(100), boot = VT_SEC(100);
    assert_int_equal(live_guard_turn(&g, mono, boot, VT_SEC(1), &suspended), 0);
    mono += VT_MS(1500), boot += VT_MS(1500);
    assert_int_equal(live_guard_turn(&g, mono, boot, VT_SEC(1), &suspended), 0);
    mono += VT_SEC(90), boot += VT_SEC(90);
    assert_int_equal(live_guard_turn(&g, mono, boot, VT_SEC(1), &suspended), VT_SEC(89));
    assert_false(suspended);
    mono += VT_SEC(1), boot += VT_SEC(1) + VT_SEC(3 * 3600);
    assert_int_equal(live_guard_turn(&g, mono, boot, VT_SEC(1), &suspended), VT_SEC(3 * 3600));
    assert_true(suspended);
    mono += VT_SEC(1), boot += VT_SEC(1);
    assert_int_equal(live_guard_turn(&g, mono, boot, VT_SEC(1), &suspended), 0);

    struct world w;
    begin(&w);
    w.b = (struct live_beat){.in_flight = 1, .op = 2};
    second(&w, true);
    w.t.mono += VT_SEC(90); /* we were stopped; its beats are still in the queue */
    live_grace(&w.l, VT_SEC(89), w.t.mono);
    assert_int_equal(live_judge(&w.l, &budget, w.t.mono), LIVE_OK);
    for (int i = 0; i < 58; i++) {
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
    begin(&w);
    live_enter(&w.l, LIVE_STARTING, w.t.mono);
    w.t.mono += VT_SEC(90);
    live_grace(&w.l, VT_SEC(90), w.t.mono);
    assert_int_equal(live_judge(&w.l, &budget, w.t.mono), LIVE_OK);
}

/* A client that never reads pauses its sequence; the engine is innocent. */
static void test_waiting_for_credit(void **state)
{
    struct world w;
    begin(&w);
    w.b = (struct live_beat){.in_flight = 1, .op = 2, .wait = LIVE_WAIT_CREDIT};
    for (int i = 0; i < 500; i++) {
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
    w.b.wait = LIVE_WAIT_NONE; /* the age begins here, not 500 s ago */
    for (int i = 0; i < 59; i++) {
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
    }
}

static void test_canary(void **state)
{
    struct world w;
    begin(&w);
    int sent = 0;
    for (int i = 0; i < 300; i++) {
        second(&w, true);
        assert_int_equal(w.v, LIVE_OK);
        if (live_canary_due(&w.l, VT_SEC(60), VT_SEC(2), w.t.mono)) {
            live_canary_sent(&w.l, w.t.mono);
            assert_false(live_canary_due(&w.l, VT_SEC(60), VT_SEC(2), w.t.mono));
            live_canary_answered(&w.l, w.t.mono);
            sent++;
        }
    }
    assert_int_equal(sent, 5);
    live_canary_sent(&w.l, w.t.mono);
    for (int i = 0; i < 59; i++)
        second(&w, true);
    assert_int_equal(w.v, LIVE_OK);
    second(&w, true);
    assert_int_equal(w.v, LIVE_CANARY_LOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states),         cmocka_unit_test(test_exit_classes),
        cmocka_unit_test(test_backoff),        cmocka_unit_test(test_half_open),
        cmocka_unit_test(test_breaker),        cmocka_unit_test(test_served),
        cmocka_unit_test(test_heartbeat_only), cmocka_unit_test(test_slow_prefill),
        cmocka_unit_test(test_loads),          cmocka_unit_test(test_hello_timeout),
        cmocka_unit_test(test_silence),        cmocka_unit_test(test_stopped_and_continued),
        cmocka_unit_test(test_late_loop),      cmocka_unit_test(test_waiting_for_credit),
        cmocka_unit_test(test_canary),
    };
    return cmocka_run_group_tests_name("policy", tests, NULL, NULL);
}
