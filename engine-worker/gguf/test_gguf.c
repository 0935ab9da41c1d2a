#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "build_gguf.h"
#include "gguf.h"

#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/test_gguf.XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[2][128];
    static int which;
    which = !which;
    snprintf(path[which], sizeof path[which], "%s/%s", dir, name);
    return path[which];
}

static const char *save(const char *name, const struct bytes *o, size_t n)
{
    const char *path = in_dir(name);
    unlink(path); /* a file that is cut to nothing and written again waits for the disk (ext4) */
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(o->b, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

static struct gguf_file *open_ok(const char *path)
{
    struct gguf_file *f;
    struct vt_err err;
    if (gguf_open(&f, path, false, &err) < 0)
        fail_msg("%s", err.text);
    return f;
}

/* The file is refused with this code and these words. */
static void refused(const struct bytes *o, int code, const char *words)
{
    struct gguf_file *f;
    struct vt_err err = {0};
    const char *path = save("bad.gguf", o, o->n);
    if (gguf_open(&f, path, false, &err) == 0)
        fail_msg("accepted; expected: %s", words);
    assert_null(f);
    if (err.code != code || strstr(err.text, words) == NULL)
        fail_msg("'%s' lacks '%s'", err.text, words);
}

static int setup(void **state)
{
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    char cmd[160];
    snprintf(cmd, sizeof cmd, "rm -r %s", dir);
    return system(cmd) == 0 ? 0 : -1;
}

static struct gguf_file *small_open(void)
{
    struct bytes o = small_file();
    add_small_data(&o);
    struct gguf_file *f = open_ok(save("small.gguf", &o, o.n));
    free(o.b);
    return f;
}

static void reads_every_kind_of_value(void **state)
{
    struct gguf_file *f = small_open();
    struct vt_err err;
    uint32_t u;
    uint64_t u64;
    float x;
    bool b;
    const char *s;
    size_t len;
    static const struct {
        const char *key;
        uint32_t v;
    } ints[] = {{"a.u8", 200}, {"a.u16", 12345}, {"a.u32", 4000000000u}, {"a.i32", 77}};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gguf_u32(f, ints[i].key, &u, &err), 0);
        assert_int_equal(u, ints[i].v);
    }
    assert_int_equal(gguf_u64(f, "a.u64", &u64, &err), 0);
    assert_true(u64 == 1ull << 40);
    assert_int_equal(gguf_f32(f, "a.f32", &x, &err), 0);
    assert_true(x == 1.5f);
    assert_int_equal(gguf_f32(f, "a.f64", &x, &err), 0);
    assert_true(x == -2.25f);
    assert_int_equal(gguf_bool(f, "a.bool", &b, &err), 0);
    assert_true(b);
    assert_int_equal(gguf_str(f, "general.architecture", &s, &len, &err), 0);
    assert_int_equal(len, 5);
    assert_memory_equal(s, "qwen3", 5);
    gguf_close(f);
}

static void refuses_wrong_types_and_ranges(void **state)
{
    struct gguf_file *f = small_open();
    struct vt_err err;
    uint32_t u = 5;
    uint64_t n;
    float x;
    bool b;
    const char *s;
    size_t len;
    enum gguf_type t;
    assert_int_equal(gguf_u32(f, "no.such.key", &u, &err), 1);
    assert_int_equal(u, 5);
    assert_int_equal(gguf_arr_u32(f, "no.such.key", 0, &u, &err), 1);
    assert_int_equal(gguf_u32(f, "a.u64", &u, &err), -1); /* too large */
    assert_non_null(strstr(err.text, "a.u64"));
    assert_int_equal(gguf_u32(f, "a.i64", &u, &err), -1); /* negative */
    assert_int_equal(gguf_u32(f, "a.i8", &u, &err), -1);
    assert_int_equal(gguf_u32(f, "a.i16", &u, &err), -1);
    assert_int_equal(gguf_u32(f, "a.f32", &u, &err), -1);
    assert_int_equal(gguf_u32(f, "a.bool", &u, &err), -1);
    assert_int_equal(gguf_u32(f, "general.architecture", &u, &err), -1);
    assert_int_equal(gguf_f32(f, "a.u32", &x, &err), -1);
    assert_int_equal(gguf_bool(f, "a.f64", &b, &err), -1);
    assert_int_equal(gguf_str(f, "tokens", &s, &len, &err), -1);
    assert_int_equal(gguf_arr(f, "a.u8", &t, &n, &err), -1);
    assert_int_equal(gguf_arr_u32(f, "ints", 3, &u, &err), -1); /* beyond the end */
    assert_int_equal(gguf_arr_u32(f, "ints", 2, &u, &err), -1); /* negative */
    assert_int_equal(gguf_arr_u32(f, "tokens", 0, &u, &err), -1);
    assert_int_equal(gguf_arr_str(f, "ints", 0, &s, &len, &err), -1);
    assert_int_equal(gguf_arr_f32(f, "ints", 0, &x, &err), -1);
    assert_int_equal(gguf_arr_u32(f, "floats", 0, &u, &err), -1);
    assert_int_equal(err.code, VT_E_PAYLOAD);
    gguf_close(f);
}

