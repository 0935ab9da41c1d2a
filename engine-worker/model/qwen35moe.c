/* qwen35moe: the mixers of qwen35; experts beside a gated shared one. */
#include "map.h"

int map_qwen35moe(struct map *p)
{
    return map_hybrid(p, &(struct map_hybrid){.project = map_project_split, .ffn = map_ffn_shared});
}
