#include "spm.h"

#include "merge.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

/* Symbols are stretches of the text; a symbol is known by where it begins in it. */
struct fragment {
    const struct vocab *v;
    const uint8_t *s;
    uint32_t *at, *len;
};

/* Highest score first: the order of floats as unsigned numbers, turned around. */
static uint32_t score_key(float score)
{
    uint32_t u;
    memcpy(&u, &score, sizeof u);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return ~u;
}

static bool fragment_key(void *ctx, uint32_t i, uint32_t j, uint32_t *key)
{
    const struct fragment *f = ctx;
    const uint32_t id = vocab_word(f->v, f->s + f->at[i], (size_t)f->len[i] + f->len[j]);
    if (id == VOCAB_NONE)
        return false;
    *key = score_key(f->v->score ? f->v->score[id] : 0.0f);
    return true;
}

static void fragment_join(void *ctx, uint32_t i, uint32_t j)
{
    struct fragment *f = ctx;
    f->len[i] += f->len[j];
}

static int emit(const struct fragment *f, uint32_t i, uint32_t unknown, struct tok_ids *out,
                struct vt_err *err)
{
    const uint32_t id = vocab_word(f->v, f->s + f->at[i], f->len[i]);
    if (id != VOCAB_NONE)
        return tok_ids_push(out, id, err);
    for (uint32_t k = 0; k < f->len[i]; k++) {
        uint32_t b = f->v->byte_id[f->s[f->at[i] + k]];
        if (b == VOCAB_NONE)
            b = unknown;
        if (b != VOCAB_NONE && tok_ids_push(out, b, err))
            return -1;
    }
    return 0;
}

int spm_encode(const struct vocab *v, const uint8_t *s, size_t n, bool prefix, uint32_t unknown,
               struct tok_ids *out, struct vt_err *err)
{
    if (n == 0)
        return 0;
    const size_t total = n + prefix;
    /* three numbers a symbol, then the text */
    uint32_t *mem = malloc(total * (3 * sizeof *mem + 1));
    if (!mem)
        return vt_fail(err, VT_E_NOMEM, "no memory to encode %zu bytes", n);
    uint8_t *text = (uint8_t *)(mem + total * 3);
    if (prefix)
        text[0] = ' ';
    memcpy(text + prefix, s, n);
    struct fragment f = {v, text, mem, mem + total};
    uint32_t *next = mem + total * 2;
    uint32_t k = 0;
    for (size_t at = 0; at < total; k++) {
        uint32_t cp;
        f.at[k] = (uint32_t)at;
        f.len[k] = (uint32_t)u8_decode(text + at, total - at, &cp);
        at += f.len[k];
    }
    int rc = merge_run(&(struct merge_rules){fragment_key, fragment_join, &f}, k, next, err);
    for (uint32_t i = 0; rc == 0 && i != MERGE_END; i = next[i])
        rc = emit(&f, i, unknown, out, err);
    free(mem);
    return rc;
}
