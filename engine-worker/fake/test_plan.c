/* The plan of an engine on a GPU (sizing.h, common/plan.h) beside what the engine then takes of a fake one. */
#include "engine.h"
#include "fault.h"
#include "sizing.h"
#include "tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (1ull << 20)

static const struct sizing shape = {
    .slots = 3, .ctx_tokens = 512, .ubatch = 64, .rec_snapshots = 2, .reserve = 16 * MIB};

static struct vt_plan plan_of(const char *path, struct gpu_facts *facts)
{
    struct gguf_file *f = NULL;
    struct model *m = NULL;
    struct vt_plan p = {0};
    struct vt_err err;
    if (gguf_open(&f, path, false, &err) < 0 || model_load(&m, f, path, &err) < 0 ||
        sizing_gpu(&p, facts, m, &shape, 0, &err) < 0)
        fail_msg("%s", err.text);
    model_free(m);
    gguf_close(f);
    return p;
}

static int load(struct eng **e, const char *path, uint64_t reserve, struct vt_err *err)
{
    static const struct eng_events none = {0};
    struct eng_config c = {.model_path = path,
                           .slots = shape.slots,
                           .ctx_tokens = shape.ctx_tokens,
                           .ubatch = shape.ubatch,
                           .rec_snapshots = shape.rec_snapshots,
                           .reserve = reserve,
                           .threads = 1,
                           .simd = -1,
                           .device = "gpu:0"};
    return eng_real.load(e, &c, &none, NULL, err);
}

/* Every term is what the loaded engine takes; only the work space, which has the backend's scratch in it, may take less. */
static void plan_is_what_is_taken(void **state)
{
    const struct tiny *const kinds[] = {&tiny_qwen3, &tiny_qwen35, &tiny_gemma3};
    for (int i = 0; i < 3; i++) {
        const char *path = tiny_path("plan");
        struct gpu_facts before, after;
        struct eng *e;
        struct vt_err err;
        tiny_write(kinds[i], path);
        struct vt_plan p = plan_of(path, &before);
        if (load(&e, path, shape.reserve, &err) < 0)
            fail_msg("%s", err.text);
        const struct eng_facts *f = eng_real.facts(e);
        assert_int_equal(gpu_facts(&after, 0, &err), 0);
        assert_int_equal(p.weights, f->weights_measured);
        assert_int_equal(p.kv, f->kv_measured);
        assert_int_equal(p.work + p.code, f->work_planned);
        assert_int_equal(p.reserve, shape.reserve);
        assert_in_range(before.free - after.free, p.weights + p.kv, vt_plan_sum(&p) - p.reserve);
        eng_real.free(e);
        remove(path);
    }
}

/* What the plan refuses is not begun: nothing is taken, and the sum is told. */
static void what_does_not_fit_is_refused(void **state)
{
    const char *path = tiny_path("plan");
    struct gpu_facts f;
    struct eng *e = NULL;
    struct vt_err err;
    tiny_write(&tiny_qwen3, path);
    struct vt_plan p = plan_of(path, &f);
    uint64_t rest = vt_plan_sum(&p) - p.reserve;
    assert_int_equal(load(&e, path, f.free - rest, &err), 0);
    eng_real.free(e);
    assert_int_equal(load(&e, path, f.free - rest + 1, &err), -1);
    assert_int_equal(err.code, VT_E_DEVICE_MEM);
    assert_non_null(strstr(err.text, "gpu:0 (fake) refused: weights "));
    assert_non_null(strstr(err.text, " + reserve "));
    assert_int_equal(gpu_facts(&f, 0, &err), 0);
    assert_int_equal(f.free, f.total);
    remove(path);
}

static void the_sum_is_told(void **state)
{
    struct vt_plan p = {
        .weights = 100 * MIB, .kv = 20 * MIB, .work = 8 * MIB, .code = 4 * MIB, .reserve = 256 * MIB};
    struct vt_err err;
    assert_int_equal(vt_plan_sum(&p), 388 * MIB);
    assert_int_equal(vt_plan_fits(&p, "gpu:1 (x)", 388 * MIB, 1024 * MIB, VT_E_DEVICE_MEM, &err), 0);
    assert_int_equal(vt_plan_fits(&p, "gpu:1 (x)", 388 * MIB - 1, 1024 * MIB, VT_E_DEVICE_MEM, &err), -1);
    assert_int_equal(err.code, VT_E_DEVICE_MEM);
    assert_string_equal(err.text,
                        "gpu:1 (x) refused: weights 100 MiB + KV cache 20 MiB + work space 8 MiB + kernels "
                        "and graphs 4 MiB + reserve 256 MiB = 388 MiB, available 388 of 1024 MiB; choose a "
                        "smaller model, engine.slots or engine.ctx_tokens");
    p.code = p.reserve = 0;
    assert_int_equal(vt_plan_fits(&p, "host memory", 5 * MIB, 0, VT_E_MEM_PRESSURE, &err), -1);
    assert_non_null(strstr(err.text, "work space 8 MiB = 128 MiB, available 5 MiB;"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plan_is_what_is_taken),
                                       cmocka_unit_test(what_does_not_fit_is_refused),
                                       cmocka_unit_test(the_sum_is_told)};
    gpu_use(fault_module());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
