/* POST /tokenize and /detokenize: answered from the tokenizer alone. */
#include "api.h"
#include "body.h"

#include "../stream/utf8.h"

#include <stdlib.h>

enum { MAX_TEXT = 16 << 20 };

static json_t *piece(const struct gateway *gw, uint32_t id)
{
    size_t n = 0;
    const uint8_t *p = tok_bytes(gw->model.tok, id, &n);
    if (p && utf8_whole(p, n))
        return json_stringn((const char *)p, n);
    json_t *list = json_array();
    for (size_t i = 0; p && i < n; i++)
        json_array_append_new(list, json_integer(p[i]));
    return list;
}

static int encode(struct gateway *gw, const json_t *v, unsigned flags, struct tok_ids *ids, struct api_err *e)
{
    size_t i;
    json_t *item;
    struct vt_err err;
    if (json_is_string(v)) {
        if (json_string_length(v) > MAX_TEXT)
            return api_fail(e, 400, "content", "Field 'content': longer than %d MiB", MAX_TEXT >> 20);
        if (tok_encode(gw->model.tok, json_string_value(v), json_string_length(v), flags, ids, &err) == 0)
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
            if (json_integer_value(item) < 0 || json_integer_value(item) >= tok_n_vocab(gw->model.tok))
                return api_fail(e, 400, "content", "Field 'content': %lld is not a token id",
                                (long long)json_integer_value(item));
            if (tok_ids_push(ids, (uint32_t)json_integer_value(item), NULL))
                return api_fail(e, 500, NULL, "out of memory");
        } else if (!json_is_string(item)) {
            return api_fail(e, 400, "content",
                            "Field 'content': must be a string, or an array of strings and token ids");
        } else if (encode(gw, item, i == 0 ? flags : flags & ~(unsigned)TOK_ADD_SPECIAL, ids, e)) {
            return -1;
        }
    }
    return 0;
}

void api_tokenize(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    struct tok_ids ids = {0};
    bool add = false, parse = true, pieces = false;
    json_t *body = body_read(r);
    if (!body)
        return;
    const json_t *content = field(body, "content");
    int bad = field_bool(body, "add_special", &add, &e) < 0 ||
              field_bool(body, "parse_special", &parse, &e) < 0 ||
              field_bool(body, "with_pieces", &pieces, &e) < 0;
    unsigned flags = (add ? TOK_ADD_SPECIAL : 0) | (parse ? TOK_PARSE_SPECIAL : 0);
    if (bad || (content && encode(gw, content, flags, &ids, &e))) {
        api_error_reply(r, &e);
    } else {
        json_t *list = json_array();
        for (size_t i = 0; i < ids.n; i++)
            json_array_append_new(list, pieces ? json_pack("{s:I, s:o}", "id", (json_int_t)ids.ids[i],
                                                           "piece", piece(gw, ids.ids[i]))
                                               : json_integer(ids.ids[i]));
        api_reply_json(r, 200, json_pack("{s:o}", "tokens", list));
    }
    tok_ids_fini(&ids);
    json_decref(body);
}

static int read_ids(const struct gateway *gw, const json_t *list, struct tok_ids *ids, struct api_err *e)
{
    size_t i;
    json_t *v;
    if (list && !json_is_array(list))
        return api_fail(e, 400, "tokens", "Field 'tokens': must be an array of token ids");
    json_array_foreach(list, i, v)
    {
        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= tok_n_vocab(gw->model.tok))
            return api_fail(e, 400, "tokens", "Field 'tokens': entry %zu is not a token id (0 to %u)", i,
                            tok_n_vocab(gw->model.tok) - 1);
        if (tok_ids_push(ids, (uint32_t)json_integer_value(v), NULL))
            return api_fail(e, 500, NULL, "out of memory");
    }
    return 0;
}

void api_detokenize(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    struct tok_ids ids = {0};
    json_t *body = body_read(r);
    if (!body)
        return;
    if (read_ids(gw, field(body, "tokens"), &ids, &e)) {
        api_error_reply(r, &e);
    } else {
        struct buf text = {0};
        body_text_of(gw, ids.ids, ids.n, &text);
        api_reply_json(
            r, 200,
            text.failed ? NULL : json_pack("{s:o}", "content", json_stringn(text.p ? text.p : "", text.n)));
        buf_fini(&text);
    }
    tok_ids_fini(&ids);
    json_decref(body);
}
