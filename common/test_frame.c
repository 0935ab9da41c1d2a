#include "frame.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MAX (1u << 20)

/* One frame of each type with every key of the table, from values that depend on the key alone. */
static void put_value(struct vt_enc *e, const struct vt_frame_row *r)
{
    static const uint8_t blob[3] = {0, 0xff, 0x80};
    switch ((enum vt_frame_kind)r->kind) {
    case VT_KIND_U: vt_enc_u64(e, r->key, (uint64_t)1 << (r->key * 5 % 61)); break;
    case VT_KIND_I: vt_enc_i64(e, r->key, -(int64_t)r->key * 1000); break;
    case VT_KIND_F: vt_enc_f64(e, r->key, 0.5); break;
    case VT_KIND_S: vt_enc_str(e, r->key, r->name); break;
    case VT_KIND_B: vt_enc_bin(e, r->key, blob, sizeof blob); break;
    case VT_KIND_M:
        vt_enc_map(e, r->key, 2);
        vt_enc_put_str(e, "a");
        vt_enc_put_u64(e, 7);
        vt_enc_put_str(e, "b");
        vt_enc_put_str(e, "\xc3\xa9");
        break;
    case VT_KIND_MF:
        vt_enc_map(e, r->key, 2);
        vt_enc_put_u64(e, 1);
        vt_enc_put_f64(e, 0.5);
        vt_enc_put_u64(e, 200);
        vt_enc_put_i64(e, -1);
        break;
    case VT_KIND_A:
    case VT_KIND_AF:
        vt_enc_array(e, r->key, 1);
        vt_enc_put_array(e, 3);
        vt_enc_put_u64(e, r->key);
        vt_enc_put_bin(e, NULL, 0);
        if (r->kind == VT_KIND_AF)
            vt_enc_put_f64(e, -1.25);
        else
            vt_enc_put_str(e, "");
        break;
    }
}

static void build(struct vt_enc *e, uint8_t type)
{
    size_t n;
    struct vt_err err;
    const struct vt_frame_row *r = vt_frame_rows(&n);
    vt_enc_begin(e, type, 300, 0x1a);
    for (size_t i = 0; i < n; i++) {
        if (r[i].type == type)
            put_value(e, &r[i]);
    }
    if (vt_enc_end(e, &err) < 0)
        fail_msg("%s", err.text);
}

static const struct {
    uint8_t type;
    const char *hex;
} golden[] = {
#include "test_frame_golden.inc"
};

static void hex_of(const uint8_t *p, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", p[i]);
}

static void test_table_is_ordered(void **state)
{
    (void)state;
    size_t n;
    const struct vt_frame_row *r = vt_frame_rows(&n);
    for (size_t i = 0; i < n; i++) {
        assert_in_range(r[i].key, 1, 119);
        assert_string_not_equal(vt_frame_name(r[i].type), "?");
        if (i > 0)
            assert_true(r[i - 1].type * 256 + r[i - 1].key < r[i].type * 256 + r[i].key);
    }
}

static void test_golden_bytes(void **state)
{
    (void)state;
    static char hex[1 << 16];
    struct vt_enc e;
    size_t seen = 0;
    vt_enc_init(&e);
    for (unsigned t = 0; t < 128; t++)
        seen += strcmp(vt_frame_name((uint8_t)t), "?") != 0;
    assert_int_equal(seen, sizeof golden / sizeof golden[0]);
    for (size_t i = 0; i < seen; i++) {
        build(&e, golden[i].type);
        hex_of(e.buf, e.len, hex);
        assert_string_equal(hex, golden[i].hex);
    }
    vt_enc_fini(&e);
}

/* Packs a decoded frame again; equal bytes mean that nothing was lost and that the form is canonical. */
static void repack(msgpack_packer *pk, const msgpack_object *o)
{
    assert_int_equal(msgpack_pack_object(pk, *o), 0);
}

