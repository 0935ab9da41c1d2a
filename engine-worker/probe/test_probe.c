/* The probe's questions, of a fake GPU whose world (fake_gpu.c) is a file beside a run directory. */
#include "fault.h"
#include "probe.h"
#include "tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

static int make_world(void **state)
{
    char *dir = strdup("/tmp/vt-probe-XXXXXX");
    assert_non_null(mkdtemp(dir));
    setenv("VITRIOL_RUN_DIR", dir, 1);
    *state = dir;
    return 0;
}

static void world(const char *dir, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "%s.gpu", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int end_world(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "%s.gpu", (char *)*state);
    unlink(path);
    rmdir(*state);
    free(*state);
    return 0;
}

static void free_memory(void **state)
{
    struct probe_question q = {.device = 0};
    struct probe_answer a, b;
    struct vt_err err;
    assert_int_equal(probe_ask(&a, &q, &err), 0);
    assert_int_equal(a.facts.free, a.facts.total);
    assert_false(a.planned);
    world(*state, "taken 100\n");
    assert_int_equal(probe_ask(&b, &q, &err), 0);
    assert_int_equal(b.facts.free, a.facts.free - 100 * MIB);
}

static void expect(void **state, const char *text, bool prove, int code, const char *said)
{
    struct probe_question q = {.prove = prove};
    struct probe_answer a;
    struct vt_err err;
    world(*state, text);
    assert_int_equal(probe_ask(&a, &q, &err), code == 0 ? 0 : -1);
    if (code != 0) {
        assert_int_equal(err.code, code);
        assert_non_null(strstr(err.text, said));
    }
}

static void proofs(void **state)
{
    expect(state, "", true, 0, "");
    expect(state, "lost\n", true, VT_E_DEVICE_LOST, "fallen off the bus");
    expect(state, "none\n", true, VT_E_CONFIG, "no GPU can be used");
    expect(state, "taken 636\n", true, VT_E_DEVICE_MEM, "asked for");
    /* It answers, and its memory holds; only its sums are wrong. */
    expect(state, "wrong\n", true, VT_E_DEVICE_LOST, "computes wrongly");
    expect(state, "wrong\n", false, 0, "");
}

static void what_an_engine_would_take(void **state)
{
    const char *path = tiny_path("probe");
    struct probe_question q = {
        .model = path,
        .shape = {.slots = 2, .ctx_tokens = 512, .ubatch = 32, .rec_snapshots = 1, .reserve = MIB}};
    struct probe_answer a, b;
    struct vt_err err;
    tiny_write(&tiny_qwen3, path);
    assert_int_equal(probe_ask(&a, &q, &err), 0);
    assert_true(a.planned && a.plan.weights > 0 && a.plan.work > 0 && a.plan.reserve == MIB);
    q.shape.ctx_tokens = 1024;
    assert_int_equal(probe_ask(&b, &q, &err), 0);
    assert_true(b.plan.kv > a.plan.kv);
    assert_int_equal(b.plan.weights, a.plan.weights);
    assert_int_equal(b.facts.free, a.facts.free); /* nothing is left behind */
    remove(path);
    assert_int_equal(probe_ask(&a, &q, &err), -1);
    assert_int_equal(err.code, VT_E_NO_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(free_memory, make_world, end_world),
        cmocka_unit_test_setup_teardown(proofs, make_world, end_world),
        cmocka_unit_test_setup_teardown(what_an_engine_would_take, make_world, end_world),
    };
    gpu_use(fault_module());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
