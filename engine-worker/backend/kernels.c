/* The kernels of one instruction set. This file is compiled once for each, with its own flags and names: BE_TABLE is the table's
 * name, BE_LEVEL its level. */
#include "k_attn.h"
#include "k_coded.h"
#include "k_float.h"
#include "k_panel.h"
#include "k_rows.h"

const struct be_kernels BE_TABLE = {
    .simd = BE_LEVEL,
    .quant_q32 = quant_q32,
    .quant_q256 = quant_q256,
    .mm = {[BE_MM_F32] = mm_f32,
           [BE_MM_F16] = mm_f16,
           [BE_MM_BF16] = mm_bf16,
           [BE_MM_Q8_0] = mm_q8_0,
           [BE_MM_Q4_0] = mm_q4_0,
           [BE_MM_Q4_K] = mm_q4_k,
           [BE_MM_Q5_K] = mm_q5_k,
           [BE_MM_Q6_K] = mm_q6_k,
#define CODED_ENTRY(TYPE, BLOCK, BYTES, FORM, BIAS, PANELS_NAME) [BE_MM_##TYPE] = mm_##TYPE,
           CODED_KERNELS(CODED_ENTRY)},
    .rmsnorm = rmsnorm,
    .add = add,
    .silu_mul = silu_mul,
    .gelu_mul = gelu_mul,
    .sigmoid_gate = sigmoid_gate,
    .softcap = softcap,
    .to_f16 = to_f16,
    .attn = attn,
    .conv = conv,
    .l2norm = l2norm,
    .delta = delta,
    .gated_norm = gated_norm,
};