static void test_decode_of_encode(void **state)
{
    (void)state;
    struct vt_enc e;
    msgpack_sbuffer sb;
    msgpack_packer pk;
    struct vt_err err;
    vt_enc_init(&e);
    msgpack_sbuffer_init(&sb);
    msgpack_packer_init(&pk, &sb, msgpack_sbuffer_write);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        struct vt_frame f;
        build(&e, golden[i].type);
        if (vt_frame_open(&f, e.buf, e.len, MAX, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(f.type, golden[i].type);
        assert_int_equal(f.id, 300);
        assert_int_equal(f.link, 0x1a);
        msgpack_sbuffer_clear(&sb);
        repack(&pk, &f.unpacked.data);
        assert_int_equal(sb.size, e.len);
        assert_memory_equal(sb.data, e.buf, e.len);
        vt_frame_close(&f);
    }
    msgpack_sbuffer_destroy(&sb);
    vt_enc_fini(&e);
}

/* Every cut is refused. The bytes are copied to the heap so that a sanitizer sees any read behind them. */
static void test_truncated_at_every_byte(void **state)
{
    (void)state;
    struct vt_enc e;
    vt_enc_init(&e);
    for (size_t i = 0; i < sizeof golden / sizeof golden[0]; i++) {
        build(&e, golden[i].type);
        for (size_t n = 0; n < e.len; n++) {
            uint8_t *cut = malloc(n > 0 ? n : 1);
            struct vt_err err;
            memcpy(cut, e.buf, n);
            assert_int_equal(vt_frame_scan(cut, n, MAX, &err), -1);
            assert_int_equal(err.code, VT_E_BAD_FRAME);
            free(cut);
        }
    }
    vt_enc_fini(&e);
}

/* A frame around the given body bytes, type 0x7e (unknown) unless told. */
static int scan_body(const char *body, size_t n, uint8_t type)
{
    uint8_t *buf = malloc(5 + n);
    struct vt_err err = {0};
    memcpy(buf, "\x95\x01", 2);
    buf[2] = type;
    buf[3] = buf[4] = 0;
    memcpy(buf + 5, body, n);
    int rc = vt_frame_scan(buf, 5 + n, MAX, &err);
    free(buf);
    return rc == 0 ? 0 : err.code;
}
#define BODY(s)    scan_body(s, sizeof(s) - 1, 0x7e)
#define SUBMIT(s)  scan_body(s, sizeof(s) - 1, VT_F_SUBMIT)
#define REFUSES(s) assert_int_equal(BODY(s), VT_E_BAD_FRAME)
#define ACCEPTS(s) assert_int_equal(BODY(s), 0)

static void test_hostile_bodies(void **state)
{
    (void)state;
    ACCEPTS("\x80");
    ACCEPTS("\x81\x01\xa0");
    ACCEPTS("\x82\x01\x02\x03\xc4\x00");
    REFUSES("\x90");                         /* not a map */
    REFUSES("\x81\x01\xdd\x04\x00\x00\x00"); /* 67 million elements announced */
    REFUSES("\x81\x01\xdd\xff\xff\xff\xff"); /* 4 thousand million */
    REFUSES("\x81\x01\xdf\x7f\xff\xff\xff"); /* pairs */
    REFUSES("\x81\x01\xdb\xff\xff\xff\xff"); /* string */
    REFUSES("\x81\x01\xc6\xff\xff\xff\xff"); /* binary */
    REFUSES("\x81\x01\xdc\x00\x10");         /* more elements than bytes */
    REFUSES("\x8f\x01\x02");                 /* pairs missing */
    REFUSES("\x82\x02\x01\x01\x01");         /* descending */
    REFUSES("\x82\x02\x01\x02\x01");         /* duplicate */
    REFUSES("\x81\x00\x01");                 /* key 0 */
    REFUSES("\x81\xcc\x80\x01");             /* key 128 */
    REFUSES("\x81\xa1"
            "a\x01");             /* string key in the body */
    REFUSES("\x81\xff\x01");      /* negative key */
    REFUSES("\x81\x90\x01");      /* container as key */
    REFUSES("\x81\xc4\x01z\x01"); /* binary as key */
    REFUSES("\x80\x80");          /* trailing */
    REFUSES("\x81\x01\xc0");      /* nil */
    REFUSES("\x81\x01\xc1");
    REFUSES("\x81\x01\xc2");
    REFUSES("\x81\x01\xc3");
    REFUSES("\x81\x01\xc7\x01\x05\x00");     /* ext */
    REFUSES("\x81\x01\xd4\x05\x00");         /* fixext */
    REFUSES("\x81\x01\xca\x00\x00\x00\x00"); /* float32 */
    REFUSES("\x81\x01\xa2\xc0\x80");         /* overlong */
    REFUSES("\x81\x01\xa3\xed\xa0\x80");     /* surrogate */
    REFUSES("\x81\x01\xa1\x00");             /* NUL */
    REFUSES("\x81\x01\xa1\x80");
    REFUSES("\x81\x01\xa4\xf4\x90\x80\x80"); /* above U+10FFFF */
    ACCEPTS("\x81\x01\xa4\xf4\x8f\xbf\xbf");
    REFUSES("\x81\x01\xa2\xc3"); /* cut inside */
    REFUSES("\x81\x01\xcc\x01"); /* longer than needed */
    REFUSES("\x81\x01\xcd\x00\xff");
    REFUSES("\x81\x01\xd0\xff");
    REFUSES("\x81\x01\xd1\xff\x80");
    REFUSES("\x81\x01\xd0\x7f"); /* positive in a signed form */
    ACCEPTS("\x81\x01\xd0\x80");
    ACCEPTS("\x81\x01\xd3\x80\x00\x00\x00\x00\x00\x00\x00");
    REFUSES("\x81\x01\xd9\x01z");
    REFUSES("\x81\x01\xde\x00\x01\x01\x01"); /* map16 for one pair */
    REFUSES("\x81\x01\x82\xa1"
            "b\x01\xa1"
            "a\x01"); /* nested string keys descend */
    REFUSES("\x81\x01\x82\xa1"
            "a\x01\xa1"
            "a\x01");
    REFUSES("\x81\x01\x82\x01\x01\xa1"
            "a\x01"); /* mixed */
    REFUSES("\x81\x01\x82\xa1"
            "a\x01\x01\x01");
    ACCEPTS("\x81\x01\x82\xa1"
            "a\x01\xa2"
            "aa\x01");
    ACCEPTS("\x81\x01\x91\x91\x91\x90");     /* depth 6 */
    REFUSES("\x81\x01\x91\x91\x91\x91\x90"); /* depth 7 */
    REFUSES("\x81\x01\x81\x01\x81\x01\x81\x01\x81\x01\x80");
}

static void test_floats_only_where_declared(void **state)
{
    (void)state;
    ACCEPTS("\x81\x01\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"); /* a key nobody knows */
    assert_int_equal(SUBMIT("\x81\x08\x81\x01\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"), 0);
    assert_int_equal(SUBMIT("\x81\x06\x91\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"), VT_E_BAD_FRAME);
    assert_int_equal(SUBMIT("\x81\x02\xcb\x3f\xe0\x00\x00\x00\x00\x00\x00"), VT_E_BAD_FRAME);
    REFUSES("\x81\x01\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"); /* not a number */
    REFUSES("\x81\x01\xcb\xff\xf0\x00\x00\x00\x00\x00\x00"); /* infinite */
}

static void test_hostile_envelopes(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        int code;
    } list[] = {
        {"\x94\x01\x01\x00\x00", 5, VT_E_BAD_FRAME},
        {"\x95\x02\x01\x00\x00\x80", 6, VT_E_VERSION},
        {"\x95\x00\x01\x00\x00\x80", 6, VT_E_VERSION},
        {"\x95\x01\x00\x00\x00\x80", 6, VT_E_BAD_FRAME},
        {"\x95\x01\xcc\x80\x00\x00\x80", 7, VT_E_BAD_FRAME},
        {"\x95\x01\x01\xff\x00\x80", 6, VT_E_BAD_FRAME},
        {"\x95\x01\x01\xcf\x80\x00\x00\x00\x00\x00\x00\x00\x00\x80", 14, VT_E_BAD_FRAME},
        {"\x95\x01\x01\x00\xcf\x00\x00\x00\x01\x00\x00\x00\x00\x80", 14, VT_E_BAD_FRAME},
        {"\x95\x01\x01\xa1z\x00\x80", 7, VT_E_BAD_FRAME},
        {"\x95\x01\x01\xc4\x00\x00\x80", 7, VT_E_BAD_FRAME},
        {"\x95\x01\x01\x80\x00\x80", 6, VT_E_BAD_FRAME},
        {"\x95\x01\x01\x00\x00\x01", 6, VT_E_BAD_FRAME},
        {"\x95\x01\x01\x00\x00\x80\x00", 7, VT_E_BAD_FRAME},
        {"\xdc\x00\x05\x01\x01\x00\x00\x80", 8, VT_E_BAD_FRAME},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct vt_err err;
        assert_int_equal(vt_frame_scan((const uint8_t *)list[i].bytes, list[i].n, MAX, &err), -1);
        assert_int_equal(err.code, list[i].code);
    }
}

