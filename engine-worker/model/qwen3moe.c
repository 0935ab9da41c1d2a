/* qwen3moe: the attention of qwen3; every layer has experts, none of them shared. */
#include "map.h"

int map_qwen3moe(struct map *p)
{
    struct map_plain s = {.attn = {.head_norms = true}, .ffn = map_ffn_experts};
    return map_plain(p, &s);
}
