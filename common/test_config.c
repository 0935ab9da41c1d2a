#include "config.h"
#include "suggest.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int set(struct vt_config *c, enum vt_config_layer l, const char *k, const char *v, struct vt_err *e)
{
    memset(e, 0, sizeof *e);
    return vt_config_set(c, l, k, v, "here", e);
}

static int parse(struct vt_config *c, const char *text, struct vt_err *e)
{
    memset(e, 0, sizeof *e);
    return vt_config_parse(c, VT_L_SITE, text, strlen(text), "site.conf", e);
}

static void has(const struct vt_err *e, const char *part)
{
    if (strstr(e->text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", e->text, part);
}

/* Every key: unset gives the default, its default given explicitly is legal, and an empty value is an error
 * or an opt-out but never the default of something else. */
static void test_unset_empty_value(void **state)
{
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        struct vt_config *c = vt_config_new();
        struct vt_err e;
        char dflt[4096], now[4096];
        assert_non_null(c);
        assert_false(vt_config_is_set(c, (enum vt_config_key)k));
        assert_string_equal(vt_config_origin(c, (enum vt_config_key)k), "default");
        vt_config_text(c, (enum vt_config_key)k, dflt, sizeof dflt);
        const char *name = vt_config_name((enum vt_config_key)k);
        if (set(c, VT_L_SITE, name, "", &e) == 0) {
            assert_string_equal(vt_config_text(c, (enum vt_config_key)k, now, sizeof now), "");
            assert_non_null(strstr(vt_config_doc((enum vt_config_key)k), "Empty"));
        } else {
            has(&e, name);
            has(&e, "here");
            assert_string_equal(vt_config_text(c, (enum vt_config_key)k, now, sizeof now), dflt);
        }
        assert_int_equal(set(c, VT_L_SITE, name, dflt, &e), 0);
        assert_true(vt_config_is_set(c, (enum vt_config_key)k));
        assert_string_equal(vt_config_text(c, (enum vt_config_key)k, now, sizeof now), dflt);
        assert_string_equal(vt_config_origin(c, (enum vt_config_key)k), "here");
        vt_config_free(c);
    }
}

/* Each adjacent pair of layers, set in either order: the higher one wins. */
static void test_precedence(void **state)
{
    for (int l = VT_L_DEFAULT + 1; l < VT_L_RECORD; l++) {
        for (int order = 0; order < 2; order++) {
            struct vt_config *c = vt_config_new();
            struct vt_err e;
            int first = order == 0 ? l : l + 1, second = order == 0 ? l + 1 : l;
            char v[16];
            snprintf(v, sizeof v, "%d", first);
            assert_int_equal(set(c, (enum vt_config_layer)first, "engine.slots", v, &e), 0);
            snprintf(v, sizeof v, "%d", second);
            assert_int_equal(set(c, (enum vt_config_layer)second, "engine.slots", v, &e), 0);
            assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_SLOTS), l + 1);
            vt_config_free(c);
        }
    }
}

/* The regression: an environment override is not undone by a file read later. */
static void test_env_over_file(void **state)
{
    struct vt_config *c = vt_config_new();
    struct vt_err e;
    char *env[] = {"PATH=/bin", "VITRIOL_ENGINE_SLOTS=3", "VITRIOL_INSTANCE=00", "VITRIOL_MODELS=/m", NULL};
    assert_int_equal(vt_config_env(c, env, &e), 0);
    assert_int_equal(parse(c, "[engine]\nslots = 5\n", &e), 0);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_SLOTS), 3);
    assert_string_equal(vt_config_origin(c, VT_CFG_ENGINE_SLOTS), "environment: VITRIOL_ENGINE_SLOTS");
    vt_config_free(c);
}

