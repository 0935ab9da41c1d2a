/* qwen3: per-head RMS norm of q and k before half-split rope; no biases. */
#include "map.h"

static int dense(struct map *p, struct ffn *ffn, int layer)
{
    return map_ffn_dense(p, ffn, layer, ACT_SILU, false);
}

int map_qwen3(struct map *p)
{
    struct map_plain s = {.attn = {.head_norms = true}, .ffn = dense};
    return map_plain(p, &s);
}
