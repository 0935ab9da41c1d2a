/* Map: what the architecture files share: metadata with rules, and tensors with the shape that the metadata asks for.
 * Every function returns 0, or -1 with an error that names the tensor, the key and what would be needed. */
#ifndef MAP_H
#define MAP_H

#include "model.h"

/* One dimension of a tensor and where its length comes from, for the error text. */
struct dim {
    int64_t n;
    const char *from;
};
#define DIM(n, from) ((struct dim){(n), (from)})

struct map {
    const struct gguf_file *f;
    struct model *m;
    struct vt_err *err;
    bool *used;  /* [tensors of the file] */
    bool shapes; /* no tensor's bytes are read; vectors are ones */
};

/* ---- map.c: keys ---- */

/* "{arch}.key" as an integer in lo..hi; dflt is used when the key is absent, or -1: the key is required. */
int map_int(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out);
/* A key that may be one integer or an array with one value a layer; all layers must agree. */
int map_int_layers(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out);
/* A finite float in lo..hi; required when dflt is NaN. */
int map_float(struct map *p, const char *key, float lo, float hi, float dflt, float *out);
/* Of an array key: the value of one layer, as 0 or 1. *found is false when the key is absent or no array. */
int map_layer_flag(struct map *p, const char *key, int layer, bool *found, bool *out);
bool map_is(struct map *p, const char *key, const char *text); /* a string key with just this value */

/* ---- map.c: tensors ---- */

/* Name of a tensor: layer < 0: "name", else "blk.<layer>.name". */
bool map_has(struct map *p, int layer, const char *name);
/* A matrix {in, out} of a type that the backend can read. */
int map_matrix(struct map *p, struct be_weight *w, int layer, const char *name, struct dim in,
               struct dim out);
/* A matrix {in, out} for each of n experts, in one tensor; *w: array of n. */
int map_matrices(struct map *p, struct be_weight **w, int layer, const char *name, struct dim in,
                 struct dim out, struct dim n);
/* A vector of n values, or a table {a, b}, copied to float32. Types F32, F16, BF16. Values must be finite. */
int map_vector(struct map *p, const float **v, int layer, const char *name, struct dim n);
int map_vector_opt(struct map *p, const float **v, int layer, const char *name, struct dim n); /* or NULL */
int map_table(struct map *p, const float **v, int layer, const char *name, struct dim a, struct dim b);
/* Rows of w in another order, copied: row i of the result is row rows[i] of w. */
int map_reorder(struct map *p, struct be_weight *w, const int32_t *rows, int64_t n);
/* Every tensor of the file has been taken, except for those that are known to be without effect. */
int map_all_used(struct map *p);

/* Memory that the model owns, zeroed. */
void *map_alloc(struct map *p, size_t bytes);

/* Keys that all architectures share: widths, layers, vocabulary, epsilon; token_embd, output_norm, output. Draft
 * blocks, where the architecture knows any, do not count as layers. */
int map_trunk(struct map *p, bool drafts);

/* ---- map_attention.c ---- */

/* What the attention layers of a model have in common, and how an architecture differs from the others. */
struct map_attn {
    struct be_attn geo; /* from the metadata; window and softcap 0 */
    struct be_rope rope;
    bool gated, interleaved, head_norms;
    enum { BIAS_NONE, BIAS_OPTIONAL, BIAS_QKV } bias;
};
/* Reads heads, head sizes, scale and rope with its scaling into a, whose other fields the caller has set. */
int map_attention_keys(struct map *p, struct map_attn *a);
/* A rope over n_rot channels with this base and without scaling. */
int map_rope_plain(struct map *p, struct be_rope *r, int32_t n_rot, float base, bool interleaved);
/* Tensors of one layer. */
int map_attention(struct map *p, struct layer *l, int layer, const struct map_attn *a);

/* ---- map_ffn.c ---- */

/* Dense: ffn_gate, ffn_up, ffn_down; biases where the file has them and `biases` allows them. */
int map_ffn_dense(struct map *p, struct ffn *ffn, int layer, enum act act, bool biases);
/* Routed experts (softmax, weights of the chosen normalized), split or fused or, in old files, one tensor an expert. */
int map_ffn_experts(struct map *p, struct ffn *ffn, int layer);
/* The same beside a gated shared expert. */
int map_ffn_shared(struct map *p, struct ffn *ffn, int layer);

/* ---- stacks of several architectures ---- */

/* map_plain.c: pre-norm blocks of attention and feed-forward, all alike. */
struct map_plain {
    struct map_attn attn;
    int (*ffn)(struct map *p, struct ffn *ffn, int layer);
};
int map_plain(struct map *p, struct map_plain *s);

/* map_hybrid.c: gated delta net layers with gated attention at every interval-th place, draft blocks behind. */
struct map_hybrid {
    bool grouped; /* value heads of one key head are neighbours */
    /* qkv, gate, beta and alpha of a delta net whose sizes are set */
    int (*project)(struct map *p, struct delta_net *x, int layer);
    int (*ffn)(struct map *p, struct ffn *ffn, int layer);
};
int map_hybrid(struct map *p, const struct map_hybrid *s);
int map_project_split(struct map *p, struct delta_net *x, int layer); /* four tensors */

/* The architectures. m->arch is set, the rest is theirs. */
int map_llama(struct map *p);
int map_qwen2(struct map *p);
int map_qwen3(struct map *p);
int map_qwen3moe(struct map *p);
int map_qwen3next(struct map *p);
int map_qwen35(struct map *p);
int map_qwen35moe(struct map *p);
int map_gemma3(struct map *p);

#endif
