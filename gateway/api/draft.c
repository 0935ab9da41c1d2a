#include "draft.h"

#include <stdlib.h>
#include <string.h>

static int tokenize(void *arg, const char *text, size_t n, uint32_t **ids, size_t *n_ids)
{
    const struct model *m = arg;
    struct tok_ids v = {0};
    if (tok_encode(m->tok, text, n, TOK_PARSE_SPECIAL, &v, NULL)) {
        tok_ids_fini(&v);
        return -1;
    }
    *ids = v.ids;
    *n_ids = v.n;
    return 0;
}

int draft_converted(struct draft *d, json_t *(*convert)(const json_t *body, struct api_err *e), draft_fn as,
                    struct api_err *e)
{
    const json_t *given = d->body;
    json_t *body = convert(given, e);
    if (!body)
        return -1;
    d->body = body;
    int r = as(d, e);
    d->body = given;
    json_decref(body);
    return r;
}

int draft_params(struct draft *d, struct api_err *e)
{
    const struct params_env env = {.n_vocab = tok_n_vocab(d->model->tok),
                                   .slots = d->slots,
                                   .tokenize = tokenize,
                                   .arg = (void *)d->model};
    return params_parse(&d->p, d->body, &env, e);
}

/* A text that cannot fit is not worth tokenizing just to say by how much, unless that is quick; then the count is exact. */
enum { TOKENIZE_ANYHOW = 1 << 20 };

int draft_too_long(const struct draft *d, size_t n, const char *param, struct api_err *e)
{
    uint64_t window = d->window;
    size_t longest = d->model->longest_token ? d->model->longest_token : 1;
    if (n / longest < window || n < TOKENIZE_ANYHOW)
        return 0;
    return api_fail_window(e, param, (int64_t)(n / longest), (int64_t)window);
}

static int encode(const struct draft *d, const char *text, size_t n, unsigned flags, const char *param,
                  struct answer_prompt *out, struct api_err *e)
{
    struct tok_ids v = {0};
    struct vt_err err;
    if (draft_too_long(d, n, param, e))
        return -1;
    if (tok_encode(d->model->tok, text, n, flags, &v, &err)) {
        tok_ids_fini(&v);
        api_from_err(e, &err, 0);
        return -1;
    }
    out->ids = v.ids;
    out->n = v.n;
    return 0;
}

static int add_id(const json_t *v, const char *param, struct tok_ids *ids, struct api_err *e)
{
    json_int_t id = json_integer_value(v);
    if (id < 0 || id > UINT32_MAX)
        return api_fail(e, 400, param, "Field '%s': %lld is not a token id", param, (long long)id);
    return tok_ids_push(ids, (uint32_t)id, NULL) ? api_fail(e, 500, NULL, "out of memory") : 0;
}

/* An array of ids and strings in any mixture: special tokens are added in front of a string that comes first only. */
static int encode_mixed(const struct draft *d, const json_t *list, const char *param,
                        struct answer_prompt *out, struct api_err *e)
{
    struct tok_ids ids = {0};
    size_t i;
    json_t *v;
    int r = 0;
    json_array_foreach(list, i, v)
    {
        if (json_is_integer(v)) {
            r = add_id(v, param, &ids, e);
        } else if (json_is_string(v)) {
            struct vt_err err;
            r = draft_too_long(d, json_string_length(v), param, e);
            if (r == 0 && tok_encode(d->model->tok, json_string_value(v), json_string_length(v),
                                     TOK_PARSE_SPECIAL | (i == 0 ? TOK_ADD_SPECIAL : 0), &ids, &err)) {
                api_from_err(e, &err, 0);
                r = -1;
            }
        } else {
            r = api_fail(e, 400, param, "Field '%s': an array must hold strings and token ids", param);
        }
        if (r)
            break;
    }
    if (r) {
        tok_ids_fini(&ids);
        return -1;
    }
    out->ids = ids.ids;
    out->n = ids.n;
    return 0;
}

static int one_prompt(const struct draft *d, const json_t *v, const char *param, bool want_text,
                      struct answer_prompt *out, struct api_err *e)
{
    int r;
    if (json_is_object(v)) {
        if (field(v, "multimodal_data") && json_array_size(field(v, "multimodal_data")) > 0)
            return api_fail(e, 400, param, "image input is not supported");
        v = field(v, "prompt_string");
        if (!json_is_string(v))
            return api_fail(e, 400, param, "Field '%s': prompt_string must be a string", param);
    }
    if (json_is_string(v))
        r = encode(d, json_string_value(v), json_string_length(v), TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, param,
                   out, e);
    else if (json_is_array(v))
        r = encode_mixed(d, v, param, out, e);
    else
        r = api_fail(e, 400, param,
                     "Field '%s': must be a string, an array of token ids, or an array of prompts", param);
    if (r || !want_text)
        return r;
    struct buf text = {0};
    if (json_is_string(v))
        buf_add(&text, json_string_value(v), json_string_length(v));
    else
        model_text(d->model, out->ids, out->n, &text);
    out->text = buf_take(&text, &out->text_n);
    return out->text ? 0 : api_fail(e, 500, NULL, "out of memory");
}

/* [1,2,"x"] is one prompt; ["a","b"], [[1],[2]] and [{…}] are several. */
static bool is_list_of_prompts(const json_t *v)
{
    size_t i;
    json_t *item;
    bool strings = true;
    if (!json_is_array(v))
        return false;
    json_array_foreach(v, i, item)
    {
        if (json_is_array(item) || json_is_object(item))
            return true;
        strings &= json_is_string(item);
    }
    return strings && json_array_size(v) > 0;
}

int draft_prompts(struct draft *d, const char *param, bool want_text, unsigned most, struct api_err *e)
{
    const json_t *prompt = field(d->body, param);
    bool many = is_list_of_prompts(prompt);
    size_t count = many ? json_array_size(prompt) : 1;
    if (!prompt)
        return api_fail(e, 400, param, "Field '%s': is required", param);
    if (count > most)
        return api_fail(e, 400, param, "Field '%s': at most %u prompts in one request", param, most);
    d->prompts = calloc(count, sizeof *d->prompts);
    if (!d->prompts)
        return api_fail(e, 500, NULL, "out of memory");
    for (; d->n_prompts < count; d->n_prompts++) {
        struct answer_prompt *p = &d->prompts[d->n_prompts];
        if (one_prompt(d, many ? json_array_get(prompt, d->n_prompts) : prompt, param, want_text, p, e)) {
            free(p->ids);
            return -1;
        }
    }
    return 0;
}

void draft_fini(struct draft *d)
{
    for (unsigned i = 0; i < d->n_prompts; i++) {
        free(d->prompts[i].ids);
        free(d->prompts[i].text);
    }
    free(d->prompts);
    params_fini(&d->p);
    json_decref(d->o.extra);
    json_decref(d->o.tool_list);
    json_decref(d->reply);
    *d = (struct draft){0};
}

void model_text(const struct model *m, const uint32_t *ids, size_t n, struct buf *out)
{
    struct utf8_hold h = {0};
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        const uint8_t *p = tok_bytes(m->tok, ids[i], &len);
        if (p)
            utf8_feed(&h, p, len, out);
    }
    utf8_flush(&h, out);
}