static void test_counts_are_bounded(void **state)
{
    (void)state;
    uint8_t *buf = malloc(MAX);
    struct vt_err err;
    /* 4097 elements that are really there */
    memcpy(buf, "\x95\x01\x7e\x00\x00\x81\x01\xdc\x10\x01", 10);
    memset(buf + 10, 1, 4097);
    assert_int_equal(vt_frame_scan(buf, 10 + 4097, MAX, &err), -1);
    buf[9] = 0;
    assert_int_equal(vt_frame_scan(buf, 10 + 4096, MAX, &err), 0);
    assert_int_equal(vt_frame_scan(buf, 10 + 4096, 4096, &err), -1);
    assert_int_equal(err.code, VT_E_TOO_LARGE);
    /* 17 lists of 4096 are more than 65536 in all */
    memcpy(buf, "\x95\x01\x7e\x00\x00\x81\x01\xdc\x00\x11", 10);
    size_t at = 10;
    for (int i = 0; i < 17; i++, at += 3 + 4096) {
        memcpy(buf + at, "\xdc\x10\x00", 3);
        memset(buf + at + 3, 1, 4096);
    }
    assert_int_equal(vt_frame_scan(buf, at, MAX, &err), -1);
    assert_non_null(strstr(err.text, "too many"));
    free(buf);
}

