/* device.h in a whole vitriold: the engine is a test child that says it has a GPU, the probe one that answers as it is told (test_answer.c). */
#include "fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1ull << 20)

struct world {
    char args[160], vram[96], program[160];
};

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[160], tmp[176];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(tmp, sizeof tmp, "%s.new", path);
    FILE *f = fopen(tmp, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(rename(tmp, path), 0);
}

static void answer(struct fx *f, const char *line)
{
    write_file(f->root, "answer", line);
}

static void answer_free(struct fx *f, unsigned mib, const char *holders)
{
    char text[256];
    snprintf(text, sizeof text, "{\"free\":%llu,\"total\":%llu,\"uuid\":\"test-gpu\",\"holders\":\"%s\"}\n",
             mib * MIB, 2000 * MIB, holders);
    answer(f, text);
}

static void own(struct fx *f, struct world *w, const char *device)
{
    static char device_arg[64];
    snprintf(w->program, sizeof w->program, "supervisor.probe_program=%s", getenv("VT_TEST_PROBE"));
    snprintf(w->vram, sizeof w->vram, "%s/vram", f->root);
    snprintf(w->args, sizeof w->args, "engine.args=vram=%s", w->vram);
    snprintf(device_arg, sizeof device_arg, "engine.device=%s", device);
    fx_set(f, w->program);
    fx_set(f, w->args);
    fx_set(f, device_arg);
    fx_set(f, "supervisor.backoff_max_ms=50");
    fx_set(f, "supervisor.breaker=off");
    answer_free(f, 1000, "");
}

static unsigned calls(const struct fx *f, const char *what)
{
    char path[96], line[64];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/calls", f->root);
    FILE *c = fopen(path, "r");
    while (c != NULL && fgets(line, sizeof line, c) != NULL)
        n += strncmp(line, what, strlen(what)) == 0;
    if (c != NULL)
        fclose(c);
    return n;
}

static unsigned gen(struct fx *f)
{
    json_t *st = fx_status(f);
    assert_non_null(st);
    unsigned g = (unsigned)client_num(fx_child(st, "engine0"), "gen");
    json_decref(st);
    return g;
}

static void expect_device(struct fx *f, const char *part, bool lost)
{
    json_t *st = fx_status(f);
    assert_non_null(st);
    if (strstr(client_str(st, "device"), part) == NULL || (client_num(st, "device_lost") != 0) != lost)
        fail_msg("device \"%s\", lost %llu; log:\n%s", client_str(st, "device"),
                 (unsigned long long)client_num(st, "device_lost"), fx_log(f));
    json_decref(st);
}

static unsigned window(struct fx *f)
{
    json_t *st = fx_status(f);
    assert_non_null(st);
    unsigned w = (unsigned)client_num(st, "window");
    json_decref(st);
    return w;
}

/* 1000 MiB were free; less is, for a while: one start, after the return. */
static void test_memory_returns(void **state)
{
    struct fx *f = *state;
    struct world w;
    own(f, &w, "gpu:0");
    fx_start(f);
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    answer_free(f, 900, "");
    kill(pid, SIGKILL);
    fx_wait_log(f, "waits until the memory of gpu:0 is back: 900 of 936 MiB are free", 10);
    fx_nap(1200);
    assert_int_equal(gen(f), 1);
    expect_device(f, "waits until the memory of gpu:0 is back", false);
    answer_free(f, 940, "");
    fx_wait(f, "engine0", "ready", 2, 10);
    expect_device(f, "", false);
    assert_int_equal(gen(f), 2);
    assert_true(calls(f, "read") >= 5);
    assert_int_equal(calls(f, "prove"), 0);
}

static void test_memory_never_returns(void **state)
{
    struct fx *f = *state;
    struct world w;
    own(f, &w, "gpu:0");
    fx_set(f, "engine.vram_return_s=1");
    fx_start(f);
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    answer_free(f, 300, "thief[4711]");
    kill(pid, SIGKILL);
    fx_wait_log(f, "vram_not_returned: 300 of 936 MiB of gpu:0 are free 1 s after", 10);
    fx_wait_log(f, "it is open in thief[4711]", 1);
    fx_wait_log(f, "backoff", 5);
    assert_int_equal(gen(f), 1);
    fx_expect_class(f, "engine0", "vram_not_returned", "thief[4711]");
    answer_free(f, 1000, "");
    fx_wait(f, "engine0", "ready", 2, 10);
}

/* After a device error nothing starts before a proof, and everybody is told. */
static void test_lost_until_proved(void **state)
{
    struct fx *f = *state;
    struct world w;
    own(f, &w, "gpu:0");
    fx_set(f, "supervisor.probe_retry_ms=150");
    fx_start(f);
    fx_wait(f, "engine0", "ready", 1, 10);
    answer(f, "exit 80 GPU 0 has fallen off the bus\n");
    write_file(f->root, "vram", "exit 80");
    fx_wait(f, "engine0", "failed", 1, 10);
    fx_expect_class(f, "engine0", "device_lost", "fallen off the bus");
    expect_device(f, "gpu:0 is lost", true);
    json_t *st = fx_status(f);
    assert_string_equal(client_str(st, "state"), "failed");
    json_decref(st);
    for (int i = 0; i < 100 && calls(f, "prove") < 3; i++)
        fx_nap(50);
    assert_in_range(calls(f, "prove"), 3, 6);
    assert_int_equal(gen(f), 1);
    answer_free(f, 1000, "");
    fx_wait(f, "engine0", "ready", 2, 10);
    fx_wait_log(f, "device_proved: gpu:0", 1);
    expect_device(f, "", false);
}

