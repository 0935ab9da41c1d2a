/* Matmul of float weights, and the dot products of attention: tiles of R rows times N tokens with 16 running sums each. */
#ifndef BE_K_FLOAT_H
#define BE_K_FLOAT_H

#include "vec.h"

/* Rows and tokens of a tile: as many running sums as fit the registers. */
#if W == 16
#define F_ROWS   4
#define F_TOKENS 5
#define F_ROWS_1 8
#elif W == 8
#define F_ROWS   2
#define F_TOKENS 3
#define F_ROWS_1 4
#else
#define F_ROWS   1
#define F_TOKENS 3
#define F_ROWS_1 3
#endif

#define F_BLOCK                                                                                              \
    512 /* values of a row between two visits, so that the tokens' parts stay in the nearest cache */
#define F_CHUNK 32 /* rows that share the visit */

/* A loader of W weights from place i of a row; n is what is left, only the tail of a row has less than W. */
enum load { LOAD_F32, LOAD_F16, LOAD_BF16 };

ALWAYS vf load_w(enum load kind, const uint8_t *row, int64_t i)
{
    switch (kind) {
    case LOAD_F16: return v_half(row + 2 * i);
    case LOAD_BF16: return v_bf16(row + 2 * i);
    default: return v_load((const float *)row + i);
    }
}

/* The last n (< 16) values of a row, zeros behind them. */
ALWAYS void load_tail(enum load kind, const uint8_t *row, int64_t i, int64_t n, vf out[NV])
{
    uint8_t b[64] = {0};
    int64_t size = kind == LOAD_F32 ? 4 : 2;
    memcpy(b, row + size * i, (size_t)(size * n));
    UNROLL
    for (int v = 0; v < NV; v++)
        out[v] = load_w(kind, b, v * W);
}

/* acc[r][t] += w[r][0..n) · x[t][0..n); acc is R x N x 16 floats. */
ALWAYS void dots(enum load kind, const int R, const int N, const uint8_t *w, size_t w_stride, const float *x,
                 int64_t x_stride, int64_t n, float *acc, int64_t acc_stride)
{
    vf s[8][5][NV], wv[NV];
    int64_t i = 0;
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int t = 0; t < N; t++)
        UNROLL
    for (int v = 0; v < NV; v++)
        s[r][t][v] = v_load(acc + r * acc_stride + t * 16 + v * W);
    for (; i + 16 <= n; i += 16)
        UNROLL
    for (int v = 0; v < NV; v++) {
        vf xv[5];
        UNROLL
        for (int t = 0; t < N; t++) {
            xv[t] = v_load(x + t * x_stride + i + v * W);
            PIN(xv[t]);
        }
        UNROLL
        for (int r = 0; r < R; r++) {
            vf row = load_w(kind, w + (size_t)r * w_stride, i + v * W);
            PIN(row);
            UNROLL
            for (int t = 0; t < N; t++)
                s[r][t][v] = VFMA(row, xv[t], s[r][t][v]);
        }
    }
    if (i < n)
        UNROLL
    for (int r = 0; r < R; r++) {
        load_tail(kind, w + (size_t)r * w_stride, i, n - i, wv);
        UNROLL
        for (int t = 0; t < N; t++) {
            vf xv[NV];
            load_tail(LOAD_F32, (const uint8_t *)(x + t * x_stride), i, n - i, xv);
            UNROLL
            for (int v = 0; v < NV; v++)
                s[r][t][v] = VFMA(wv[v], xv[v], s[r][t][v]);
        }
    }
    UNROLL
    for (int r = 0; r < R; r++)
        UNROLL
    for (int t = 0; t < N; t++)
        UNROLL
    for (int v = 0; v < NV; v++)
        v_store(acc + r * acc_stride + t * 16 + v * W, s[r][t][v]);
}

