/* GET /slots and POST /slots/{id}?action=…: questions that only the engine can answer. */
#include "api.h"
#include "body.h"
#include "params.h"

#include "../stream/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { SLOT_SAVE = 1, SLOT_RESTORE = 2, SLOT_ERASE = 3 };

struct question {
    struct gateway *gw;
    struct http_req *r;
    uint32_t slot;
    unsigned verb;
    bool fail_busy;
    char name[256];
};

static void on_gone(void *arg)
{
    struct question *q = arg;
    router_forget(&q->gw->router, q);
    free(q);
}

static struct question *question_new(struct gateway *gw, struct http_req *r)
{
    struct question *q = calloc(1, sizeof *q);
    if (!q) {
        api_reply_json(r, 500, NULL);
        return NULL;
    }
    q->gw = gw;
    q->r = r;
    return q;
}

static void claim(struct question *q)
{
    const struct http_claim c = {.gone = on_gone, .arg = q};
    http_claim(q->r, &c);
}

/* ---- the list ---- */

static json_t *slot_object(const struct gateway *gw, const msgpack_object_array *row, bool *busy)
{
    uint64_t state = vt_array_u64(row, 1, 0);
    uint64_t prompt = vt_array_u64(row, 6, 0), reused = vt_array_u64(row, 3, 0);
    json_int_t decoded = (json_int_t)vt_array_u64(row, 7, 0), left = (json_int_t)vt_array_u64(row, 8, 0);
    *busy = state != 0;
    json_t *o = json_pack("{s:I, s:I, s:b, s:b, s:I, s:I}", "id", (json_int_t)vt_array_u64(row, 0, 0),
                          "n_ctx", (json_int_t)router_window(&gw->router), "speculative",
                          vt_array_u64(row, 9, 0) > 0, "is_processing", *busy, "state",
                          (json_int_t)(*busy ? 1 : 0), "n_tokens", (json_int_t)vt_array_u64(row, 2, 0));
    if (prompt == 0)
        return o;
    json_object_set_new(o, "n_prompt_tokens", json_integer((json_int_t)prompt));
    json_object_set_new(o, "n_prompt_tokens_processed",
                        json_integer((json_int_t)(prompt > reused ? prompt - reused : 0)));
    json_object_set_new(o, "n_prompt_tokens_cache", json_integer((json_int_t)reused));
    if (vt_array_u64(row, 9, 0) > 0) {
        json_object_set_new(o, "draft_n", json_integer((json_int_t)vt_array_u64(row, 9, 0)));
        json_object_set_new(o, "draft_n_accepted", json_integer((json_int_t)vt_array_u64(row, 10, 0)));
    }
    json_object_set_new(
        o, "next_token",
        json_pack("[{s:b, s:I, s:I}]", "has_next_token", *busy, "n_decoded", decoded, "n_remain", left));
    return o;
}

static void on_slots(void *arg, const struct vt_frame *f, const struct api_err *err)
{
    struct question *q = arg;
    if (err) {
        api_error_reply(q->r, err);
        free(q);
        return;
    }
    const msgpack_object_array *list = vt_frame_array(f, VT_SLOTS_LIST);
    json_t *out = json_array();
    bool idle = false;
    for (unsigned i = 0; list && i < list->size; i++) {
        const msgpack_object_array *row = vt_array_array(list, i);
        bool busy = true;
        if (row)
            json_array_append_new(out, slot_object(q->gw, row, &busy));
        idle |= !busy;
    }
    if (q->fail_busy && !idle) {
        struct api_err e;
        json_decref(out);
        api_fail(&e, 503, NULL, "no slot available");
        api_error_reply(q->r, &e);
    } else {
        api_reply_json(q->r, 200, out);
    }
    free(q);
}

void api_slots(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    struct question *q = question_new(gw, r);
    if (!q)
        return;
    q->fail_busy = http_query(r, "fail_on_no_slot") != NULL;
    const struct router_ask ask = {on_slots, q};
    if (router_slots(&gw->router, &ask, &e)) {
        api_error_reply(r, &e);
        free(q);
        return;
    }
    claim(q);
}

/* ---- actions ---- */

/* A name inside the store, never a path. */
static bool good_name(const char *s, size_t n)
{
    if (n == 0 || n > 255 || !utf8_whole(s, n) || strstr(s, "..") || s[0] == ' ' || s[n - 1] == ' ' ||
        s[n - 1] == '.')
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f || strchr("/\\:*?\"<>|", s[i]))
            return false;
    return true;
}