static void reads_arrays(void **state)
{
    struct gguf_file *f = small_open();
    struct vt_err err;
    enum gguf_type t;
    uint64_t n;
    uint32_t u;
    float x;
    assert_int_equal(gguf_arr(f, "tokens", &t, &n, &err), 0);
    assert_int_equal(t, GGUF_STR);
    assert_int_equal(n, 19);
    for (uint64_t i = n; i-- > 0;) {
        char want[24];
        const char *s;
        size_t len;
        snprintf(want, sizeof want, "%.*s%d", (int)i % 5, "....", (int)i);
        assert_int_equal(gguf_arr_str(f, "tokens", i, &s, &len, &err), 0);
        assert_int_equal(len, i == 7 ? 0 : strlen(want));
        assert_memory_equal(s, want, len);
    }
    assert_int_equal(gguf_arr_u32(f, "ints", 1, &u, &err), 0);
    assert_int_equal(u, 20);
    assert_int_equal(gguf_arr_u32(f, "bools", 0, &u, &err), 0);
    assert_int_equal(u, 1);
    assert_int_equal(gguf_arr_f32(f, "floats", 1, &x, &err), 0);
    assert_true(x == 1.5f);
    gguf_close(f);
}

static void finds_tensors(void **state)
{
    struct gguf_file *f = small_open();
    assert_int_equal(gguf_n_tensors(f), 3);
    const struct gguf_tensor *t = gguf_tensor(f, "w.q8_0");
    assert_non_null(t);
    assert_int_equal(t->type, GT_Q8_0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 32);
    assert_int_equal(t->ne[1], 3);
    assert_int_equal(t->ne[2], 1);
    assert_int_equal(t->bytes, 102);
    assert_int_equal(t->data[0], 64);
    assert_int_equal((uintptr_t)t->data % 64, 0);
    assert_null(gguf_tensor(f, "w.q8"));
    assert_null(gguf_tensor(f, ""));
    assert_null(gguf_tensor_at(f, 3));
    assert_string_equal(gguf_tensor_at(f, 2)->name, "w.q4_k");
    gguf_close(f);
}

static void identity_is_of_the_index(void **state)
{
    struct bytes o = small_file();
    size_t head = o.n;
    uint8_t a[32], b[32];
    add_small_data(&o);
    struct gguf_file *f = open_ok(save("a.gguf", &o, o.n));
    gguf_index_sha256(f, a);
    gguf_close(f);
    o.b[o.n - 1] ^= 1; /* data does not count */
    f = open_ok(save("b.gguf", &o, o.n));
    gguf_index_sha256(f, b);
    gguf_close(f);
    assert_memory_equal(a, b, 32);
    o.b[head - 38] ^= 1; /* a tensor's name does */
    f = open_ok(save("b.gguf", &o, o.n));
    gguf_index_sha256(f, b);
    gguf_close(f);
    assert_memory_not_equal(a, b, 32);
    free(o.b);
}