static void test_unknown(void **state)
{
    struct vt_config *c = vt_config_new();
    struct vt_err e;
    char *env[] = {"VITRIOL_ENGINE_SLOT=3", NULL};
    assert_int_equal(vt_config_env(c, env, &e), -1);
    has(&e, "VITRIOL_ENGINE_SLOT");
    has(&e, "VITRIOL_ENGINE_SLOTS");
    assert_int_equal(parse(c, "# c\n[engine]\nslosts = 5\n", &e), -1);
    has(&e, "site.conf:3");
    has(&e, "engine.slosts");
    has(&e, "did you mean engine.slots");
    assert_int_equal(parse(c, "[engin]\nslots = 5\n", &e), -1);
    has(&e, "site.conf:1");
    has(&e, "did you mean engine?");
    assert_int_equal(parse(c, "[store]\nslots = 5\n", &e), -1);
    has(&e, "engine.slots");
    assert_int_equal(parse(c, "[engine]\nhang_budget_ms = 5\n", &e), -1);
    has(&e, "engine.hang_budget_s");
    vt_config_free(c);
}

/* Nobody writes into it: who waits for it waits for ever, and that is the one thread of vitriold when it is a profile. */
static void test_a_pipe_is_no_file(void **state)
{
    char dir[] = "/tmp/vtcfg-XXXXXX", path[64];
    struct vt_err e;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/pipe.conf", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    struct vt_config *c = vt_config_new();
    alarm(20);
    assert_int_equal(vt_config_file(c, VT_L_PROFILE, path, false, &e), -1);
    alarm(0);
    assert_int_equal(e.code, VT_E_CONFIG);
    assert_non_null(strstr(e.text, "a pipe can be read once only"));
    vt_config_free(c);
    unlink(path);
    rmdir(dir);
}

static void test_bad_lines(void **state)
{
    static const struct {
        const char *text, *want;
    } rows[] = {
        {"[engine]\nslots = 5\nslots = 6\n",
         "site.conf:3: engine.slots: given twice in this file (before: line 2)"},
        {"slots = 5\n", "before the first [section]"},
        {"[engine]\nslots\n", "has no ="},
        {"[engine\nslots=1\n", "no section header"},
        {"[]\n", "no section header"},
        {"[engine]\nslots = 5 # five\n", "not a whole number"},
        {"[engine]\nslots = \n", "empty value"},
        {"[engine]\nslots = 0\n", "1 to 256 are legal"},
        {"[engine]\nslots = 99999999999999999999\n", "out of range"},
        {"[engine]\nslots = 4s\n", "not a whole number"},
        {"[engine]\nhang_budget_s = 5ms\n", "the key is in seconds, write 5 or 5s"},
        {"[engine]\nhang_budget_s = 5 MiB\n", "the key is in seconds"},
        {"[store]\nquota_mib = 5GiB\n", "write 5 or 5MiB"},
        {"[http]\nlisten =\n", "empty value"},
        {"[http]\nlisten = ${ADDR}\n", "unresolved placeholder"},
        {"[gateway]\nresume = maybe\n", "neither on nor off"},
        {"[log]\nlevel = loud\n", "is not one of"},
        {"[log]\nlevel = inf\n", "is not one of"},
        {"[log]\nlevel = info|error\n", "is not one of"},
        {"[gateway]\nalias = a\001b\n", "control character"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vt_config *c = vt_config_new();
        struct vt_err e;
        assert_int_equal(parse(c, rows[i].text, &e), -1);
        assert_int_equal(e.code, VT_E_CONFIG);
        has(&e, "site.conf:");
        has(&e, rows[i].want);
        vt_config_free(c);
    }
}

static void test_good_lines(void **state)
{
    struct vt_config *c = vt_config_new();
    struct vt_err e;
    assert_int_equal(parse(c,
                           "# head\r\n\n  [engine]  \n slots=2\nhang_budget_s = 90s\n[store]\nquota_mib = "
                           "512 MiB\n[gateway]\n"
                           "resume = No\nalias = a # b = c\n[log]\nlevel = debug",
                           &e),
                     0);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_SLOTS), 2);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_HANG_BUDGET_S), 90);
    assert_int_equal(vt_config_int(c, VT_CFG_STORE_QUOTA_MIB), 512);
    assert_false(vt_config_bool(c, VT_CFG_GATEWAY_RESUME));
    assert_string_equal(vt_config_str(c, VT_CFG_GATEWAY_ALIAS), "a # b = c");
    assert_string_equal(vt_config_str(c, VT_CFG_LOG_LEVEL), "debug");
    assert_string_equal(vt_config_origin(c, VT_CFG_ENGINE_SLOTS), "site.conf:4");
    vt_config_free(c);
}

