/* With the embedded model's vocabulary (VT_MODEL) and small made ones. */
#include "fixture.h"
#include "pretok.h"
#include "tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct tok *open_model(void)
{
    struct gguf_file *g;
    struct tok *t;
    struct vt_err err;
    const char *path = getenv("VT_MODEL");
    if (!path)
        fail_msg("VT_MODEL must name the embedded model");
    assert_int_equal(gguf_open(&g, path, true, &err), 0);
    assert_int_equal(tok_load(&t, g, &err), 0);
    gguf_close(g);
    return t;
}

static struct tok *open_fixture(struct fixture *f)
{
    struct gguf_file *g;
    struct tok *t;
    struct vt_err err;
    assert_int_equal(fixture_open(f, &g, &err), 0);
    if (tok_load(&t, g, &err))
        fail_msg("%s", err.text);
    gguf_close(g);
    return t;
}

static void expect(const struct tok *t, const char *text, size_t len, unsigned flags, const uint32_t *ids,
                   size_t n)
{
    struct tok_ids got = {0};
    struct vt_err err;
    assert_int_equal(tok_encode(t, text, len, flags, &got, &err), 0);
    for (size_t i = 0; i < got.n && i < n; i++)
        if (got.ids[i] != ids[i])
            fail_msg("'%s': id %zu is %u, not %u", text, i, got.ids[i], ids[i]);
    assert_int_equal(got.n, n);
    tok_ids_fini(&got);
}

#define IDS(...) (const uint32_t[]){__VA_ARGS__}, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

/* Ids of an independent implementation. */
static void reference(void **state)
{
    static const struct {
        const char *text;
        uint32_t ids[24];
        size_t n;
    } cases[] = {
        {"It was a bright cold day in April.", {1174, 317, 258, 2098, 1765, 651, 289, 393, 5768, 75, 13}, 11},
        {"I'm 3,000 years\n\n  old", {40, 1198, 220, 18, 11, 15, 15, 15, 1165, 297, 220, 670}, 12},
        {"<|im_start|>user\nhello<|im_end|>\n", {6138, 429, 268, 198, 257, 288, 78, 6139, 198}, 9},
        {"na\303\257ve caf\303\251 \342\200\224 \342\200\234quoted\342\200\235",
         {1255, 127, 107, 310, 1981, 69, 1132, 220, 370, 220, 369, 250, 398, 3118, 369, 251},
         16},
        {"   leading", {220, 220, 4732}, 3},
        {"\t\ttabs\r\n", {197, 197, 83, 626, 82, 201, 198}, 7},
        {"\346\227\245\346\234\254\350\252\236 \321\200\321\203\321\201\321\201\320\272\320\270\320\271",
         {162, 245, 98,  162, 250, 105, 164, 103, 252, 220, 141, 222,
          141, 225, 141, 223, 141, 223, 140, 118, 140, 116, 140, 117},
         24},
        {"<think>\nhm\n</think>", {6140, 198, 71, 76, 198, 6141}, 6},
        {"supercalifragilisticexpialidocious",
         {82, 84, 690, 66, 341, 368, 371, 70, 402, 466, 578, 87, 79, 1156, 312, 78, 1282},
         17},
    };
    struct tok *t = open_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(t, cases[i].text, strlen(cases[i].text), TOK_PARSE_SPECIAL, cases[i].ids, cases[i].n);
    expect(t, "e\314\201", 3, TOK_AS_IS, IDS(68, 136, 223));
    expect(t, "e\314\201", 3, 0, IDS(1132)); /* as é */
    tok_free(t);
}

