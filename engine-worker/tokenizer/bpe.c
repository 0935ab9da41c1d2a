#include "bpe.h"

#include "merge.h"

#include <stdlib.h>
#include <string.h>

/* Pieces up to this many bytes are merged by scanning all pairs; longer ones with a heap. */
#define SHORT_PIECE 48

static uint32_t pair_hash(uint32_t left, uint32_t right)
{
    const uint64_t x = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(x >> 32);
}

static const struct pair *find_pair(const struct bpe *b, uint32_t left, uint32_t right)
{
    for (uint32_t i = pair_hash(left, right) & b->mask;; i = (i + 1) & b->mask) {
        const struct pair *p = &b->pairs[i];
        if (p->joined == VOCAB_NONE)
            return NULL;
        if (p->left == left && p->right == right)
            return p;
    }
}

static void add_pair(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t joined)
{
    uint32_t i = pair_hash(left, right) & b->mask;
    for (; b->pairs[i].joined != VOCAB_NONE; i = (i + 1) & b->mask)
        if (b->pairs[i].left == left && b->pairs[i].right == right)
            return; /* the first, lowest rank wins */
    b->pairs[i] = (struct pair){left, right, rank, joined};
}

/* Reads "left right"; a merge whose parts or result are no tokens can never apply and is left out. */
static void add_merge(struct bpe *b, const char *s, size_t n, uint32_t rank, uint8_t *buf,
                      struct vt_sha256 *sha)
{
    const char *space = n > 1 ? memchr(s + 1, ' ', n - 1) : NULL;
    if (!space)
        return;
    const size_t left_n = (size_t)(space - s);
    size_t ln, rn;
    if (!byte_alphabet_decode(s, left_n, buf, &ln) ||
        !byte_alphabet_decode(space + 1, n - left_n - 1, buf + ln, &rn) || ln == 0 || rn == 0)
        return;
    const uint32_t left = vocab_word(b->vocab, buf, ln), right = vocab_word(b->vocab, buf + ln, rn),
                   joined = vocab_word(b->vocab, buf, ln + rn);
    if (left == VOCAB_NONE || right == VOCAB_NONE || joined == VOCAB_NONE)
        return;
    add_pair(b, left, right, rank, joined);
    vt_sha256_add(sha, &(struct pair){left, right, rank, joined}, sizeof(struct pair));
}

static int load_merges(struct bpe *b, const struct gguf_file *g, uint32_t n, uint8_t *buf,
                       struct vt_sha256 *sha, struct vt_err *err)
{
    static const char key[] = "tokenizer.ggml.merges";
    for (uint32_t i = 0; i < n; i++) {
        const char *s = NULL;
        size_t len = 0;
        if (gguf_arr_str(g, key, i, &s, &len, err) != 0)
            return vt_fail(err, VT_E_PAYLOAD, "%s[%u] cannot be read", key, i);
        if (len <= 2 * 65536)
            add_merge(b, s, len, i, buf, sha);
    }
    return 0;
}

int bpe_load(struct bpe *b, const struct vocab *vocab, const struct gguf_file *g, struct vt_sha256 *sha,
             struct vt_err *err)
{
    static const char key[] = "tokenizer.ggml.merges";
    *b = (struct bpe){.vocab = vocab, .unknown = VOCAB_NONE};
    enum gguf_type type = GGUF_STR;
    uint64_t n = 0;
    const int found = gguf_arr(g, key, &type, &n, err);
    if (found < 0)
        return -1;
    if (found > 0 || type != GGUF_STR)
        return vt_fail(err, VT_E_PAYLOAD, "%s is missing: a gpt2 vocabulary needs its merges", key);
    if (n > 16u << 20)
        return vt_fail(err, VT_E_PAYLOAD, "%s has %llu entries; at most 16 Mi are supported", key,
                       (unsigned long long)n);
    uint32_t cap = 16;
    while (cap < n * 3 / 2)
        cap *= 2;
    uint8_t *buf = malloc(2 * 65536);
    b->pairs = malloc((size_t)cap * sizeof *b->pairs);
    int rc = 0;
    if (!buf || !b->pairs) {
        rc = vt_fail(err, VT_E_NOMEM, "no memory for %llu merges", (unsigned long long)n);
    } else {
        memset(b->pairs, 0xFF, (size_t)cap * sizeof *b->pairs);
        b->mask = cap - 1;
        rc = load_merges(b, g, (uint32_t)n, buf, sha, err);
    }
    free(buf);
    if (rc)
        bpe_fini(b);
    return rc;
}

