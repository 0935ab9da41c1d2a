#include "tok.h"
#include "unicode.h"

#include <stdlib.h>

void tok_ids_fini(struct tok_ids *v)
{
    free(v->ids);
    *v = (struct tok_ids){0};
}

int tok_ids_push(struct tok_ids *v, uint32_t id, struct vt_err *err)
{
    if (v->n == v->cap) {
        const size_t cap = v->cap * 2 + 64;
        uint32_t *ids = realloc(v->ids, cap * sizeof *ids);
        if (!ids)
            return vt_fail(err, VT_E_NOMEM, "no memory for %zu token ids", cap);
        v->ids = ids;
        v->cap = cap;
    }
    v->ids[v->n++] = id;
    return 0;
}

struct encoding {
    const struct tok *t;
    unsigned flags;
    struct tok_ids *out;
    struct vt_err *err;
};

static int encode_piece(void *ctx, const uint8_t *s, size_t n)
{
    const struct encoding *e = ctx;
    return bpe_piece(&e->t->bpe, s, n, e->out, e->err);
}

/* Text without special tokens. */
static int encode_fragment(struct encoding *e, const uint8_t *s, size_t n)
{
    const struct tok *t = e->t;
    if (n == 0)
        return 0;
    if (t->model == TOK_MODEL_SPM)
        return spm_encode(&t->spm, s, n, t->add_space, e->out, e->err);
    if (!t->pre->nfc || (e->flags & TOK_AS_IS) || !u_nfc_changes(s, n))
        return pretok_split(t->pre, s, n, encode_piece, e);
    uint8_t *nfc;
    size_t nfc_n;
    if (u_nfc(s, n, &nfc, &nfc_n, e->err))
        return -1;
    const int rc = pretok_split(t->pre, nfc, nfc_n, encode_piece, e);
    free(nfc);
    return rc;
}

/* Walks along the spans with a position that only grows: how many bytes from here on are trusted. */
struct trust {
    const struct tok_span *spans;
    size_t n, i;
};

static size_t trusted_from(struct trust *tr, size_t at)
{
    while (tr->i < tr->n && tr->spans[tr->i].end <= at)
        tr->i++;
    size_t end = at;
    for (size_t i = tr->i; i < tr->n && tr->spans[i].trusted; i++) {
        end = tr->spans[i].end;
        if (end - at > SPECIAL_LONGEST)
            break;
    }
    return end - at;
}

/* White space behind a special token that its model drops. */
static size_t dropped(const struct tok *t, uint32_t id, const uint8_t *s, size_t n)
{
    if (!t->strips_right)
        return 0;
    for (size_t i = 0; i < sizeof t->keeps / sizeof *t->keeps; i++)
        if (t->keeps[i] == (int32_t)id)
            return 0;
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        const size_t len = u8_decode(s + at, n - at, &cp);
        if (!(u_class(cp) & U_SP))
            break;
        at += len;
    }
    return at;
}

static int encode_text(struct encoding *e, const uint8_t *s, size_t n, struct trust *trust)
{
    const struct tok *t = e->t;
    size_t from = 0;
    for (size_t at = 0; at < n;) {
        if (!t->special.root[s[at]]) {
            at++;
            continue;
        }
        size_t len = 0;
        const uint32_t id = special_match(&t->special, s + at, n - at, trusted_from(trust, at), &len);
        if (id == VOCAB_NONE) {
            at++;
            continue;
        }
        if (encode_fragment(e, s + from, at - from) || tok_ids_push(e->out, id, e->err))
            return -1;
        at += len;
        at += dropped(t, id, s + at, n - at);
        from = at;
    }
    return encode_fragment(e, s + from, n - from);
}

int tok_encode_spans(const struct tok *t, const char *text, size_t len, const struct tok_span *spans,
                     size_t n_spans, unsigned flags, struct tok_ids *out, struct vt_err *err)
{
    if (len > INT32_MAX)
        return vt_fail(err, VT_E_TOO_LARGE,
                       "a text of %zu bytes is too long; at most 2 GiB are encoded at once", len);
    struct encoding e = {t, flags, out, err};
    struct trust trust = {spans, n_spans, 0};
    const size_t before = out->n;
    int rc = encode_text(&e, (const uint8_t *)text, len, &trust);
    if (rc == 0 && (flags & TOK_ADD_SPECIAL)) {
        const int32_t bos = tok_bos(t), eos = tok_eos(t);
        /* templates often write the begin token themselves */
        const bool has_bos = out->n > before && bos >= 0 && out->ids[before] == (uint32_t)bos;
        if (t->add_bos && bos >= 0 && !has_bos) {
            rc = tok_ids_push(out, 0, err);
            for (size_t i = out->n; rc == 0 && --i > before;)
                out->ids[i] = out->ids[i - 1];
            if (rc == 0)
                out->ids[before] = (uint32_t)bos;
        }
        if (rc == 0 && t->add_eos && eos >= 0)
            rc = tok_ids_push(out, (uint32_t)eos, err);
    }
    if (rc)
        out->n = before;
    return rc;
}

int tok_encode(const struct tok *t, const char *text, size_t len, unsigned flags, struct tok_ids *out,
               struct vt_err *err)
{
    const struct tok_span all = {len, (flags & TOK_PARSE_SPECIAL) != 0};
    return tok_encode_spans(t, text, len, &all, 1, flags, out, err);
}
