/* What profiles are made of, without a process: shapes and what is known of them, records on disk, payloads, and the
 * profiles that ship. */
#include "payload.h"
#include "record.h"
#include "shape.h"
#include "spec_law.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", text, part);
}

static void set(struct vt_config *c, const char *key, const char *value)
{
    struct vt_err err;
    if (vt_config_set(c, VT_L_SITE, key, value, "test", &err) < 0)
        fail_msg("%s", err.text);
}

static void key_for(const struct vt_config *c, const char *payload, const char *devices, const char *build,
                    struct kv *shape, char key[SHAPE_KEY])
{
    const struct shape_in in = {.cfg = c, .payload = payload, .devices = devices, .build = build};
    assert_int_equal(shape_of(&in, shape), 0);
    shape_key(shape, key);
}

/* L21: a figure is found under its own shape and under no other, however near. */
static void test_never_nearest(void **state)
{
    struct kv shape = {0};
    char key[SHAPE_KEY], other[SHAPE_KEY];
    double v;
    json_t *all = json_object();
    struct vt_config *c = vt_config_new();
    set(c, "engine.slots", "2");
    set(c, "engine.ctx_tokens", "8192");
    key_for(c, "0123456789ab", "GPU-1", "b1", &shape, key);
    assert_int_equal(measure_put(all, &shape, "price", -1, 7701, 1), 0);
    assert_int_equal(measure_put(all, &shape, "price", 7000, 7892, 2), 0);
    assert_true(measure_get(all, key, "price", &v));
    assert_true(v == 7892); /* as it was measured last */
    assert_false(measure_get(all, key, "prize", &v));
    const char *const near[][2] = {
        {"engine.ctx_tokens", "8448"}, {"engine.slots", "3"}, {"engine.ubatch_tokens", "512"},
        {"engine.device", "cpu"},      {"engine.args", "x"},  {"engine.threads", "1"}};
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        struct vt_config *d = vt_config_new();
        set(d, "engine.slots", "2");
        set(d, "engine.ctx_tokens", "8192");
        struct vt_err err;
        assert_int_equal(vt_config_set(d, VT_L_CMDLINE, near[i][0], near[i][1], "test", &err), 0);
        key_for(d, "0123456789ab", "GPU-1", "b1", &shape, other);
        assert_string_not_equal(key, other);
        assert_false(measure_get(all, other, "price", &v));
        vt_config_free(d);
    }
    key_for(c, "0123456789ac", "GPU-1", "b1", &shape, other);
    assert_false(measure_get(all, other, "price", &v));
    key_for(c, "0123456789ab", "GPU-2", "b1", &shape, other);
    assert_false(measure_get(all, other, "price", &v));
    key_for(c, "0123456789ab", "GPU-1", "b2", &shape, other);
    assert_false(measure_get(all, other, "price", &v));
    /* where it lies and how long it may hang make no other shape */
    set(c, "engine.hang_budget_s", "61");
    set(c, "paths.state_dir", "/elsewhere");
    key_for(c, "0123456789ab", "GPU-1", "b1", &shape, other);
    assert_string_equal(key, other);
    vt_config_free(c);
    kv_clear(&shape);
    json_decref(all);
}

/* What a shape can do is stated where it was filled; a file that says nonsense states nothing. */
static void test_depth(void **state)
{
    struct kv shape = {0};
    char key[SHAPE_KEY], other[SHAPE_KEY];
    struct shape_depth d = {.tokens = 96800, .decode_milli = 11300, .prompt_milli = 250500, .at_us = 7000000},
                       got = {.tokens = 1};
    json_t *all = json_object();
    struct vt_config *c = vt_config_new();
    key_for(c, "0123456789ab", "GPU-1", "b2", &shape, other);
    key_for(c, "0123456789ab", "GPU-1", "b1", &shape, key);
    depth_get(all, key, &got);
    assert_int_equal(got.tokens, 0);
    assert_int_equal(depth_put(all, &shape, &d), 0);
    depth_get(all, key, &got);
    assert_memory_equal(&got, &d, sizeof d);
    depth_get(all, other, &got); /* another build */
    assert_int_equal(got.tokens, 0);
    json_t *tokens = json_object_get(json_object_get(json_object_get(all, key), "values"), "depth_tokens");
    const double nonsense[] = {-1, 0, 1e300};
    for (size_t i = 0; i < sizeof nonsense / sizeof nonsense[0]; i++) {
        json_object_set_new(tokens, "measured", json_real(nonsense[i]));
        depth_get(all, key, &got);
        assert_int_equal(got.tokens, 0);
    }
    json_decref(all);
    kv_clear(&shape);
    vt_config_free(c);
}