void bpe_fini(struct bpe *b)
{
    free(b->pairs);
    *b = (struct bpe){0};
}

/* A symbol without a token (VOCAB_NONE) stands for a byte that the vocabulary lacks. */
static int emit(const struct bpe *b, uint32_t id, struct tok_ids *out, struct vt_err *err)
{
    if (id == VOCAB_NONE)
        id = b->unknown;
    return id == VOCAB_NONE ? 0 : tok_ids_push(out, id, err);
}

static size_t merge_short(const struct bpe *b, const uint8_t *s, size_t n, uint32_t *id)
{
    const struct pair *pair[SHORT_PIECE];
    for (size_t i = 0; i < n; i++)
        id[i] = b->vocab->byte_id[s[i]];
    for (size_t i = 0; i + 1 < n; i++)
        pair[i] = find_pair(b, id[i], id[i + 1]);
    while (n > 1) {
        size_t best = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++)
            if (pair[i] && pair[i]->rank < rank) {
                rank = pair[i]->rank;
                best = i;
            }
        if (best == n)
            break;
        id[best] = pair[best]->joined;
        n--;
        for (size_t i = best + 1; i < n; i++)
            id[i] = id[i + 1];
        for (size_t i = best + 1; i + 1 < n; i++)
            pair[i] = pair[i + 1];
        if (best + 1 < n)
            pair[best] = find_pair(b, id[best], id[best + 1]);
        if (best > 0)
            pair[best - 1] = find_pair(b, id[best - 1], id[best]);
    }
    return n;
}

struct long_piece {
    const struct bpe *b;
    uint32_t *id;
};

static bool long_key(void *ctx, uint32_t i, uint32_t j, uint32_t *key)
{
    const struct long_piece *l = ctx;
    const struct pair *p = find_pair(l->b, l->id[i], l->id[j]);
    if (p)
        *key = p->rank;
    return p != NULL;
}

static void long_join(void *ctx, uint32_t i, uint32_t j)
{
    const struct long_piece *l = ctx;
    l->id[i] = find_pair(l->b, l->id[i], l->id[j])->joined;
}

static int merge_long(const struct bpe *b, const uint8_t *s, size_t n, struct tok_ids *out,
                      struct vt_err *err)
{
    uint32_t *mem = malloc(n * 2 * sizeof *mem);
    if (!mem)
        return vt_fail(err, VT_E_NOMEM, "no memory to merge %zu bytes", n);
    struct long_piece l = {b, mem};
    uint32_t *next = mem + n;
    for (size_t i = 0; i < n; i++)
        l.id[i] = b->vocab->byte_id[s[i]];
    int rc = merge_run(&(struct merge_rules){long_key, long_join, &l}, (uint32_t)n, next, err);
    for (uint32_t i = 0; rc == 0 && i != MERGE_END; i = next[i])
        rc = emit(b, l.id[i], out, err);
    free(mem);
    return rc;
}

int bpe_piece(const struct bpe *b, const uint8_t *s, size_t n, struct tok_ids *out, struct vt_err *err)
{
    const uint32_t whole = vocab_word(b->vocab, s, n);
    if (whole != VOCAB_NONE && (b->ignore_merges || vocab_is_own(b->vocab, whole)))
        return tok_ids_push(out, whole, err);
    if (n > SHORT_PIECE)
        return merge_long(b, s, n, out, err);
    uint32_t id[SHORT_PIECE];
    const size_t k = merge_short(b, s, n, id);
    if (whole != VOCAB_NONE && k == 1)
        vocab_set_own(b->vocab, whole);
    for (size_t i = 0; i < k; i++)
        if (emit(b, id[i], out, err))
            return -1;
    return 0;
}
