/* GET /health, /v1/models, /props: what is served, from the gateway's own knowledge; no engine is asked. */
#include "api.h"
#include "params.h"

#include "../telemetry.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct engine *any_engine(const struct gateway *gw)
{
    const struct engine *e = router_ready(&gw->router);
    return e ? e : gw->router.n_engines > 0 ? &gw->router.engines[0] : NULL;
}

/* What a client that waits wants to know: is this a start, a planned restart or an end? */
static const char *health_state(const struct gateway *gw)
{
    if (gw->draining || gw->router.stopping)
        return "draining";
    if (gw->router.hold)
        return "bouncing";
    return router_ready(&gw->router) ? "ok" : "loading";
}

void api_health(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    const struct engine *en = router_ready(&gw->router);
    unsigned held;
    uint64_t oldest;
    if (!en || gw->draining || gw->router.stopping) {
        router_unavailable(&gw->router, &e);
        e.state = health_state(gw);
        e.eta = strcmp(e.state, "bouncing") == 0 && e.retry_ms > 0;
        api_error_reply(r, &e);
        return;
    }
    unsigned open = router_open_jobs(&gw->router, &held, &oldest);
    uint32_t slots = router_n_slots(&gw->router), busy = open < slots ? open : slots;
    if (http_query(r, "fail_on_no_slot") && busy == slots) {
        api_fail(&e, 503, NULL, "no slot available");
        api_error_reply(r, &e);
        return;
    }
    char boot[64];
    snprintf(boot, sizeof boot, "%d.%llu", (int)getppid(), (unsigned long long)en->gen);
    api_reply_json(r, 200,
                   json_pack("{s:s, s:s, s:s, s:s, s:i, s:s, s:I, s:s, s:s, s:i, s:i}", "status", "ok",
                             "state", health_state(gw), "boot_id", boot, "instance", gw->instance, "pid",
                             (int)getppid(), "engine", en->name, "generation", (json_int_t)en->gen,
                             "fingerprint", en->fp, "model", gw->model.alias, "slots_idle",
                             (int)(slots - busy), "slots_processing", (int)busy));
}

static const char *status_value(const struct gateway *gw)
{
    const struct engine *e = any_engine(gw);
    if (router_ready(&gw->router))
        return "loaded";
    return !e || e->state == VT_CHILD_DOWN || e->state == VT_CHILD_FAILED ? "unloaded" : "loading";
}

static json_t *status(const struct gateway *gw)
{
    const struct engine *e = any_engine(gw);
    json_t *s = json_pack("{s:s}", "value", status_value(gw));
    if (e && e->state == VT_CHILD_FAILED)
        json_object_set_new(s, "failed", json_true());
    if (e && e->state == VT_CHILD_LOADING)
        json_object_set_new(s, "progress", json_real((double)e->permille / 1000));
    return s;
}

static int vocab_type(const struct model *m)
{
    return strcmp(m->vocab, "llama") == 0 ? 1 : strcmp(m->vocab, "gpt2") == 0 ? 2 : 0;
}

static json_t *entry(const struct gateway *gw)
{
    const struct model *m = &gw->model;
    json_int_t window = router_window(&gw->router);
    json_t *meta = !m->tok ? json_null()
                           : json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:s}", "vocab_type",
                                       vocab_type(m), "n_vocab", (json_int_t)tok_n_vocab(m->tok), "n_ctx",
                                       window, "n_ctx_train", (json_int_t)m->n_ctx_train, "n_embd",
                                       (json_int_t)m->n_embd, "n_params", (json_int_t)m->n_params, "size",
                                       (json_int_t)m->bytes, "ftype", m->ftype, "architecture", m->arch);
    return json_pack("{s:s, s:s, s:I, s:s, s:[], s:[], s:I, s:I, s:{s:[s], s:[s]}, s:o, s:o}", "id", m->alias,
                     "object", "model", "created", (json_int_t)(vt_wall(&gw->clock) / 1000000), "owned_by",
                     "llamacpp", "aliases", "tags", "max_model_len", window, "context_length", window,
                     "architecture", "input_modalities", "text", "output_modalities", "text", "meta", meta,
                     "status", status(gw));
}

void api_models(struct gateway *gw, struct http_req *r)
{
    const char *name = gw->model.alias;
    api_reply_json(r, 200,
                   json_pack("{s:s, s:[o], s:[{s:s, s:s, s:s, s:[s], s:{s:s}}]}", "object", "list", "data",
                             entry(gw), "models", "name", name, "model", name, "type", "model",
                             "capabilities", "completion", "details", "format", "gguf"));
}

void api_model(struct gateway *gw, struct http_req *r, const char *id)
{
    struct api_err e;
    if (strcmp(id, gw->model.alias) == 0) {
        api_reply_json(r, 200, entry(gw));
        return;
    }
    api_fail(&e, 404, "model", "model '%.100s' is not served; served: %s", id, gw->model.alias);
    api_error_reply(r, &e);
}

static json_t *token_text(const struct gateway *gw, int32_t id)
{
    size_t n = 0;
    const char *s = id < 0 ? NULL : tok_text(gw->model.tok, (uint32_t)id, &n);
    return json_stringn(s ? s : "", n);
}

/* Where a conversation can be cut without evaluating it again: at any token, or only at borders that are held or stored,
 * since the model has a recurrent state or layers that see a window. */