/* Cut anywhere in the header: an error that says so. Cut in the data: only the header can be read. */
static void cut_at_every_byte(void **state)
{
    struct bytes o = small_file();
    size_t head = o.n;
    add_small_data(&o);
    for (size_t n = 0; n < o.n; n++) {
        struct gguf_file *f;
        struct vt_err err = {0};
        const char *path = save("cut.gguf", &o, n);
        assert_int_equal(gguf_open(&f, path, false, &err), -1);
        assert_int_equal(err.code, VT_E_PAYLOAD);
        assert_true(strlen(err.text) > 20);
        assert_null(f);
        int rc = gguf_open(&f, path, true, &err);
        assert_int_equal(rc, n < head ? -1 : 0);
        if (rc == 0)
            assert_null(gguf_tensor(f, "w.f32")->data);
        gguf_close(f);
    }
    free(o.b);
}

static void use_all(const struct gguf_file *f)
{
    FILE *null = fopen("/dev/null", "w");
    uint8_t sha[32];
    uint64_t sum = 0;
    assert_non_null(null);
    gguf_print(f, null, true);
    gguf_print(f, null, false);
    fclose(null);
    gguf_index_sha256(f, sha);
    for (uint64_t i = 0; i < gguf_n_tensors(f); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f, i);
        assert_ptr_equal(gguf_tensor(f, t->name), t);
        for (uint64_t k = 0; t->data != NULL && k < t->bytes; k++)
            sum += t->data[k];
    }
    assert_true(sum < UINT64_MAX);
}

/* Each type is listed by its name with its bits per weight. */
static void lists_every_type(void **state)
{
    static const char *const words[] = {"F32           32 ", "Q4_K         4.5 ", "Q6_K      6.5625 ",
                                        "IQ1_S     1.5625 ", "IQ2_XXS   2.0625 ", "MXFP4       4.25 ",
                                        "NVFP4        4.5 ", "Q1_0       1.125 ", "TQ1_0     1.6875 ",
                                        "IQ3_XXS   3.0625 "};
    struct bytes o = every_type_file(64);
    struct vt_err err;
    struct gguf_file *f;
    char *text;
    size_t len;
    if (gguf_open(&f, save("types.gguf", &o, o.n), false, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(gguf_n_tensors(f), 35);
    FILE *mem = open_memstream(&text, &len);
    assert_non_null(mem);
    gguf_print(f, mem, false);
    fclose(mem);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strstr(text, words[i]) == NULL)
            fail_msg("'%s' is not listed in\n%s", words[i], text);
    assert_null(strstr(text, "unknown"));
    free(text);
    free(o.b);
    gguf_close(f);
}

/* Every bit of the header flipped: refused with a reason, or a file that can be used without harm. */
static void every_bit_of_the_header(void **state)
{
    struct bytes o = small_file();
    size_t head = o.n, accepted = 0;
    add_small_data(&o);
    for (size_t i = 0; i < head * 8; i++) {
        struct gguf_file *f;
        struct vt_err err = {0};
        o.b[i / 8] ^= (uint8_t)(1 << i % 8);
        if (gguf_open(&f, save("flip.gguf", &o, o.n), i % 2, &err) == 0) {
            accepted++;
            use_all(f);
        } else {
            assert_true(err.code == VT_E_PAYLOAD && strlen(err.text) > 20);
        }
        gguf_close(f);
        o.b[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    assert_true(accepted > 100 &&
                accepted < head * 8 - 1000); /* names and values may change, structure may not */
    free(o.b);
}

static struct bytes head_only(uint32_t version, uint64_t tensors, uint64_t kvs)
{
    struct bytes o = {0};
    put_head(&o, version, tensors, kvs);
    return o;
}

static void bad_header(uint32_t version, uint64_t tensors, uint64_t kvs, const char *words)
{
    struct bytes o = head_only(version, tensors, kvs);
    put_zeros(&o, 100);
    refused(&o, VT_E_PAYLOAD, words);
    free(o.b);
}

static void bad_headers(void **state)
{
    bad_header(1, 0, 0, "version 1");
    bad_header(4, 0, 0, "version 4");
    bad_header(0x03000000, 0, 0, "big-endian");
    bad_header(3, 0, UINT64_MAX, "metadata entries");
    bad_header(3, UINT64_MAX, 0, "number of tensors");
    bad_header(3, 1000000, 0, "number of tensors");
    bad_header(3, 0, 65537, "metadata entries");
    struct bytes o = head_only(2, 0, 0); /* version 2, nothing in it: fine */
    gguf_close(open_ok(save("empty.gguf", &o, o.n)));
    o.b[0] = 'g';
    refused(&o, VT_E_PAYLOAD, "not a GGUF file");
    free(o.b);
}

static void bad_metadata(void **state)
{
    struct bytes o = head_only(3, 0, 2);
    put_kv_u32(&o, "x", 1);
    put_kv_u32(&o, "x", 1);
    refused(&o, VT_E_PAYLOAD, "'x' is there twice");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "", 4);
    put_u32(&o, 1);
    refused(&o, VT_E_PAYLOAD, "empty");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "x", 13);
    put_u64(&o, 0);
    refused(&o, VT_E_PAYLOAD, "'x': ");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "nested", 9);
    put_u32(&o, 9);
    put_u64(&o, 1);
    put_zeros(&o, 40);
    refused(&o, VT_E_PAYLOAD, "arrays of arrays");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "many", 9);
    put_u32(&o, 8);
    put_u64(&o, 10000000);
    put_zeros(&o, 40);
    refused(&o, VT_E_PAYLOAD, "larger than the file");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "many", 9);
    put_u32(&o, 0);
    put_u64(&o, 1ull << 60);
    refused(&o, VT_E_PAYLOAD, "16 Mi");
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "s", 8);
    put_u64(&o, UINT64_MAX - 3);
    refused(&o, VT_E_PAYLOAD, "'s': ");
    static const uint32_t align[] = {0, 1, 4, 3, 48, 1u << 21};
    for (int i = 0; i < 6; i++) {
        o = (free(o.b), head_only(3, 0, 1));
        put_kv_u32(&o, "general.alignment", align[i]);
        refused(&o, VT_E_PAYLOAD, "alignment");
    }
    o = (free(o.b), head_only(3, 0, 1));
    put_key(&o, "general.alignment", 10);
    put_u64(&o, 32);
    refused(&o, VT_E_PAYLOAD, "u64 instead of u32");
    free(o.b);
}