/* All pairs of n_rows rows and n_tokens tokens over n values; acc[row][token][16], acc_stride floats between rows. */
ALWAYS void dots_block(enum load kind, int64_t n_rows, int64_t n_tokens, const uint8_t *w, size_t w_stride,
                       const float *x, int64_t x_stride, int64_t n, float *acc, int64_t acc_stride)
{
    int64_t tiled = n_tokens / F_TOKENS * F_TOKENS, r = 0, t;
    for (; r + F_ROWS <= n_rows && tiled > 0; r += F_ROWS)
        for (t = 0; t < tiled; t += F_TOKENS)
            dots(kind, F_ROWS, F_TOKENS, w + (size_t)r * w_stride, w_stride, x + t * x_stride, x_stride, n,
                 acc + r * acc_stride + t * 16, acc_stride);
    for (; r < n_rows && tiled > 0; r++)
        for (t = 0; t < tiled; t += F_TOKENS)
            dots(kind, 1, F_TOKENS, w + (size_t)r * w_stride, w_stride, x + t * x_stride, x_stride, n,
                 acc + r * acc_stride + t * 16, acc_stride);
    for (r = 0; r + F_ROWS_1 <= n_rows; r += F_ROWS_1)
        for (t = tiled; t < n_tokens; t++)
            dots(kind, F_ROWS_1, 1, w + (size_t)r * w_stride, w_stride, x + t * x_stride, x_stride, n,
                 acc + r * acc_stride + t * 16, acc_stride);
    for (; r < n_rows; r++)
        for (t = tiled; t < n_tokens; t++)
            dots(kind, 1, 1, w + (size_t)r * w_stride, w_stride, x + t * x_stride, x_stride, n,
                 acc + r * acc_stride + t * 16, acc_stride);
}

#define F_GROUP (12 / F_TOKENS * F_TOKENS) /* tokens of a visit */

ALWAYS void fold_block(const struct be_mm *m, const float *acc, int64_t r0, int64_t rows, int64_t t0,
                       int64_t tokens, int64_t acc_stride)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < tokens; t++) {
            vf s[NV];
            memcpy(s, acc + r * acc_stride + t * 16, sizeof s);
            m->y[(t0 + t) * m->n_out + r0 + r] = v_fold(s);
        }
}

ALWAYS void mm_float(enum load kind, const struct be_mm *m, int64_t r0, int64_t r1)
{
    _Alignas(64) float acc[F_CHUNK][F_GROUP * 16];
    size_t size = kind == LOAD_F32 ? 4 : 2;
    int64_t block = m->T < F_TOKENS ? m->n_in : F_BLOCK;
    for (int64_t r = r0; r < r1; r += F_CHUNK) {
        int64_t rows = r1 - r < F_CHUNK ? r1 - r : F_CHUNK;
        for (int64_t t = 0; t < m->T; t += F_GROUP) {
            int64_t tokens = m->T - t < F_GROUP ? m->T - t : F_GROUP;
            memset(acc, 0, sizeof acc);
            for (int64_t i = 0; i < m->n_in; i += block)
                dots_block(kind, rows, tokens, m->w + (size_t)r * m->row_bytes + (size_t)i * size,
                           m->row_bytes, m->x.f + t * m->x.f_stride + i, m->x.f_stride,
                           m->n_in - i < block ? m->n_in - i : block, acc[0], F_GROUP * 16);
            fold_block(m, acc[0], r, rows, t, tokens, F_GROUP * 16);
        }
    }
}

static void mm_f32(const struct be_mm *m, int64_t r0, int64_t r1)
{
    mm_float(LOAD_F32, m, r0, r1);
}

static void mm_f16(const struct be_mm *m, int64_t r0, int64_t r1)
{
    mm_float(LOAD_F16, m, r0, r1);
}

static void mm_bf16(const struct be_mm *m, int64_t r0, int64_t r1)
{
    mm_float(LOAD_BF16, m, r0, r1);
}

#endif
