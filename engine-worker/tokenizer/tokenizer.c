#include "tok.h"

#include "hash.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(s, name, n) == 0;
}

/* The keys of enum tok_purpose. */
static const char *const purpose_key[TOK_N_PURPOSES] = {
    "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",     "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",     "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id",
    "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.fim_mid_token_id",
    "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id", "tokenizer.ggml.fim_sep_token_id",
};

/* Many files leave the marks of fill-in-the-middle without a key: these are what published vocabularies call them. */
static const struct {
    enum tok_purpose purpose;
    const char *text;
} usual_names[] = {
    {TOK_FOR_FIM_PRE, "<|fim_prefix|>"},
    {TOK_FOR_FIM_PRE, "<fim-prefix>"},
    {TOK_FOR_FIM_PRE, "<fim_prefix>"},
    {TOK_FOR_FIM_PRE, "<\357\275\234fim\342\226\201begin\357\275\234>"},
    {TOK_FOR_FIM_PRE, "\342\226\201<PRE>"},
    {TOK_FOR_FIM_SUF, "<|fim_suffix|>"},
    {TOK_FOR_FIM_SUF, "<fim-suffix>"},
    {TOK_FOR_FIM_SUF, "<fim_suffix>"},
    {TOK_FOR_FIM_SUF, "<\357\275\234fim\342\226\201hole\357\275\234>"},
    {TOK_FOR_FIM_SUF, "\342\226\201<SUF>"},
    {TOK_FOR_FIM_MID, "<|fim_middle|>"},
    {TOK_FOR_FIM_MID, "<fim-middle>"},
    {TOK_FOR_FIM_MID, "<fim_middle>"},
    {TOK_FOR_FIM_MID, "<\357\275\234fim\342\226\201end\357\275\234>"},
    {TOK_FOR_FIM_MID, "\342\226\201<MID>"},
    {TOK_FOR_FIM_PAD, "<|fim_pad|>"},
    {TOK_FOR_FIM_PAD, "<fim-pad>"},
    {TOK_FOR_FIM_PAD, "<fim_pad>"},
    {TOK_FOR_FIM_REP, "<|fim_repo|>"},
    {TOK_FOR_FIM_REP, "<|repo_name|>"},
    {TOK_FOR_FIM_REP, "<reponame>"},
    {TOK_FOR_FIM_SEP, "<|file_sep|>"},
    {TOK_FOR_FIM_SEP, "<file_sep>"},
};

static void find_purposes(struct tok *t)
{
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        size_t n;
        const uint8_t *s = strings_at(&t->vocab.text, id, &n);
        if (n < 5 || n > 24 || s[n - 1] != '>')
            continue;
        for (size_t i = 0; i < sizeof usual_names / sizeof *usual_names; i++) {
            int32_t *to = &t->purpose[usual_names[i].purpose];
            if (*to < 0 && is((const char *)s, n, usual_names[i].text))
                *to = (int32_t)id;
        }
    }
}

/* An id beyond the vocabulary is a fault of many converters and means "none". */
static void load_purposes(struct tok *t, const struct gguf_file *g)
{
    for (int i = 0; i < TOK_N_PURPOSES; i++) {
        t->purpose[i] = -1;
        if (t->model == TOK_MODEL_SPM && i == TOK_FOR_BOS)
            t->purpose[i] = 1;
        if (t->model == TOK_MODEL_SPM && i == TOK_FOR_EOS)
            t->purpose[i] = 2;
        if (t->model == TOK_MODEL_SPM && i == TOK_FOR_UNKNOWN)
            t->purpose[i] = 0;
        uint32_t id;
        struct vt_err ignored;
        if (gguf_u32(g, purpose_key[i], &id, &ignored) == 0)
            t->purpose[i] = id < t->vocab.n ? (int32_t)id : -1;
        if (t->purpose[i] >= (int32_t)t->vocab.n)
            t->purpose[i] = -1;
    }
}

static int load_flags(struct tok *t, const struct gguf_file *g, struct vt_err *err)
{
    t->add_bos = t->model == TOK_MODEL_SPM || t->pre->add_bos;
    t->add_eos = false;
    t->add_space = t->model == TOK_MODEL_SPM;
    if (gguf_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, err) < 0 ||
        gguf_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, err) < 0)
        return -1;
    if (t->model == TOK_MODEL_SPM && gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->add_space, err) < 0)
        return -1;
    return 0;
}

