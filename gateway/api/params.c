#include "params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 256, MAX_STOPS = 256, MAX_STOP_BYTES = 65536, MAX_BIAS = 1 << 20, MAX_PROBS = 100 };

#define OFF(f) offsetof(struct params, f)
#define ONLY(name, type, value)                                                                              \
    {                                                                                                        \
        name, type, PARAM_ONLY, 0, value, value, value                                                       \
    }

static const struct param_row table[] = {
    {"temperature", PARAM_NUM, PARAM_CLAMP, OFF(temperature), 0, HUGE_VAL, 0.8},
    {"top_k", PARAM_INT, PARAM_CLAMP, OFF(top_k), 0, INT32_MAX, 40},
    {"top_p", PARAM_NUM, PARAM_CLAMP, OFF(top_p), 0, 1, 0.95},
    {"min_p", PARAM_NUM, PARAM_CLAMP, OFF(min_p), 0, 1, 0.05},
    {"repeat_last_n", PARAM_INT, PARAM_HARD, OFF(repeat_last_n), -1, INT32_MAX, 64},
    {"repeat_penalty", PARAM_NUM, PARAM_HARD, OFF(repeat_penalty), 0.01, 100, 1.0},
    {"presence_penalty", PARAM_NUM, PARAM_HARD, OFF(presence_penalty), -100, 100, 0},
    {"frequency_penalty", PARAM_NUM, PARAM_HARD, OFF(frequency_penalty), -100, 100, 0},
    {"min_keep", PARAM_INT, PARAM_HARD, OFF(min_keep), 0, INT32_MAX, 0},
    {"ignore_eos", PARAM_BOOL, PARAM_HARD, OFF(ignore_eos), 0, 1, 0},
    {"t_max_predict_ms", PARAM_INT, PARAM_HARD, OFF(t_max_predict_ms), -1, INT32_MAX, 0},
    {"id_slot", PARAM_INT, PARAM_HARD, OFF(id_slot), -1, INT32_MAX, -1},
    {"cache_prompt", PARAM_BOOL, PARAM_HARD, OFF(cache_prompt), 0, 1, 1},
    {"stream", PARAM_BOOL, PARAM_HARD, OFF(stream), 0, 1, 0},
    {"return_tokens", PARAM_BOOL, PARAM_HARD, OFF(return_tokens), 0, 1, 0},
    {"return_progress", PARAM_BOOL, PARAM_HARD, OFF(return_progress), 0, 1, 0},
    {"timings_per_token", PARAM_BOOL, PARAM_HARD, OFF(timings_per_token), 0, 1, 0},
    {"post_sampling_probs", PARAM_BOOL, PARAM_HARD, OFF(post_sampling_probs), 0, 1, 0},
    {"sse_ping_interval", PARAM_INT, PARAM_HARD, OFF(ping_s), -1, 86400, 0},
    ONLY("mirostat", PARAM_INT, 0),
    ONLY("dynatemp_range", PARAM_NUM, 0),
    ONLY("xtc_probability", PARAM_NUM, 0),
    ONLY("typical_p", PARAM_NUM, 1),
    ONLY("typ_p", PARAM_NUM, 1),
    ONLY("tfs_z", PARAM_NUM, 1),
    ONLY("dry_multiplier", PARAM_NUM, 0),
    ONLY("n_indent", PARAM_INT, 0),
    {"top_n_sigma", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, 0, -1},
    {"adaptive_target", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, -1e-9, -1},
    /* Parts of samplers that are off, and of context shifting, which is off: any sane value changes nothing. */
    {"mirostat_tau", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 5},
    {"mirostat_eta", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 0.1},
    {"dynatemp_exponent", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 1},
    {"xtc_threshold", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 0.1},
    {"dry_base", PARAM_NUM, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 1.75},
    {"dry_allowed_length", PARAM_INT, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, 2},
    {"dry_penalty_last_n", PARAM_INT, PARAM_ONLY, 0, -HUGE_VAL, HUGE_VAL, -1},
    {"adaptive_decay", PARAM_NUM, PARAM_HARD, SIZE_MAX, 0, 0.99, 0.9},
    {"n_keep", PARAM_INT, PARAM_HARD, SIZE_MAX, -1, INT32_MAX, 0},
    {"n_discard", PARAM_INT, PARAM_HARD, SIZE_MAX, 0, INT32_MAX, 0},
    {"n_cache_reuse", PARAM_INT, PARAM_HARD, SIZE_MAX, 0, INT32_MAX, 0},
};