static void facts(void **state)
{
    struct tok *t = open_model();
    const uint32_t *eog;
    size_t n;
    assert_int_equal(tok_n_vocab(t), 6144);
    assert_int_equal(tok_eos(t), 6139);
    assert_false(tok_adds_bos(t));
    assert_false(tok_adds_space(t));
    assert_true(tok_is_eog(t, 6139));
    assert_true(tok_is_eog(t, 6137));
    assert_false(tok_is_eog(t, 6138));
    assert_int_equal(tok_eog_ids(t, &eog), 2);
    assert_int_equal(eog[0], 6137);
    assert_int_equal(tok_find(t, "<|im_end|>", 10), 6139);
    assert_int_equal(tok_find(t, "<|no|>", 6), -1);
    assert_int_equal(tok_kind(t, 6138), TOK_CONTROL);
    assert_int_equal(tok_kind(t, 6140), TOK_USER);
    assert_int_equal(tok_kind(t, 6144), TOK_UNUSED);
    assert_null(tok_bytes(t, 6144, &n));
    assert_memory_equal(tok_bytes(t, 317, &n), " was", 4);
    assert_memory_equal(tok_text(t, 317, &n), "\304\240was", 5);
    assert_non_null(tok_chat_template(t, &n));
    assert_in_range(n, 100, 10000);
    tok_free(t);
}

static void decode_equals(const struct tok *t, const char *text, size_t len, unsigned flags)
{
    struct tok_ids ids = {0};
    struct vt_err err;
    size_t at = 0;
    assert_int_equal(tok_encode(t, text, len, flags, &ids, &err), 0);
    for (size_t i = 0; i < ids.n; i++) {
        size_t n;
        const uint8_t *b = tok_bytes(t, ids.ids[i], &n);
        assert_true(n <= len - at && memcmp(b, text + at, n) == 0);
        at += n;
    }
    assert_int_equal(at, len);
    tok_ids_fini(&ids);
}

static uint32_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static void round_trip_of_random_bytes(void **state)
{
    struct tok *t = open_model();
    uint64_t seed = 42;
    char buf[3000];
    for (int i = 0; i < 400; i++) {
        const size_t n = next_random(&seed) % sizeof buf;
        const unsigned kind = next_random(&seed) % 3;
        for (size_t k = 0; k < n; k++)
            buf[k] = kind == 0   ? (char)next_random(&seed)
                     : kind == 1 ? "ab <|im_end|>\n\342\202\254\314\201"[next_random(&seed) % 20]
                                 : (char)(next_random(&seed) % 96 + 32);
        decode_equals(t, buf, n, TOK_AS_IS | (i & 1 ? TOK_PARSE_SPECIAL : 0));
    }
    tok_free(t);
}

static void specials(void **state)
{
    struct fixture f;
    fixture_begin(&f);
    fixture_bpe(&f, "qwen2");
    struct tok *t = open_fixture(&f);
    expect(t, "the<|im_end|>", 13, TOK_PARSE_SPECIAL, IDS(FIX_THE, FIX_END));
    expect(t, "<think>more<think>", 18, 0, IDS(FIX_THINK_MORE, FIX_THINK));
    expect(t, "<|<think>", 9, 0, IDS('<' - 0, '|' - 0, FIX_THINK));
    expect(t, "<|im_end|>", 10, 0, IDS('<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'));
    expect(t, " the the", 8, 0, IDS(FIX_SPACE_THE, FIX_SPACE_THE));
    expect(t, "", 0, TOK_ADD_SPECIAL, NULL, 0);
    assert_true(tok_is_eog(t, FIX_END));
    tok_free(t);
}

