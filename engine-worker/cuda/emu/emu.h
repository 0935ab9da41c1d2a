/* Runs CUDA kernels on the CPU, for tests: the threads of a block are fibers that take turns, blocks come one after another. What a
 * kernel computes is checked so on machines without a GPU, and under sanitizers; how fast it is, and races between
 * blocks, are not seen. The headers beside this one stand in for those of CUDA.
 *
 * A barrier counts the threads that are still there. A thread that waits for ever (not all of its warp come) ends the process with
 * a message. One launch at a time in a process. */
#ifndef EMU_H
#define EMU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct emu_index {
    unsigned x, y, z;
};

/* Where the running thread is: variables with CUDA's names, since that is what kernels read. */
extern struct emu_index threadIdx, blockIdx, blockDim, gridDim;
/* Its block's memory: as many bytes as the launch names, 0xff when the block begins. */
void *emu_shared(void);

/* Calls kernel(arg) in every thread of every block and returns when all are done. */
void emu_launch(struct emu_index blocks, struct emu_index threads, size_t shared, void (*kernel)(void *arg),
                void *arg);

void emu_block_barrier(void);
void emu_warp_barrier(void);

/* What the lanes of the running thread's warp tell each other: [32][EMU_WORDS]. A lane writes its own, and between two barriers reads
 * the others'. */
#define EMU_WORDS 12
uint32_t (*emu_said(void))[EMU_WORDS];

/* Asynchronous copies into the block's memory. Each is done as late as it may be: when its thread waits until at most `left` of its
 * groups are on their way. Until then there are bytes 0xff. from: NULL for zeros. */
void emu_copy(void *to, const void *from, unsigned bytes);
void emu_commit(void);
void emu_copies_wait(unsigned left);

#ifdef __cplusplus
}
#endif
#endif
