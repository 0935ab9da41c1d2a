/* Memory in a world of files and a clock of its own: readings, levels, bounces, trends. */
#include "clock.h"
#include "mem_gain.h"
#include "mem_level.h"
#include "mem_psi.h"

#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)

/* ---- the world ---- */

struct world {
    char dir[64], proc[80], cgroup[80];
};

static void put(const char *root, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *p = path + 1; (p = strchr(p, '/')) != NULL; p++) {
        *p = '\0';
        mkdir(path, 0755);
        *p = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int make_world(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    snprintf(w->dir, sizeof w->dir, "/tmp/vt-mem-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->proc, sizeof w->proc, "%s/proc", w->dir);
    snprintf(w->cgroup, sizeof w->cgroup, "%s/cg", w->dir);
    put(w->proc, "meminfo",
        "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\nSwapTotal: 4194304 kB\n");
    put(w->proc, "pressure/memory",
        "some avg10=1.50 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.25 avg60=0 avg300=0 total=1\n");
    put(w->proc, "vmstat",
        "nr_free_pages 5\npswpin 100\npswpout 7\nworkingset_refault_anon 1\nworkingset_refault_file 50\n");
    *state = w;
    return 0;
}

static int gone(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    return remove(path);
}

static int end_world(void **state)
{
    struct world *w = *state;
    nftw(w->dir, gone, 8, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

/* ---- reading ---- */

static void no_cgroup(void **state)
{
    struct world *w = *state;
    struct mem_sample s;
    assert_true(mem_read(&s, w->proc, w->cgroup));
    assert_int_equal(s.cgroup.kind, MEM_CGROUP_NONE);
    assert_int_equal(s.total, 16 * GIB);
    assert_int_equal(mem_available_eff(&s), 8 * GIB);
    assert_int_equal(mem_base(&s), 16 * GIB);
    assert_true(s.host.valid && !s.own.valid && s.vm.valid);
    assert_true(fabs(s.host.some10 - 1.5) < 1e-9);
    assert_int_equal(s.vm.swap_in, 100);
}

/* L30: what cannot be is no reading. */
static void broken_readers(void **state)
{
    static const char *const rows[] = {
        "",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 100 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 100 kB\nMemAvailable: 101 kB\n",
        "MemTotal: 100 kB\n",
        "MemAvailable: 100 kB\n",
        "MemTotal: -5 kB\nMemAvailable: 3 kB\n",
        "MemTotal: 99999999999999999999999 kB\nMemAvailable: 3 kB\n",
        "MemTotal 100 kB\nMemAvailable 50 kB\n",
        "MemTotal:\nMemAvailable:\n",
        "MemTotal: many kB\nMemAvailable: some kB\n",
    };
    struct world *w = *state;
    struct mem_sample s;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        put(w->proc, "meminfo", rows[i]);
        if (mem_read(&s, w->proc, w->cgroup) || mem_read_available(w->proc) != 0)
            fail_msg("row %zu was believed", i);
    }
    put(w->proc, "meminfo", "MemAvailable:\t 50 kB\nMemTotal:\t\t100 kB\n"); /* tabs, other order */
    assert_true(mem_read(&s, w->proc, w->cgroup));
    assert_int_equal(s.available, 50 * 1024);
    put(w->proc, "pressure/memory", "some avg10=-1.0\nfull avg10=120.0\n");
    mem_read(&s, w->proc, w->cgroup);
    assert_false(s.host.valid);
}

static void version_2(void **state)
{
    struct world *w = *state;
    struct mem_sample s;
    put(w->proc, "self/cgroup", "0::/system.slice/vitriold.service/super\n");
    put(w->cgroup, "cgroup.controllers", "memory pids\n");
    put(w->cgroup, "system.slice/memory.max", "2147483648\n");
    put(w->cgroup, "system.slice/memory.high", "max\n");
    put(w->cgroup, "system.slice/memory.current", "1073741824\n");
    put(w->cgroup, "system.slice/memory.stat", "anon 5\ninactive_file 104857600\n");
    const char *unit = "system.slice/vitriold.service";
    char name[128];
    const struct {
        const char *file, *text;
    } files[] = {{"memory.max", "max\n"},
                 {"memory.current", "536870912\n"},
                 {"memory.high", "max\n"},
                 {"memory.events", "low 0\nhigh 3\nmax 2\noom 0\noom_kill 0\n"},
                 {"memory.stat", "inactive_file 0\nworkingset_refault_file 77\n"},
                 {"memory.pressure",
                  "some avg10=33.00 avg60=0 avg300=0 total=0\nfull avg10=11.00 avg60=0 avg300=0 total=0\n"}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", unit, files[i].file);
        put(w->cgroup, name, files[i].text);
    }
    assert_true(mem_read(&s, w->proc, w->cgroup));
    assert_int_equal(s.cgroup.kind, MEM_CGROUP_V2);
    assert_int_equal(mem_base(&s), 2 * GIB);                  /* of an ancestor */
    assert_int_equal(mem_available_eff(&s), GIB + 100 * MIB); /* what is reclaimable counts */
    assert_true(s.own.valid && fabs(s.own.full10 - 11) < 1e-9);
    assert_int_equal(s.cgroup.ev_high, 3);
    assert_int_equal(s.cgroup.ev_max, 2);
    assert_true(s.cgroup.refault_valid);
    assert_int_equal(s.cgroup.refault_file, 77);
    snprintf(name, sizeof name, "%s/memory.high", unit);
    put(w->cgroup, name, "1073741824\n"); /* throttled above it: as good as a limit */
    mem_read(&s, w->proc, w->cgroup);
    assert_int_equal(mem_available_eff(&s), 512 * MIB);
}

static void version_1(void **state)
{
    struct world *w = *state;
    struct mem_sample s;
    put(w->proc, "self/cgroup", "9:name=systemd:/\n4:memory:/box/inner\n0::/\n");
    put(w->cgroup, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(w->cgroup, "memory/memory.usage_in_bytes", "9000000000\n");
    put(w->cgroup, "memory/box/memory.limit_in_bytes", "1073741824\n");
    put(w->cgroup, "memory/box/memory.usage_in_bytes", "805306368\n");
    put(w->cgroup, "memory/box/memory.stat", "cache 1\ntotal_inactive_file 67108864\n");
    put(w->cgroup, "memory/box/inner/memory.limit_in_bytes", "9223372036854771712\n");
    put(w->cgroup, "memory/box/inner/memory.usage_in_bytes", "8192\n");
    put(w->cgroup, "memory/box/inner/memory.failcnt", "12\n");
    assert_true(mem_read(&s, w->proc, w->cgroup));
    assert_int_equal(s.cgroup.kind, MEM_CGROUP_V1);
    assert_int_equal(mem_base(&s), GIB);
    assert_int_equal(mem_available_eff(&s), 320 * MIB);
    assert_int_equal(s.cgroup.ev_max, 12);
    /* a container that sees its own level only, under a path that names what lies above */
    put(w->proc, "self/cgroup", "4:memory:/docker/abc\n");
    put(w->cgroup, "memory/memory.limit_in_bytes", "536870912\n");
    put(w->cgroup, "memory/memory.usage_in_bytes", "268435456\n");
    mem_read(&s, w->proc, w->cgroup);
    assert_int_equal(mem_base(&s), 512 * MIB);
    assert_int_equal(mem_available_eff(&s), 256 * MIB);
}

static void footprints(void **state)
{
    struct world *w = *state;
    struct mem_foot f;
    put(w->proc, "42/status",
        "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 700 kB\nRssShmem:\t 20 kB\nVmSwap:\t 30 "
        "kB\nVmLck:\t 5 kB\n");
    assert_true(mem_read_foot(&f, w->proc, 42));
    assert_int_equal(mem_foot_private(&f), 150 * 1024);
    assert_int_equal(f.rss_file, 700 * 1024);
    put(w->proc, "43/status", "Name:\tkthread\nState:\tS\n");
    assert_false(mem_read_foot(&f, w->proc, 43));
    assert_false(mem_read_foot(&f, w->proc, 44));
}

/* A trigger is a write: never into a file that is not the kernel's. */
static void trigger(void **state)
{
    struct world *w = *state;
    char path[128], why[256], text[64] = "";
    snprintf(path, sizeof path, "%s/pressure/memory", w->proc);
    assert_int_equal(mem_psi_arm(path, why, sizeof why), -1);
    assert_non_null(strstr(why, "not the kernel's"));
    FILE *f = fopen(path, "r");
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_memory_equal(text, "some avg10=1.50", 15);
    assert_int_equal(mem_psi_arm("/nonexistent", why, sizeof why), -1);
    int fd = mem_psi_arm("/proc/pressure/memory", why, sizeof why);
    if (fd < 0)
        print_message("not run: no pressure trigger on this machine (%s)\n", why);
    else
        close(fd);
}

/* ---- levels ---- */

/* A calm machine of 16 GiB. */
static struct mem_sample calm(void)
{
    return (struct mem_sample){.valid = true,
                               .total = 16 * GIB,
                               .available = 8 * GIB,
                               .host = {.valid = true},
                               .cgroup = {.limit = MEM_NO_LIMIT, .room = MEM_NO_LIMIT},
                               .vm = {.valid = true}};
}

static unsigned judged(const struct mem_sample *s)
{
    struct mem_level l;
    const char *why;
    mem_level_init(&l, 0, 0);
    return mem_level_judge(&l, s, 1.0, &why);
}

/* L31 among them: swap that is free is no headroom, mapped weights are no room. */
static void conditions(void **state)
{
    struct mem_sample s = calm();
    assert_int_equal(judged(&s), 0);
    s.available = 15 * 16 * GIB / 100 - MIB;
    assert_int_equal(judged(&s), 1);
    s.swap_total = 64 * GIB;
    assert_int_equal(judged(&s), 1);
    s.available = 8 * 16 * GIB / 100 - MIB;
    assert_int_equal(judged(&s), 2);
    s.available = 3 * 16 * GIB / 100 - MIB;
    assert_int_equal(judged(&s), 3);
    s = calm();
    s.available = 9 * GIB;
    s.hot_mapped =
        8 * GIB; /* weights that are in memory count as available, but are needed for every token */
    assert_int_equal(judged(&s), 2);
    s = calm();
    s.cgroup.limit = 4 * GIB;
    s.cgroup.room = 100 * MIB; /* the host has plenty, we do not */
    assert_int_equal(judged(&s), 3);
    s = calm();
    s.total = s.available = 4 * GIB;
    s.available = 1100 * MIB; /* under 2 GiB, but a quarter of a small machine */
    assert_int_equal(judged(&s), 0);
    static const struct {
        double some, full;
        unsigned level;
    } psi[] = {{9, 0, 0}, {11, 0, 1}, {41, 0, 2}, {11, 6, 2}, {50, 21, 3}};
    for (size_t i = 0; i < sizeof psi / sizeof psi[0]; i++) {
        s = calm();
        s.own = (struct mem_psi){.valid = true, .some10 = psi[i].some, .full10 = psi[i].full};
        assert_int_equal(judged(&s), psi[i].level);
        s.host = s.own;
        s.own = (struct mem_psi){.valid = true}; /* our own is what counts where there is one */
        assert_int_equal(judged(&s), 0);
    }
}

static unsigned run(struct mem_level *l, const struct mem_sample *s, uint64_t *now, unsigned seconds)
{
    unsigned level = l->level;
    for (unsigned i = 0; i < seconds; i++) {
        *now += VT_SEC(1);
        level = mem_level_take(l, s, *now);
    }
    return level;
}

static void slow_in_slower_out(void **state)
{
    struct mem_sample good = calm(), bad = calm(), between = calm();
    struct mem_level l;
    uint64_t now = VT_SEC(1000);
    mem_level_init(&l, VT_SEC(5), VT_SEC(30));
    bad.available = GIB;                    /* 6 % */
    between.available = 9 * 16 * GIB / 100; /* over 8 %, but not clear of it */
    assert_int_equal(run(&l, &good, &now, 10), 0);
    assert_int_equal(run(&l, &bad, &now, 4), 0);
    assert_int_equal(run(&l, &good, &now, 1), 0); /* a break starts the time again */
    assert_int_equal(run(&l, &bad, &now, 5), 0);
    assert_int_equal(run(&l, &bad, &now, 1), 2);
    assert_non_null(strstr(l.why, "8 %"));
    assert_int_equal(run(&l, &between, &now, 120), 2);
    assert_int_equal(run(&l, &good, &now, 30), 2);
    assert_int_equal(run(&l, &good, &now, 1), 0);
    assert_string_equal(l.why, "");
}

/* L30: a sample that cannot be trusted changes nothing, and ten in a row are counted. */
static void invalid_samples(void **state)
{
    struct mem_sample bad = calm(), none = {0};
    struct mem_level l;
    uint64_t now = VT_SEC(1000);
    mem_level_init(&l, VT_SEC(5), VT_SEC(30));
    assert_int_equal(run(&l, &none, &now, 100), 0); /* all zero would be level 3 */
    assert_int_equal(l.invalid, 100);
    bad.available = GIB;
    run(&l, &bad, &now, 4);
    run(&l, &none, &now, 1);
    assert_int_equal(run(&l, &bad, &now, 4), 0); /* five seconds were never seen in one piece */
    assert_int_equal(run(&l, &bad, &now, 2), 2);
    assert_int_equal(l.invalid, 0);
    assert_int_equal(run(&l, &none, &now, 1000), 2);
    assert_int_equal(l.invalid_total, 1101);
}

static void rates(void **state)
{
    struct mem_sample s = calm();
    struct mem_level l;
    uint64_t now = VT_SEC(1000);
    mem_level_init(&l, VT_SEC(5), VT_SEC(30));
    for (int i = 0; i < 10; i++) { /* 16 MiB a second from swap, but not of ours */
        s.vm.swap_in += 4096;
        run(&l, &s, &now, 1);
    }
    assert_int_equal(l.level, 0);
    s.own_swap = 100 * MIB;
    for (int i = 0; i < 7; i++) {
        s.vm.swap_in += 4096;
        run(&l, &s, &now, 1);
    }
    assert_int_equal(l.level, 2);
    s = calm();
    s.hot_mapped = GIB;
    mem_level_init(&l, VT_SEC(5), VT_SEC(30));
    for (int i = 0; i < 7; i++) { /* 100 MiB of evicted weights a second */
        s.vm.refault_file += 25600;
        run(&l, &s, &now, 1);
    }
    assert_int_equal(l.level, 2);
    s = calm();
    mem_level_init(&l, 0, VT_SEC(30));
    run(&l, &s, &now, 1);
    s.cgroup.ev_high = 1;
    assert_int_equal(run(&l, &s, &now, 1), 1);
    s.cgroup.ev_max = 1;
    s.host.full10 = 11;
    assert_int_equal(run(&l, &s, &now, 1), 3);
}

static void after_a_kill(void **state)
{
    struct mem_sample s = calm();
    struct mem_level l;
    uint64_t now = VT_SEC(1000);
    mem_level_init(&l, VT_SEC(5), VT_SEC(30));
    mem_level_force(&l, now + VT_SEC(300));
    assert_int_equal(run(&l, &s, &now, 1), 2);
    assert_int_equal(run(&l, &s, &now, 299), 2);
    assert_int_equal(run(&l, &s, &now, 32), 0);
}

/* ---- bounces ---- */

static void only_if_it_gives_back(void **state)
{
    struct mem_bounces b = {0};
    const struct mem_limits l = {.gain = 512 * MIB, .min_interval = VT_SEC(1800), .per_day = 4};
    uint64_t now = VT_SEC(100000);
    assert_int_equal(mem_gain(5 * GIB, 6 * GIB), 0); /* within its plan */
    assert_int_equal(mem_bounce_judge(&b, &l, 0, now), MEM_INNOCENT);
    assert_int_equal(mem_bounce_judge(&b, &l, 511 * MIB, now), MEM_INNOCENT);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(mem_bounce_judge(&b, &l, 512 * MIB, now), MEM_BOUNCE);
        mem_bounce_note(&b, now);
        assert_int_equal(mem_bounce_judge(&b, &l, 9 * GIB, now + VT_SEC(1799)), MEM_TOO_SOON);
        now += VT_SEC(1800);
    }
    assert_int_equal(mem_bounce_judge(&b, &l, 9 * GIB, now), MEM_DAY_FULL);
    assert_int_equal(mem_bounce_judge(&b, &l, 9 * GIB, VT_SEC(100000 + 86400)), MEM_BOUNCE);
    assert_int_equal(mem_bounce_judge(&b, &(struct mem_limits){.gain = 1}, 0, now), MEM_INNOCENT);
}

/* Hours of a curve, one value a minute; whether a leak was seen at any time. */
static bool leaks(double (*curve)(double hour), double hours)
{
    struct mem_trend t = {0};
    bool seen = false;
    for (int minute = 0; minute < hours * 60; minute++) {
        mem_trend_take(&t, (uint64_t)(curve(minute / 60.0) * (double)MIB), VT_SEC(60 * minute));
        seen = seen || mem_trend_leaks(&t, 64 * MIB);
    }
    return seen;
}

static double steady(double h)
{
    return 1000 + 40 * h;
}
static double hump(double h) /* rises for five hours, as caches do, then stays */
{
    return 1000 + 400 * (1 - exp(-h / 1.2));
}
static double flat(double h)
{
    return 1000 + 3 * sin(h * 7);
}

/* L33: five hours of growth are no leak, and six hours that flatten are none. */
static void humps_are_no_leaks(void **state)
{
    assert_true(leaks(steady, 7));
    assert_false(leaks(steady, 5.9));
    assert_false(leaks(hump, 24));
    assert_false(leaks(flat, 24));
}

int main(void)
{
#define W(name) cmocka_unit_test_setup_teardown(name, make_world, end_world)
    const struct CMUnitTest tests[] = {
        W(no_cgroup),
        W(broken_readers),
        W(version_2),
        W(version_1),
        W(footprints),
        W(trigger),
        cmocka_unit_test(conditions),
        cmocka_unit_test(slow_in_slower_out),
        cmocka_unit_test(invalid_samples),
        cmocka_unit_test(rates),
        cmocka_unit_test(after_a_kill),
        cmocka_unit_test(only_if_it_gives_back),
        cmocka_unit_test(humps_are_no_leaks),
    };
    return cmocka_run_group_tests_name("memory", tests, NULL, NULL);
}