static json_t *blessed_as(const char *tag, json_t *pair)
{
    json_t *record = json_object(), *all = json_object();
    json_object_set_new(record, "pair", pair);
    json_object_set_new(all, tag, record);
    return all;
}

/* Both figures, of this shape, in one blessed record: or no step guesses. */
static void test_guesses_need_a_pair(void **state)
{
    struct kv shape = {0}, twin = {0}, other = {0};
    char key[SHAPE_KEY], twin_key[SHAPE_KEY], plain_key[SHAPE_KEY];
    struct vt_err err;
    struct shape_depth d = {.tokens = 64, .decode_milli = 20000, .prompt_milli = 1000, .at_us = 1};
    json_t *measures = json_object();
    struct vt_config *c = vt_config_new();
    key_for(c, "0123456789ab", "none", "b1", &shape, plain_key);
    assert_int_equal(spec_law_allows(NULL, &shape, true, &err), 0); /* nothing is guessed */
    set(c, "engine.spec", "ngram");
    key_for(c, "0123456789ab", "none", "b1", &shape, key);
    assert_int_equal(spec_law_twin(&shape, &twin), 0);
    shape_key(&twin, twin_key);
    assert_string_equal(twin_key, plain_key); /* what is measured without it is found */
    assert_string_not_equal(key, plain_key);

    json_t *none = json_object();
    assert_int_equal(spec_law_allows(none, &shape, true, &err), -1);
    assert_int_equal(err.code, VT_E_CONFIG);
    json_decref(none);
    assert_int_equal(depth_put(measures, &shape, &d), 0);
    json_t *half = blessed_as("half", spec_law_pair(&shape, measures));
    assert_int_equal(spec_law_allows(half, &shape, true, &err), -1);
    assert_non_null(strstr(err.text, "record half does not hold"));
    json_decref(half);
    assert_int_equal(depth_put(measures, &twin, &d), 0);
    json_t *both = blessed_as("both", spec_law_pair(&shape, measures));
    assert_int_equal(spec_law_allows(both, &shape, true, &err), 0);

    set(c, "engine.spec_n", "4"); /* another shape: no figure of it */
    key_for(c, "0123456789ab", "none", "b1", &other, key);
    assert_int_equal(spec_law_allows(both, &other, true, &err), -1);
    set(c, "engine.spec_n", "8");
    key_for(c, "0123456789ab", "GPU-1", "b1", &other, key);
    assert_int_equal(spec_law_allows(both, &other, true, &err), -1);
    if (spec_law_allows(both, &other, false, &err) < 0) /* before a launch no device is known */
        fail_msg("%s", err.text);
    kv_clear(&shape);
    kv_clear(&twin);
    kv_clear(&other);
    json_decref(both);
    json_decref(measures);
    vt_config_free(c);
}

static void test_measures_are_bounded(void **state)
{
    struct kv shape = {0};
    char first[SHAPE_KEY], key[SHAPE_KEY], text[16];
    double v;
    json_t *all = json_object();
    for (int i = 0; i < MEASURE_SHAPES + 20; i++) {
        snprintf(text, sizeof text, "%d", i);
        kv_set(&shape, "payload", text);
        shape_key(&shape, key);
        if (i == 0)
            memcpy(first, key, sizeof first);
        assert_int_equal(measure_put(all, &shape, "x", -1, i, i), 0);
    }
    assert_int_equal(json_object_size(all), MEASURE_SHAPES);
    assert_false(measure_get(all, first, "x", &v));
    assert_true(measure_get(all, key, "x", &v));
    kv_clear(&shape);
    json_decref(all);
}