static void bad_tensor(uint32_t type, uint64_t ne0, uint64_t ne1, uint64_t offset, const char *words)
{
    struct bytes o = head_only(3, 1, 0);
    put_tensor(&o, "w", type, ne0, ne1, offset);
    pad(&o, 32);
    put_zeros(&o, 1024);
    refused(&o, VT_E_PAYLOAD, words);
    free(o.b);
}

static void bad_tensors(void **state)
{
    bad_tensor(4, 32, 1, 0, "type 4");
    bad_tensor(4711, 32, 1, 0, "'w' has type 4711");
    bad_tensor(0, 0, 1, 0, "dimension is 0");
    bad_tensor(0, 1ull << 40, 1ull << 40, 0, "absurd");
    bad_tensor(0, UINT64_MAX, UINT64_MAX, 0, "absurd");
    bad_tensor(0, 1ull << 47, 1, 0, "truncated");
    bad_tensor(8, 33, 1, 0, "do not fill blocks of 32");
    bad_tensor(12, 128, 2, 0, "do not fill blocks of 256");
    bad_tensor(0, 4, 1, 16, "alignment");
    bad_tensor(0, 4, 1, UINT64_MAX - 31, "absurd");
    bad_tensor(0, 4, 1, INT64_MAX - 31, "truncated");
    bad_tensor(0, 257, 1, 0, "truncated");
    bad_tensor(0, 4, 1, 1024, "truncated");
    struct bytes o = head_only(3, 2, 0);
    put_tensor(&o, "a", 0, 16, 1, 0);
    put_tensor(&o, "b", 0, 16, 1, 32);
    put_zeros(&o, 200);
    refused(&o, VT_E_PAYLOAD, "'a' and 'b' overlap");
    o = (free(o.b), head_only(3, 2, 0));
    put_tensor(&o, "a", 0, 8, 1, 0);
    put_tensor(&o, "a", 0, 8, 1, 32);
    put_zeros(&o, 200);
    refused(&o, VT_E_PAYLOAD, "'a' is there twice");
    o = (free(o.b), head_only(3, 1, 0));
    put_str(&o, "w");
    put_u32(&o, 5);
    put_zeros(&o, 200);
    refused(&o, VT_E_PAYLOAD, "four dimensions");
    o = (free(o.b), head_only(3, 1, 0));
    put_u64(&o, 2);
    put(&o, "a\0", 2);
    put_zeros(&o, 200);
    refused(&o, VT_E_PAYLOAD, "NUL");
    free(o.b);
}