const struct param_row *params_table(size_t *n)
{
    *n = sizeof table / sizeof table[0];
    return table;
}

json_t *field(const json_t *o, const char *name)
{
    json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

int field_bool(const json_t *o, const char *name, bool *out, struct api_err *e)
{
    const json_t *v = field(o, name);
    if (!v)
        return 1;
    if (!json_is_boolean(v))
        return api_fail(e, 400, name, "Field '%s': must be true or false", name);
    *out = json_is_true(v);
    return 0;
}

/* Some clients write 128.0 for 128. */
static int whole(const json_t *v, int64_t *out)
{
    if (json_is_integer(v)) {
        *out = json_integer_value(v);
        return 0;
    }
    double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d != floor(d) || fabs(d) > 9e15)
        return -1;
    *out = (int64_t)d;
    return 0;
}

int field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out, struct api_err *e)
{
    const json_t *v = field(o, name);
    int64_t n;
    if (!v)
        return 1;
    if (whole(v, &n))
        return api_fail(e, 400, name, "Field '%s': must be an integer", name);
    if (n < min)
        return api_fail(e, 400, name, "Field '%s': must be at least %lld", name, (long long)min);
    if (n > max)
        return api_fail(e, 400, name, "Field '%s': must be at most %lld", name, (long long)max);
    *out = n;
    return 0;
}

int field_str(const json_t *o, const char *name, const char **out, struct api_err *e)
{
    const json_t *v = field(o, name);
    if (!v)
        return 1;
    if (!json_is_string(v))
        return api_fail(e, 400, name, "Field '%s': must be a string", name);
    *out = json_string_value(v);
    return 0;
}

static void store(struct params *p, const struct param_row *row, double v)
{
    if (row->rule == PARAM_ONLY || row->off == SIZE_MAX)
        return;
    char *at = (char *)p + row->off;
    switch (row->type) {
    case PARAM_BOOL: *(bool *)at = v != 0; break;
    case PARAM_INT: *(int64_t *)at = (int64_t)v; break;
    case PARAM_NUM: *(double *)at = v; break;
    }
}

static int parse_row(struct params *p, const struct param_row *row, const json_t *body, struct api_err *e)
{
    const json_t *v = field(body, row->name);
    double d;
    int64_t n;
    if (!v)
        return 0;
    switch (row->type) {
    case PARAM_BOOL:
        if (!json_is_boolean(v))
            return api_fail(e, 400, row->name, "Field '%s': must be true or false", row->name);
        d = json_is_true(v);
        break;
    case PARAM_INT:
        if (whole(v, &n))
            return api_fail(e, 400, row->name, "Field '%s': must be an integer", row->name);
        d = (double)n;
        break;
    default:
        if (!json_is_number(v))
            return api_fail(e, 400, row->name, "Field '%s': must be a number", row->name);
        d = json_number_value(v);
    }
    if (d < row->min || d > row->max) {
        switch (row->rule) {
        case PARAM_ONLY:
            return api_fail(e, 400, row->name,
                            "Field '%s': this value is not supported by this build; leave it out or use %g",
                            row->name, row->dflt);
        case PARAM_HARD:
            return api_fail(e, 400, row->name, "Field '%s': must be between %g and %g", row->name, row->min,
                            row->max);
        case PARAM_CLAMP: d = d < row->min ? row->min : row->max; break;
        }
    }
    store(p, row, d);
    return 0;
}

void params_init(struct params *p)
{
    *p = (struct params){.seed = -1, .n_predict = -1, .n = 1};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        store(p, &table[i], table[i].dflt);
}

void params_fini(struct params *p)
{
    free(p->bias_ids);
    free(p->bias);
    stop_set_free(p->stop);
    json_decref(p->response_fields);
    *p = (struct params){0};
}

static int parse_stop(struct params *p, const json_t *body, struct api_err *e)
{
    json_t *v = field(body, "stop");
    const char *s[MAX_STOPS];
    size_t len[MAX_STOPS], n = 0, bytes = 0;
    if (json_is_string(v)) {
        s[n] = json_string_value(v);
        len[n++] = json_string_length(v);
    } else if (json_is_array(v)) {
        if (json_array_size(v) > MAX_STOPS)
            return api_fail(e, 400, "stop", "Field 'stop': at most %d strings", MAX_STOPS);
        size_t i;
        json_t *item;
        json_array_foreach(v, i, item)
        {
            if (!json_is_string(item))
                return api_fail(e, 400, "stop", "Field 'stop': must be a string or an array of strings");
            s[n] = json_string_value(item);
            len[n++] = json_string_length(item);
        }
    } else if (v) {
        return api_fail(e, 400, "stop", "Field 'stop': must be a string or an array of strings");
    }
    for (size_t i = 0; i < n; i++)
        bytes += len[i];
    if (bytes > MAX_STOP_BYTES)
        return api_fail(e, 400, "stop", "Field 'stop': more than %d bytes", MAX_STOP_BYTES);
    p->stop = stop_set_new(s, len, n);
    return p->stop ? 0 : api_fail(e, 500, NULL, "out of memory");
}

