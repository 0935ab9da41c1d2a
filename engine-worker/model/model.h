/* Model: hyperparameters and weights of one GGUF file, laid out for the forward pass.
 *
 * A model is an array of layers; each layer has a mixer (how rows of a sequence see each other) and a feed-forward part.
 * One file per architecture (qwen3.c, qwen35.c) reads the metadata, checks every tensor's presence and shape against it
 * and sets the fields below; forward.c walks them and knows no architecture. Matrices stay where the file maps them, in
 * the file's block layout; vectors are copied to float32. Immutable after model_load; any thread may read. */
#ifndef MODEL_H
#define MODEL_H

#include "backend.h"
#include "err.h"
#include "gguf.h"

#include <stdbool.h>
#include <stdint.h>

enum mixer { MIX_ATTENTION, MIX_DELTA };

struct attention {
    struct be_weight q, k, v,
        out; /* q: n_head * d rows, or n_head * 2d when gated (query and gate, head by head) */
    const float *q_norm, *k_norm; /* [d] RMS norm of each head before rope; NULL: none */
    bool gated;                   /* the output is multiplied by sigmoid(gate) */
    struct be_attn geo;
    struct be_rope rope;
    int index; /* number among the attention layers: its place in a KV page */
};

struct delta_net {
    struct be_weight qkv, gate, beta, alpha, out;
    struct be_delta geo;
    size_t state_at; /* first float of this layer's state within a sequence's recurrent state */
};

struct ffn {
    struct be_weight gate, up, down; /* down(silu(gate x) * up x) */
};

struct layer {
    enum mixer mixer;
    const float *mixer_norm, *ffn_norm; /* [n_embd] */
    union {
        struct attention attn;
        struct delta_net delta;
    };
    struct ffn ffn;
};

struct model {
    char arch[32];
    char name[128]; /* general.name, or the file's name */
    int32_t n_embd, n_vocab, n_layer, n_ctx_train, n_ff;
    int32_t n_attn;      /* layers with KV */
    size_t state_floats; /* recurrent state of one sequence; 0: not hybrid */
    int32_t n_mtp;       /* draft blocks present in the file and checked; not executed */
    float eps;
    struct be_weight embd, head; /* head is embd when tied */
    const float *out_norm;       /* [n_embd] */
    struct layer *layers;        /* [n_layer] */
    uint64_t n_params, bytes;    /* of all tensors in the file */
    uint64_t vector_bytes;       /* copied to memory of our own */

    const struct gguf_file *file; /* borrowed; must outlive the model */
    void **owned;                 /* vectors and tables */
    size_t n_owned;
};

/* Loads and checks. Errors: VT_E_PAYLOAD names the tensor or key, what it is and what it would have to be; an unknown
 * architecture is refused by name. On failure nothing is held. path is used for the name only. */
int model_load(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err);
void model_free(struct model *m);

/* Largest row that a matrix of the model takes (for be_reserve). */
int64_t model_max_in(const struct model *m);

#endif