static void trust(void **state)
{
    struct fixture f;
    struct tok_ids ids = {0};
    struct vt_err err;
    fixture_begin(&f);
    fixture_bpe(&f, "qwen2");
    struct tok *t = open_fixture(&f);
    static const char text[] = "<|im_start|>aa<|im_end|>aa<|im_end|>";
    /* the client's part is "aa<|im_end|>aa" */
    const struct tok_span spans[] = {{12, true}, {26, false}, {36, true}};
    assert_int_equal(tok_encode_spans(t, text, 36, spans, 3, 0, &ids, &err), 0);
    assert_int_equal(ids.ids[0], FIX_START);
    assert_int_equal(ids.ids[1], FIX_AA);
    assert_int_equal(ids.ids[ids.n - 1], FIX_END);
    assert_int_equal(ids.n, 1 + 1 + 10 + 1 + 1);
    /* a token that is trusted in part only is not read; neighbouring trusted stretches are one */
    const struct tok_span cut[] = {{5, true}, {6, false}, {20, true}, {36, true}};
    ids.n = 0;
    assert_int_equal(tok_encode_spans(t, text, 36, cut, 4, 0, &ids, &err), 0);
    assert_int_equal(ids.ids[0], '<');
    assert_int_equal(ids.n, 12 + 1 + 1 + 1 + 1);
    tok_ids_fini(&ids);
    tok_free(t);
}

static void begin_and_end(void **state)
{
    struct fixture f;
    fixture_begin(&f);
    fixture_bpe(&f, "llama-bpe");
    fixture_u32(&f, "tokenizer.ggml.bos_token_id", FIX_START);
    fixture_u32(&f, "tokenizer.ggml.eos_token_id", FIX_END);
    fixture_bool(&f, "tokenizer.ggml.add_eos_token", true);
    fixture_u32(&f, "tokenizer.ggml.eot_token_id", 99999);
    fixture_u32(&f, "tokenizer.ggml.fim_pre_token_id", FIX_THINK);
    struct tok *t = open_fixture(&f);
    expect(t, "aa", 2, TOK_ADD_SPECIAL, IDS(FIX_START, FIX_AA, FIX_END));
    expect(t, "<|im_start|>aa", 14, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, IDS(FIX_START, FIX_AA, FIX_END));
    expect(t, "aa", 2, 0, IDS(FIX_AA));
    assert_int_equal(tok_for(t, TOK_FOR_EOT), -1);
    assert_int_equal(tok_for(t, TOK_FOR_FIM_PRE), FIX_THINK);
    tok_free(t);
}

static void long_pieces(void **state)
{
    struct fixture f;
    fixture_begin(&f);
    fixture_bpe(&f, "qwen2");
    struct tok *t = open_fixture(&f);
    enum { N = 1001 };
    char text[N];
    memset(text, 'a', N);
    uint32_t want[N];
    size_t n = 0;
    for (; n < N / 4; n++)
        want[n] = FIX_AAAA;
    want[n++] = 'a'; /* 1001 = 250 * 4 + 1 */
    expect(t, text, N, 0, want, n);
    decode_equals(t, text, N, 0);
    tok_free(t);
}

/* Byte-level vocabularies of which bytes are missing drop them, or use the unknown token. */
static void missing_bytes(void **state)
{
    static const char *const tokens[] = {"a", "b", "ab", "<unk>"}, *const merges[] = {"a b"};
    static const int32_t kinds[] = {1, 1, 1, 2};
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        struct fixture f;
        fixture_begin(&f);
        fixture_str(&f, "tokenizer.ggml.model", "gpt2");
        fixture_strs(&f, "tokenizer.ggml.tokens", tokens, 4);
        fixture_i32s(&f, "tokenizer.ggml.token_type", kinds, 4);
        fixture_strs(&f, "tokenizer.ggml.merges", merges, 1);
        if (with_unknown)
            fixture_u32(&f, "tokenizer.ggml.unknown_token_id", 3);
        struct tok *t = open_fixture(&f);
        if (with_unknown)
            expect(t, "abxb", 4, 0, IDS(2, 3, 1));
        else
            expect(t, "abxb", 4, 0, IDS(2, 1));
        tok_free(t);
    }
}

