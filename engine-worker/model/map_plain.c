#include "map.h"

static int map_block(struct map *p, struct layer *l, int i, const struct map_plain *s)
{
    struct dim width = DIM(p->m->n_embd, "embedding_length");
    if (map_vector(p, &l->mixer_norm, i, "attn_norm.weight", width) < 0 ||
        map_attention(p, l, i, &s->attn) < 0 || map_vector(p, &l->ffn_norm, i, "ffn_norm.weight", width) < 0)
        return -1;
    return s->ffn(p, &l->ffn, i);
}

int map_plain(struct map *p, struct map_plain *s)
{
    struct model *m = p->m;
    if (map_trunk(p, false) < 0 || map_attention_keys(p, &s->attn) < 0)
        return -1;
    for (int i = 0; i < m->n_layer; i++)
        if (map_block(p, &m->layers[i], i, s) < 0)
            return -1;
    return 0;
}
