#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void copy(char *out, size_t size, const char *s, size_t n)
{
    if (n >= size)
        n = size - 1;
    memcpy(out, s, n);
    out[n] = '\0';
}

static void file_name(char *out, size_t size, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t n = strlen(base);
    if (n > 5 && strcmp(base + n - 5, ".gguf") == 0)
        n -= 5;
    copy(out, size, base, n);
}

static const char *const ftypes[] = {
    [0] = "all F32",        [1] = "F16",
    [2] = "Q4_0",           [3] = "Q4_1",
    [7] = "Q8_0",           [8] = "Q5_0",
    [9] = "Q5_1",           [10] = "Q2_K - Medium",
    [11] = "Q3_K - Small",  [12] = "Q3_K - Medium",
    [13] = "Q3_K - Large",  [14] = "Q4_K - Small",
    [15] = "Q4_K - Medium", [16] = "Q5_K - Small",
    [17] = "Q5_K - Medium", [18] = "Q6_K",
    [32] = "BF16",
};

static void text_of(const struct gguf_file *g, const char *key, char *out, size_t size)
{
    const char *s;
    size_t n;
    if (gguf_str(g, key, &s, &n, NULL) == 0)
        copy(out, size, s, n);
}

static uint64_t number_of(const struct gguf_file *g, const char *arch, const char *key)
{
    char full[128];
    uint64_t v = 0;
    snprintf(full, sizeof full, "%s.%s", arch, key);
    gguf_u64(g, full, &v, NULL);
    return v;
}

static void read_facts(struct model *m, const struct gguf_file *g)
{
    uint32_t ft;
    text_of(g, "general.name", m->name, sizeof m->name);
    text_of(g, "general.architecture", m->arch, sizeof m->arch);
    text_of(g, "tokenizer.ggml.model", m->vocab, sizeof m->vocab);
    if (gguf_u32(g, "general.file_type", &ft, NULL) == 0 && ft < sizeof ftypes / sizeof ftypes[0] &&
        ftypes[ft])
        snprintf(m->ftype, sizeof m->ftype, "%s", ftypes[ft]);
    m->n_ctx_train = number_of(g, m->arch, "context_length");
    m->n_embd = number_of(g, m->arch, "embedding_length");
    m->pooling = number_of(g, m->arch, "pooling_type");
    m->bytes = gguf_total_bytes(g);
    for (uint64_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        m->n_params += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    }
}

static int read_template(struct model *m, struct vt_err *err)
{
    size_t n;
    struct vt_err why;
    const char *s = tok_chat_template(m->tok, &n);
    if (!s)
        return 0;
    m->tmpl_text = strndup(s, n);
    if (!m->tmpl_text)
        return vt_fail(err, VT_E_NOMEM, "model: out of memory");
    /* A template that we cannot read costs chat, not the plain endpoints. */
    if (jinja_parse(&m->tmpl, s, n, &why))
        snprintf(m->tmpl_error, sizeof m->tmpl_error, "%.255s", why.text);
    else
        template_caps_find(m->tmpl, s, n, &m->caps);
    return 0;
}

static void add_mark(const struct model *m, const char *text, struct model_marks *marks)
{
    const int32_t id = tok_find(m->tok, text, strlen(text));
    if (id >= 0 && tok_kind(m->tok, (uint32_t)id) == TOK_CONTROL && marks->n < DIALECT_TOKENS)
        marks->id[marks->n++] = id;
}

static void find_marks(struct model *m)
{
    static const char python[] = "<|python_tag|>";
    const size_t n = m->tmpl_text ? strlen(m->tmpl_text) : 0;
    const char *marks[DIALECT_TOKENS + 1];
    m->dialect =
        dialect_find(m->tmpl_text, n, m->caps.tools, tok_find(m->tok, python, sizeof python - 1) >= 0);
    m->think = think_marks_find(m->tmpl_text, n);
    dialect_tokens(m->dialect, marks);
    for (size_t i = 0; marks[i]; i++) {
        add_mark(m, marks[i], &m->call_ids);
        if (m->dialect->body == BODY_HARMONY) /* without them nobody knows what are thoughts */
            add_mark(m, marks[i], &m->think_ids);
    }
    /* the mark may be a token with a word behind it: <|channel>thought */
    static const char *const tokens[] = {"<|channel>", "<channel|>"};
    add_mark(m, m->think->open, &m->think_ids);
    add_mark(m, m->think->close, &m->think_ids);
    for (size_t i = 0; i < 2 && strcmp(m->think->close, tokens[1]) == 0; i++)
        add_mark(m, tokens[i], &m->think_ids);
}

int model_load(struct model *m, const char *path, const char *alias, struct vt_err *err)
{
    struct gguf_file *g;
    *m = (struct model){.created = time(NULL)};
    if (!*path)
        return vt_fail(err, VT_E_CONFIG,
                       "model.path is empty: the gateway needs the file for its tokenizer and template");
    snprintf(m->path, sizeof m->path, "%s", path);
    file_name(m->name, sizeof m->name, path);
    if (*alias)
        snprintf(m->alias, sizeof m->alias, "%s", alias);
    else
        file_name(m->alias, sizeof m->alias, path);
    if (gguf_open(&g, path, true, err))
        return -1;
    gguf_key(g, m->file);
    read_facts(m, g);
    int r = tok_load(&m->tok, g, err);
    gguf_close(g);
    if (r == 0)
        r = read_template(m, err);
    if (r == 0)
        find_marks(m);
    if (r) {
        tok_free(m->tok);
        m->tok = NULL;
        return -1;
    }
    for (uint32_t i = 0; i < tok_n_vocab(m->tok); i++) {
        size_t len = 0;
        tok_bytes(m->tok, i, &len);
        m->longest_token = len > m->longest_token ? len : m->longest_token;
    }
    return 0;
}

void model_fini(struct model *m)
{
    jinja_free(m->tmpl);
    tok_free(m->tok);
    free(m->tmpl_text);
    *m = (struct model){0};
}

const uint8_t *model_piece(const struct model *m, uint32_t id, size_t *len)
{
    *len = 0;
    if (tok_is_eog(m->tok, id) || tok_kind(m->tok, id) == TOK_CONTROL)
        return NULL;
    return tok_bytes(m->tok, id, len);
}

static bool holds(const struct model_marks *marks, uint32_t id)
{
    for (unsigned i = 0; i < marks->n; i++)
        if ((uint32_t)marks->id[i] == id)
            return true;
    return false;
}

const uint8_t *model_mark(const struct model *m, uint32_t id, bool think, bool calls, size_t *len)
{
    *len = 0;
    if ((!think || !holds(&m->think_ids, id)) && (!calls || !holds(&m->call_ids, id)))
        return NULL;
    return tok_bytes(m->tok, id, len);
}
