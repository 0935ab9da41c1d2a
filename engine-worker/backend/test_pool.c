#include "test_util.h"

#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

struct counts {
    _Atomic int n[1000];
    _Atomic int total;
};

static void count(void *arg, int64_t i)
{
    struct counts *c = arg;
    atomic_fetch_add(&c->n[i], 1);
    atomic_fetch_add(&c->total, 1);
}

static void every_piece_once(void **state)
{
    struct vt_err err;
    for (int threads = 1; threads <= 5; threads++) {
        struct be_pool *p;
        assert_int_equal(be_pool_new(&p, threads, &err), 0);
        assert_int_equal(be_pool_threads(p), threads);
        for (int job = 0; job < 3000; job++) {
            int64_t n = job % 10 == 0 ? rng_below(1000) : rng_below(8);
            struct counts c = {0};
            be_pool_run(p, count, &c, n);
            assert_int_equal(c.total, n); /* all done when it returns */
            for (int64_t i = 0; i < n; i++)
                assert_int_equal(c.n[i], 1);
            if (job % 500 == 0)
                usleep(2000); /* let the workers fall asleep */
        }
        be_pool_free(p);
    }
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void idle_costs_nothing(void **state)
{
    struct vt_err err;
    struct be_pool *p;
    struct counts c = {0};
    assert_int_equal(be_pool_new(&p, 4, &err), 0);
    be_pool_run(p, count, &c, 100);
    double used = 1;
    for (int i = 0; i < 20 && used >= 0.003; i++) { /* on a busy machine they fall asleep late */
        double before = cpu_seconds();
        usleep(300000);
        used = cpu_seconds() - before;
    }
    assert_true(used < 0.003); /* 1 % of a core, of which nothing is expected */
    be_pool_free(p);
}

static void bad_numbers(void **state)
{
    struct vt_err err;
    struct be_pool *p;
    assert_int_equal(be_pool_new(&p, -1, &err), -1);
    assert_int_equal(err.code, VT_E_CONFIG);
    assert_int_equal(be_pool_new(&p, 5000, &err), -1);
    assert_int_equal(be_pool_new(&p, 0, &err), 0);
    assert_true(be_pool_threads(p) >= 1);
    be_pool_free(p);
    be_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_once),
        cmocka_unit_test(idle_costs_nothing),
        cmocka_unit_test(bad_numbers),
    };
    rng_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