static void on_op(void *arg, const struct vt_frame *f, const struct api_err *err)
{
    struct question *q = arg;
    if (!err && !vt_frame_u64(f, VT_SLOT_OP_DONE_OK, 0)) {
        struct vt_err why = {.code = (int)vt_frame_u64(f, VT_KEY_CODE, VT_E_INTERNAL)};
        struct api_err e;
        vt_frame_str(f, VT_KEY_TEXT, why.text, sizeof why.text);
        api_from_err(&e, &why, 0);
        if (why.code == VT_E_NOT_FOUND)
            snprintf(e.param, sizeof e.param, "filename");
        if (why.code == VT_E_UNAVAILABLE || why.code == VT_E_CAPABILITY)
            api_fail(&e, 501, NULL, "%s", why.text);
        api_error_reply(q->r, &e);
    } else if (err) {
        api_error_reply(q->r, err);
    } else {
        json_int_t tokens = (json_int_t)vt_frame_u64(f, VT_SLOT_OP_DONE_TOKENS, 0);
        json_int_t bytes = (json_int_t)vt_frame_u64(f, VT_SLOT_OP_DONE_BYTES, 0);
        double ms = (double)vt_frame_u64(f, VT_SLOT_OP_DONE_US, 0) / 1000;
        json_t *o = json_pack("{s:I}", "id_slot", (json_int_t)q->slot);
        if (q->verb == SLOT_ERASE) {
            json_object_set_new(o, "n_erased", json_integer(tokens));
        } else {
            bool save = q->verb == SLOT_SAVE;
            json_object_set_new(o, "filename", json_string(q->name));
            json_object_set_new(o, save ? "n_saved" : "n_restored", json_integer(tokens));
            json_object_set_new(o, save ? "n_written" : "n_read", json_integer(bytes));
            json_object_set_new(o, "timings", json_pack("{s:f}", save ? "save_ms" : "restore_ms", ms));
        }
        api_reply_json(q->r, 200, o);
    }
    free(q);
}

static int parse_action(struct gateway *gw, struct question *q, const char *id, struct api_err *e)
{
    char *end;
    unsigned long slot = strtoul(id, &end, 10);
    const char *action = http_query(q->r, "action");
    if (!isdigit((unsigned char)*id) || *end)
        return api_fail(e, 400, "id_slot", "Invalid slot ID");
    if (slot >= router_n_slots(&gw->router))
        return api_fail(e, 400, "id_slot", "Invalid slot ID: there are slots 0 to %u",
                        router_n_slots(&gw->router) - 1);
    q->slot = (uint32_t)slot;
    q->verb = !action                          ? 0
              : strcmp(action, "save") == 0    ? SLOT_SAVE
              : strcmp(action, "restore") == 0 ? SLOT_RESTORE
              : strcmp(action, "erase") == 0   ? SLOT_ERASE
                                               : 0;
    return q->verb ? 0 : api_fail(e, 400, "action", "Invalid action");
}

static int parse_name(struct question *q, struct api_err *e)
{
    size_t n;
    const char *text = http_body(q->r, &n);
    json_t *body = body_parse(text, n, e);
    const json_t *name = body ? field(body, "filename") : NULL;
    int r = 0;
    if (!body)
        return -1;
    if (!name)
        r = api_fail(e, 400, "filename", "Field 'filename': is required");
    else if (!json_is_string(name) || strlen(json_string_value(name)) != json_string_length(name) ||
             !good_name(json_string_value(name), json_string_length(name)))
        r = api_fail(e, 400, "filename", "Invalid filename");
    else
        snprintf(q->name, sizeof q->name, "%s", json_string_value(name));
    json_decref(body);
    return r;
}

void api_slot_action(struct gateway *gw, struct http_req *r, const char *id)
{
    struct api_err e;
    struct question *q = question_new(gw, r);
    if (!q)
        return;
    const struct router_ask ask = {on_op, q};
    if (parse_action(gw, q, id, &e) || (q->verb != SLOT_ERASE && parse_name(q, &e)) ||
        router_slot_op(&gw->router, q->slot, q->verb, q->verb == SLOT_ERASE ? NULL : q->name, &ask, &e)) {
        api_error_reply(r, &e);
        free(q);
        return;
    }
    claim(q);
}