static void not_a_file(void **state)
{
    struct gguf_file *f;
    struct vt_err err;
    assert_int_equal(gguf_open(&f, in_dir("absent.gguf"), false, &err), -1);
    assert_int_equal(err.code, VT_E_NO_INPUT);
    assert_non_null(strstr(err.text, "absent.gguf"));
    assert_int_equal(gguf_open(&f, dir, false, &err), -1);
    assert_non_null(strstr(err.text, "not a regular file"));
    gguf_close(NULL);
}

static void a_file_that_shrinks(void **state)
{
    struct bytes o = small_file();
    struct vt_err err;
    add_small_data(&o);
    const char *path = save("shrink.gguf", &o, o.n);
    struct gguf_file *f = open_ok(path);
    assert_int_equal(gguf_stat_ok(f, &err), 0);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(gguf_stat_ok(f, &err), -1);
    assert_int_equal(err.code, VT_E_PAYLOAD);
    gguf_close(f);
    free(o.b);
}

/* ---- split files ---- */

/* Part no of count (both 1-based in the name, the key is 0-based); total < 0: no such key. */
static void save_part(const char *name, int no, int count, int total, const char *tensor)
{
    struct bytes o = {0};
    put_head(&o, 3, tensor != NULL, 2 + (total >= 0) + (no == 0));
    put_key(&o, "split.no", 2);
    put(&o, &(uint16_t){(uint16_t)no}, 2);
    put_key(&o, "split.count", 2);
    put(&o, &(uint16_t){(uint16_t)count}, 2);
    if (total >= 0) {
        put_key(&o, "split.tensors.count", 5);
        put_u32(&o, (uint32_t)total);
    }
    if (no == 0)
        put_kv_str(&o, "general.architecture", "qwen3");
    if (tensor != NULL)
        put_tensor(&o, tensor, 0, 8, 1, 0);
    pad(&o, 32);
    for (int i = 0; i < 8; i++) {
        float v = (float)(10 * no + i);
        put(&o, &v, 4);
    }
    save(name, &o, o.n);
    free(o.b);
}

static void save_three(void)
{
    save_part("m-00001-of-00003.gguf", 0, 3, 2, NULL);
    save_part("m-00002-of-00003.gguf", 1, 3, 2, "a");
    save_part("m-00003-of-00003.gguf", 2, 3, 2, "b");
}

static void split_refused(const char *name, int code, const char *words)
{
    struct gguf_file *f;
    struct vt_err err = {0};
    assert_int_equal(gguf_open(&f, in_dir(name), false, &err), -1);
    if (err.code != code || strstr(err.text, words) == NULL)
        fail_msg("%d '%s' lacks '%s'", err.code, err.text, words);
}

static void joins_parts(void **state)
{
    static const char *const names[] = {"m-00001-of-00003.gguf", "m-00003-of-00003.gguf"};
    save_three();
    for (int i = 0; i < 2; i++) { /* any part leads to the first */
        struct gguf_file *f = open_ok(in_dir(names[i]));
        const char *s;
        size_t len;
        float v;
        assert_int_equal(gguf_n_parts(f), 3);
        assert_int_equal(gguf_n_tensors(f), 2);
        memcpy(&v, gguf_tensor(f, "b")->data + 4, 4);
        assert_true(v == 21.0f);
        assert_int_equal(gguf_str(f, "general.architecture", &s, &len, NULL), 0);
        assert_true(gguf_total_bytes(f) > 300);
        use_all(f);
        gguf_close(f);
    }
}

