/* A vault that is not there, and one that does not answer, are two things. */
#include "keep.h"

#include "pass.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static const struct keep_want one[] = {{.name = "kv", .bytes = 4096}};

static void nobody_listens(void **state)
{
    struct keep *k;
    struct vt_err err = {0};
    assert_int_equal(keep_new(&k, "/nonexistent/v.vault0", &err), 0);
    assert_int_equal(keep_claim(k, one, 1, 20, &err), -1);
    assert_int_equal(err.code, VT_E_UNAVAILABLE);
    assert_string_equal(keep_trouble(k), err.text);
    assert_false(keep_connected(k));
    keep_free(k);
}

static void a_vault_that_is_silent(void **state)
{
    char dir[] = "/tmp/vt-keep-XXXXXX", path[64];
    struct keep *k;
    struct vt_err err = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/v", dir);
    int listener = vt_pass_listen(path, &err);
    assert_true(listener >= 0);
    assert_int_equal(keep_new(&k, path, &err), 0);
    assert_int_equal(keep_claim(k, one, 1, 20, &err), -1);
    assert_int_equal(err.code, VT_E_BUSY);
    assert_true(keep_trouble(k)[0] != '\0');
    assert_int_equal(keep_held(k), 0);
    close(listener);
    unlink(path);
    rmdir(dir);
    keep_free(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_vault_that_is_silent),
    };
    return cmocka_run_group_tests_name("keep", tests, NULL, NULL);
}