static int add_bias(struct params *p, uint32_t id, double b, struct api_err *e)
{
    if (p->n_bias >= MAX_BIAS)
        return api_fail(e, 400, "logit_bias", "Field 'logit_bias': more than %d entries", MAX_BIAS);
    if ((p->n_bias & (p->n_bias - 1)) == 0) {
        size_t cap = p->n_bias ? p->n_bias * 2 : 1;
        uint32_t *ids = realloc(p->bias_ids, cap * sizeof *ids);
        if (ids)
            p->bias_ids = ids;
        float *bias = realloc(p->bias, cap * sizeof *bias);
        if (bias)
            p->bias = bias;
        if (!ids || !bias)
            return api_fail(e, 500, NULL, "out of memory");
    }
    p->bias_ids[p->n_bias] = id;
    p->bias[p->n_bias++] = (float)b;
    return 0;
}

/* A number, or false for "never". */
static int bias_value(const json_t *v, double *out, struct api_err *e)
{
    if (json_is_false(v)) {
        *out = -1e9;
        return 0;
    }
    if (!json_is_number(v))
        return api_fail(e, 400, "logit_bias",
                        "Field 'logit_bias': a bias must be a number, or false to ban the token");
    double d = json_number_value(v);
    *out = d < -1e9 ? -1e9 : d > 1e9 ? 1e9 : d;
    return 0;
}

static int bias_text(struct params *p, const char *s, size_t n, double b, const struct params_env *env,
                     struct api_err *e)
{
    uint32_t *ids = NULL;
    size_t n_ids = 0;
    if (env->tokenize(env->arg, s, n, &ids, &n_ids))
        return api_fail(e, 500, NULL, "out of memory");
    int r = 0;
    for (size_t i = 0; i < n_ids && r == 0; i++)
        r = add_bias(p, ids[i], b, e);
    free(ids);
    return r;
}

static int bias_id(struct params *p, int64_t id, double b, const struct params_env *env, struct api_err *e)
{
    if (id < 0 || id >= env->n_vocab)
        return api_fail(e, 400, "logit_bias",
                        "Field 'logit_bias': token id %lld is outside the vocabulary (0 to %lld)",
                        (long long)id, (long long)env->n_vocab - 1);
    return add_bias(p, (uint32_t)id, b, e);
}

static int parse_bias(struct params *p, const json_t *body, const struct params_env *env, struct api_err *e)
{
    json_t *v = field(body, "logit_bias");
    double b = 0;
    if (!v)
        return 0;
    if (json_is_object(v)) {
        const char *key;
        json_t *val;
        json_object_foreach(v, key, val)
        {
            char *end;
            long long id = strtoll(key, &end, 10);
            if (bias_value(val, &b, e))
                return -1;
            if (*key && !*end ? bias_id(p, id, b, env, e) : bias_text(p, key, strlen(key), b, env, e))
                return -1;
        }
        return 0;
    }
    if (!json_is_array(v))
        return api_fail(e, 400, "logit_bias",
                        "Field 'logit_bias': must be an object or an array of [token, bias]");
    size_t i;
    json_t *row;
    json_array_foreach(v, i, row)
    {
        json_t *id = json_array_get(row, 0);
        if (json_array_size(row) != 2 || bias_value(json_array_get(row, 1), &b, e))
            return api_fail(e, 400, "logit_bias", "Field 'logit_bias': entry %zu is not [token, bias]", i);
        if (json_is_string(id) ? bias_text(p, json_string_value(id), json_string_length(id), b, env, e)
            : json_is_integer(id)
                ? bias_id(p, json_integer_value(id), b, env, e)
                : api_fail(e, 400, "logit_bias", "Field 'logit_bias': entry %zu has no token", i))
            return -1;
    }
    return 0;
}

static const char *const chain[] = {"penalties", "top_k", "top_p", "min_p", "temperature"};

