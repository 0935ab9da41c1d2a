#include "emu.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#endif
#ifdef ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define STACK ((size_t)128 << 10)
#define MOST  1024 /* threads of a block */
#define WARP  32

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    unsigned bytes, group;
};

struct fiber {
    void *sp; /* where it goes on */
    char *stack;
    void *fake; /* the sanitizer's, while it waits */
    struct emu_index at;
    bool gone;
    struct copy *copies; /* on their way, in their order */
    unsigned n_copies, cap, groups;
};

struct barrier {
    unsigned here, there; /* threads that wait, and that are not gone */
    uint64_t times;       /* it has opened */
};

struct emu {
    struct fiber fibers[MOST], main;
    struct barrier block, warps[MOST / WARP];
    size_t main_bytes; /* of main's stack */
    uint32_t said[MOST][EMU_WORDS];
    unsigned n, now; /* threads, and which of them runs */
    unsigned idle;   /* turns since something happened */
    void (*kernel)(void *arg);
    void *arg, *shared;
    size_t shared_cap;
};

struct emu_index threadIdx, blockIdx, blockDim, gridDim;

/* The threads of the last launch. Their stacks are kept, since mapping them anew costs more than most launches. */
static struct emu *run;

/* Saves the registers that a call keeps on the present stack, leaves its top in *from and goes on at `to`. */
void emu_switch(void **from, void *to);
__asm__(".text\n"
        ".type emu_switch, @function\n"
        "emu_switch:\n"
        "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
        "  movq %rsp, (%rdi)\n"
        "  movq %rsi, %rsp\n"
        "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
        "  ret\n"
        ".size emu_switch, .-emu_switch\n");

/* What the sanitizer wants to know when the stack has changed. The first thread of a block learns where the launch's own is. */
static void arrive(void *fake)
{
#ifdef ASAN
    const void *bottom = NULL;
    size_t size = 0;
    __sanitizer_finish_switch_fiber(fake, &bottom, &size);
    if (run->main.stack == NULL) {
        run->main.stack = (char *)bottom;
        run->main_bytes = size;
    }
#else
    (void)fake;
#endif
}

static void go(struct fiber *from, struct fiber *to)
{
#ifdef ASAN
    __sanitizer_start_switch_fiber(from->gone ? NULL : &from->fake, to->stack,
                                   to == &run->main ? run->main_bytes : STACK);
#endif
    threadIdx = to->at;
    emu_switch(&from->sp, to->sp);
    arrive(from->fake);
}

static struct fiber *self(void)
{
    return &run->fibers[run->now];
}

/* The next thread that is not gone; the launch's own stack when there is none. */
static void turn(void)
{
    struct fiber *from = self();
    for (unsigned k = 1; k <= run->n; k++) {
        unsigned next = (run->now + k) % run->n;
        if (run->fibers[next].gone)
            continue;
        if (++run->idle > 4 * MOST) {
            fprintf(stderr, "a barrier is not reached by all threads of block %u %u, warp %u\n", blockIdx.x,
                    blockIdx.y, next / WARP);
            abort();
        }
        run->now = next;
        go(from, &run->fibers[next]);
        return;
    }
    go(from, &run->main);
}

static void open_if_all(struct barrier *b)
{
    if (b->there == 0 || b->here < b->there)
        return;
    b->here = 0;
    b->times++;
    run->idle = 0;
}

static void wait_at(struct barrier *b)
{
    uint64_t times = b->times;
    b->here++;
    open_if_all(b);
    while (b->times == times)
        turn();
}

static void begin(void)
{
    arrive(NULL);
    run->kernel(run->arg);
    struct fiber *f = self();
    struct barrier *warp = &run->warps[run->now / WARP];
    f->gone = true;
    run->idle = 0;
    warp->there--;
    run->block.there--;
    open_if_all(warp);
    open_if_all(&run->block);
    turn();
    abort(); /* nobody comes back to a thread that is gone */
}

/* A stack whose top looks as if emu_switch had been called from `begin`. */
static void set_up(struct fiber *f)
{
#ifdef ASAN
    __asan_unpoison_memory_region(f->stack, STACK); /* a thread that is gone did not return */
#endif
    void **top = (void **)(f->stack + STACK);
    *--top = NULL; /* begin's return address, so that its stack is aligned as a call leaves it */
    void (*entry)(void) = begin;
    memcpy(--top, &entry, sizeof entry);
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    f->sp = top;
    f->gone = false;
    f->n_copies = f->groups = 0;
}

static void run_block(size_t shared)
{
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    memset(run->warps, 0, sizeof run->warps);
    run->block = (struct barrier){.there = n};
    run->n = n;
    run->now = run->idle = 0;
    if (shared > 0)
        memset(run->shared, 0xff, shared);
    for (unsigned i = 0; i < n; i++) {
        struct fiber *f = &run->fibers[i];
        f->at = (struct emu_index){i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
        run->warps[i / WARP].there++;
        set_up(f);
    }
    go(&run->main, &run->fibers[0]);
}

/* Stacks for n threads and a block's memory, besides those that there are. */
static void make_room(unsigned n, size_t shared)
{
    if (run == NULL && (run = calloc(1, sizeof *run)) == NULL)
        abort();
    for (unsigned i = 0; i < n; i++)
        if (run->fibers[i].stack == NULL && (run->fibers[i].stack = malloc(STACK)) == NULL)
            abort();
    if (shared == run->shared_cap)
        return; /* never more than asked for: a sanitizer then sees what is beyond */
    free(run->shared);
    run->shared = NULL;
    if (shared > 0 && posix_memalign(&run->shared, 128, shared) != 0)
        abort();
    run->shared_cap = shared;
}

void emu_launch(struct emu_index blocks, struct emu_index threads, size_t shared, void (*kernel)(void *arg),
                void *arg)
{
    unsigned n = threads.x * threads.y * threads.z;
    assert((run == NULL || run->kernel == NULL) && n > 0 && n <= MOST);
    make_room(n, shared);
    blockDim = threads;
    gridDim = blocks;
    run->kernel = kernel;
    run->arg = arg;
    for (unsigned i = 0; i < blocks.x * blocks.y * blocks.z; i++) {
        blockIdx = (struct emu_index){i % blocks.x, i / blocks.x % blocks.y, i / blocks.x / blocks.y};
        run_block(shared);
    }
    run->kernel = NULL;
}

void *emu_shared(void)
{
    return run->shared;
}

void emu_copy(void *to, const void *from, unsigned bytes)
{
    struct fiber *f = self();
    if (f->n_copies == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 32;
        f->copies = realloc(f->copies, f->cap * sizeof *f->copies);
        if (f->copies == NULL)
            abort();
    }
    memset(to, 0xff, bytes);
    f->copies[f->n_copies++] = (struct copy){to, from, bytes, f->groups};
}

void emu_commit(void)
{
    self()->groups++;
}

void emu_copies_wait(unsigned left)
{
    struct fiber *f = self();
    unsigned done = 0;
    for (; done < f->n_copies && f->copies[done].group + left < f->groups; done++) {
        const struct copy *c = &f->copies[done];
        if (c->from != NULL)
            memcpy(c->to, c->from, c->bytes);
        else
            memset(c->to, 0, c->bytes);
    }
    f->n_copies -= done;
    memmove(f->copies, f->copies + done, f->n_copies * sizeof *f->copies);
}

void emu_block_barrier(void)
{
    wait_at(&run->block);
}

void emu_warp_barrier(void)
{
    wait_at(&run->warps[run->now / WARP]);
}

uint32_t (*emu_said(void))[EMU_WORDS]
{
    return &run->said[run->now / WARP * WARP];
}
