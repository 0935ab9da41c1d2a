#include "sampling.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void pack(const struct vt_sampling *s, struct vt_enc *e, struct vt_frame *f)
{
    uint8_t rid[16] = {0};
    vt_enc_init(e);
    vt_enc_begin(e, VT_F_SUBMIT, 7, 1);
    vt_enc_bin(e, VT_SUBMIT_RID, rid, sizeof rid);
    vt_enc_u64(e, VT_SUBMIT_OP, 0);
    vt_enc_str(e, VT_SUBMIT_TENANT, "default");
    vt_enc_bin(e, VT_SUBMIT_ITEMS, rid, 4);
    vt_enc_u64(e, VT_SUBMIT_MAX_NEW, 1);
    vt_sampling_put(e, VT_SUBMIT_SAMPLING, s);
    struct vt_err err;
    if (vt_enc_end(e, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(vt_frame_open(f, e->buf, e->len, 1 << 20, NULL), 0);
}

static void every_field_arrives(void **state)
{
    static const uint32_t ids[2] = {3, 9};
    static const float bias[2] = {1.5f, -2};
    struct vt_sampling s, got;
    struct vt_sampling_raw raw;
    struct vt_enc e;
    struct vt_frame f;
    double next = 0.25;
    vt_sampling_init(&s);
#define SAMPLING(key, NAME, field, kind, neutral) s.field = (VT_SAMPLING_##kind)(next += 3);
#include "sampling.def"
#undef SAMPLING
    s.repeat_last_n = -1;
    s.has_seed = true;
    s.seed = UINT64_MAX;
    s.chain[0] = VT_SAMPLER_XTC;
    s.n_chain = 1;
    s.bias_ids = ids;
    s.bias = bias;
    s.n_bias = 2;
    s.breakers = "a\0bc";
    s.breakers_len = 5;
    pack(&s, &e, &f);
    assert_int_equal(vt_sampling_get(&got, &raw, vt_frame_map(&f, VT_SUBMIT_SAMPLING), NULL), 0);
#define SAMPLING(key, NAME, field, kind, neutral) assert_true(got.field == s.field);
#include "sampling.def"
#undef SAMPLING
    assert_true(got.has_seed && got.seed == UINT64_MAX && got.n_chain == 1 && got.chain[0] == VT_SAMPLER_XTC);
    assert_true(raw.n_bias == 2 && raw.breakers_len == 5);
    assert_memory_equal(raw.bias_ids, ids, sizeof ids);
    assert_memory_equal(raw.bias, bias, sizeof bias);
    assert_memory_equal(raw.breakers, "a\0bc", 5);
    vt_frame_close(&f);
    vt_enc_fini(&e);
}

static void neutral_travels_as_nothing(void **state)
{
    struct vt_sampling s, got;
    struct vt_sampling_raw raw;
    struct vt_enc e;
    struct vt_frame f;
    vt_sampling_init(&s);
    pack(&s, &e, &f);
    assert_int_equal(vt_frame_map(&f, VT_SUBMIT_SAMPLING)->size, 0);
    assert_int_equal(vt_sampling_get(&got, &raw, vt_frame_map(&f, VT_SUBMIT_SAMPLING), NULL), 0);
    assert_memory_equal(got.chain, s.chain, sizeof s.chain);
    assert_true(!got.has_seed && got.temperature == 0 && raw.n_bias == 0);
    vt_frame_close(&f);
    vt_enc_fini(&e);
    assert_int_equal(vt_sampling_get(&got, &raw, NULL, NULL), 0);
    assert_int_equal(got.n_chain, s.n_chain);
}

static void nonsense_is_refused(void **state)
{
    struct vt_sampling s, got;
    struct vt_sampling_raw raw;
    struct vt_enc e;
    struct vt_frame f;
    struct vt_err err;
    for (int k = 0; k < 3; k++) {
        vt_sampling_init(&s);
        if (k < 2) {
            s.chain[0] = k ? VT_SAMPLER_COUNT : 0;
        } else {
            s.breakers = "ab";
            s.breakers_len = 2; /* without its NUL */
        }
        pack(&s, &e, &f);
        assert_int_equal(vt_sampling_get(&got, &raw, vt_frame_map(&f, VT_SUBMIT_SAMPLING), &err), -1);
        assert_int_equal(err.code, VT_E_PARAM);
        assert_non_null(strstr(err.text, k < 2 ? "samplers" : "dry_sequence_breakers"));
        vt_frame_close(&f);
        vt_enc_fini(&e);
    }
}

static void names(void **state)
{
    static const char chain[] = "edskypmxta";
    for (int k = 1; k < VT_SAMPLER_COUNT; k++) {
        assert_int_equal(vt_sampler_find(vt_sampler_name((enum vt_sampler)k)), k);
        assert_int_not_equal(vt_sampler_letter(chain[k - 1]), 0);
    }
    assert_int_equal(vt_sampler_find("typical-p"), VT_SAMPLER_TYPICAL_P);
    assert_int_equal(vt_sampler_find("magic"), 0);
    assert_int_equal(vt_sampler_letter('z'), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_field_arrives),
                                       cmocka_unit_test(neutral_travels_as_nothing),
                                       cmocka_unit_test(nonsense_is_refused), cmocka_unit_test(names)};
    return cmocka_run_group_tests_name("sampling", tests, NULL, NULL);
}