static void parts_that_do_not_fit(void **state)
{
    save_three();
    unlink(in_dir("m-00002-of-00003.gguf"));
    split_refused("m-00001-of-00003.gguf", VT_E_NO_INPUT, "m-00002-of-00003.gguf");
    save_three();
    save_part("m-00002-of-00003.gguf", 2, 3, 2, "a");
    split_refused("m-00001-of-00003.gguf", VT_E_PAYLOAD, "part 3 of 3, its name says 2 of 3");
    save_three();
    save_part("m-00003-of-00003.gguf", 2, 4, 2, "b");
    split_refused("m-00001-of-00003.gguf", VT_E_PAYLOAD, "its name says 3 of 3");
    save_three();
    save_part("m-00003-of-00003.gguf", 2, 3, 2, "a");
    split_refused("m-00001-of-00003.gguf", VT_E_PAYLOAD, "'a' is there twice");
    save_three();
    save_part("m-00001-of-00003.gguf", 0, 3, 5, NULL);
    split_refused("m-00001-of-00003.gguf", VT_E_PAYLOAD, "5 are announced");
    save_part("renamed.gguf", 0, 3, 2, NULL);
    split_refused("renamed.gguf", VT_E_PAYLOAD, "other parts cannot be found");
    save_part("h-00001-of-60000.gguf", 0, 60000, 2, NULL);
    split_refused("h-00001-of-60000.gguf", VT_E_PAYLOAD, "at most 1024");
    save_three();
    split_refused("m-00000-of-00003.gguf", VT_E_PAYLOAD, "no part 0 of 3");
    split_refused("m-00004-of-00003.gguf", VT_E_PAYLOAD, "no part 4 of 3");
    split_refused("z-00002-of-00002.gguf", VT_E_NO_INPUT, "z-00001-of-00002.gguf");
}

static void a_whole_file_may_have_any_name(void **state)
{
    struct bytes o = small_file();
    add_small_data(&o);
    gguf_close(open_ok(save("w-00001-of-00009.gguf", &o, o.n)));
    gguf_close(open_ok(save("plain", &o, o.n)));
    save_part("one.gguf", 0, 1, 1, "a");
    gguf_close(open_ok(in_dir("one.gguf")));
    free(o.b);
}

/* 150 000 tokens and 1000 tensors, as the largest vocabularies have. */
static void opens_in_milliseconds(void **state)
{
    struct bytes o = {0};
    struct timespec a, b;
    put_head(&o, 3, 1000, 1);
    put_key(&o, "tokens", 9);
    put_u32(&o, 8);
    put_u64(&o, 150000);
    o.b = realloc(o.b, 8 << 20);
    for (int i = 0; i < 150000; i++) {
        char s[32];
        uint64_t n = (uint64_t)snprintf(s, sizeof s, "token %d", i);
        memcpy(o.b + o.n, &n, 8);
        memcpy(o.b + o.n + 8, s, n);
        o.n += 8 + n;
    }
    for (int i = 0; i < 1000; i++) {
        char s[40];
        snprintf(s, sizeof s, "blk.%d.attn_q.weight", i);
        put_tensor(&o, s, 0, 8, 1, 32 * (uint64_t)i);
    }
    pad(&o, 32);
    put_zeros(&o, 32000);
    const char *path = save("large.gguf", &o, o.n);
    double best = 1e9;
    for (int k = 0; k < 5; k++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a); /* others run on the processor, too */
        struct gguf_file *f = open_ok(path);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
        double ms = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) * 1e-6;
        best = ms < best ? ms : best;
        gguf_close(f);
    }
    printf("150 000 tokens, 1000 tensors: opened in %.2f ms\n", best);
    assert_true(best < 50); /* some 3 ms; much more under a sanitizer */
    free(o.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind_of_value),
        cmocka_unit_test(refuses_wrong_types_and_ranges),
        cmocka_unit_test(lists_every_type),
        cmocka_unit_test(reads_arrays),
        cmocka_unit_test(finds_tensors),
        cmocka_unit_test(identity_is_of_the_index),
        cmocka_unit_test(cut_at_every_byte),
        cmocka_unit_test(every_bit_of_the_header),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(bad_metadata),
        cmocka_unit_test(bad_tensors),
        cmocka_unit_test(not_a_file),
        cmocka_unit_test(a_file_that_shrinks),
        cmocka_unit_test(joins_parts),
        cmocka_unit_test(parts_that_do_not_fit),
        cmocka_unit_test(a_whole_file_may_have_any_name),
        cmocka_unit_test(opens_in_milliseconds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
