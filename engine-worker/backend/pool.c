#include "backend.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A forward pass is some hundred short jobs with microseconds between them: a worker looks for the next one
 * for about this many pauses (some 20 µs) before it sleeps. Longer would burn a core that others need,
 * shorter would pay a wake-up each time. */
#define SPINS 2000

/* One job at a time. `left` counts the pieces that nobody has taken; taking one is a compare-and-swap, and
 * since a job cannot end while a taken piece is unfinished, fn, arg and n are stable for whoever has taken
 * one. */
struct be_pool {
    _Atomic int64_t left;
    _Atomic int64_t done;
    void (*fn)(void *arg, int64_t i);
    void *arg;
    int64_t n;
    _Atomic uint32_t seq;      /* futex: a job was posted */
    _Atomic uint32_t finished; /* futex: the last piece of a job was done */
    _Atomic int sleepers;
    _Atomic bool caller_sleeps, stop;
    int n_threads; /* with the caller */
    pthread_t *worker;
};

static void futex_wait(_Atomic uint32_t *w, uint32_t seen)
{
    syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *w, int n)
{
    syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Takes and does one piece; false when there is none. */
static bool do_piece(struct be_pool *p)
{
    int64_t left = atomic_load_explicit(&p->left, memory_order_relaxed);
    do {
        if (left <= 0)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->left, &left, left - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    int64_t n = p->n;
    p->fn(p->arg, n - left);
    if (atomic_fetch_add_explicit(&p->done, 1, memory_order_seq_cst) + 1 == n) {
        /* The caller may return at once and post the next job: nothing of this one is touched after here. */
        atomic_fetch_add(&p->finished, 1);
        if (atomic_load(&p->caller_sleeps))
            futex_wake(&p->finished, 1);
    }
    return true;
}

static bool wait_for_job(struct be_pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->left, memory_order_relaxed) > 0)
            return true;
        relax();
    }
    uint32_t seq = atomic_load(&p->seq);
    atomic_fetch_add(&p->sleepers, 1);
    if (!atomic_load(&p->stop) && atomic_load(&p->left) <= 0)
        futex_wait(&p->seq, seq);
    atomic_fetch_sub(&p->sleepers, 1);
    return !atomic_load(&p->stop);
}

static void *work(void *arg)
{
    struct be_pool *p = arg;
    while (wait_for_job(p))
        while (do_piece(p))
            ;
    return NULL;
}

static int usable_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) < 0)
        return 1;
    return CPU_COUNT(&set);
}

/* Workers take no signals: those belong to the thread that has the main loop. */
static int start_workers(struct be_pool *p)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int n = 0, rc = 0;
    for (; n < p->n_threads - 1 && rc == 0; n++)
        rc = pthread_create(&p->worker[n], NULL, work, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0)
        p->n_threads = n; /* the ones that run, and the caller */
    return rc;
}

int be_pool_new(struct be_pool **out, int n, struct vt_err *err)
{
    *out = NULL;
    if (n < 0 || n > 1024)
        return vt_fail(err, VT_E_CONFIG, "%d threads: between 1 and 1024 can be used (0: one per core)", n);
    struct be_pool *p = calloc(1, sizeof *p);
    if (n == 0)
        n = usable_cores();
    if (p == NULL || (p->worker = calloc((size_t)n, sizeof *p->worker)) == NULL) {
        free(p);
        return vt_fail(err, VT_E_NOMEM, "no memory for a pool of %d threads", n);
    }
    p->n_threads = n;
    int rc = start_workers(p);
    if (rc != 0) {
        be_pool_free(p);
        errno = rc;
        return vt_fail_errno(err, VT_E_OS, "cannot start %d worker threads", n - 1);
    }
    *out = p;
    return 0;
}

void be_pool_free(struct be_pool *p)
{
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->seq, 1);
    futex_wake(&p->seq, INT_MAX);
    for (int i = 0; i < p->n_threads - 1; i++)
        pthread_join(p->worker[i], NULL);
    free(p->worker);
    free(p);
}

int be_pool_threads(const struct be_pool *p)
{
    return p->n_threads;
}

static void wait_finished(struct be_pool *p, int64_t n, uint32_t seen)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load(&p->finished) != seen)
            return;
        relax();
    }
    atomic_store(&p->caller_sleeps, true);
    while (atomic_load(&p->finished) == seen)
        futex_wait(&p->finished, seen);
    atomic_store(&p->caller_sleeps, false);
}

void be_pool_run(struct be_pool *p, void (*fn)(void *arg, int64_t i), void *arg, int64_t n)
{
    if (n <= 1 || p->n_threads == 1) {
        for (int64_t i = 0; i < n; i++)
            fn(arg, i);
        return;
    }
    uint32_t seen = atomic_load(&p->finished);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    atomic_store(&p->done, 0);
    atomic_store(&p->left, n);
    atomic_fetch_add(&p->seq, 1);
    if (atomic_load(&p->sleepers) > 0)
        futex_wake(&p->seq, (int)(n - 1 < INT_MAX ? n - 1 : INT_MAX));
    while (do_piece(p))
        ;
    wait_finished(p, n, seen);
}