static void sentencepiece(void **state)
{
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "<0x41>",
                                         "<0xC3>",
                                         "<0xA9>",
                                         "\342\226\201",
                                         "a",
                                         "b",
                                         "ab",
                                         "\342\226\201\141b",
                                         "aba",
                                         "  ",
                                         "<turn>"};
    static const int32_t kinds[] = {2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 4, 3};
    static const float scores[] = {0, 0, 0, 0, 0, 0, -9, -9, -9, -2, -1, -3, 0, 0};
    for (int prefix = 0; prefix < 2; prefix++) {
        struct fixture f;
        fixture_begin(&f);
        fixture_str(&f, "tokenizer.ggml.model", "llama");
        fixture_strs(&f, "tokenizer.ggml.tokens", tokens, 14);
        fixture_i32s(&f, "tokenizer.ggml.token_type", kinds, 14);
        fixture_f32s(&f, "tokenizer.ggml.scores", scores, 14);
        if (!prefix)
            fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
        struct tok *t = open_fixture(&f);
        assert_int_equal(tok_bos(t), 1);
        assert_int_equal(tok_eos(t), 2);
        if (prefix) {
            expect(t, "ab aba", 6, TOK_ADD_SPECIAL, IDS(1, 10, 10, 7));
            expect(t, "<turn>ab", 8, TOK_PARSE_SPECIAL, IDS(13, 10));
        } else {
            expect(t, "ab aba", 6, 0, IDS(9, 10, 7));
            expect(t, "aba", 3, 0, IDS(11));
            expect(t, "a  b", 4, 0, IDS(7, 12, 8)); /* a user-defined run of spaces */
        }
        expect(t, "", 0, 0, NULL, 0);
        struct tok_ids ids = {0};
        struct vt_err err;
        assert_int_equal(tok_encode(t, "A\303\251z", 4, 0, &ids, &err), 0);
        const uint32_t want[] = {3, 4, 5, 0}; /* bytes, then unknown */
        assert_int_equal(ids.n, 4 + (size_t)prefix);
        assert_memory_equal(ids.ids + prefix, want, sizeof want);
        /* control text typed by a client is no control token */
        ids.n = 0;
        assert_int_equal(tok_encode(t, "</s>", 4, 0, &ids, &err), 0);
        for (size_t i = 0; i < ids.n; i++)
            assert_int_not_equal(ids.ids[i], 2);
        tok_ids_fini(&ids);
        tok_free(t);
    }
}

/* phi-3: special tokens swallow the white space behind them, but for the begin token and its like. */
static void white_space_behind_specials(void **state)
{
    static const char *const tokens[] = {"<unk>",    "<s>", "</s>", "\342\226\201", "a", "\342\226\201\141",
                                         "<|user|>", "\n"};
    static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 3, 1};
    static const float scores[] = {0, 0, 0, -2, -2, -1, 0, -2};
    static const char *const names[] = {"Phi-3 mini", "PHI3", "other"};
    for (size_t i = 0; i < 3; i++) {
        struct fixture f;
        fixture_begin(&f);
        fixture_str(&f, "general.name", names[i]);
        fixture_str(&f, "tokenizer.ggml.model", "llama");
        fixture_strs(&f, "tokenizer.ggml.tokens", tokens, 8);
        fixture_i32s(&f, "tokenizer.ggml.token_type", kinds, 8);
        fixture_f32s(&f, "tokenizer.ggml.scores", scores, 8);
        struct tok *t = open_fixture(&f);
        if (i < 2)
            expect(t, "<|user|>\n \342\200\203a<s> a", 19, TOK_PARSE_SPECIAL, IDS(6, 5, 1, 3, 5));
        else
            expect(t, "<|user|>\na", 10, TOK_PARSE_SPECIAL, IDS(6, 3, 7, 4));
        if (i < 2)
            expect(t, "<|user|>\n", 9, TOK_PARSE_SPECIAL, IDS(6));
        tok_free(t);
    }
}

