#include "part.h"

#include "fetch.h"
#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
    char top[64], dir[100];
};

static int set_up(void **state)
{
    struct place *t = calloc(1, sizeof *t);
    strcpy(t->top, "/tmp/vt-part-XXXXXX");
    assert_non_null(mkdtemp(t->top));
    snprintf(t->dir, sizeof t->dir, "%s/a/b", t->top);
    *state = t;
    return 0;
}

static int tear_down(void **state)
{
    struct place *t = *state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf %s", t->top);
    assert_int_equal(system(command), 0);
    free(t);
    return 0;
}

static bool exists(const struct place *t, const char *name)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", t->dir, name);
    return access(path, F_OK) == 0;
}

static void open_part(struct part *p, const struct place *t)
{
    struct vt_err err = {.text = ""};
    if (part_open(p, t->dir, "m.gguf", &err))
        fail_msg("%s", err.text);
}

static const struct part_origin origin = {.url = "u", .etag = "\"a b\"", .size = 8};

static void goes_on(void **state)
{
    struct place *t = *state;
    struct part p;
    struct vt_err err;
    char hex[65], want[65];
    uint8_t sum[32];
    uint64_t size;
    open_part(&p, t);
    assert_int_equal(part_start(&p, &origin, true, &err), 0);
    assert_int_equal(part_write(&p, (const uint8_t *)"GGUF", 4, &err), 0);
    part_close(&p);
    open_part(&p, t);
    assert_int_equal(p.have, 4);
    assert_string_equal(p.origin.etag, origin.etag);
    assert_int_equal(p.origin.size, 8);
    assert_false(part_finished(&p, &size));
    assert_int_equal(part_write(&p, (const uint8_t *)"rest", 4, &err), 0);
    assert_int_equal(part_sha256(&p, NULL, hex, NULL, NULL, &err), 0);
    vt_sha256("GGUFrest", 8, sum);
    vt_hex(sum, 32, want);
    assert_string_equal(hex, want);
    assert_int_equal(part_place(&p, &err), 0);
    assert_true(exists(t, "m.gguf"));
    assert_false(exists(t, "m.gguf.part"));
    assert_false(exists(t, "m.gguf.part.state"));
    open_part(&p, t);
    assert_int_equal(p.have, 0);
    assert_true(part_finished(&p, &size));
    assert_int_equal(size, 8);
    part_remove(&p);
    assert_false(exists(t, "m.gguf.part"));
}

/* Bytes without a state, or of another boot and never synced, are not gone on with. */
static void doubt(void **state)
{
    struct place *t = *state;
    struct part p;
    struct vt_err err;
    char path[200], line[200], all[1000] = "";
    open_part(&p, t);
    assert_int_equal(part_start(&p, &origin, true, &err), 0);
    assert_int_equal(part_write(&p, (const uint8_t *)"GGUFabcd", 8, &err), 0);
    part_close(&p);
    snprintf(path, sizeof path, "%s/m.gguf.part.state", t->dir);
    FILE *f = fopen(path, "r");
    while (fgets(line, sizeof line, f))
        strcat(all, strncmp(line, "boot ", 5) == 0     ? "boot another\n"
                    : strncmp(line, "synced ", 7) == 0 ? "synced 3\n"
                                                       : line);
    fclose(f);
    f = fopen(path, "w");
    fputs(all, f);
    fclose(f);
    open_part(&p, t);
    assert_int_equal(p.have, 3);
    part_close(&p);
    assert_int_equal(unlink(path), 0);
    open_part(&p, t);
    assert_int_equal(p.have, 0);
    part_close(&p);
}

static void one_at_a_time(void **state)
{
    struct place *t = *state;
    struct part a, b;
    struct vt_err err;
    open_part(&a, t);
    assert_int_equal(part_open(&b, t->dir, "m.gguf", &err), -1);
    assert_int_equal(err.code, VT_E_BUSY);
    assert_int_equal(part_open(&b, t->dir, "other.gguf", &err), 0);
    part_close(&b);
    part_close(&a);
    open_part(&b, t);
    part_close(&b);
}

static void refusals(void **state)
{
    struct place *t = *state;
    struct part p;
    struct vt_err err;
    char path[300];
    open_part(&p, t);
    assert_int_equal(part_room(&p, 1, &err), 0);
    assert_int_equal(part_room(&p, UINT64_MAX, &err), -1);
    assert_int_equal(err.code, VT_E_DISK_FULL);
    part_remove(&p);
    /* a link in the place of the part is not followed */
    snprintf(path, sizeof path, "%s/m.gguf.part", t->dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(part_open(&p, t->dir, "m.gguf", &err), -1);
    snprintf(path, sizeof path, "%s/file", t->dir);
    close(open(path, O_CREAT | O_WRONLY, 0644));
    strcat(path, "/below");
    assert_int_equal(part_open(&p, path, "m.gguf", &err), -1);
}

static void waits(void **state)
{
    assert_int_equal(fetch_wait_us(1, -1), 1000000);
    assert_int_equal(fetch_wait_us(4, -1), 8000000);
    assert_int_equal(fetch_wait_us(40, -1), 60000000);
    assert_int_equal(fetch_wait_us(3, 0), 0);
    assert_int_equal(fetch_wait_us(1, 20), 20000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goes_on, set_up, tear_down),
        cmocka_unit_test_setup_teardown(doubt, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refusals, set_up, tear_down),
        cmocka_unit_test(waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
