/* gate.h: what the plan of a configuration is. Refusals are in test_sup.c. */
#include "gate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdlib.h>

static struct vt_plan plan_of(const char *device, const char *slots, const char *ctx)
{
    struct sup *s = calloc(1, sizeof *s);
    struct vt_err err = {0};
    struct vt_plan need;
    s->cfg = vt_config_new();
    vt_config_set(s->cfg, VT_L_CMDLINE, "engine.device", device, "test", &err);
    vt_config_set(s->cfg, VT_L_CMDLINE, "engine.slots", slots, "test", &err);
    vt_config_set(s->cfg, VT_L_CMDLINE, "engine.ctx_tokens", ctx, "test", &err);
    assert_int_equal(gate_find_model(s, &err), 0);
    if (gate_host_need(s, &need, &err) < 0)
        fail_msg("%s", err.text);
    vt_config_free(s->cfg);
    free(s);
    return need;
}

/* The whole pool counts, every slot of it; of an engine on a GPU little is left for the host. */
static void test_plan_of_the_host(void **state)
{
    struct vt_plan one = plan_of("cpu", "1", "4096"), more = plan_of("cpu", "1", "8192"),
                   two = plan_of("cpu", "2", "4096"), gpu = plan_of("gpu:0", "2", "8192");
    assert_true(one.weights > 4 << 20 && one.kv > 0 && one.work > 0);
    assert_int_equal(more.weights, one.weights);
    uint64_t tokens = more.kv - one.kv; /* 4096 of them, one f16 for each key and value at least */
    assert_true(tokens >= 4096 * 2 * sizeof(uint16_t) && tokens < one.kv);
    assert_true(two.kv - one.kv > tokens); /* and its snapshots */
    assert_int_equal(gpu.weights + gpu.kv, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plan_of_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
