#include "emu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct emu_index one = {1, 1, 1};

/* Every thread of every block is there once, and knows where it is. */
static void note(void *arg)
{
    unsigned char *seen = arg;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    seen[block * blockDim.x * blockDim.y * blockDim.z + thread]++;
}

static void places(void **state)
{
    unsigned char seen[6 * 70] = {0};
    emu_launch((struct emu_index){3, 2, 1}, (struct emu_index){5, 7, 2}, 0, note, seen);
    for (size_t i = 0; i < sizeof seen; i++)
        assert_int_equal(seen[i], 1);
}

/* A sum over the block by halves; each step needs what all others did before it. */
static void sum(void *arg)
{
    unsigned *shared = emu_shared();
    shared[threadIdx.x] = threadIdx.x;
    emu_block_barrier();
    for (unsigned by = blockDim.x / 2; by > 0; by /= 2) {
        if (threadIdx.x < by)
            shared[threadIdx.x] += shared[threadIdx.x + by];
        emu_block_barrier();
    }
    if (threadIdx.x == 0)
        ((unsigned *)arg)[blockIdx.x] = shared[0];
}

static void block_barrier(void **state)
{
    unsigned out[3] = {0};
    emu_launch((struct emu_index){3, 1, 1}, (struct emu_index){256, 1, 1}, 256 * sizeof(unsigned), sum, out);
    for (int i = 0; i < 3; i++)
        assert_int_equal(out[i], 255 * 128);
}

/* Lanes that leave are not waited for. */
static void exchange(void *arg)
{
    unsigned lane = threadIdx.x % 32;
    if (threadIdx.x / 32 == 1 && lane >= 16)
        return;
    for (unsigned round = 0; round < 5; round++) {
        emu_said()[lane][0] = 100 * threadIdx.x + round;
        emu_warp_barrier();
        ((unsigned *)arg)[threadIdx.x] = emu_said()[lane ^ 1][0];
        emu_warp_barrier();
    }
}

static void warp_barrier(void **state)
{
    unsigned out[64] = {0};
    emu_launch(one, (struct emu_index){64, 1, 1}, 0, exchange, out);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(out[i], i < 48 ? 100 * (i ^ 1) + 4 : 0);
}

/* What is copied is not there before its group is waited for. */
static void late(void *arg)
{
    static const unsigned char from[16] = "fifteen letters";
    unsigned char *at = emu_shared(), *seen = arg;
    emu_copy(at, from, 16);
    emu_commit();
    emu_copy(at + 16, NULL, 16);
    emu_commit();
    seen[0] = at[0];
    emu_copies_wait(2);
    seen[1] = at[0];
    emu_copies_wait(1);
    seen[2] = at[0];
    seen[3] = at[16];
    emu_copies_wait(0);
    seen[4] = at[16];
}

static void copies(void **state)
{
    static const unsigned char want[5] = {0xff, 0xff, 'f', 0xff, 0};
    unsigned char seen[5];
    emu_launch(one, one, 32, late, seen);
    assert_memory_equal(seen, want, sizeof want);
}

static void torn(void *arg)
{
    if (threadIdx.x != 7)
        emu_block_barrier();
    else
        for (;;)
            emu_warp_barrier();
}

/* A barrier that not all reach ends the process, and says so. */
static void torn_barrier(void **state)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        close(STDERR_FILENO);
        emu_launch(one, (struct emu_index){64, 1, 1}, 0, torn, NULL);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places), cmocka_unit_test(block_barrier), cmocka_unit_test(warp_barrier),
        cmocka_unit_test(copies), cmocka_unit_test(torn_barrier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
