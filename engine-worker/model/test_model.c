/* Loading: what is right is read, what is wrong is refused by name, and nothing stays behind. */
#include "model.h"
#include "sizing.h"
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

static void reads_experts(void **state)
{
    struct model *m;
    struct gguf_file *f;
    assert_int_equal(load(&tiny_moe, &m, &f, NULL), 0);
    const struct experts *e = m->layers[1].ffn.experts;
    assert_non_null(e);
    assert_int_equal(e->route.n_expert, 12);
    assert_int_equal(e->route.n_used, 3);
    assert_true(e->route.normalize && !e->route.sigmoid && e->route.scale == 1);
    assert_int_equal((const char *)e->up[5].data - (const char *)e->up[4].data, 64 * 48 * 4);
    assert_int_equal(m->layers[1].ffn.gate.n_out, 0); /* no shared expert */
    assert_int_equal(model_max_used(m), 3);
    model_free(m);
    gguf_close(f);
}

static void reads_gemma3(void **state)
{
    struct model *m;
    struct gguf_file *f;
    assert_int_equal(load(&tiny_gemma3, &m, &f, NULL), 0);
    assert_int_equal(m->n_attn, 1);
    assert_int_equal(m->n_window, 3);
    assert_int_equal(m->window, 300);
    assert_true(m->embd_scale == 8 && m->softcap == 20);
    for (int i = 0; i < 4; i++) {
        const struct layer *l = &m->layers[i];
        bool full = i == 2;
        assert_int_equal(l->attn.geo.window, full ? 0 : 300);
        assert_int_equal(l->attn.index, full ? 0 : i == 3 ? 2 : i);
        assert_true(l->post_mixer_norm && l->post_ffn_norm && l->ffn.act == ACT_GELU);
        /* pair 8 of 16: base^(-1/2), by 8 where all is seen */
        float want = full ? 1e-3f / 8 : 1e-2f;
        assert_true(l->attn.rope.freq[8] > 0.99999f * want && l->attn.rope.freq[8] < 1.00001f * want);
    }
    model_free(m);
    gguf_close(f);
}

/* The 27B model scales scores by its width per head, which only its number of blocks tells. */
static void gemma3_of_62_blocks(void **state)
{
    struct tiny t = tiny_gemma3;
    struct model *m;
    struct gguf_file *f;
    t.n_blocks = 62;
    t.n_ff = 8;
    assert_int_equal(load(&t, &m, &f, NULL), 0);
    assert_true(m->layers[0].attn.geo.scale == 0.25f); /* 64 / 4, not the head's 32 */
    assert_true(m->layers[61].attn.geo.scale == 0.25f);
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

/* What the architecture has no use for would change the result if it meant what it says. */
static void contradictions(void **state)
{
    struct tiny t = tiny_qwen3;
    t.extra_tensor = "blk.1.attn_q.bias";
    refuses(&t, "tensor blk.1.attn_q.bias", "no place");
    t = tiny_qwen3;
    t.extra_key = "rope.scaling.type";
    t.extra_text = "longrope";
    refuses(&t, "qwen3.rope.scaling.type is \"longrope\"", "none, linear and yarn");
    t = tiny_qwen3;
    t.extra_u32 = "nextn_predict_layers";
    refuses(&t, "qwen3.nextn_predict_layers is 7", "0 to 0");
    t = tiny_qwen3;
    t.extra_tensor = "rope_freqs.weight";
    refuses(&t, "rope_freqs.weight has shape {8}; {16}", "rope.dimension_count");
    t = tiny_qwen3;
    t.n_head = 66;
    t.n_kv = 2;
    refuses(&t, "attention.head_count is 66", "at most 32 times");
}

static void experts_that_do_not_fit(void **state)
{
    struct tiny t = tiny_moe;
    t.extra_u32 = "expert_gating_func";
    refuses(&t, "qwen3moe.expert_gating_func is 7", "1 to 1");
    t = tiny_moe;
    t.n_used = 13;
    refuses(&t, "expert_used_count is 13", "1 to 12");
    t = tiny_moe;
    t.bend_tensor = "blk.1.ffn_down_exps.weight";
    refuses(&t, "blk.1.ffn_down_exps.weight has shape {48, 65, 12}; {48, 64, 12}", "expert_count");
    t = tiny_moe;
    t.skip_tensor = "blk.2.ffn_gate_inp.weight";
    refuses(&t, "blk.2.ffn_gate_inp.weight is missing", "{64, 12}");
    t = tiny_moe;
    t.skip_tensor = "blk.0.ffn_up_exps.weight";
    refuses(&t, "blk.0.ffn_up_exps.weight", "missing");
    t = tiny_moe;
    t.skip_key = "expert_used_count";
    refuses(&t, "qwen3moe.expert_used_count", "missing");
}

static void windows_that_are_not_told(void **state)
{
    struct tiny t = tiny_gemma3;
    t.skip_key = "attention.sliding_window";
    refuses(&t, "gemma3.attention.sliding_window", "missing");
    t = tiny_gemma3;
    t.skip_tensor = "blk.1.post_ffw_norm.weight";
    refuses(&t, "blk.1.post_ffw_norm.weight", "missing");
    t = tiny_gemma3;
    t.arch = "gemma4";
    refuses(&t, "gemma4", "gemma3");
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

/* Of a file without any data the plan is the same: touching a tensor would be a SIGBUS. */
static void shapes_read_no_tensor(void **state)
{
    const struct sizing s = {.slots = 3, .ctx_tokens = 1024, .ubatch = 64, .rec_snapshots = 2};
    const char *path = tiny_path("shapes");
    for (int i = 0; i < TINY_KINDS; i++) {
        struct model *m[2];
        struct gguf_file *f;
        struct vt_plan p[2];
        struct vt_err err = {0};
        size_t data = tiny_write(tiny_all[i], path);
        assert_int_equal(gguf_open(&f, path, false, &err), 0);
        assert_int_equal(model_load(&m[0], f, path, &err), 0);
        assert_int_equal(truncate(path, (off_t)data), 0);
        assert_int_equal(model_shapes(&m[1], f, path, &err), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(sizing_plan(&p[k], m[k], NULL, &s, &err), 0);
            model_free(m[k]);
        }
        assert_memory_equal(&p[0], &p[1], sizeof p[0]);
        assert_true(p[1].weights > 0 && p[1].kv > 0 && p[1].work > 0);
        gguf_close(f);
        remove(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_qwen3),
        cmocka_unit_test(reads_qwen35),
        cmocka_unit_test(reads_experts),
        cmocka_unit_test(reads_gemma3),
        cmocka_unit_test(gemma3_of_62_blocks),
        cmocka_unit_test(contradictions),
        cmocka_unit_test(experts_that_do_not_fit),
        cmocka_unit_test(windows_that_are_not_told),
        cmocka_unit_test(an_mtp_block_may_be_missing),
        cmocka_unit_test(unknown_architecture),
        cmocka_unit_test(missing_tensors),
        cmocka_unit_test(wrong_shapes),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(impossible_numbers),
        cmocka_unit_test(damaged_values),
        cmocka_unit_test(shapes_read_no_tensor),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}
