/* llama: Llama 1 to 3, Mistral, SmolLM and, with expert_count, Mixtral. Interleaved rope, biases where the file has them.
 * The sliding window that some Mistral configurations name is not applied, as their weights were published with full
 * attention. */
#include "map.h"

static int dense(struct map *p, struct ffn *ffn, int layer)
{
    return map_ffn_dense(p, ffn, layer, ACT_SILU, true);
}

int map_llama(struct map *p)
{
    int32_t experts;
    if (map_int(p, "expert_count", 0, BE_EXPERTS_MAX, 0, &experts) < 0)
        return -1;
    struct map_plain s = {.attn = {.interleaved = true, .bias = BIAS_OPTIONAL},
                          .ffn = experts > 0 ? map_ffn_experts : dense};
    return map_plain(p, &s);
}
