#include "params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STOPS = 256, MAX_STOP_BYTES = 65536, MAX_BIAS = 1 << 20, MAX_PROBS = 100 };

#define OFF(f) offsetof(struct params, f)
#define ONLY(name, type, value)                                                                              \
    {                                                                                                        \
        name, type, PARAM_ONLY, 0, value, value, value                                                       \
    }

static const struct param_row table[] = {
    {"temperature", PARAM_NUM, PARAM_CLAMP, OFF(s.temperature), 0, 1e9, 0.8},
    {"top_k", PARAM_INT, PARAM_CLAMP, OFF(s.top_k), 0, INT32_MAX, 40},
    {"top_p", PARAM_NUM, PARAM_CLAMP, OFF(s.top_p), 0, 1, 0.95},
    {"min_p", PARAM_NUM, PARAM_CLAMP, OFF(s.min_p), 0, 1, 0.05},
    {"top_n_sigma", PARAM_NUM, PARAM_CLAMP, OFF(s.top_n_sigma), -1, 1e9, -1},
    {"typical_p", PARAM_NUM, PARAM_CLAMP, OFF(s.typical_p), 0, 1, 1},
    {"typ_p", PARAM_NUM, PARAM_CLAMP, OFF(s.typical_p), 0, 1, 1},
    {"xtc_probability", PARAM_NUM, PARAM_CLAMP, OFF(s.xtc_probability), 0, 1, 0},
    {"xtc_threshold", PARAM_NUM, PARAM_CLAMP, OFF(s.xtc_threshold), 0, 1, 0.1},
    {"dynatemp_range", PARAM_NUM, PARAM_CLAMP, OFF(s.dynatemp_range), 0, 1e9, 0},
    {"dynatemp_exponent", PARAM_NUM, PARAM_HARD, OFF(s.dynatemp_exponent), 0, 1000, 1},
    {"repeat_last_n", PARAM_INT, PARAM_HARD, OFF(s.repeat_last_n), -1, INT32_MAX, 64},
    {"repeat_penalty", PARAM_NUM, PARAM_HARD, OFF(s.repeat_penalty), 0.01, 100, 1.0},
    {"presence_penalty", PARAM_NUM, PARAM_HARD, OFF(s.presence_penalty), -100, 100, 0},
    {"frequency_penalty", PARAM_NUM, PARAM_HARD, OFF(s.frequency_penalty), -100, 100, 0},
    {"dry_multiplier", PARAM_NUM, PARAM_HARD, OFF(s.dry_multiplier), 0, 1e9, 0},
    {"dry_base", PARAM_NUM, PARAM_RESET, OFF(s.dry_base), 1, 1e9, 1.75},
    {"dry_allowed_length", PARAM_INT, PARAM_HARD, OFF(s.dry_allowed_length), 0, INT32_MAX, 2},
    {"dry_penalty_last_n", PARAM_INT, PARAM_HARD, OFF(s.dry_penalty_last_n), -1, INT32_MAX, -1},
    {"mirostat", PARAM_INT, PARAM_CLAMP, OFF(s.mirostat), 0, 2, 0},
    {"mirostat_tau", PARAM_NUM, PARAM_HARD, OFF(s.mirostat_tau), 0, 1000, 5},
    {"mirostat_eta", PARAM_NUM, PARAM_HARD, OFF(s.mirostat_eta), 0, 1000, 0.1},
    {"adaptive_target", PARAM_NUM, PARAM_CLAMP, OFF(s.adaptive_target), -1, 1, -1},
    {"adaptive_decay", PARAM_NUM, PARAM_HARD, OFF(s.adaptive_decay), 0, 0.99, 0.9},
    {"min_keep", PARAM_INT, PARAM_HARD, OFF(s.min_keep), 0, INT32_MAX, 0},
    {"ignore_eos", PARAM_FLAG, PARAM_HARD, OFF(s.ignore_eos), 0, 1, 0},
    {"post_sampling_probs", PARAM_FLAG, PARAM_HARD, OFF(s.post_probs), 0, 1, 0},
    {"t_max_predict_ms", PARAM_INT, PARAM_HARD, OFF(t_max_predict_ms), -1, INT32_MAX, 0},
    {"id_slot", PARAM_INT, PARAM_HARD, OFF(id_slot), -1, INT32_MAX, -1},
    {"cache_prompt", PARAM_BOOL, PARAM_HARD, OFF(cache_prompt), 0, 1, 1},
    {"stream", PARAM_BOOL, PARAM_HARD, OFF(stream), 0, 1, 0},
    {"return_tokens", PARAM_BOOL, PARAM_HARD, OFF(return_tokens), 0, 1, 0},
    {"return_progress", PARAM_BOOL, PARAM_HARD, OFF(return_progress), 0, 1, 0},
    {"timings_per_token", PARAM_BOOL, PARAM_HARD, OFF(timings_per_token), 0, 1, 0},
    {"sse_ping_interval", PARAM_INT, PARAM_HARD, OFF(ping_s), -1, 86400, 0},
    ONLY("tfs_z", PARAM_NUM, 1),
    ONLY("n_indent", PARAM_INT, 0),
    /* Parts of context shifting, which is off: any sane value changes nothing. */
    {"n_keep", PARAM_INT, PARAM_HARD, SIZE_MAX, -1, INT32_MAX, 0},
    {"n_discard", PARAM_INT, PARAM_HARD, SIZE_MAX, 0, INT32_MAX, 0},
    {"n_cache_reuse", PARAM_INT, PARAM_HARD, SIZE_MAX, 0, INT32_MAX, 0},
};

