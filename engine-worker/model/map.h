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
};

/* "{arch}.key" as an integer in lo..hi; dflt is used when the key is absent, or -1: the key is required. */
int map_int(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out);
/* A key that may be one integer or an array with one value a layer; all layers must agree. */
int map_int_layers(struct map *p, const char *key, int64_t lo, int64_t hi, int64_t dflt, int32_t *out);
/* A finite float in lo..hi; required when dflt is NaN. */
int map_float(struct map *p, const char *key, float lo, float hi, float dflt, float *out);

/* Name of a tensor: layer < 0: "name", else "blk.<layer>.name". */
bool map_has(struct map *p, int layer, const char *name);
/* A matrix {in, out} of a type that the backend can read. */
int map_matrix(struct map *p, struct be_weight *w, int layer, const char *name, struct dim in,
               struct dim out);
/* A vector of n values, or a table {a, b}, copied to float32. Types F32, F16, BF16. Values must be finite. */
int map_vector(struct map *p, const float **v, int layer, const char *name, struct dim n);
int map_table(struct map *p, const float **v, int layer, const char *name, struct dim a, struct dim b);

/* Memory that the model owns. */
void *map_alloc(struct map *p, size_t bytes);

/* Keys that all architectures share: widths, layers, vocabulary, epsilon; token_embd, output_norm, output. */
int map_trunk(struct map *p);
/* Angles per position of a rope without scaling: base^(-2i/n_rot). */
int map_rope(struct map *p, struct be_rope *r, int32_t n_rot, float base);
/* Heads, head sizes, scale and rope of the attention layers; without window, softcap and scaling. */
int map_attention(struct map *p, struct be_attn *geo, struct be_rope *rope);
/* Refuses rope scaling that is not the identity. */
int map_no_rope_scaling(struct map *p);
int map_swiglu(struct map *p, struct ffn *ffn, int layer);

int map_layers(struct map *p); /* allocates m->layers[m->n_layer] */

/* The architectures. m->arch is set, the rest is theirs. */
int map_qwen3(struct map *p);
int map_qwen35(struct map *p);

#endif