static const char *cache_cut(const struct model *m)
{
    static const char *const bound[] = {"qwen3next", "qwen35", "qwen35moe", "gemma3"};
    for (size_t i = 0; i < sizeof bound / sizeof bound[0]; i++)
        if (strcmp(m->arch, bound[i]) == 0)
            return "border";
    return "any";
}

/* Whether a slot can be saved, and why not. One that is only starting again counts: who saves then waits a moment. */
static json_t *checkpoints(const struct gateway *gw)
{
    int state = telemetry_child_state(gw->telemetry, "store");
    const char *why = state < 0                    ? "no checkpoint store runs"
                      : state == VT_CHILD_FAILED   ? "the checkpoint store has failed"
                      : state == VT_CHILD_DOWN     ? "the checkpoint store is stopped"
                      : state == VT_CHILD_DRAINING ? "the checkpoint store is shutting down"
                                                   : NULL;
    json_t *o = json_pack("{s:b}", "available", why == NULL);
    if (why)
        json_object_set_new(o, "why_not", json_string(why));
    return o;
}

/* How deep a slot was filled when what serves was measured, and how fast it was there; absent when it never was. With several
 * engines the least of them is what any request may count on. */
static json_t *certified(const struct gateway *gw)
{
    const struct engine *least = NULL;
    for (unsigned i = 0; i < gw->router.n_engines; i++) {
        const struct engine *e = &gw->router.engines[i];
        if (!least || e->depth.tokens < least->depth.tokens)
            least = e;
    }
    if (!least || least->depth.tokens == 0)
        return NULL;
    char date[16] = "";
    struct tm tm;
    time_t at = (time_t)least->depth.at;
    if (gmtime_r(&at, &tm))
        strftime(date, sizeof date, "%Y-%m-%d", &tm);
    return json_pack("{s:I, s:f, s:f, s:s, s:s}", "tokens", (json_int_t)least->depth.tokens,
                     "decode_per_second", (double)least->depth.decode_milli / 1000, "prompt_per_second",
                     (double)least->depth.prompt_milli / 1000, "profile", least->profile, "date", date);
}

void api_props(struct gateway *gw, struct http_req *r)
{
    const struct model *m = &gw->model;
    struct params p;
    params_init(&p);
    json_int_t window = router_window(&gw->router);
    json_t *values = params_json(&p);
    json_object_set_new(values, "chat_format", json_string(m->tmpl ? "template" : "none"));
    json_object_set_new(values, "reasoning_format", json_string("auto"));
    params_fini(&p);
    json_t *o = json_object();
    json_object_set_new(o, "default_generation_settings",
                        json_pack("{s:I, s:o}", "n_ctx", window, "params", values));
    json_object_set_new(o, "n_ctx", json_integer(window));
    json_object_set_new(o, "total_slots", json_integer(router_n_slots(&gw->router)));
    json_object_set_new(o, "model_alias", json_string(m->alias));
    json_object_set_new(o, "model_name", json_string(m->name));
    json_object_set_new(o, "model_path", json_string(m->path));
    json_object_set_new(o, "model_ftype", json_string(m->ftype));
    json_object_set_new(o, "modalities", json_pack("{s:b, s:b, s:b}", "vision", 0, "audio", 0, "video", 0));
    json_object_set_new(o, "endpoint_slots", json_true());
    json_object_set_new(o, "endpoint_props", json_false());
    json_object_set_new(o, "endpoint_metrics", json_true());
    json_object_set_new(o, "chat_template", json_string(m->tmpl_text ? m->tmpl_text : ""));
    json_object_set_new(o, "chat_template_caps",
                        json_pack("{s:b, s:b, s:b, s:b, s:b, s:b}", "supports_system_role", m->caps.system,
                                  "supports_tools", m->caps.tools, "supports_tool_calls", m->caps.tool_calls,
                                  "supports_object_arguments", m->caps.object_arguments,
                                  "supports_string_content", !m->caps.parts_only, "supports_typed_content",
                                  m->caps.parts_only));
    json_object_set_new(o, "bos_token", token_text(gw, tok_bos(m->tok)));
    json_object_set_new(o, "eos_token", token_text(gw, tok_eos(m->tok)));
    json_object_set_new(o, "build_info", json_string(gw->build));
    json_object_set_new(o, "is_sleeping", json_false());
    json_object_set_new(o, "cache_cut", json_string(cache_cut(m)));
    json_object_set_new(o, "checkpoints", checkpoints(gw));
    json_t *depth = certified(gw);
    if (depth)
        json_object_set_new(o, "certified", depth);
    api_reply_json(r, 200, o);
}

void api_props_post(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    api_fail(&e, 501, NULL, "changing properties at run time is not supported; use vitriolctl");
    api_error_reply(r, &e);
}

/* None can be loaded, so none is there: who only looks is answered. */
void api_lora(struct gateway *gw, struct http_req *r)
{
    api_reply_json(r, 200, json_array());
}

void api_rerank(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    api_fail(&e, 501, NULL,
             "%s needs a reranker, a model with a rank head (pooling_type 4 and a tensor cls.output); files "
             "with one are "
             "not read by this build, and %s has none",
             http_path(r), gw->model.alias);
    api_error_reply(r, &e);
}

void api_unsupported(struct gateway *gw, struct http_req *r)
{
    struct api_err e;
    api_fail(&e, 501, NULL, "%s is not supported by this build", http_path(r));
    api_error_reply(r, &e);
}