const struct param_row *params_table(size_t *n)
{
    *n = sizeof table / sizeof table[0];
    return table;
}

const char *field_word(const json_t *o, const char *name)
{
    const char *s = json_string_value(json_object_get(o, name));
    return s ? s : "";
}

bool field_type_is(const json_t *o, const char *type)
{
    return strcmp(field_word(o, "type"), type) == 0;
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
    case PARAM_FLAG:
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
    case PARAM_FLAG:
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
        case PARAM_RESET: d = row->dflt; break;
        case PARAM_CLAMP: d = d < row->min ? row->min : row->max; break;
        }
    }
    store(p, row, d);
    return 0;
}

void params_init(struct params *p)
{
    *p = (struct params){.n_predict = -1, .n = 1};
    vt_sampling_init(&p->s);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        store(p, &table[i], table[i].dflt);
}

void params_fini(struct params *p)
{
    free(p->bias_ids);
    free(p->bias);
    free(p->breakers);
    stop_set_free(p->stop);
    constrain_fini(&p->constrain);
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
        *out = -HUGE_VAL;
        return 0;
    }
    if (!json_is_number(v))
        return api_fail(e, 400, "logit_bias",
                        "Field 'logit_bias': a bias must be a number, or false to ban the token");
    double d = json_number_value(v);
    *out = d <= -1e9 ? -HUGE_VAL : d > 1e9 ? 1e9 : d;
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

static int add_sampler(struct params *p, enum vt_sampler k, const char *name, struct api_err *e)
{
    if (k == 0)
        return api_fail(
            e, 400, "samplers",
            "Field 'samplers': '%.60s' is not known; there are penalties dry top_n_sigma top_k typ_p "
            "top_p min_p xtc temperature adaptive_p",
            name);
    if (p->s.n_chain == VT_CHAIN_MAX)
        return api_fail(e, 400, "samplers", "Field 'samplers': at most %d steps", VT_CHAIN_MAX);
    p->s.chain[p->s.n_chain++] = (uint8_t)k;
    return 0;
}

/* An array of names, or a string of one letter for each; the order is the order of the steps. */
static int parse_samplers(struct params *p, const json_t *body, struct api_err *e)
{
    json_t *v = field(body, "samplers");
    size_t i;
    json_t *item;
    if (!v)
        return 0;
    if (!json_is_array(v) && !json_is_string(v))
        return api_fail(e, 400, "samplers",
                        "Field 'samplers': must be an array of names, or a string of letters");
    p->s.n_chain = 0;
    for (const char *c = json_string_value(v); c && *c; c++)
        if (add_sampler(p, vt_sampler_letter(*c), c, e))
            return -1;
    json_array_foreach(v, i, item)
    {
        if (!json_is_string(item))
            return api_fail(e, 400, "samplers", "Field 'samplers': must be an array of names");
        if (add_sampler(p, vt_sampler_find(json_string_value(item)), json_string_value(item), e))
            return -1;
    }
    return 0;
}

