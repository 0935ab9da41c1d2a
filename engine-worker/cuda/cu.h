/* CUDA: a backend (backend.h) for one GPU: its operations, on its memory, in one stream.
 *
 * Everything is queued in the order of the calls and nothing waits, except be_read, be_fetch and be_sync. An error of any kind sticks:
 * later operations do nothing and be_read and be_sync tell it, since after a CUDA error nothing on the device can be trusted
 * and the process has to end. One thread, except for be_fetch.
 *
 * Arithmetic: up to CU_CODED_ROWS rows a matmul reads activations as int8 with a scale for every 32, as the CPU does: up to
 * CU_LANE_ROWS in an order that depends on the weight's shape, more of them in another that does, too. Still more rows, and
 * those of float weights and of experts beyond CU_VEC_ROWS, go through the tensor cores with f16 operands and float32 sums.
 * Attention of CU_FLASH_ROWS rows and more takes its queries and weights as f16. So a row's result depends on which way its
 * batch takes, and on nothing else of its neighbours. test_cuda.c states the bounds. Experts' rows may be sorted in any order
 * within one expert. */
#ifndef CU_H
#define CU_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CU_VEC_ROWS   8 /* of float weights, of experts, and where there are no int8 tensor cores */
#define CU_LANE_ROWS  4
#define CU_CODED_ROWS 32
#define CU_FLASH_ROWS 16

/* As gpu.h has them. */
int cu_count(void);
int cu_facts(struct gpu_facts *out, int device, struct vt_err *err);
int cu_backend(struct be **out, int device, struct vt_err *err);
/* A program that has this library linked need not open the module. */
extern const struct gpu_module vitriol_gpu;

#ifdef __cplusplus
}
#endif
#endif