/* L80: a shape known to fail is refused with its evidence, by the build that failed and by no other. */
static void test_forbidden(void **state)
{
    struct vt_config *c = vt_config_new();
    struct vt_err err;
    enum shape_ban ban;
    char evidence[512];
    json_t *record =
        json_pack("{s:[{s:s, s:s, s:s, s:s}]}", "entries", "build", "b1", "date", "2026-05-04", "evidence",
                  "graph capture failed", "shape", "engine.slots=3,engine.ctx_tokens=4096");
    set(c, "engine.slots", "3");
    assert_int_equal(shape_banned(c, record, "b1", &ban, evidence, sizeof evidence, &err), 0);
    assert_int_equal(ban, BAN_NOW);
    has(evidence, "graph capture failed");
    has(evidence, "2026-05-04");
    assert_int_equal(shape_banned(c, record, "b2", &ban, evidence, sizeof evidence, &err), 0);
    assert_int_equal(ban, BAN_EXPIRED);
    has(evidence, "build b1");
    set(c, "engine.ctx_tokens", "8192"); /* one condition does not hold */
    assert_int_equal(shape_banned(c, record, "b1", &ban, evidence, sizeof evidence, &err), 0);
    assert_int_equal(ban, BAN_NONE);
    set(c, "profile.forbidden",
        "engine.slots=2 | b1 | 2026-01-01 | x; engine.slots=3 | b1 | 2026-01-02 | two | bars");
    assert_int_equal(shape_banned(c, NULL, "b1", &ban, evidence, sizeof evidence, &err), 0);
    assert_int_equal(ban, BAN_NOW);
    has(evidence, "on 2026-01-02 with build b1: two");
    static const char *const bad[][2] = {{"engine.slots=2", "lacks its evidence"},
                                         {"engine.slotz=2 | b1 | d | e", "did you mean engine.slots"},
                                         {"slots | b1 | d | e", "no key=value"},
                                         {"| b1 | d | e", "without a condition"}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct vt_config *d = vt_config_new();
        set(d, "profile.forbidden", bad[i][0]);
        assert_int_equal(shape_banned(d, NULL, "b1", &ban, evidence, sizeof evidence, &err), -1);
        assert_int_equal(err.code, VT_E_CONFIG);
        has(err.text, bad[i][1]);
        vt_config_free(d);
    }
    /* what another build knew by other names bans nothing here */
    set(c, "profile.forbidden", "engine.slotz=2 | b0 | d | e");
    assert_int_equal(shape_banned(c, NULL, "b1", &ban, evidence, sizeof evidence, &err), 0);
    assert_int_equal(ban, BAN_EXPIRED);
    json_decref(record);
    vt_config_free(c);
}

/* ---- on disk ---- */

struct ground {
    char dir[64];
};

static int setup(void **state)
{
    static struct ground g;
    strcpy(g.dir, "/tmp/vt-prof-XXXXXX");
    assert_non_null(mkdtemp(g.dir));
    *state = &g;
    return 0;
}

static int teardown(void **state)
{
    struct ground *g = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", g->dir);
    return system(command);
}

