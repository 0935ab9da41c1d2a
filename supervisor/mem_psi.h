/* Mem psi: a pressure trigger: the kernel wakes us when stalls for memory exceed 150 ms within two seconds, so that the
 * sampler need not be quick while all is well. Where none can be armed, sampling alone does everything. Main thread. */
#ifndef MEM_PSI_H
#define MEM_PSI_H

#include <stdbool.h>
#include <stddef.h>

/* Arms a trigger on a pressure file: a descriptor that polls with POLLPRI, or -1 with the reason in why. */
int mem_psi_arm(const char *path, char *why, size_t size);

#endif
