#include "spm.h"

#include "merge.h"
#include "unicode.h"

#include <stdlib.h>
#include <string.h>

/* Pieces up to this many symbols are merged by scanning all pairs; longer ones with a heap. */
#define SHORT_PIECE 32

/* Symbols are stretches of a piece; a symbol is known by where it begins in it. */
struct piece {
    const struct vocab *v;
    const uint8_t *s;
    uint32_t *at, *len;
};

void spm_load(struct spm *m, const struct vocab *vocab, uint32_t unknown)
{
    *m = (struct spm){.vocab = vocab, .unknown = unknown};
    for (uint32_t id = 0; id < vocab->n; id++) {
        size_t n;
        const uint8_t *s = strings_at(&vocab->bytes, id, &n);
        for (size_t i = 0; vocab_is_plain(vocab->kind[id]) && i + 1 < n; i++)
            m->inside[s[i]][s[i + 1] / 64] |= 1ull << s[i + 1] % 64;
    }
}

/* Highest score first: the order of floats as unsigned numbers, turned around. */
static uint32_t score_key(float score)
{
    uint32_t u;
    memcpy(&u, &score, sizeof u);
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return ~u;
}

static bool piece_key(void *ctx, uint32_t i, uint32_t j, uint32_t *key)
{
    const struct piece *p = ctx;
    const uint32_t id = vocab_word(p->v, p->s + p->at[i], (size_t)p->len[i] + p->len[j]);
    if (id == VOCAB_NONE)
        return false;
    *key = score_key(p->v->score ? p->v->score[id] : 0.0f);
    return true;
}

static void piece_join(void *ctx, uint32_t i, uint32_t j)
{
    struct piece *p = ctx;
    p->len[i] += p->len[j];
}

static int emit(const struct spm *m, const uint8_t *s, size_t n, struct tok_ids *out, struct vt_err *err)
{
    const uint32_t id = vocab_word(m->vocab, s, n);
    if (id != VOCAB_NONE)
        return tok_ids_push(out, id, err);
    for (size_t k = 0; k < n; k++) {
        uint32_t b = m->vocab->byte_id[s[k]];
        if (b == VOCAB_NONE)
            b = m->unknown;
        if (b != VOCAB_NONE && tok_ids_push(out, b, err))
            return -1;
    }
    return 0;
}

/* Fills at and len with the symbols of n bytes and returns how many there are. */
static uint32_t symbols(struct piece *p, size_t n)
{
    uint32_t k = 0;
    for (size_t at = 0; at < n; k++) {
        uint32_t cp;
        p->at[k] = (uint32_t)at;
        p->len[k] = (uint32_t)u8_decode(p->s + at, n - at, &cp);
        at += p->len[k];
    }
    return k;
}

/* Joins among k symbols until no pair is a word; returns how many are left. */
static uint32_t merge_short(struct piece *p, uint32_t k)
{
    uint32_t key[SHORT_PIECE];
    bool can[SHORT_PIECE];
    for (uint32_t i = 0; i + 1 < k; i++)
        can[i] = piece_key(p, i, i + 1, &key[i]);
    for (;;) {
        uint32_t best = k;
        for (uint32_t i = 0; i + 1 < k; i++)
            if (can[i] && (best == k || key[i] < key[best]))
                best = i;
        if (best == k)
            return k;
        piece_join(p, best, best + 1);
        k--;
        for (uint32_t i = best + 1; i < k; i++) {
            p->at[i] = p->at[i + 1];
            p->len[i] = p->len[i + 1];
            can[i] = i + 1 < k && can[i + 1];
            key[i] = i + 1 < k ? key[i + 1] : 0;
        }
        if (best + 1 < k)
            can[best] = piece_key(p, best, best + 1, &key[best]);
        if (best > 0)
            can[best - 1] = piece_key(p, best - 1, best, &key[best - 1]);
    }
}

static int encode_long(const struct spm *m, const uint8_t *s, size_t n, struct tok_ids *out,
                       struct vt_err *err)
{
    uint32_t *mem = malloc(n * 3 * sizeof *mem);
    if (!mem)
        return vt_fail(err, VT_E_NOMEM, "no memory to encode %zu bytes", n);
    struct piece p = {m->vocab, s, mem, mem + n};
    uint32_t *next = mem + n * 2;
    const uint32_t k = symbols(&p, n);
    int rc = merge_run(&(struct merge_rules){piece_key, piece_join, &p}, k, next, err);
    for (uint32_t i = 0; rc == 0 && i != MERGE_END; i = next[i])
        rc = emit(m, s + p.at[i], p.len[i], out, err);
    free(mem);
    return rc;
}

static int encode_piece(const struct spm *m, const uint8_t *s, size_t n, uint32_t n_symbols,
                        struct tok_ids *out, struct vt_err *err)
{
    const uint32_t whole = vocab_word(m->vocab, s, n);
    if (whole != VOCAB_NONE && vocab_is_own(m->vocab, whole))
        return tok_ids_push(out, whole, err);
    if (n_symbols > SHORT_PIECE)
        return encode_long(m, s, n, out, err);
    uint32_t at[SHORT_PIECE], len[SHORT_PIECE];
    struct piece p = {m->vocab, s, at, len};
    const uint32_t k = merge_short(&p, symbols(&p, n));
    if (whole != VOCAB_NONE && k == 1)
        vocab_set_own(m->vocab, whole);
    for (uint32_t i = 0; i < k; i++)
        if (emit(m, s + at[i], len[i], out, err))
            return -1;
    return 0;
}

static int encode_text(const struct spm *m, const uint8_t *s, size_t n, struct tok_ids *out,
                       struct vt_err *err)
{
    size_t from = 0;
    uint32_t n_symbols = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        at += u8_decode(s + at, n - at, &cp);
        n_symbols++;
        if (at < n && (m->inside[s[at - 1]][s[at] / 64] >> s[at] % 64 & 1))
            continue;
        if (encode_piece(m, s + from, at - from, n_symbols, out, err))
            return -1;
        from = at;
        n_symbols = 0;
    }
    return 0;
}

int spm_encode(const struct spm *m, const uint8_t *s, size_t n, bool prefix, struct tok_ids *out,
               struct vt_err *err)
{
    if (n == 0 || !prefix)
        return encode_text(m, s, n, out, err);
    uint8_t *text = malloc(n + 1);
    if (!text)
        return vt_fail(err, VT_E_NOMEM, "no memory to encode %zu bytes", n);
    text[0] = ' ';
    memcpy(text + 1, s, n);
    const int rc = encode_text(m, text, n + 1, out, err);
    free(text);
    return rc;
}
