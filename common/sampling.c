#include "sampling.h"

#include <math.h>
#include <string.h>

static const uint8_t usual[] = {VT_SAMPLER_PENALTIES, VT_SAMPLER_DRY,       VT_SAMPLER_TOP_N_SIGMA,
                                VT_SAMPLER_TOP_K,     VT_SAMPLER_TYPICAL_P, VT_SAMPLER_TOP_P,
                                VT_SAMPLER_MIN_P,     VT_SAMPLER_XTC,       VT_SAMPLER_TEMPERATURE};

void vt_sampling_init(struct vt_sampling *s)
{
    *s = (struct vt_sampling){
#define SAMPLING(key, NAME, field, kind, neutral) .field = (neutral),
#include "sampling.def"
#undef SAMPLING
    };
    memcpy(s->chain, usual, sizeof usual);
    s->n_chain = sizeof usual;
}

static bool usual_chain(const struct vt_sampling *s)
{
    return s->n_chain == sizeof usual && memcmp(s->chain, usual, sizeof usual) == 0;
}

/* Bits, not values: a NaN must arrive as what it is and be refused by name, and -0 is not worth a thought. */
static bool same_F(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool same_I(int64_t a, int64_t b)
{
    return a == b;
}

static unsigned count(const struct vt_sampling *s)
{
    unsigned n = s->has_seed + !usual_chain(s) + (s->n_bias > 0 ? 2u : 0u) + (s->breakers_len > 0);
#define SAMPLING(key, NAME, field, kind, neutral) n += !same_##kind(s->field, (neutral));
#include "sampling.def"
#undef SAMPLING
    return n;
}

void vt_sampling_put(struct vt_enc *e, unsigned key_of_map, const struct vt_sampling *s)
{
    vt_enc_map(e, key_of_map, count(s));
#define put_F vt_enc_put_f64
#define put_I vt_enc_put_i64
#define SAMPLING(key, NAME, field, kind, neutral)                                                            \
    if (!same_##kind(s->field, (neutral))) {                                                                 \
        vt_enc_put_u64(e, VT_SAMPLING_##NAME);                                                               \
        put_##kind(e, s->field);                                                                             \
    }
#include "sampling.def"
#undef SAMPLING
#undef put_F
#undef put_I
    if (s->has_seed) {
        vt_enc_put_u64(e, VT_SAMPLING_SEED);
        vt_enc_put_u64(e, s->seed);
    }
    if (s->n_bias > 0) {
        vt_enc_put_u64(e, VT_SAMPLING_BIAS_IDS);
        vt_enc_put_bin(e, s->bias_ids, s->n_bias * sizeof *s->bias_ids);
        vt_enc_put_u64(e, VT_SAMPLING_BIAS);
        vt_enc_put_bin(e, s->bias, s->n_bias * sizeof *s->bias);
    }
    if (!usual_chain(s)) {
        vt_enc_put_u64(e, VT_SAMPLING_CHAIN);
        vt_enc_put_bin(e, s->chain, s->n_chain);
    }
    if (s->breakers_len > 0) {
        vt_enc_put_u64(e, VT_SAMPLING_BREAKERS);
        vt_enc_put_bin(e, s->breakers, s->breakers_len);
    }
}

static int get_chain(struct vt_sampling *s, const msgpack_object_map *m, struct vt_err *err)
{
    size_t n;
    const uint8_t *chain = vt_map_bin(m, VT_SAMPLING_CHAIN, &n);
    if (!vt_map_get(m, VT_SAMPLING_CHAIN))
        return 0;
    if (n > VT_CHAIN_MAX)
        return vt_fail(err, VT_E_PARAM, "samplers: %zu steps; at most %d", n, VT_CHAIN_MAX);
    for (size_t i = 0; i < n; i++)
        if (chain[i] == 0 || chain[i] >= VT_SAMPLER_COUNT)
            return vt_fail(err, VT_E_PARAM, "samplers: step %u is not known to this engine", chain[i]);
    if (n > 0)
        memcpy(s->chain, chain, n);
    s->n_chain = (unsigned)n;
    return 0;
}

int vt_sampling_get(struct vt_sampling *s, struct vt_sampling_raw *raw, const msgpack_object_map *m,
                    struct vt_err *err)
{
    size_t ids, bias, breakers;
    vt_sampling_init(s);
#define get_F                                     vt_map_f64
#define get_I                                     vt_map_i64
#define SAMPLING(key, NAME, field, kind, neutral) s->field = get_##kind(m, VT_SAMPLING_##NAME, (neutral));
#include "sampling.def"
#undef SAMPLING
#undef get_F
#undef get_I
    s->has_seed = vt_map_get(m, VT_SAMPLING_SEED) != NULL;
    s->seed = vt_map_u64(m, VT_SAMPLING_SEED, 0);
    raw->bias_ids = vt_map_bin(m, VT_SAMPLING_BIAS_IDS, &ids);
    raw->bias = vt_map_bin(m, VT_SAMPLING_BIAS, &bias);
    raw->breakers = (const char *)vt_map_bin(m, VT_SAMPLING_BREAKERS, &breakers);
    raw->n_bias = ids / 4;
    raw->breakers_len = breakers;
    if (ids % 4 != 0 || bias != ids)
        return vt_fail(err, VT_E_PARAM, "logit_bias: the ids and their biases are not as many");
    if (breakers > VT_BREAKERS_MAX || (breakers > 0 && raw->breakers[breakers - 1] != '\0'))
        return vt_fail(err, VT_E_PARAM, "dry_sequence_breakers: malformed, or more than %d bytes",
                       VT_BREAKERS_MAX);
    return get_chain(s, m, err);
}

/* ---- names ---- */

static const struct {
    const char *name, *alias;
    char letter;
} names[VT_SAMPLER_COUNT] = {
    [VT_SAMPLER_PENALTIES] = {"penalties", "penalty", 'e'},
    [VT_SAMPLER_DRY] = {"dry", "dry", 'd'},
    [VT_SAMPLER_TOP_N_SIGMA] = {"top_n_sigma", "top-n-sigma", 's'},
    [VT_SAMPLER_TOP_K] = {"top_k", "top-k", 'k'},
    [VT_SAMPLER_TYPICAL_P] = {"typ_p", "typical_p", 'y'},
    [VT_SAMPLER_TOP_P] = {"top_p", "top-p", 'p'},
    [VT_SAMPLER_MIN_P] = {"min_p", "min-p", 'm'},
    [VT_SAMPLER_XTC] = {"xtc", "xtc", 'x'},
    [VT_SAMPLER_TEMPERATURE] = {"temperature", "temp", 't'},
    [VT_SAMPLER_ADAPTIVE_P] = {"adaptive_p", "adaptive-p", 'a'},
};

const char *vt_sampler_name(enum vt_sampler k)
{
    return k > 0 && k < VT_SAMPLER_COUNT ? names[k].name : "?";
}

enum vt_sampler vt_sampler_find(const char *name)
{
    static const struct {
        const char *name;
        enum vt_sampler k;
    } more[] = {{"nucleus", VT_SAMPLER_TOP_P},
                {"typical", VT_SAMPLER_TYPICAL_P},
                {"typ", VT_SAMPLER_TYPICAL_P},
                {"typ-p", VT_SAMPLER_TYPICAL_P},
                {"typical-p", VT_SAMPLER_TYPICAL_P}};
    for (int k = 1; k < VT_SAMPLER_COUNT; k++)
        if (strcmp(name, names[k].name) == 0 || strcmp(name, names[k].alias) == 0)
            return (enum vt_sampler)k;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (strcmp(name, more[i].name) == 0)
            return more[i].k;
    return (enum vt_sampler)0;
}

enum vt_sampler vt_sampler_letter(char c)
{
    for (int k = 1; k < VT_SAMPLER_COUNT; k++)
        if (names[k].letter == c)
            return (enum vt_sampler)k;
    return (enum vt_sampler)0;
}
