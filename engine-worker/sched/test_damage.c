/* Every byte of a model file's header changed, one at a time: a clear error or a model that computes; never a crash. What
 * loads is run, so that a number that slips through the checks meets the code that uses it. */
#include "engine.h"
#include "tiny.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void ignore_accepted(void *arg, uint64_t handle, uint32_t slot, uint32_t reused, uint32_t queue_pos,
                            uint64_t seed)
{
}

static void ignore_refused(void *arg, uint64_t handle, const struct vt_err *why, uint32_t retry_ms) {}

static void ignore_prefill(void *arg, uint64_t handle, uint32_t done, uint32_t total, uint32_t reused) {}

static void ignore_token(void *arg, uint64_t handle, const struct eng_token *t) {}

static void ignore_done(void *arg, uint64_t handle, enum eng_done why, uint64_t emitted,
                        const struct eng_usage *usage, const struct vt_err *err)
{
}

static const struct eng_events quiet = {.accepted = ignore_accepted,
                                        .refused = ignore_refused,
                                        .prefill = ignore_prefill,
                                        .token = ignore_token,
                                        .done = ignore_done};

/* Loads and, when that works, evaluates a short prompt and decodes two tokens. */
static bool try_file(const char *path)
{
    static const uint32_t ids[] = {5, 9, 200, 17};
    struct eng_config c = {.model_path = path,
                           .slots = 1,
                           .ctx_tokens = 256,
                           .ubatch = 8,
                           .threads = 1,
                           .simd = -1,
                           .rec_snapshots = 1};
    struct eng *e;
    struct vt_err err = {0};
    if (eng_real.load(&e, &c, &quiet, NULL, &err) < 0) {
        assert_true(err.code == VT_E_PAYLOAD || err.code == VT_E_NOMEM);
        assert_true(strlen(err.text) > 10);
        return false;
    }
    struct eng_request q = {.handle = 1,
                            .tenant = "t",
                            .slot = -1,
                            .ids = ids,
                            .n_ids = 4,
                            .max_new = 2,
                            .credit = 10,
                            .sampling = {.top_p = 1, .repeat_penalty = 1}};
    eng_real.submit(e, &q);
    while (eng_real.step(e))
        ;
    eng_real.free(e);
    return true;
}

static void every_header_byte(const struct tiny *t)
{
    const char *path = tiny_path("damage");
    off_t header = (off_t)tiny_write(t, path);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned refused = 0, ran = 0;
    uint32_t rng = 1;
    for (off_t at = 0; at < header; at++) {
        uint8_t old, bad;
        rng = rng * 1664525u + 1013904223u;
        assert_int_equal(pread(fd, &old, 1, at), 1);
        bad = (uint8_t)(old ^ (1u << (rng >> 29)));
        assert_int_equal(pwrite(fd, &bad, 1, at), 1);
        if (try_file(path))
            ran++;
        else
            refused++;
        assert_int_equal(pwrite(fd, &old, 1, at), 1);
    }
    assert_true(try_file(path));
    close(fd);
    unlink(path);
    print_message("%s: %u changes refused, %u ran\n", t->arch, refused, ran);
    assert_true(refused > 1000 && ran > 100);
}

static void qwen3_header(void **state)
{
    every_header_byte(&tiny_qwen3);
}

static void qwen35_header(void **state)
{
    every_header_byte(&tiny_qwen35);
}

static void moe_header(void **state)
{
    every_header_byte(&tiny_moe);
}

static void gemma3_header(void **state)
{
    every_header_byte(&tiny_gemma3);
}

static void cut_anywhere(void **state)
{
    const char *path = tiny_path("cut");
    size_t header = tiny_write(&tiny_qwen35, path);
    int fd = open(path, O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    for (off_t n = size - 1; n >= 0; n -= n > (off_t)header ? 50021 : 97) {
        assert_int_equal(ftruncate(fd, n), 0);
        assert_false(try_file(path));
    }
    close(fd);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_header),  cmocka_unit_test(qwen35_header), cmocka_unit_test(moe_header),
        cmocka_unit_test(gemma3_header), cmocka_unit_test(cut_anywhere),
    };
    return cmocka_run_group_tests_name("damage", tests, NULL, NULL);
}
