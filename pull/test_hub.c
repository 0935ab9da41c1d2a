#include "hub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A listing of the given paths. */
static struct hub_list listing(const char *const *paths, size_t n)
{
    char json[4096];
    size_t k = (size_t)snprintf(json, sizeof json, "{\"sha\":\"0123abcd\",\"siblings\":[");
    for (size_t i = 0; i < n; i++)
        k += (size_t)snprintf(json + k, sizeof json - k, "%s{\"rfilename\":\"%s\",\"size\":%zu}",
                              i ? "," : "", paths[i], i + 1);
    k += (size_t)snprintf(json + k, sizeof json - k, "]}");
    struct hub_list l;
    struct vt_err err;
    assert_int_equal(hub_parse(&l, json, k, &err), 0);
    return l;
}

static void chosen(const char *const *paths, size_t n, const char *quant, const char *want)
{
    struct hub_list l = listing(paths, n);
    struct vt_err err;
    const struct hub_file *f = hub_choose(&l, quant, &err);
    if (want) {
        assert_non_null(f);
        assert_string_equal(f->path, want);
    } else {
        assert_null(f);
        assert_int_equal(err.code, VT_E_NO_INPUT);
    }
    hub_free(&l);
}

static void parse(void **state)
{
    static const char json[] =
        "{\"sha\":\"0123abcd\",\"siblings\":[{\"rfilename\":\"README.md\",\"size\":1},"
        "{\"rfilename\":\"d/x.gguf\",\"size\":5000000000,\"lfs\":{\"sha256\":"
        "\"a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818\"}},{\"rfilename\":7},[],null]}";
    struct hub_list l;
    struct vt_err err;
    assert_int_equal(hub_parse(&l, json, sizeof json - 1, &err), 0);
    assert_int_equal(l.n, 1);
    assert_string_equal(l.commit, "0123abcd");
    assert_int_equal(l.files[0].size, 5000000000u);
    assert_int_equal(strlen(l.files[0].sha256), 64);
    assert_non_null(hub_find(&l, "d/x.gguf"));
    assert_null(hub_find(&l, "x.gguf"));
    hub_free(&l);
    static const char *const bad[] = {"", "{}", "[]", "{\"siblings\":{}}", "{\"siblings\":", "\"siblings\""};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hub_parse(&l, bad[i], strlen(bad[i]), &err), -1);
}

static void choice(void **state)
{
    static const char *const usual[] = {"m-Q8_0.gguf",   "m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf",
                                        "m-Q4_K_S.gguf", "mmproj-Q6_K.gguf", "m.imatrix-Q6_K.gguf",
                                        "m-Q4_K.gguf"};
    chosen(usual, 7, "", "m-Q4_K_M.gguf");
    chosen(usual, 7, "q4_k_m", "m-Q4_K_M.gguf");
    chosen(usual, 7, "Q4_K", "m-Q4_K.gguf");
    chosen(usual, 7, "UD-Q4_K_M", "m-UD-Q4_K_M.gguf");
    chosen(usual, 7, "Q6_K", NULL);
    chosen(usual, 7, "Q2_K", NULL);
    static const char *const only[] = {"README.md", "weights.gguf"};
    chosen(only, 2, "", "weights.gguf");
    chosen(only, 1, "", NULL);
    static const char *const set[] = {"Q4_K_M/m-Q4_K_M-00002-of-00002.gguf",
                                      "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf"};
    chosen(set, 2, "Q4_K_M", "Q4_K_M/m-Q4_K_M-00001-of-00002.gguf");
    static const char *const odd[] = {"m-a.gguf", "m-b.gguf"};
    chosen(odd, 2, "", NULL); /* no usual quantization, and two to choose from */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parse), cmocka_unit_test(choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