/* Where no word spans a border, a text is cut before merging; the ids stay those of merging it as a whole. */
static void sentencepiece_across_spaces(void **state)
{
    static const char *const tokens[] = {"<unk>",
                                         "<s>",
                                         "</s>",
                                         "\342\226\201",
                                         "a",
                                         "b",
                                         "a\342\226\201\142",
                                         "\342\226\201\142",
                                         "b\342\226\201\141",
                                         "ab"};
    static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
    static const float scores[] = {0, 0, 0, -9, -9, -9, -2, -1, -5, -3};
    struct fixture f;
    fixture_begin(&f);
    fixture_str(&f, "tokenizer.ggml.model", "llama");
    fixture_bool(&f, "tokenizer.ggml.add_space_prefix", false);
    fixture_strs(&f, "tokenizer.ggml.tokens", tokens, 10);
    fixture_i32s(&f, "tokenizer.ggml.token_type", kinds, 10);
    fixture_f32s(&f, "tokenizer.ggml.scores", scores, 10);
    struct tok *t = open_fixture(&f);
    expect(t, "a b", 3, 0, IDS(6));       /* ' b' first, then 'a b' */
    expect(t, "b a", 3, 0, IDS(5, 3, 4)); /* 'b a' is a word, but neither 'b ' nor ' a' is */
    expect(t, "bb aab", 6, 0, IDS(5, 5, 3, 4, 9));
    enum { N = 3000 }; /* a long piece: with the heap */
    static char text[N];
    uint32_t want[N];
    for (size_t i = 0; i < N; i++)
        text[i] = "a b "[i % 4], want[i] = i % 2 ? 3 : 6;
    expect(t, text, N, 0, want, N / 2);
    tok_free(t);
}

static void refused(const char *part, void (*fill)(struct fixture *))
{
    struct fixture f;
    struct gguf_file *g;
    struct tok *t;
    struct vt_err err;
    fixture_begin(&f);
    fill(&f);
    assert_int_equal(fixture_open(&f, &g, &err), 0);
    assert_int_equal(tok_load(&t, g, &err), -1);
    assert_null(t);
    assert_int_equal(err.code, VT_E_PAYLOAD);
    if (!strstr(err.text, part))
        fail_msg("'%s' does not mention '%s'", err.text, part);
    gguf_close(g);
}

static void nothing(struct fixture *f) {}

static void other_model(struct fixture *f)
{
    fixture_str(f, "tokenizer.ggml.model", "bert");
}

static void other_pre(struct fixture *f)
{
    fixture_bpe(f, "no-such-pre");
}

static void no_tokens(struct fixture *f)
{
    fixture_str(f, "tokenizer.ggml.model", "llama");
}

static void no_merges(struct fixture *f)
{
    static const char *const tokens[] = {"a"};
    fixture_str(f, "tokenizer.ggml.model", "gpt2");
    fixture_strs(f, "tokenizer.ggml.tokens", tokens, 1);
}

static void short_kinds(struct fixture *f)
{
    static const char *const tokens[] = {"a", "b"};
    static const int32_t kinds[] = {1};
    fixture_str(f, "tokenizer.ggml.model", "llama");
    fixture_strs(f, "tokenizer.ggml.tokens", tokens, 2);
    fixture_i32s(f, "tokenizer.ggml.token_type", kinds, 1);
}

static void short_scores(struct fixture *f)
{
    static const char *const tokens[] = {"a", "b"};
    static const float scores[] = {1};
    fixture_str(f, "tokenizer.ggml.model", "llama");
    fixture_strs(f, "tokenizer.ggml.tokens", tokens, 2);
    fixture_f32s(f, "tokenizer.ggml.scores", scores, 1);
}

static void refusals(void **state)
{
    refused("tokenizer.ggml.model is missing", nothing);
    refused("'bert' is not supported", other_model);
    refused("no-such-pre", other_pre);
    refused("tokenizer.ggml.tokens", no_tokens);
    refused("tokenizer.ggml.merges", no_merges);
    refused("tokenizer.ggml.token_type", short_kinds);
    refused("tokenizer.ggml.scores", short_scores);
}

