/* POST /tokenize and /detokenize: answered from the tokenizer alone. */
#include "api.h"
#include "scribe.h"

#include "../stream/utf8.h"

#include <stdlib.h>

enum { MAX_TEXT = 8 << 20 /* bytes: the answer takes fifty times as much memory */ };

static json_t *piece(const struct model *m, uint32_t id)
{
    size_t n = 0;
    const uint8_t *p = tok_bytes(m->tok, id, &n);
    if (p && utf8_whole(p, n))
        return json_stringn((const char *)p, n);
    json_t *list = json_array();
    for (size_t i = 0; p && i < n; i++)
        json_array_append_new(list, json_integer(p[i]));
    return list;
}

static int encode(const struct model *m, const json_t *v, unsigned flags, struct tok_ids *ids,
                  struct api_err *e)
{
    size_t i;
    json_t *item;
    struct vt_err err;
    if (json_is_string(v)) {
        if (json_string_length(v) > MAX_TEXT)
            return api_fail(e, 400, "content", "Field 'content': longer than %d MiB", MAX_TEXT >> 20);
        if (tok_encode(m->tok, json_string_value(v), json_string_length(v), flags, ids, &err) == 0)
            return 0;
        api_from_err(e, &err, 0);
        return -1;
    }
    if (!json_is_array(v))
        return api_fail(e, 400, "content",
                        "Field 'content': must be a string, or an array of strings and token ids");
    json_array_foreach(v, i, item)
    {
        if (json_is_integer(item)) {
            if (json_integer_value(item) < 0 || json_integer_value(item) >= tok_n_vocab(m->tok))
                return api_fail(e, 400, "content", "Field 'content': %lld is not a token id",
                                (long long)json_integer_value(item));
            if (tok_ids_push(ids, (uint32_t)json_integer_value(item), NULL))
                return api_fail(e, 500, NULL, "out of memory");
        } else if (!json_is_string(item)) {
            return api_fail(e, 400, "content",
                            "Field 'content': must be a string, or an array of strings and token ids");
        } else if (encode(m, item, i == 0 ? flags : flags & ~(unsigned)TOK_ADD_SPECIAL, ids, e)) {
            return -1;
        }
    }
    return 0;
}

static int draft_tokens(struct draft *d, struct api_err *e)
{
    struct tok_ids ids = {0};
    bool add = false, parse = true, pieces = false;
    const json_t *content = field(d->body, "content");
    if (field_bool(d->body, "add_special", &add, e) < 0 ||
        field_bool(d->body, "parse_special", &parse, e) < 0 ||
        field_bool(d->body, "with_pieces", &pieces, e) < 0)
        return -1;
    unsigned flags = (add ? TOK_ADD_SPECIAL : 0) | (parse ? TOK_PARSE_SPECIAL : 0);
    if (content && encode(d->model, content, flags, &ids, e)) {
        tok_ids_fini(&ids);
        return -1;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < ids.n; i++)
        json_array_append_new(list, pieces ? json_pack("{s:I, s:o}", "id", (json_int_t)ids.ids[i], "piece",
                                                       piece(d->model, ids.ids[i]))
                                           : json_integer(ids.ids[i]));
    bool whole = json_array_size(list) == ids.n;
    tok_ids_fini(&ids);
    if (!whole) {
        json_decref(list);
        return api_fail(e, 500, NULL, "out of memory");
    }
    d->reply = json_pack("{s:o}", "tokens", list);
    return d->reply ? 0 : api_fail(e, 500, NULL, "out of memory");
}

void api_tokenize(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_tokens, NULL);
}

static int read_ids(const struct model *m, const json_t *list, struct tok_ids *ids, struct api_err *e)
{
    size_t i;
    json_t *v;
    if (list && !json_is_array(list))
        return api_fail(e, 400, "tokens", "Field 'tokens': must be an array of token ids");
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= tok_n_vocab(m->tok))
            return api_fail(e, 400, "tokens", "Field 'tokens': entry %zu is not a token id (0 to %u)", i,
                            tok_n_vocab(m->tok) - 1);
        if (tok_ids_push(ids, (uint32_t)json_integer_value(v), NULL))
            return api_fail(e, 500, NULL, "out of memory");
    }
    return 0;
}

static int draft_text(struct draft *d, struct api_err *e)
{
    struct tok_ids ids = {0};
    struct buf text = {0};
    int r = read_ids(d->model, field(d->body, "tokens"), &ids, e);
    if (r == 0) {
        model_text(d->model, ids.ids, ids.n, &text);
        if (!text.failed)
            d->reply = json_pack("{s:o}", "content", json_stringn(text.p ? text.p : "", text.n));
        if (!d->reply)
            r = api_fail(e, 500, NULL, "out of memory");
    }
    buf_fini(&text);
    tok_ids_fini(&ids);
    return r;
}

void api_detokenize(struct gateway *gw, struct http_req *r)
{
    scribe_take(gw, r, draft_text, NULL);
}