/* A list may leave samplers out; one that asks for another order, or for one that we lack, cannot be honoured. */
static int parse_samplers(struct params *p, const json_t *body, struct api_err *e)
{
    json_t *v = field(body, "samplers");
    static const char *const idle[] = {"dry", "top_n_sigma", "typ_p", "typical_p", "xtc", "adaptive_p"};
    bool has[5] = {0};
    int last = -1;
    if (!v)
        return 0;
    if (!json_is_array(v))
        return api_fail(e, 400, "samplers", "Field 'samplers': must be an array of names");
    size_t i;
    json_t *item;
    json_array_foreach(v, i, item)
    {
        const char *name = json_string_value(item);
        int k = -1;
        if (!name)
            return api_fail(e, 400, "samplers", "Field 'samplers': must be an array of names");
        for (int c = 0; c < 5; c++)
            if (strcmp(name, chain[c]) == 0)
                k = c;
        for (size_t c = 0; c < sizeof idle / sizeof idle[0] && k < 0; c++)
            if (strcmp(name, idle[c]) == 0)
                k = 100; /* off by its own field, so its place does not matter */
        if (k < 0)
            return api_fail(e, 400, "samplers", "Field 'samplers': '%s' is not known", name);
        if (k == 100)
            continue;
        if (k <= last)
            return api_fail(
                e, 400, "samplers",
                "Field 'samplers': only the order penalties, top_k, top_p, min_p, temperature is supported");
        has[last = k] = true;
    }
    if (!has[0]) {
        p->repeat_penalty = 1;
        p->presence_penalty = p->frequency_penalty = 0;
    }
    if (!has[1])
        p->top_k = 0;
    if (!has[2])
        p->top_p = 1;
    if (!has[3])
        p->min_p = 0;
    if (!has[4])
        p->temperature = 1;
    return 0;
}

static int refuse(const json_t *body, const char *name, const char *what, struct api_err *e)
{
    const json_t *v = field(body, name);
    if (!v || (json_is_string(v) && json_string_length(v) == 0) ||
        (json_is_array(v) && json_array_size(v) == 0) || json_is_false(v))
        return 0;
    return api_fail(e, 400, name, "Field '%s': %s not supported by this build", name, what);
}

static int parse_refused(const json_t *body, struct api_err *e)
{
    json_t *rf = field(body, "response_format");
    const char *type = NULL;
    if (refuse(body, "grammar", "grammars are", e) || refuse(body, "json_schema", "JSON schemas are", e) ||
        refuse(body, "lora", "adapters are", e) || refuse(body, "banned_strings", "banned strings are", e) ||
        refuse(body, "banned_regex", "banned expressions are", e))
        return -1;
    json_t *dry = field(body, "dry_sequence_breakers");
    if (dry && (!json_is_array(dry) || json_array_size(dry) == 0))
        return api_fail(e, 400, "dry_sequence_breakers",
                        "Field 'dry_sequence_breakers': must be a non-empty array");
    if (!rf)
        return 0;
    if (!json_is_object(rf) || field_str(rf, "type", &type, e) != 0)
        return api_fail(e, 400, "response_format", "Field 'response_format': must be an object with a type");
    if (strcmp(type, "text") != 0)
        return api_fail(e, 400, "response_format",
                        "Field 'response_format': type '%s' is not supported by this build", type);
    return 0;
}

static int parse_seed(struct params *p, const json_t *body, struct api_err *e)
{
    if (field_int(body, "seed", INT64_MIN, INT64_MAX, &p->seed, e) < 0)
        return -1;
    if (p->seed < 0 || p->seed == 4294967295) /* the old way to say "random" */
        p->seed = -1;
    return 0;
}

static int parse_extent(struct params *p, const json_t *body, const struct params_env *env, struct api_err *e)
{
    static const char *const names[] = {"max_tokens", "max_completion_tokens",
                                        "n_predict"}; /* the last one wins */
    for (int i = 0; i < 3; i++)
        if (field_int(body, names[i], -1, INT64_MAX, &p->n_predict, e) < 0)
            return -1;
    if (field_int(body, "n_cmpl", 1, env->slots, &p->n, e) < 0 ||
        field_int(body, "n", 1, env->slots, &p->n, e) < 0)
        return -1;
    if (p->id_slot >= env->slots)
        return api_fail(e, 400, "id_slot", "Field 'id_slot': there are only slots 0 to %lld",
                        (long long)env->slots - 1);
    return 0;
}

static int parse_stream_options(struct params *p, const json_t *body, struct api_err *e)
{
    json_t *o = field(body, "stream_options");
    if (!o)
        return 0;
    if (!json_is_object(o))
        return api_fail(e, 400, "stream_options", "Field 'stream_options': must be an object");
    return field_bool(o, "include_usage", &p->include_usage, e) < 0 ? -1 : 0;
}