static void test_records(void **state)
{
    struct ground *g = *state;
    struct vt_err err;
    char path[128];
    json_t *v = record_load(g->dir, "x", NULL);
    assert_int_equal(json_object_size(v), 0);
    json_object_set_new(v, "a", json_integer(1));
    assert_int_equal(record_save(g->dir, "x", v, &err), 0);
    json_decref(v);
    v = record_load(g->dir, "x", NULL);
    assert_int_equal(json_integer_value(json_object_get(v, "a")), 1);
    json_decref(v);
    struct stat st;
    snprintf(path, sizeof path, "%s/records/x.json", g->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    /* neither what is no object nor what is no JSON is taken for a record */
    static const char *const bad[] = {"[1]", "{\"a\":", "", "{\"a\":1,\"a\":2}"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        FILE *f = fopen(path, "w");
        fputs(bad[i], f);
        fclose(f);
        v = record_load(g->dir, "x", NULL);
        assert_int_equal(json_object_size(v), 0);
        json_decref(v);
    }
    unlink(path);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    v = record_load(g->dir, "x", NULL);
    assert_int_equal(json_object_size(v), 0);
    /* what could not be opened is not taken for nothing: it stays */
    assert_int_equal(record_save(g->dir, "x", v, &err), -1);
    has(err.text, "x.json cannot be read, so it is not written over");
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    json_decref(v);
    /* a name that cannot be written leaves what is there */
    snprintf(path, sizeof path, "%s/nowhere/deep", g->dir);
    v = json_object();
    assert_int_equal(record_save(path, "x", v, &err), -1);
    assert_int_equal(err.code, VT_E_IO);
    json_decref(v);
}

static enum payload_state wait_payload(struct sup *s, const char *path, struct vt_err *err)
{
    enum payload_state p;
    for (int i = 0; (p = payload_check(s, s->cfg, path, err)) == PAYLOAD_WORKING && i < 6000; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return p;
}

/* L17: size first, then the hash, once for each state of the file. */
static void test_payload(void **state)
{
    struct ground *g = *state;
    struct sup *s = calloc(1, sizeof *s);
    struct vt_err err;
    char path[128];
    snprintf(path, sizeof path, "%s/m.gguf", g->dir);
    snprintf(s->dir.state, sizeof s->dir.state, "%s", g->dir);
    s->cfg = vt_config_new();
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_BAD);
    assert_int_equal(err.code, VT_E_NO_INPUT);
    FILE *f = fopen(path, "w");
    fputs("abc", f);
    fclose(f);
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_GOOD); /* nothing is expected of it */
    set(s->cfg, "model.bytes", "4");
    set(s->cfg, "model.sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_BAD); /* at once: no byte was read */
    has(err.text, "cut short");
    set(s->cfg, "model.bytes", "2");
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_BAD);
    has(err.text, "another file");
    set(s->cfg, "model.bytes", "3");
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_WORKING);
    assert_int_equal(wait_payload(s, path, &err), PAYLOAD_GOOD);
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_GOOD); /* remembered */
    payload_close(s);
    assert_int_equal(payload_check(s, s->cfg, path, &err), PAYLOAD_GOOD); /* by the next vitriold, too */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);             /* another mtime */
    f = fopen(path, "w");
    fputs("abd", f);
    fclose(f);
    assert_int_equal(wait_payload(s, path, &err), PAYLOAD_BAD);
    assert_int_equal(err.code, VT_E_PAYLOAD);
    has(err.text, "damaged");
    payload_close(s);
    vt_config_free(s->cfg);
    free(s);
}

/* Every profile that ships can be read, makes sense, and says what it is for. */
static void test_shipped_profiles(void **state)
{
    const char *dir = getenv("VT_PROFILES");
    struct dirent *e;
    unsigned n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    while ((e = readdir(d)) != NULL) {
        size_t len = strlen(e->d_name);
        struct vt_err err;
        char name[64], line[256];
        if (len < 6 || strcmp(e->d_name + len - 5, ".conf") != 0)
            continue;
        struct vt_config *c = vt_config_new();
        snprintf(name, sizeof name, "%.*s", (int)(len - 5 < 60 ? len - 5 : 60), e->d_name);
        set(c, "profile.name", name);
        set(c, "paths.profiles_dir", dir);
        if (vt_config_profile(c, NULL, NULL, &err) < 0 || vt_config_check(c, &err) < 0)
            fail_msg("%s", err.text);
        snprintf(line, sizeof line, "%s/%s.conf", dir, name);
        FILE *f = fopen(line, "r");
        assert_non_null(fgets(line, sizeof line, f));
        fclose(f);
        assert_int_equal(line[0], '#');
        vt_config_free(c);
        n++;
    }
    closedir(d);
    assert_true(n >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_nearest),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_guesses_need_a_pair),
        cmocka_unit_test(test_measures_are_bounded),
        cmocka_unit_test(test_forbidden),
        cmocka_unit_test_setup_teardown(test_records, setup, teardown),
        cmocka_unit_test_setup_teardown(test_payload, setup, teardown),
        cmocka_unit_test(test_shipped_profiles),
    };
    return cmocka_run_group_tests_name("profiles", tests, NULL, NULL);
}
