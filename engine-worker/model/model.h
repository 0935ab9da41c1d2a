/* Model: hyperparameters and weights of one GGUF file, laid out for the forward pass.
 *
 * A model is an array of layers; each layer has a mixer (how rows of a sequence see each other) and a feed-forward part.
 * One file per architecture (llama.c, qwen3.c, gemma3.c, …) reads the metadata, checks every tensor's presence and shape
 * against it and sets the fields below; forward.c walks them and knows no architecture. Matrices stay where the file maps
 * them, in the file's block layout; vectors are copied to float32. What is NULL, or a weight without rows, is not part of
 * the model. Immutable after model_load; any thread may read. */
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
    const float *q_bias, *k_bias, *v_bias, *out_bias;
    const float *q_norm, *k_norm; /* [d] RMS norm of each head before rope */
    bool gated;                   /* the output is multiplied by sigmoid(gate) */
    struct be_attn geo;
    struct be_rope rope;
    int index; /* its place in a KV page: number among the layers that have a window, or among those that have none */
};

struct delta_net {
    struct be_weight qkv, gate, beta, alpha, out;
    struct be_delta geo;
};

enum act { ACT_SILU, ACT_GELU };

/* Experts of which each row uses some; every array has one weight an expert. */
struct experts {
    struct be_route route;
    struct be_weight router;           /* {n_embd, n_expert} */
    const struct be_weight *gate, *up; /* {n_embd, width} */
    const struct be_weight *down;      /* {width, n_embd} */
};

/* down(act(gate x) * up x), for all rows; and the experts of each row. A layer has one or both; with both the first is the
 * shared expert, without biases. */
struct ffn {
    enum act act;
    struct be_weight gate, up, down;
    const float *gate_bias, *up_bias, *down_bias;
    struct be_weight shared_gate; /* {n_embd, 1}: sigmoid of it multiplies the shared expert */
    const struct experts *experts;
};

struct layer {
    enum mixer mixer;
    const float *mixer_norm, *ffn_norm;           /* [n_embd] */
    const float *post_mixer_norm, *post_ffn_norm; /* [n_embd] of what is added to the residual stream */
    union {
        struct attention attn;
        struct delta_net delta;
    };
    struct ffn ffn;
};

/* Draft block (multi-token prediction): from the embedding of a token and the trunk's output at the token before, the
 * logits of the token behind. block.attn.index counts behind the trunk's layers without window. */
struct draft {
    struct be_weight proj; /* {2 * n_embd, n_embd}: embedding first */
    const float *embd_norm, *hidden_norm, *out_norm;
    struct be_weight embd, head;
    struct layer block;
};

struct model {
    char arch[32];
    char name[128]; /* general.name, or the file's name */
    int32_t n_embd, n_vocab, n_layer, n_ctx_train;
    size_t state_floats; /* recurrent state of one sequence; 0: not hybrid */
    float eps;
    float embd_scale;            /* of the embedding; 1: none */
    float softcap;               /* of the logits; 0: none */
    struct be_weight embd, head; /* head is embd when tied */
    const float *out_norm;       /* [n_embd] */
    struct layer *layers;        /* [n_layer] */
    struct draft *drafts;        /* [n_drafts]; checked, and evaluated on request (fw_draft) */
    int32_t n_drafts;

    /* KV geometry: layers that see all positions before them, with those of the drafts behind, and layers that see a window. */
    int32_t n_attn, n_window;
    struct be_attn *attn_geo, *window_geo; /* [n_attn + n_drafts], [n_window] */
    int32_t window;                        /* the largest; 0: none */

    uint64_t n_params, bytes; /* of all tensors in the file */
    uint64_t owned_bytes;     /* copied to memory of our own */

    const struct gguf_file *file; /* borrowed; must outlive the model */
    void **owned;                 /* vectors and tables */
    size_t n_owned;
};

/* Loads and checks. Errors: VT_E_PAYLOAD names the tensor or key, what it is and what it would have to be; an unknown
 * architecture is refused by name, and so is a tensor that the architecture has no use for, since a result without it
 * would be wrong. On failure nothing is held. path is used for the name only. */
int model_load(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err);
/* As model_load, but reads the file's metadata alone: for the plan of a model that is not to be run. Its vectors are ones. */
int model_shapes(struct model **out, const struct gguf_file *f, const char *path, struct vt_err *err);
void model_free(struct model *m);

/* Largest row that a matrix of the model takes, and the most experts that a row uses, 1 without experts (for be_reserve). */
int64_t model_max_in(const struct model *m);
int model_max_used(const struct model *m);

#endif