static void test_table_checks(void **state)
{
    (void)state;
    struct vt_enc e;
    struct vt_frame f;
    struct vt_err err;
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_CREDIT, 1, 2);
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), -1);
    assert_non_null(strstr(err.text, "CREDIT lacks key 1 (ADD)"));
    vt_enc_begin(&e, VT_F_CREDIT, 1, 2);
    vt_enc_str(&e, VT_CREDIT_ADD, "1");
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), -1);
    assert_non_null(strstr(err.text, "wrong kind"));
    vt_enc_begin(&e, VT_F_CREDIT, 1, 2);
    vt_enc_u64(&e, VT_CREDIT_ADD, 9);
    vt_enc_str(&e, 77, "from a newer peer");
    vt_enc_u64(&e, VT_KEY_CODE, 301);
    vt_enc_str(&e, VT_KEY_TEXT, "too long");
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), 0);
    char text[5];
    assert_int_equal(vt_frame_u64(&f, VT_CREDIT_ADD, 0), 9);
    assert_int_equal(vt_frame_u64(&f, VT_KEY_CODE, 0), 301);
    assert_string_equal(vt_frame_str(&f, VT_KEY_TEXT, text, sizeof text), "too ");
    assert_false(vt_frame_has(&f, 2));
    vt_frame_close(&f);
    vt_enc_begin(&e, VT_F_CREDIT, 1, 2);
    vt_enc_u64(&e, VT_CREDIT_ADD, 9);
    vt_enc_str(&e, VT_KEY_CODE, "301");
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), -1);
    vt_enc_fini(&e);
}

