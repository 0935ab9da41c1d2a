/* CUDA: a backend (backend.h) for one GPU: its operations, on its memory, in one stream.
 *
 * Everything is queued in the order of the calls and nothing waits, except be_read, be_fetch and be_sync. An error of any kind sticks:
 * later operations do nothing and be_read and be_sync tell it, since after a CUDA error nothing on the device can be trusted
 * and the process has to end. One thread, except for be_fetch.
 *
 * Arithmetic: matmuls of quantized weights take both operands as f16, products and sums as float32; up to CU_FEW_ROWS rows they
 * sum in an order that depends on the weight's shape, more rows in another that does, too. A single row times Q4_K, Q5_K or Q6_K
 * is taken as codes of 15 bits with a scale for every 32 values, multiplied as integers. Float weights do the same beyond
 * CU_VEC_ROWS rows; up to them they are multiplied as float32. Attention takes queries and weights as f16. So a row's result
 * depends on which way its batch takes, and on nothing else of its neighbours. On GPUs without tensor cores (before sm_75)
 * quantized weights are multiplied with int8 activations, as on the CPU. test_weights.c and its neighbours state the bounds. Experts' rows may be
 * sorted in any order within one expert. The delta rule is serial in time for up to CU_DELTA_SERIAL rows of a sequence and goes by chunks
 * of 64 for more, counted from the first row of the batch; both are float32, as on the CPU, and differ by rounding. */
#ifndef CU_H
#define CU_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CU_VEC_ROWS     8  /* of float weights */
#define CU_FEW_ROWS     32 /* of quantized ones; of experts half of it on average */
#define CU_EXPERT_ROWS  32 /* of experts that take a row at a time */
#define CU_FLASH_ROWS   16
#define CU_DELTA_SERIAL 16 /* rows of a sequence; more go through the delta rule by chunks */

/* As gpu.h has them. */
int cu_count(void);
int cu_facts(struct gpu_facts *out, int device, struct vt_err *err);
int cu_backend(struct be **out, int device, struct vt_err *err);
/* For tests: as if the GPU had no tensor cores. */
int cu_plain_only(struct be *b, struct vt_err *err);
/* A program that has this library linked need not open the module. */
extern const struct gpu_module vitriol_gpu;

#ifdef __cplusplus
}
#endif
#endif