static int parse_fields(struct params *p, const json_t *body, struct api_err *e)
{
    json_t *v = field(body, "response_fields");
    size_t i;
    json_t *item;
    if (!v)
        return 0;
    if (!json_is_array(v))
        return api_fail(e, 400, "response_fields", "Field 'response_fields': must be an array of strings");
    json_array_foreach(v, i, item) if (!json_is_string(item)) return api_fail(
        e, 400, "response_fields", "Field 'response_fields': must be an array of strings");
    if (json_array_size(v) > 0)
        p->response_fields = json_incref(v);
    return 0;
}

int params_parse(struct params *p, const json_t *body, const struct params_env *env, struct api_err *e)
{
    params_init(p);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (parse_row(p, &table[i], body, e))
            return -1;
    if (parse_seed(p, body, e) || parse_extent(p, body, env, e) || parse_stop(p, body, e) ||
        parse_bias(p, body, env, e) || parse_samplers(p, body, e) || parse_refused(body, e) ||
        parse_stream_options(p, body, e) || parse_fields(p, body, e))
        return -1;
    if (field_int(body, "n_probs", 0, MAX_PROBS, &p->n_probs, e) < 0)
        return -1;
    if (p->post_sampling_probs && p->n_probs > 0)
        return api_fail(e, 400, "post_sampling_probs",
                        "Field 'post_sampling_probs': not supported by this build");
    if (p->ping_s == 0 && field(body, "sse_ping_interval"))
        return api_fail(e, 400, "sse_ping_interval",
                        "Field 'sse_ping_interval': must be -1 (off) or at least 1");
    return 0;
}

json_t *params_json(const struct params *p)
{
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct param_row *row = &table[i];
        bool ours = row->rule != PARAM_ONLY && row->off != SIZE_MAX;
        const char *at = ours ? (const char *)p + row->off : NULL;
        switch (row->type) {
        case PARAM_BOOL:
            json_object_set_new(o, row->name, json_boolean(ours ? *(const bool *)at : row->dflt != 0));
            break;
        case PARAM_INT:
            json_object_set_new(o, row->name, json_integer(ours ? *(const int64_t *)at : (int64_t)row->dflt));
            break;
        case PARAM_NUM:
            json_object_set_new(o, row->name, json_real(ours ? *(const double *)at : row->dflt));
            break;
        }
    }
    json_object_set_new(o, "seed", json_integer(p->seed < 0 ? 4294967295 : p->seed));
    json_object_set_new(o, "n_predict", json_integer(p->n_predict));
    json_object_set_new(o, "max_tokens", json_integer(p->n_predict));
    json_object_set_new(o, "n_probs", json_integer(p->n_probs));
    json_t *stops = json_array();
    for (size_t i = 0; p->stop && i < stop_set_count(p->stop); i++) {
        size_t n;
        const char *s = stop_text(p->stop, i, &n);
        json_array_append_new(stops, json_stringn(s, n));
    }
    json_object_set_new(o, "stop", stops);
    json_t *names = json_array();
    for (int i = 0; i < 5; i++)
        json_array_append_new(names, json_string(chain[i]));
    json_object_set_new(o, "samplers", names);
    json_object_set_new(o, "grammar", json_string(""));
    json_object_set_new(o, "lora", json_array());
    return o;
}

/* The parser recurses: how deep is decided here. */
static bool too_deep(const char *s, size_t n)
{
    unsigned depth = 0;
    bool text = false;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (text) {
            if (c == '\\')
                i++;
            else if (c == '"')
                text = false;
        } else if (c == '"') {
            text = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return false;
}

json_t *params_body(const char *text, size_t n, struct api_err *e)
{
    json_error_t je;
    if (n == 0) {
        api_fail(e, 400, NULL, "the request has no body; a JSON object is expected");
        return NULL;
    }
    if (too_deep(text, n)) {
        api_fail(e, 400, NULL, "the JSON body is nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    json_t *v = json_loadb(text, n, JSON_ALLOW_NUL, &je);
    if (!v) {
        api_fail(e, 400, NULL, "the body is not valid JSON: line %d, column %d: %.200s", je.line, je.column,
                 je.text);
        return NULL;
    }
    if (!json_is_object(v)) {
        json_decref(v);
        api_fail(e, 400, NULL, "the body must be a JSON object");
        return NULL;
    }
    return v;
}