static void test_command_line_twice(void **state)
{
    struct vt_config *c = vt_config_new();
    struct vt_err e;
    assert_int_equal(set(c, VT_L_CMDLINE, "engine.slots", "1", &e), 0);
    assert_int_equal(set(c, VT_L_CMDLINE, "engine.slots", "2", &e), -1);
    has(&e, "given twice");
    vt_config_free(c);
}

static void test_rules(void **state)
{
    static const struct {
        const char *key, *value, *want;
    } rows[] = {
        {"engine.ctx_tokens", "1000", "nearest legal windows are 768 and 1024"},
        {"engine.ctx_tokens", "257", "256 and 512"},
        {"http.listen", "8080", "not ADDRESS:PORT"},
        {"http.listen", ":8080", "not ADDRESS:PORT"},
        {"http.listen", "127.0.0.1:", "not ADDRESS:PORT"},
        {"http.listen", "127.0.0.1:66000", "not ADDRESS:PORT"},
        {"engine.load_max_s", "60", "engine.load_stall_s"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct vt_config *c = vt_config_new();
        struct vt_err e;
        assert_int_equal(vt_config_check(c, &e), 0);
        assert_int_equal(set(c, VT_L_CMDLINE, rows[i].key, rows[i].value, &e), 0);
        assert_int_equal(vt_config_check(c, &e), -1);
        has(&e, rows[i].want);
        has(&e, rows[i].key);
        vt_config_free(c);
    }
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_files(void **state)
{
    char dir[] = "/tmp/vt-config-XXXXXX";
    char path[512];
    struct vt_err e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/conf.d", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/profiles", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file(dir, "vitriol.conf", "[engine]\nslots = 1\nthreads = 1\n[profile]\nname = deep\n");
    write_file(dir, "conf.d/20-b.conf", "[engine]\nslots = 3\n");
    write_file(dir, "conf.d/10-a.conf", "[engine]\nslots = 2\nctx_tokens = 512\n");
    write_file(dir, "conf.d/.hidden.conf", "nonsense\n");
    write_file(dir, "conf.d/readme", "nonsense\n");
    write_file(dir, "profiles/deep.conf", "[engine]\nctx_tokens = 1024\n");
    struct vt_config *c = vt_config_new();
    assert_int_equal(vt_config_layers(c, NULL, dir, false, &e), 0);
    assert_int_equal(vt_config_profile(c, NULL, dir, &e), 0);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_SLOTS), 3);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_THREADS), 1);
    assert_int_equal(vt_config_int(c, VT_CFG_ENGINE_CTX_TOKENS), 1024);
    assert_non_null(strstr(vt_config_origin(c, VT_CFG_ENGINE_SLOTS), "conf.d/20-b.conf:2"));
    assert_int_equal(set(c, VT_L_CMDLINE, "profile.name", "absent", &e), 0);
    assert_int_equal(vt_config_profile(c, NULL, dir, &e), -1);
    has(&e, "no profile \"absent\"");
    vt_config_free(c);
    c = vt_config_new();
    snprintf(path, sizeof path, "%s/none.conf", dir);
    assert_int_equal(vt_config_file(c, VT_L_SITE, path, true, &e), 0);
    assert_int_equal(vt_config_file(c, VT_L_SITE, path, false, &e), -1);
    has(&e, "none.conf");
    assert_int_equal(vt_config_file(c, VT_L_SITE, dir, false, &e), -1);
    vt_config_free(c);
    const char *made[] = {"vitriol.conf",        "conf.d/20-b.conf", "conf.d/10-a.conf",
                          "conf.d/.hidden.conf", "conf.d/readme",    "profiles/deep.conf"};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, made[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/conf.d", dir);
    rmdir(path);
    snprintf(path, sizeof path, "%s/profiles", dir);
    rmdir(path);
    assert_int_equal(rmdir(dir), 0);
}

