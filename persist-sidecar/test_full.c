/* A disk that is really full: a filesystem of 64 MiB, mounted for this test alone. Saves are refused, heads stay, deletions
 * still commit, and when there is room again saves go on. Needs root; says so where it has to be skipped. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int run(const char *cmd)
{
    int rc = system(cmd);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* Over f->dir, in a mount namespace of this process. */
static bool mount_small(struct fix *f, bool ext4)
{
    char cmd[1024];
    if (geteuid() != 0 || unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return false;
    if (!ext4)
        return mount("tmpfs", f->dir, "tmpfs", 0, "size=64m,mode=700") == 0;
    snprintf(cmd, sizeof cmd,
             "truncate -s 64M %s.img && mkfs.ext4 -q -F -m 0 %s.img >/dev/null 2>&1 && mount -o loop %s.img "
             "%s 2>/dev/null",
             f->dir, f->dir, f->dir, f->dir);
    return run(cmd) == 0;
}

static void unmount_small(struct fix *f)
{
    char path[160];
    umount2(f->dir, MNT_DETACH);
    snprintf(path, sizeof path, "%s.img", f->dir);
    unlink(path);
}

/* The store is told that there is room; the filesystem says otherwise in the middle of a save. */
static int liar(void *arg, uint64_t *avail, uint64_t *total)
{
    *avail = *total = (uint64_t)1 << 40;
    return 0;
}

static struct talk talk_in(uint32_t slot)
{
    struct talk t = talk_of(100 + slot, 64 * 6);
    t.slot = slot;
    t.kv_bytes = 1 << 20;
    return t;
}

static void all_restore(struct fix *f, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct talk t = talk_in(i);
        uint32_t kv;
        bool poisoned;
        struct vt_err err;
        assert_int_equal(fix_restore(f, &t, &kv, &poisoned, &err), t.n_items);
        assert_false(poisoned);
        assert_int_equal(kv, t.n_items);
    }
}

static void fill_rest(const struct fix *f)
{
    char path[160], block[4096] = {0};
    snprintf(path, sizeof path, "%s/filler", f->dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    while (write(fd, block, sizeof block) > 0)
        ;
    fsync(fd);
    close(fd);
}

static void full_filesystem(bool ext4)
{
    struct fix f;
    struct vt_err err;
    uint32_t saved = 0;
    fix_init(&f, false);
    if (!mount_small(&f, ext4)) {
        print_message("skipped: a filesystem of 64 MiB cannot be mounted here (root and %s are needed)\n",
                      ext4 ? "loop devices" : "tmpfs");
        unmount_small(&f);
        fix_fini(&f);
        skip();
    }
    f.o.avail = liar;
    f.o.ballast = 4 << 20;
    if (fix_open(&f, &err) < 0)
        fail_msg("%s", err.text);
    struct talk t = talk_in(0);
    while (saved < 64 && fix_save(&f, &t, NULL, NULL, &err) == 0)
        t = talk_in(++saved);
    assert_int_equal(err.code, VT_E_DISK_FULL);
    assert_true(saved >= 6);
    all_restore(&f, saved);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(fix_save(&f, &t, NULL, NULL, &err), -1);
        assert_int_equal(err.code, VT_E_DISK_FULL);
    }
    assert_int_equal(f.events[STORE_EV_DISK_FULL], 1); /* once, not per retry */
    /* Not one byte left, and still something can be deleted: another conversation's manifest, aged. */
    fill_rest(&f);
    all_restore(&f, saved);
    struct talk small = talk_in(0);
    small.reason = CKPT_RESET;
    small.n_items = 64 * 2; /* its blocks are stored already: a manifest and a head */
    int rc = fix_save(&f, &small, NULL, NULL, &err);
    assert_true(rc == 0 || err.code == VT_E_DISK_FULL);
    f.time.wall += VT_SEC(40ull * 86400);
    f.time.mono += VT_SEC(40ull * 86400);
    int freed = 0;
    while ((rc = store_collect(f.s, true, &err)) == 1)
        freed++;
    if (rc < 0)
        fail_msg("collection on a full disk: %s", err.text);
    assert_true(freed > 0);
    assert_int_equal(fix_save(&f, &t, NULL, NULL, &err), 0); /* into the pages that became free */
    assert_int_equal(fix_check(&f, true), 0);
    fix_close(&f, true);
    if (fix_open(&f, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(f.events[STORE_EV_REBUILT], 0);
    uint32_t kv;
    bool poisoned;
    assert_int_equal(fix_restore(&f, &t, &kv, &poisoned, &err), t.n_items);
    print_message("%s: %u checkpoints of 6 MiB fit, then refused; %d deletions on the full disk\n",
                  ext4 ? "ext4" : "tmpfs", saved, freed);
    fix_close(&f, false);
    unmount_small(&f);
    fix_fini(&f);
}

static void full_tmpfs(void **state)
{
    full_filesystem(false);
}

static void full_ext4(void **state)
{
    full_filesystem(true);
}

/* Space is looked at before anything is written: the honest numbers refuse without a single write. */
static void refused_beforehand(void **state)
{
    struct fix f;
    struct vt_err err;
    fix_init(&f, false);
    if (!mount_small(&f, false)) {
        print_message("skipped: a filesystem of 64 MiB cannot be mounted here (root is needed)\n");
        fix_fini(&f);
        skip();
    }
    f.o.min_free = 40 << 20;
    if (fix_open(&f, &err) < 0)
        fail_msg("%s", err.text);
    uint32_t saved = 0;
    struct talk t = talk_in(0);
    while (saved < 64 && fix_save(&f, &t, NULL, NULL, &err) == 0)
        t = talk_in(++saved);
    assert_int_equal(err.code, VT_E_DISK_FULL);
    uint64_t written = atomic_load(&store_io(f.s)->bytes_written);
    for (int i = 0; i < 5; i++)
        assert_int_equal(fix_save(&f, &t, NULL, NULL, &err), -1);
    assert_int_equal(atomic_load(&store_io(f.s)->bytes_written), written);
    all_restore(&f, saved);
    fix_close(&f, true);
    unmount_small(&f);
    fix_fini(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_tmpfs),
        cmocka_unit_test(full_ext4),
        cmocka_unit_test(refused_beforehand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
