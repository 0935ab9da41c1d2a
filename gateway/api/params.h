/* Parameters: the fields of a request body that steer generation, the same on every surface, from one table with type,
 * range and what happens outside of it. `null` is absent; a wrong type is an error that names the field. */
#ifndef PARAMS_H
#define PARAMS_H

#include "../http/error.h"
#include "../stream/stop.h"
#include "constrain.h"
#include "sampling.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct params {
    struct vt_sampling s; /* its arrays are those below */
    uint32_t *bias_ids;   /* owned */
    float *bias;          /* owned */
    size_t n_bias;
    char *breakers; /* owned */
    /* extent */
    int64_t n_predict;        /* -1: to the end of the window */
    int64_t t_max_predict_ms; /* 0: no limit */
    struct stop_set *stop;    /* owned, never NULL after parsing */
    int64_t n;                /* choices */
    int64_t id_slot;          /* -1: any */
    bool cache_prompt;
    struct constrain constrain;
    /* what is told */
    bool stream, include_usage, return_tokens, return_progress, timings_per_token;
    int64_t n_probs;         /* native: alternatives with each token */
    int64_t ping_s;          /* keep-alive interval; 0: the server's, -1: none */
    json_t *response_fields; /* array of strings or NULL; owned */
};

/* One row of the table, for /props and the tests. */
enum param_type {
    PARAM_BOOL,
    PARAM_FLAG, /* as PARAM_BOOL, kept as an int64_t 0 or 1 */
    PARAM_INT,
    PARAM_NUM
};
enum param_rule {
    PARAM_HARD,  /* 400 outside the range */
    PARAM_CLAMP, /* moved to the nearest end */
    PARAM_RESET, /* the default takes its place */
    PARAM_ONLY,  /* known, not supported: 400 naming the field unless it says what the engine does anyhow */
};
struct param_row {
    const char *name;
    enum param_type type;
    enum param_rule rule;
    size_t off; /* into struct params; unused for PARAM_ONLY */
    double min, max, dflt;
};
const struct param_row *params_table(size_t *n);

/* Looks up text tokens for logit_bias entries that are text: appends ids. */
typedef int (*params_tokenize)(void *arg, const char *text, size_t n, uint32_t **ids, size_t *n_ids);

struct params_env {
    int64_t n_vocab, slots;
    params_tokenize tokenize;
    void *arg;
};

void params_init(struct params *p);
void params_fini(struct params *p);
/* body: the request, an object. */
int params_parse(struct params *p, const json_t *body, const struct params_env *env, struct api_err *e);
/* The values in force as a JSON object (generation_settings, default_generation_settings.params). */
json_t *params_json(const struct params *p);

/* One optional field: 0 present, 1 absent or null, -1 wrong. Used by the surfaces for their own fields. */
int field_bool(const json_t *o, const char *name, bool *out, struct api_err *e);
int field_int(const json_t *o, const char *name, int64_t min, int64_t max, int64_t *out, struct api_err *e);
int field_str(const json_t *o, const char *name, const char **out, struct api_err *e);
/* The value, NULL when absent or null. */
json_t *field(const json_t *o, const char *name);
/* The string, or "" where there is none; and whether that of "type" is this one. */
const char *field_word(const json_t *o, const char *name);
bool field_type_is(const json_t *o, const char *type);

#endif
