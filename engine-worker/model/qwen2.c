/* qwen2: half-split rope; biases on q, k and v. */
#include "map.h"

static int dense(struct map *p, struct ffn *ffn, int layer)
{
    return map_ffn_dense(p, ffn, layer, ACT_SILU, false);
}

int map_qwen2(struct map *p)
{
    struct map_plain s = {.attn = {.bias = BIAS_QKV}, .ffn = dense};
    return map_plain(p, &s);
}