static void test_getters_of_nested(void **state)
{
    (void)state;
    struct vt_enc e;
    struct vt_frame f;
    struct vt_err err;
    char text[16];
    size_t n;
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_T_CHILDREN, 0, 0);
    vt_enc_array(&e, VT_T_CHILDREN_LIST, 1);
    vt_enc_put_array(&e, 3);
    vt_enc_put_str(&e, "engine0");
    vt_enc_put_u64(&e, UINT64_MAX);
    vt_enc_put_bin(&e, "xy", 2);
    vt_enc_map(&e, VT_T_CHILDREN_COUNTERS, 1);
    vt_enc_put_u64(&e, 1000);
    vt_enc_put_u64(&e, 5);
    vt_enc_map(&e, VT_T_CHILDREN_GAUGES, 2);
    vt_enc_put_u64(&e, 3);
    vt_enc_put_f64(&e, NAN);
    vt_enc_put_u64(&e, 4);
    vt_enc_put_i64(&e, -3);
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), 0);
    const msgpack_object_array *row = vt_array_array(vt_frame_array(&f, VT_T_CHILDREN_LIST), 0);
    assert_string_equal(vt_array_str(row, 0, text, sizeof text), "engine0");
    assert_true(vt_array_u64(row, 1, 0) == UINT64_MAX);
    assert_int_equal(vt_array_u64(row, 9, 42), 42);
    assert_memory_equal(vt_array_bin(row, 2, &n), "xy", 2);
    assert_int_equal(n, 2);
    assert_null(vt_array_array(row, 0));
    const msgpack_object_map *g = vt_frame_map(&f, VT_T_CHILDREN_GAUGES);
    assert_true(vt_map_f64(g, 3, 1) == 0);
    assert_true(vt_map_f64(g, 4, 0) == -3);
    assert_int_equal(vt_map_i64(g, 4, 0), -3);
    assert_int_equal(vt_map_u64(vt_frame_map(&f, VT_T_CHILDREN_COUNTERS), 1000, 0), 5);
    assert_null(vt_map_get_str(g, "x"));
    assert_null(vt_frame_map(&f, VT_T_CHILDREN_LIST));
    vt_frame_close(&f);
    vt_enc_fini(&e);
}

static void test_encoder_repairs_and_reports(void **state)
{
    (void)state;
    struct vt_enc e;
    struct vt_frame f;
    struct vt_err err;
    char text[16];
    vt_enc_init(&e);
    vt_enc_begin(&e, VT_F_REJECT, 0, 0);
    vt_enc_str(&e, VT_KEY_TEXT, "a\xff\xc3");
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), 0);
    assert_string_equal(vt_frame_str(&f, VT_KEY_TEXT, text, sizeof text), "a??");
    vt_frame_close(&f);
    vt_enc_begin(&e, VT_F_REJECT, 0, 0);
    vt_enc_u64(&e, 5, 1);
    vt_enc_u64(&e, 4, 1);
    assert_int_equal(vt_enc_end(&e, &err), -1);
    assert_int_equal(err.code, VT_E_INTERNAL);
    vt_enc_begin(&e, VT_F_REJECT, 0, 0);
    vt_enc_map(&e, 5, 2);
    vt_enc_put_u64(&e, 1);
    vt_enc_put_u64(&e, 1);
    assert_int_equal(vt_enc_end(&e, &err), -1); /* one pair missing */
    vt_enc_begin(&e, VT_F_REJECT, 0, 0);
    for (unsigned k = 1; k <= 40; k++)
        vt_enc_u64(&e, k, k);
    assert_int_equal(vt_enc_end(&e, &err), 0);
    assert_int_equal(vt_frame_open(&f, e.buf, e.len, MAX, &err), 0);
    assert_int_equal(f.body->size, 40);
    assert_int_equal(vt_frame_u64(&f, 40, 0), 40);
    vt_frame_close(&f);
    vt_enc_fini(&e);
}

/* New rows for the golden table: run with --print. */
static int print_golden(void)
{
    static char hex[1 << 16];
    struct vt_enc e;
    vt_enc_init(&e);
    for (unsigned t = 1; t < 128; t++) {
        if (strcmp(vt_frame_name((uint8_t)t), "?") == 0)
            continue;
        build(&e, (uint8_t)t);
        hex_of(e.buf, e.len, hex);
        printf("{VT_F_%s, \"%s\"},\n", vt_frame_name((uint8_t)t), hex);
    }
    vt_enc_fini(&e);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--print") == 0)
        return print_golden();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_is_ordered),
        cmocka_unit_test(test_golden_bytes),
        cmocka_unit_test(test_decode_of_encode),
        cmocka_unit_test(test_truncated_at_every_byte),
        cmocka_unit_test(test_hostile_bodies),
        cmocka_unit_test(test_floats_only_where_declared),
        cmocka_unit_test(test_hostile_envelopes),
        cmocka_unit_test(test_counts_are_bounded),
        cmocka_unit_test(test_table_checks),
        cmocka_unit_test(test_getters_of_nested),
        cmocka_unit_test(test_encoder_repairs_and_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