/* The reference tokenizer of phi-3 drops white space behind special tokens. Files do not say so; their names do. */
static int load_strips(struct tok *t, const struct gguf_file *g, struct vt_err *err)
{
    static const char *const kept[] = {"<unk>", "<s>", "<|endoftext|>"};
    const char *name = "", *arch = "";
    size_t name_n = 0, arch_n = 0;
    if (gguf_str(g, "general.name", &name, &name_n, err) < 0 ||
        gguf_str(g, "general.architecture", &arch, &arch_n, err) < 0)
        return -1;
    bool phi3 = is(arch, arch_n, "phi3");
    for (size_t i = 0; i + 4 <= name_n && !phi3; i++)
        phi3 = strncasecmp(name + i, "phi3", 4) == 0 ||
               (i + 5 <= name_n && strncasecmp(name + i, "phi-3", 5) == 0);
    t->strips_right = phi3 && t->model == TOK_MODEL_SPM;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        t->keeps[i] = t->strips_right ? tok_find(t, kept[i], strlen(kept[i])) : -1;
    return 0;
}

static int load_eog(struct tok *t, struct vt_err *err)
{
    static const enum tok_purpose ends[] = {TOK_FOR_EOS,     TOK_FOR_EOT,     TOK_FOR_EOM,
                                            TOK_FOR_FIM_PAD, TOK_FOR_FIM_REP, TOK_FOR_FIM_SEP};
    /* where both of these exist, <|end|> closes a message inside an answer, not the answer */
    const bool harmony = tok_find(t, "<|return|>", 10) >= 0 && tok_find(t, "<|call|>", 8) >= 0;
    struct tok_ids ids = {0};
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        size_t n;
        const uint8_t *s = strings_at(&t->vocab.text, id, &n);
        bool end = vocab_is_end_text(s, n) && !(harmony && is((const char *)s, n, "<|end|>"));
        for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
            end |= t->purpose[ends[k]] == (int32_t)id;
        if (end && tok_ids_push(&ids, id, err)) {
            tok_ids_fini(&ids);
            return -1;
        }
    }
    t->eog = ids.ids;
    t->n_eog = ids.n;
    return 0;
}

static int load_chat_template(struct tok *t, const struct gguf_file *g, struct vt_err *err)
{
    const char *s;
    size_t n;
    const int found = gguf_str(g, "tokenizer.chat_template", &s, &n, err);
    if (found)
        return found < 0 ? -1 : 0;
    t->chat_template = malloc(n + 1);
    if (!t->chat_template)
        return vt_fail(err, VT_E_NOMEM, "no memory for a chat template of %zu bytes", n);
    if (n)
        memcpy(t->chat_template, s, n);
    t->chat_template[n] = 0;
    t->chat_template_len = n;
    return 0;
}

static int load_model(struct tok *t, const struct gguf_file *g, struct vt_err *err)
{
    const char *s = NULL;
    size_t n = 0;
    const int found = gguf_str(g, "tokenizer.ggml.model", &s, &n, err);
    if (found < 0)
        return -1;
    if (found > 0)
        return vt_fail(err, VT_E_PAYLOAD, "tokenizer.ggml.model is missing: the file has no tokenizer");
    if (is(s, n, "llama")) {
        t->model = TOK_MODEL_SPM;
        return 0;
    }
    if (!is(s, n, "gpt2"))
        return vt_fail(err, VT_E_PAYLOAD, "tokenizer.ggml.model '%.*s' is not supported; gpt2 and llama are",
                       n > 40 ? 40 : (int)n, s);
    t->model = TOK_MODEL_BPE;
    const char *pre = "";
    size_t pre_n = 0;
    if (gguf_str(g, "tokenizer.ggml.pre", &pre, &pre_n, err) < 0)
        return -1;
    t->pre = pretok_find(pre, pre_n);
    if (!t->pre)
        return vt_fail(err, VT_E_PAYLOAD, "tokenizer.ggml.pre '%.*s' is unknown; known are %s",
                       pre_n > 40 ? 40 : (int)pre_n, pre, pretok_names());
    return 0;
}