static void identity(void **state)
{
    uint8_t a[32], b[32], c[32];
    struct fixture f;
    fixture_begin(&f);
    fixture_bpe(&f, "qwen2");
    struct tok *t = open_fixture(&f), *u;
    tok_sha256(t, a);
    fixture_begin(&f);
    fixture_bpe(&f, "qwen2");
    u = open_fixture(&f);
    tok_sha256(u, b);
    tok_free(u);
    fixture_begin(&f);
    fixture_bpe(&f, "gpt-2");
    u = open_fixture(&f);
    tok_sha256(u, c);
    assert_memory_equal(a, b, 32);
    assert_memory_not_equal(a, c, 32);
    tok_free(t);
    tok_free(u);
}

/* Of the processor, since others run on it too. */
static uint64_t cpu_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static uint64_t best_time(const struct tok *t, const char *text, size_t n, int times)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < times; i++) {
        struct tok_ids ids = {0};
        struct vt_err err;
        const uint64_t t0 = cpu_us();
        assert_int_equal(tok_encode(t, text, n, TOK_PARSE_SPECIAL, &ids, &err), 0);
        const uint64_t us = cpu_us() - t0;
        best = us < best ? us : best;
        tok_ids_fini(&ids);
    }
    return best;
}

static const char *const growing[] = {"a",
                                      " ",
                                      "\n",
                                      "'",
                                      "7",
                                      "<",
                                      "<|im_end",
                                      "\314\201\314\243",
                                      "\377",
                                      "the ",
                                      "e\314\201",
                                      "\n ",
                                      "\346\227\245",
                                      "-",
                                      "aB",
                                      "!a",
                                      "\360\237\230\200",
                                      "\343\200\200\343\200\200",
                                      "\t \347\224\267 "};

/* Twice the text takes about twice the time, whatever the text: a quadratic step would take four times. */
static void grows_linearly(const char *name, const struct tok *t, size_t n, int times)
{
    char *text = malloc(2 * n);
    for (size_t i = 0; i < sizeof growing / sizeof *growing; i++) {
        const size_t len = strlen(growing[i]);
        for (size_t k = 0; k < 2 * n; k++)
            text[k] = growing[i][k % len];
        const uint64_t once = best_time(t, text, n, times), twice = best_time(t, text, 2 * n, times);
        if (twice > 3 * once + 20000)
            fail_msg("%s, '%s': %zu bytes take %llu us, %zu take %llu us", name, growing[i], n,
                     (unsigned long long)once, 2 * n, (unsigned long long)twice);
    }
    free(text);
}

static void linear(void **state)
{
    struct tok *t = open_model();
    grows_linearly("embedded model", t, 300000, 3);
    tok_free(t);
}

static void linear_with_every_pretokenizer(void **state)
{
    for (const char *name = pretok_names(); name;) {
        char pre[32];
        struct fixture f;
        snprintf(pre, sizeof pre, "%.*s", (int)strcspn(name, ","), name);
        fixture_begin(&f);
        fixture_bpe(&f, pre);
        struct tok *t = open_fixture(&f);
        grows_linearly(pre, t, 20000, 1);
        tok_free(t);
        name = strchr(name, ',');
        name = name ? name + 2 : NULL;
    }
    struct fixture f;
    fixture_begin(&f);
    fixture_spm(&f);
    struct tok *t = open_fixture(&f);
    grows_linearly("llama", t, 100000, 1);
    tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference),
        cmocka_unit_test(facts),
        cmocka_unit_test(round_trip_of_random_bytes),
        cmocka_unit_test(specials),
        cmocka_unit_test(trust),
        cmocka_unit_test(begin_and_end),
        cmocka_unit_test(long_pieces),
        cmocka_unit_test(missing_bytes),
        cmocka_unit_test(sentencepiece),
        cmocka_unit_test(white_space_behind_specials),
        cmocka_unit_test(sentencepiece_across_spaces),
        cmocka_unit_test(refusals),
        cmocka_unit_test(identity),
        cmocka_unit_test(linear),
        cmocka_unit_test(linear_with_every_pretokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