/* What a profile locks, the layers above it may not set; a record, which is complete in itself, may. */
static void test_locked(void **state)
{
    char dir[] = "/tmp/vtcfg-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/fast.conf", dir);
    FILE *f = fopen(path, "w");
    fputs("[profile]\nlocked = engine.s*, model.path\n[engine]\nslots = 2\n", f);
    fclose(f);
    for (int l = VT_L_SITE; l <= VT_L_RECORD; l++) {
        struct vt_config *c = vt_config_new();
        struct vt_err e;
        assert_int_equal(set(c, VT_L_SITE, "profile.name", "fast", &e), 0);
        assert_int_equal(set(c, VT_L_SITE, "paths.profiles_dir", dir, &e), 0);
        assert_int_equal(set(c, (enum vt_config_layer)l, "engine.slots", "3", &e), 0);
        assert_int_equal(set(c, VT_L_CMDLINE, "engine.threads", "1", &e), 0); /* not locked */
        int rc = vt_config_profile(c, NULL, NULL, &e);
        bool refused = l > VT_L_PROFILE && l < VT_L_RECORD;
        assert_int_equal(rc, refused ? -1 : 0);
        if (refused) {
            has(&e, "engine.slots is locked by profile fast");
            has(&e, "fast.conf:2");
        }
        vt_config_free(c);
    }
    unlink(path);
    rmdir(dir);
}

/* A pattern that matches nothing is an error, and so is one behind another that matches all of it. */
static void test_patterns(void **state)
{
    static const char *const lists[][2] = {{"engine.slotz", "no key matches engine.slotz"},
                                           {"engine.s*, modle.*", "no key matches modle.*"},
                                           {"engine.*, engine.slots", "all that engine.slots matches"},
                                           {"engine.*, model.path, engine.s*", "all that engine.s* matches"},
                                           {"model.path model.path", "all that model.path matches"},
                                           {"engine.slots, engine.*", NULL},
                                           {"engine.s*, model.path", NULL}};
    char dir[] = "/tmp/vtcfg-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/fast.conf", dir);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct vt_config *c = vt_config_new();
        struct vt_err e;
        FILE *f = fopen(path, "w");
        fprintf(f, "[profile]\nlocked = %s\n", lists[i][0]);
        fclose(f);
        set(c, VT_L_SITE, "profile.name", "fast", &e);
        set(c, VT_L_SITE, "paths.profiles_dir", dir, &e);
        assert_int_equal(vt_config_profile(c, NULL, NULL, &e), lists[i][1] != NULL ? -1 : 0);
        if (lists[i][1] != NULL)
            has(&e, lists[i][1]);
        vt_config_free(c);
    }
    unlink(path);
    rmdir(dir);
}

static void test_suggest(void **state)
{
    static const char *const list[] = {"status", "start", "stop", "slots", "bounce"};
    char out[128];
    assert_string_equal(vt_suggest("statsu", list, 5, out, sizeof out), "; did you mean status?");
    assert_string_equal(vt_suggest("stap", list, 5, out, sizeof out), "; did you mean stop or start?");
    assert_string_equal(vt_suggest("xyzzy", list, 5, out, sizeof out), "");
    assert_int_equal(vt_edit_distance("abc", "acb"), 1);
    assert_int_equal(vt_edit_distance("", "abc"), 3);
}

/* The page in docs/ is what the table says. */
static void test_reference(void **state)
{
    const char *path = getenv("VT_CONFIG_REFERENCE");
    if (path == NULL)
        skip();
    char *text = NULL;
    size_t len = 0;
    FILE *mem = open_memstream(&text, &len);
    vt_config_print_reference(mem);
    fclose(mem);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    char *doc = calloc(1, len + 2);
    assert_int_equal(fread(doc, 1, len + 1, f), len);
    assert_string_equal(doc, text);
    fclose(f);
    free(doc);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unset_empty_value),
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_env_over_file),
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_a_pipe_is_no_file),
        cmocka_unit_test(test_good_lines),
        cmocka_unit_test(test_command_line_twice),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_locked),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_suggest),
        cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
