/* Failing malloc: preloaded into vitriold by a test, it refuses allocations while the test says so: VT_FAIL_FILE holds an int,
 * 0: none, 1: every one, n: every n-th. Threads: any. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int *order; /* shared with the test; NULL: none */
static atomic_uint calls;

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);

__attribute__((constructor)) static void find_order(void)
{
    const char *path = getenv("VT_FAIL_FILE");
    int fd = path != NULL ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd >= 0 ? mmap(NULL, sizeof *order, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (p != MAP_FAILED)
        order = p;
    if (fd >= 0)
        close(fd);
}

static int refused(void)
{
    int n = order != NULL ? atomic_load(order) : 0;
    if (n == 0 || atomic_fetch_add(&calls, 1) % (unsigned)n != 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n)
{
    return refused() ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return refused() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return refused() ? NULL : __libc_realloc(p, n);
}
