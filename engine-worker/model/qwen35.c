/* qwen35: gated delta nets with gated attention; value head j of a delta net reads key head j mod n; dense. */
#include "map.h"

static int dense(struct map *p, struct ffn *ffn, int layer)
{
    return map_ffn_dense(p, ffn, layer, ACT_SILU, false);
}

int map_qwen35(struct map *p)
{
    return map_hybrid(p, &(struct map_hybrid){.project = map_project_split, .ffn = dense});
}