/* A probe that hangs is killed; meanwhile vitriold answers. */
static void test_probe_hangs(void **state)
{
    struct fx *f = *state;
    struct world w;
    own(f, &w, "gpu:0");
    fx_set(f, "supervisor.probe_timeout_ms=3000");
    fx_set(f, "supervisor.probe_retry_ms=100");
    fx_start(f);
    fx_wait(f, "engine0", "ready", 1, 10);
    answer(f, "hang\n");
    write_file(f->root, "vram", "exit 80");
    for (int i = 0; i < 200 && calls(f, "prove") < 1; i++)
        fx_nap(20);
    double began = fx_now();
    expect_device(f, "gpu:0 is lost", true);
    assert_true(fx_now() - began < 2); /* the probe has its 3 s yet */
    fx_wait_log(f, "the probe did not answer in time and was killed", 10);
    assert_int_equal(gen(f), 1);
    answer_free(f, 1000, "");
    fx_wait(f, "engine0", "ready", 2, 10);
}

/* A probe that never worked keeps no engine down. */
static void test_without_a_probe(void **state)
{
    struct fx *f = *state;
    struct world w;
    own(f, &w, "gpu:0");
    answer(f, "exit 78\n");
    fx_start(f);
    fx_wait(f, "engine0", "ready", 1, 10);
    write_file(f->root, "vram", "exit 80");
    fx_wait(f, "engine0", "ready", 2, 10);
    fx_wait_log(f, "gpu:0 cannot be read before the start: the probe ended with status 78", 1);
}

/* "auto" that ran on a GPU does not end up on the processor. */
static void test_auto_does_not_shrink(void **state)
{
    struct fx *f = *state;
    struct world w;
    struct vt_err err;
    own(f, &w, "auto");
    fx_set(f, "supervisor.probe_retry_ms=100");
    fx_start(f);
    pid_t pid = fx_wait(f, "engine0", "ready", 1, 10);
    answer(f, "exit 78 no GPU can be used: the driver of the NVIDIA GPU does not run\n");
    kill(pid, SIGKILL);
    fx_wait(f, "engine0", "failed", 1, 10);
    fx_expect_class(f, "engine0", "device_lost", "no GPU can be used");
    fx_nap(500);
    assert_int_equal(gen(f), 1);
    answer_free(f, 1000, "");
    fx_wait(f, "engine0", "ready", 2, 10);
    json_t *r = client_call(&f->c, "fingerprint", NULL, NULL, &err);
    const json_t *map = json_object_get(json_array_get(json_object_get(r, "current"), 0), "map");
    assert_string_equal(client_str(map, "engine.device"), "gpu:0");
    json_decref(r);
}

/* Too little memory: smaller windows, remembered over a restart of vitriold, forgotten by an operator's reset. */
static void test_ladder(void **state)
{
    struct fx *f = *state;
    struct world w;
    struct vt_err err;
    own(f, &w, "gpu:0");
    fx_set(f, "engine.vram_rungs=2");
    fx_set(f, "engine.slots=8");
    fx_set(f, "engine.ctx_tokens=8192");
    fx_start(f);
    fx_wait(f, "engine0", "ready", 1, 10);
    assert_int_equal(window(f), 8192);
    write_file(f->root, "vram", "200");
    fx_wait_log(
        f, "vram_ladder: rung 1: windows of 6656 instead of 8192 tokens: 200 MiB are free, the floor is 256",
        20);
    write_file(f->root, "vram", "exit 82"); /* once says nothing */
    fx_wait(f, "engine0", "ready", 3, 10);
    assert_int_equal(window(f), 6656);
    expect_device(f, "windows of 6656 instead of 8192 tokens: gpu:0 had too little memory (rung 1)", false);
    write_file(f->root, "vram", "exit 82");
    fx_wait_log(
        f, "vram_ladder: rung 2: windows of 5120 instead of 8192 tokens: it ran out of device memory twice",
        10);
    fx_wait(f, "engine0", "ready", 4, 10);
    kill(f->pid, SIGQUIT);
    assert_int_equal(fx_wait_end(f, 10), 0);
    fx_start(f);
    fx_wait(f, "engine0", "ready", 1, 10);
    assert_int_equal(window(f), 5120);
    json_decref(client_call(&f->c, "reset", NULL, NULL, &err));
    kill(fx_wait(f, "engine0", "ready", 1, 1), SIGKILL);
    fx_wait(f, "engine0", "ready", 2, 10);
    assert_int_equal(window(f), 8192);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_memory_returns), T(test_memory_never_returns), T(test_lost_until_proved),
        T(test_probe_hangs),    T(test_without_a_probe),      T(test_auto_does_not_shrink),
        T(test_ladder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
