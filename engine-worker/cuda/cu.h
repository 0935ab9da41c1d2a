/* CUDA: a backend (backend.h) for one GPU: its operations, on its memory, in one stream.
 *
 * Everything is queued in the order of the calls and nothing waits, except be_read, be_fetch and be_sync. An error of any kind sticks:
 * later operations do nothing and be_read and be_sync tell it, since after a CUDA error nothing on the device can be trusted
 * and the process has to end. One thread, except for be_fetch.
 *
 * Arithmetic: up to CU_VEC_ROWS rows a matmul reads activations as int8 with a scale for every 32, as the CPU does, and sums
 * in an order that depends on the weight's shape alone. More rows go through the tensor cores with f16 operands and float32
 * sums. So a row's result depends on which of the two its batch takes, and on nothing else of its neighbours. test_cuda.c
 * states the bounds. Experts' rows may be sorted in any order within one expert. */
#ifndef CU_H
#define CU_H

#include "gpu.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CU_VEC_ROWS 8

/* Count, facts and backend as gpu.h has them; a program that has this library linked need not open the module. */
extern const struct gpu_module vitriol_gpu;

#ifdef __cplusplus
}
#endif
#endif
