/* Loading: what is right is read, what is wrong is refused by name, and nothing stays behind. */
#include "model.h"
#include "tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int load(const struct tiny *t, struct model **m, struct gguf_file **f, struct vt_err *err)
{
    const char *path = tiny_path("load");
    tiny_write(t, path);
    assert_int_equal(gguf_open(f, path, false, err), 0);
    unlink(path);
    return model_load(m, *f, path, err);
}

/* The file must be refused with every one of the words in the error. */
static void refuses(const struct tiny *t, const char *a, const char *b)
{
    struct model *m = NULL;
    struct gguf_file *f;
    struct vt_err err = {0};
    assert_int_equal(load(t, &m, &f, &err), -1);
    assert_null(m);
    assert_int_equal(err.code, VT_E_PAYLOAD);
    if (!strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("error \"%s\" lacks \"%s\" or \"%s\"", err.text, a, b);
    gguf_close(f);
}

static void reads_qwen3(void **state)
{
    struct model *m;
    struct gguf_file *f;
    assert_int_equal(load(&tiny_qwen3, &m, &f, NULL), 0);
    assert_string_equal(m->arch, "qwen3");
    assert_string_equal(m->name, "tiny");
    assert_int_equal(m->n_layer, 3);
    assert_int_equal(m->n_attn, 3);
    assert_int_equal(m->state_floats, 0);
    assert_ptr_equal(m->head.data, m->embd.data); /* tied */
    assert_true(m->layers[2].attn.q_norm && !m->layers[2].attn.gated);
    model_free(m);
    gguf_close(f);
}

static void reads_qwen35(void **state)
{
    struct model *m;
    struct gguf_file *f;
    assert_int_equal(load(&tiny_qwen35, &m, &f, NULL), 0);
    assert_int_equal(m->n_layer, 8);
    assert_int_equal(m->n_drafts, 1);
    assert_int_equal(m->n_attn, 2);
    for (int i = 0; i < 8; i++)
        assert_int_equal(m->layers[i].mixer, i == 3 || i == 7 ? MIX_ATTENTION : MIX_DELTA);
    assert_true(m->layers[3].attn.gated);
    assert_int_equal(m->layers[7].attn.index, 1);
    /* conv 3 x (2*2*32 + 6*32), S 6 x 32 x 32, six layers */
    assert_int_equal(m->state_floats, 6 * (3 * 320 + 6 * 32 * 32));
    assert_ptr_not_equal(m->head.data, m->embd.data);
    model_free(m);
    gguf_close(f);
}

static void an_mtp_block_may_be_missing(void **state)
{
    struct tiny t = tiny_qwen35;
    struct model *m;
    struct gguf_file *f;
    t.n_mtp = 0;
    t.n_blocks = 8;
    assert_int_equal(load(&t, &m, &f, NULL), 0);
    assert_int_equal(m->n_drafts, 0);
    model_free(m);
    gguf_close(f);
    t = tiny_qwen35;
    t.skip_tensor = "blk.8.nextn.hnorm.weight"; /* half a block is a damaged file */
    refuses(&t, "blk.8.nextn.hnorm.weight", "missing");
}

static void unknown_architecture(void **state)
{
    struct tiny t = tiny_qwen3;
    t.arch = "mamba9";
    refuses(&t, "mamba9", "qwen35");
}

static void missing_tensors(void **state)
{
    static const char *const dense[] = {"token_embd.weight",     "output_norm.weight",
                                        "blk.1.attn_q.weight",   "blk.2.attn_k_norm.weight",
                                        "blk.0.ffn_down.weight", "blk.2.ffn_norm.weight"};
    static const char *const hybrid[] = {"blk.0.attn_qkv.weight",
                                         "blk.6.ssm_a",
                                         "blk.2.ssm_conv1d.weight",
                                         "blk.3.attn_q.weight",
                                         "blk.5.post_attention_norm.weight",
                                         "blk.1.ssm_dt.bias"};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        struct tiny t = tiny_qwen3;
        t.skip_tensor = dense[i];
        refuses(&t, dense[i], "missing");
    }
    for (size_t i = 0; i < sizeof hybrid / sizeof *hybrid; i++) {
        struct tiny t = tiny_qwen35;
        t.skip_tensor = hybrid[i];
        refuses(&t, hybrid[i], "missing");
    }
}

static void wrong_shapes(void **state)
{
    struct tiny t = tiny_qwen3;
    t.bend_tensor = "blk.1.attn_k.weight";
    refuses(&t, "blk.1.attn_k.weight has shape {64, 65}; {64, 64} is needed", "attention.head_count_kv");
    t.bend_tensor = "blk.0.attn_norm.weight";
    refuses(&t, "blk.0.attn_norm.weight has shape {65}; {64} is needed", "embedding_length");
    t = tiny_qwen35;
    t.bend_tensor = "blk.4.ssm_conv1d.weight";
    refuses(&t, "blk.4.ssm_conv1d.weight", "ssm.group_count");
    t.bend_tensor = "blk.8.nextn.eh_proj.weight";
    refuses(&t, "blk.8.nextn.eh_proj.weight", "2 * embedding_length");
}

static void missing_keys(void **state)
{
    static const char *const keys[] = {"block_count",          "embedding_length",
                                       "attention.head_count", "feed_forward_length",
                                       "context_length",       "attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct tiny t = tiny_qwen3;
        t.skip_key = keys[i];
        refuses(&t, keys[i], "missing");
    }
    struct tiny t = tiny_qwen35;
    t.skip_key = "ssm.state_size";
    refuses(&t, "qwen35.ssm.state_size", "missing");
    t = tiny_qwen3;
    t.skip_key = "general.architecture";
    refuses(&t, "general.architecture", "missing");
}

static void impossible_numbers(void **state)
{
    struct tiny t = tiny_qwen3;
    t.n_kv = 3;
    refuses(&t, "attention.head_count is 4", "attention.head_count_kv (3)");
    t = tiny_qwen3;
    t.n_rot = 64;
    refuses(&t, "rope.dimension_count is 64", "2 to 32");
    t = tiny_qwen35;
    t.nk = 4;
    refuses(&t, "ssm.time_step_rank is 6", "ssm.group_count (4)");
    t = tiny_qwen35;
    t.n_mtp = 9;
    refuses(&t, "nextn_predict_layers is 9", "0 to 8");
}

static void damaged_values(void **state)
{
    struct tiny t = tiny_qwen3;
    t.nan_tensor = "blk.1.attn_q_norm.weight";
    refuses(&t, "blk.1.attn_q_norm.weight", "not a finite number");
    t = tiny_qwen3;
    t.bad_type = "blk.1.attn_q.weight";
    refuses(&t, "blk.1.attn_q.weight", "I8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_qwen3),
        cmocka_unit_test(reads_qwen35),
        cmocka_unit_test(an_mtp_block_may_be_missing),
        cmocka_unit_test(unknown_architecture),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(impossible_numbers),
        cmocka_unit_test(damaged_values),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