static int load(struct tok *t, const struct gguf_file *g, struct vt_sha256 *sha, struct vt_err *err)
{
    if (load_model(t, g, err) ||
        vocab_load(&t->vocab, g, t->model == TOK_MODEL_BPE ? VOCAB_BYTE_ALPHABET : VOCAB_LOWER_BLOCK, err))
        return -1;
    if (t->model == TOK_MODEL_BPE) {
        if (bpe_load(&t->bpe, &t->vocab, g, sha, err))
            return -1;
        t->bpe.ignore_merges = t->pre->ignore_merges;
    }
    load_purposes(t, g);
    find_purposes(t);
    const uint32_t unknown =
        t->purpose[TOK_FOR_UNKNOWN] < 0 ? VOCAB_NONE : (uint32_t)t->purpose[TOK_FOR_UNKNOWN];
    if (t->model == TOK_MODEL_SPM)
        spm_load(&t->spm, &t->vocab, unknown);
    else
        t->bpe.unknown = unknown;
    if (load_flags(t, g, err) || load_strips(t, g, err) || special_load(&t->special, &t->vocab, err) ||
        load_eog(t, err) || load_chat_template(t, g, err))
        return -1;
    const struct vocab *v = &t->vocab;
    vt_sha256_add(sha, &v->n, sizeof v->n);
    vt_sha256_add(sha, v->text.at, ((size_t)v->n + 1) * sizeof *v->text.at);
    vt_sha256_add(sha, v->text.data, v->text.at[v->n]);
    vt_sha256_add(sha, v->kind, v->n);
    if (v->score)
        vt_sha256_add(sha, v->score, v->n * sizeof *v->score);
    vt_sha256_add(sha, t->purpose, sizeof t->purpose);
    const uint8_t flags[4] = {(uint8_t)t->model, t->add_bos, t->add_eos, t->add_space};
    vt_sha256_add(sha, flags, sizeof flags);
    if (t->strips_right)
        vt_sha256_add(sha, "strips right", 12);
    if (t->pre)
        vt_sha256_add(sha, t->pre->name, strlen(t->pre->name));
    vt_sha256_end(sha, t->sha);
    return 0;
}

int tok_load(struct tok **out, const struct gguf_file *g, struct vt_err *err)
{
    *out = NULL;
    struct tok *t = calloc(1, sizeof *t);
    struct vt_sha256 *sha = vt_sha256_new();
    int rc = t && sha ? load(t, g, sha, err) : vt_fail(err, VT_E_NOMEM, "no memory for a tokenizer");
    vt_sha256_free(sha);
    if (rc) {
        tok_free(t);
        return -1;
    }
    *out = t;
    return 0;
}

void tok_free(struct tok *t)
{
    if (!t)
        return;
    special_fini(&t->special);
    bpe_fini(&t->bpe);
    vocab_fini(&t->vocab);
    free(t->eog);
    free(t->chat_template);
    free(t);
}

const uint8_t *tok_bytes(const struct tok *t, uint32_t id, size_t *len)
{
    *len = 0;
    return id < t->vocab.n ? strings_at(&t->vocab.bytes, id, len) : NULL;
}

const char *tok_text(const struct tok *t, uint32_t id, size_t *len)
{
    *len = 0;
    return id < t->vocab.n ? (const char *)strings_at(&t->vocab.text, id, len) : NULL;
}

enum tok_kind tok_kind(const struct tok *t, uint32_t id)
{
    return id < t->vocab.n ? (enum tok_kind)t->vocab.kind[id] : TOK_UNUSED;
}

uint32_t tok_n_vocab(const struct tok *t)
{
    return t->vocab.n;
}

int32_t tok_for(const struct tok *t, enum tok_purpose purpose)
{
    return t->purpose[purpose];
}

int32_t tok_bos(const struct tok *t)
{
    return t->purpose[TOK_FOR_BOS];
}

int32_t tok_eos(const struct tok *t)
{
    return t->purpose[TOK_FOR_EOS];
}

bool tok_adds_bos(const struct tok *t)
{
    return t->add_bos;
}

bool tok_adds_eos(const struct tok *t)
{
    return t->add_eos;
}

bool tok_adds_space(const struct tok *t)
{
    return t->add_space;
}

bool tok_is_eog(const struct tok *t, uint32_t id)
{
    for (size_t i = 0; i < t->n_eog; i++)
        if (t->eog[i] == id)
            return true;
    return false;
}

size_t tok_eog_ids(const struct tok *t, const uint32_t **ids)
{
    *ids = t->eog;
    return t->n_eog;
}

int32_t tok_find(const struct tok *t, const char *text, size_t len)
{
    if (len == 0 || len > 65536)
        return -1;
    for (uint32_t id = 0; id < t->vocab.n; id++) {
        size_t n;
        const uint8_t *s = strings_at(&t->vocab.text, id, &n);
        if (n == len && memcmp(s, text, n) == 0)
            return (int32_t)id;
    }
    return -1;
}

const char *tok_chat_template(const struct tok *t, size_t *len)
{
    *len = t->chat_template_len;
    return t->chat_template;
}

void tok_sha256(const struct tok *t, uint8_t out[32])
{
    memcpy(out, t->sha, 32);
}
