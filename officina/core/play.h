/* For tests of the core: a model with an open conversation, events put in by hand, effects looked at. */
#ifndef OFF_PLAY_H
#define OFF_PLAY_H

#include "core/core_priv.h"
#include "tools/tool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct play {
    struct model *m;
    struct effects fx; /* of all steps since play_clear() */
    uint64_t now;
    int64_t request;     /* of the newest FX_SEND */
    char *body, *before; /* its body, and the one before */
};

static inline void play_step(struct play *p, struct event e)
{
    struct effects fx = {0};
    e.at = p->now += 1000;
    if (e.text != NULL && e.len == 0)
        e.len = strlen(e.text);
    core_step(p->m, &e, &fx);
    for (size_t i = 0; i < fx.n; i++) {
        struct effect *to = effect_add(&p->fx, fx.v[i].kind, fx.v[i].id, fx.v[i].name, fx.v[i].text);
        to->n = fx.v[i].n;
        to->m = fx.v[i].m;
        to->has_bound = fx.v[i].has_bound;
        if (fx.v[i].kind != FX_SEND)
            continue;
        free(p->before);
        p->before = p->body;
        p->body = mem_dup(fx.v[i].text);
        p->request = fx.v[i].id;
    }
    effects_clear(&fx);
}

/* The newest effect of a kind, or NULL. */
static inline struct effect *play_find(struct play *p, enum effect_kind kind)
{
    for (size_t i = p->fx.n; i-- > 0;)
        if (p->fx.v[i].kind == kind)
            return &p->fx.v[i];
    return NULL;
}

static inline void play_clear(struct play *p)
{
    effects_clear(&p->fx);
}

static inline void play_open(struct play *p, const char *more)
{
    struct text t = {0};
    *p = (struct play){.m = model_new(), .now = 1000000};
    text_printf(
        &t,
        "{\"session\":\"s1\",\"root\":\"/p\",\"folder\":\"~/p\",\"tools\":\"[]\",\"opening\":\"Date: today\","
        "\"coupling\":{\"name\":\"lapis\",\"kind\":0}%s}",
        more);
    play_step(p, (struct event){.kind = EV_OPENED, .text = text_str(&t)});
    play_step(
        p, (struct event){
               .kind = EV_REPLY,
               .n = 200,
               .name = "/props",
               .text = "{\"n_ctx\":32768,\"total_slots\":1,\"model_alias\":\"m\",\"endpoint_slots\":true}"});
    text_free(&t);
}

static inline void play_end(struct play *p)
{
    effects_clear(&p->fx);
    model_free(p->m);
    free(p->body);
    free(p->before);
}

static inline void play_say(struct play *p, const char *text)
{
    play_step(p, (struct event){.kind = EV_SUBMIT, .text = text});
}

static inline void play_data(struct play *p, const char *json)
{
    play_step(p, (struct event){.kind = EV_STREAM_DATA, .id = p->request, .text = json});
}

/* A whole answer: text (or NULL) and calls as the JSON of one delta (or NULL). */
static inline void play_answer(struct play *p, const char *text, const char *calls)
{
    struct text t = {0};
    play_step(p, (struct event){.kind = EV_STREAM_OPEN, .id = p->request, .n = 200});
    if (text != NULL) {
        text_puts(&t, "{\"choices\":[{\"delta\":{\"content\":");
        js_quote(&t, text, strlen(text));
        text_puts(&t, "}}]}");
        play_data(p, text_str(&t));
    }
    if (calls != NULL) {
        text_clear(&t);
        text_printf(&t, "{\"choices\":[{\"delta\":{\"tool_calls\":%s}}]}", calls);
        play_data(p, text_str(&t));
    }
    text_clear(&t);
    text_printf(&t, "{\"choices\":[{\"delta\":{},\"finish_reason\":\"%s\"}]}",
                calls != NULL ? "tool_calls" : "stop");
    play_data(p, text_str(&t));
    play_data(p, "[DONE]");
    play_step(p, (struct event){.kind = EV_STREAM_END, .id = p->request, .n = 200});
    text_free(&t);
}

/* Lets the newest checked call run and end with a result. */
static inline void play_tool(struct play *p, enum tool_verdict verdict, const char *result)
{
    struct effect *f = play_find(p, FX_CHECK);
    assert_non_null(f);
    int64_t id = f->id;
    play_step(p, (struct event){
                     .kind = EV_TOOL_CHECKED, .id = id, .n = verdict, .m = TOOL_READS, .text = "because"});
    if (verdict == TOOL_ALLOW)
        play_step(p,
                  (struct event){
                      .kind = EV_TOOL_DONE, .id = id, .n = TOOL_OK, .text = result, .len = strlen(result)});
}

/* The messages array of a body: from its first message on, without the tail. */
static inline size_t play_messages(const char *body)
{
    const char *end = strstr(body, "],\"stream\":true");
    assert_non_null(end);
    return (size_t)(end - body);
}

/* Law 1: the newest request begins with the bytes of the one before. */
static inline void play_extends(struct play *p)
{
    size_t n = play_messages(p->before);
    assert_true(play_messages(p->body) >= n);
    assert_memory_equal(p->body, p->before, n);
}

/* Law 5: each call has one result, roles alternate as providers want it, arguments are objects. */
static inline void play_valid(const char *body)
{
    char why[200];
    json_t *o = js_parse(body, strlen(body), why, sizeof why);
    const json_t *list = json_object_get(o, "messages");
    size_t open = 0;
    const char *before = "";
    if (o == NULL)
        fail_msg("%s", why);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *msg = json_array_get(list, i);
        const char *role = js_str(msg, "role");
        assert_non_null(role);
        if (strcmp(role, "tool") == 0) {
            assert_true(open > 0);
            open--;
        } else {
            assert_int_equal(open, 0);
            assert_string_not_equal(role, before);
        }
        const json_t *calls = json_object_get(msg, "tool_calls");
        open += json_array_size(calls);
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const char *args = js_str(json_object_get(json_array_get(calls, k), "function"), "arguments");
            json_t *v = js_parse(args, strlen(args), NULL, 0);
            if (!json_is_object(v))
                fail_msg("arguments are no object: %s\n%s", args, body);
            json_decref(v);
        }
        before = role;
    }
    assert_int_equal(open, 0);
    json_decref(o);
}

#endif
