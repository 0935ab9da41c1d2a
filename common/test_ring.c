#include "ring.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define LINK 0xabcd

static char dir[64], path[96];

static void fresh(void)
{
    unlink(path);
    assert_int_equal(vt_ring_create(path, LINK, 4, 8192, NULL), 0);
}

static void test_both_sides_see_the_same(void **state)
{
    (void)state;
    struct vt_ring a, b;
    struct stat st;
    fresh();
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, vt_ring_bytes(4, 8192));
    assert_true((size_t)st.st_blocks * 512 >= vt_ring_bytes(4, 8192)); /* no holes */
    assert_int_equal(vt_ring_map(&a, path, LINK, NULL), 0);
    assert_int_equal(vt_ring_map(&b, path, LINK, NULL), 0);
    unlink(path);
    memset(vt_ring_slot(&a, 3, 8192), 0x5a, 8192);
    assert_int_equal(vt_ring_slot(&b, 3, 1)[8191], 0x5a);
    assert_int_equal(vt_ring_slot(&b, 2, 1)[8191], 0);
    assert_int_equal((uintptr_t)vt_ring_slot(&a, 1, 1) % 4096, 0);
    vt_ring_unmap(&a);
    vt_ring_unmap(&b);
    assert_null(a.base);
}

/* What a frame may claim about a slot. */
static void test_hostile_descriptors(void **state)
{
    (void)state;
    struct vt_ring r;
    fresh();
    assert_int_equal(vt_ring_map(&r, path, LINK, NULL), 0);
    assert_null(vt_ring_slot(&r, 4, 1));
    assert_null(vt_ring_slot(&r, UINT32_MAX, 0));
    assert_null(vt_ring_slot(&r, 0, 8193));
    assert_null(vt_ring_slot(&r, 0, SIZE_MAX));
    assert_non_null(vt_ring_slot(&r, 0, 0));
    assert_non_null(vt_ring_slot(&r, 3, 8192));
    vt_ring_unmap(&r);
    assert_null(vt_ring_slot(&r, 0, 0));
}

static void poke(size_t at, uint32_t v)
{
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, &v, sizeof v, (off_t)at), sizeof v);
    close(fd);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    struct vt_ring r;
    struct vt_err err;
    static const uint32_t value[] = {0, 1, 3, 5, 0x7fffffff, 0xffffffff};
    for (size_t at = 0; at < 20; at += 4) {
        for (size_t i = 0; i < sizeof value / sizeof value[0]; i++) {
            if (at == 4 && value[i] == 1)
                continue; /* the true version */
            fresh();
            poke(at, value[i]);
            assert_int_equal(vt_ring_map(&r, path, LINK, &err), -1);
            assert_null(r.base);
        }
    }
    fresh();
    assert_int_equal(vt_ring_map(&r, path, LINK + 1, &err), -1);
    assert_int_equal(err.code, VT_E_STALE_LINK);
}

static void test_hostile_files(void **state)
{
    (void)state;
    struct vt_ring r;
    struct vt_err err;
    static const off_t size[] = {0, 1, 4095, 4096, 4096 + 4 * 8192 - 1, 4096 + 4 * 8192 + 1};
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        fresh();
        assert_int_equal(truncate(path, size[i]), 0);
        assert_int_equal(vt_ring_map(&r, path, LINK, &err), -1);
    }
    fresh();
    assert_int_equal(vt_ring_create(path, LINK, 4, 8192, &err), -1); /* exists */
    char other[128];
    snprintf(other, sizeof other, "%s/link", dir);
    assert_int_equal(symlink(path, other), 0);
    assert_int_equal(vt_ring_map(&r, other, LINK, &err), -1);
    assert_int_equal(vt_ring_map(&r, dir, LINK, &err), -1);
    unlink(path);
    assert_int_equal(vt_ring_map(&r, path, LINK, &err), -1);
    assert_int_equal(vt_ring_create(path, LINK, 1, 8192, &err), -1);
    assert_int_equal(vt_ring_create(path, LINK, 4, 100, &err), -1);
    assert_int_equal(vt_ring_create(path, LINK, 4096, 1u << 31, &err), -1);
    assert_int_equal(access(path, F_OK), -1);
    uint8_t small[64] = {0};
    assert_int_equal(vt_ring_wrap(&r, small, sizeof small, LINK, &err), -1);
    assert_int_equal(vt_ring_wrap(&r, NULL, 1 << 20, LINK, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_sides_see_the_same),
        cmocka_unit_test(test_hostile_descriptors),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_files),
    };
    snprintf(dir, sizeof dir, "/tmp/vtring-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return 1;
    snprintf(path, sizeof path, "%s/ring", dir);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    char cmd[96];
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd) == 0 ? rc : 1;
}