static int take_breakers(struct params *p, const char *s, size_t n, struct api_err *e)
{
    p->breakers = malloc(n);
    if (!p->breakers)
        return api_fail(e, 500, NULL, "out of memory");
    memcpy(p->breakers, s, n);
    p->s.breakers = p->breakers;
    p->s.breakers_len = n;
    return 0;
}

static int parse_breakers(struct params *p, const json_t *body, struct api_err *e)
{
    static const char usual[] = "\n\0:\0\"\0*"; /* and the NUL that ends the last */
    static const char name[] = "dry_sequence_breakers";
    json_t *v = field(body, name), *item;
    char all[VT_BREAKERS_MAX];
    size_t n = 0, i;
    if (!v)
        return take_breakers(p, usual, sizeof usual, e);
    if (!json_is_array(v) || json_array_size(v) == 0)
        return api_fail(e, 400, name, "Field '%s': must be a non-empty array of strings", name);
    json_array_foreach(v, i, item)
    {
        size_t len = json_string_length(item);
        if (!json_is_string(item) || len == 0 || memchr(json_string_value(item), 0, len))
            return api_fail(e, 400, name, "Field '%s': entry %zu is not a text", name, i);
        if (len + 1 > sizeof all - n)
            return api_fail(e, 400, name, "Field '%s': more than %d bytes", name, VT_BREAKERS_MAX);
        memcpy(all + n, json_string_value(item), len + 1);
        n += len + 1;
    }
    return take_breakers(p, all, n, e);
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
    if (refuse(body, "lora", "adapters are", e) || refuse(body, "banned_strings", "banned strings are", e) ||
        refuse(body, "banned_regex", "banned expressions are", e))
        return -1;
    return 0;
}

static int parse_seed(struct params *p, const json_t *body, struct api_err *e)
{
    int64_t seed = -1;
    if (field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, e) < 0)
        return -1;
    p->s.has_seed = seed >= 0 && seed != 4294967295; /* the old way to say "random" */
    p->s.seed = p->s.has_seed ? (uint64_t)seed : 0;
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
        parse_bias(p, body, env, e) || parse_samplers(p, body, e) || parse_breakers(p, body, e) ||
        parse_refused(body, e) || constrain_read(&p->constrain, body, e) ||
        parse_stream_options(p, body, e) || parse_fields(p, body, e))
        return -1;
    if (field_int(body, "n_probs", 0, MAX_PROBS, &p->n_probs, e) < 0)
        return -1;
    p->s.bias_ids = p->bias_ids;
    p->s.bias = p->bias;
    p->s.n_bias = p->n_bias;
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
        case PARAM_FLAG: json_object_set_new(o, row->name, json_boolean(*(const int64_t *)at != 0)); break;
        case PARAM_INT:
            json_object_set_new(o, row->name, json_integer(ours ? *(const int64_t *)at : (int64_t)row->dflt));
            break;
        case PARAM_NUM:
            json_object_set_new(o, row->name, json_real(ours ? *(const double *)at : row->dflt));
            break;
        }
    }
    json_object_set_new(o, "seed", json_integer(p->s.has_seed ? (json_int_t)p->s.seed : 4294967295));
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
    for (unsigned i = 0; i < p->s.n_chain; i++)
        json_array_append_new(names, json_string(vt_sampler_name(p->s.chain[i])));
    json_object_set_new(o, "samplers", names);
    json_t *breakers = json_array();
    for (size_t at = 0; at < p->s.breakers_len; at += strlen(p->s.breakers + at) + 1)
        json_array_append_new(breakers, json_string(p->s.breakers + at));
    json_object_set_new(o, "dry_sequence_breakers", breakers);
    json_object_set_new(o, "grammar", json_string(p->constrain.text ? p->constrain.text : ""));
    json_object_set_new(o, "lora", json_array());
    return o;
}
