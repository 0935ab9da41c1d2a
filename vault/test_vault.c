#include "vault.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct said {
    struct vt_enc enc, reply;
    struct vault v;
    int out[VAULT_MAX];
    unsigned n_out;
    bool answer;
    struct vt_err err;
};

static int setup(void **state)
{
    struct said *s = calloc(1, sizeof *s);
    vt_enc_init(&s->enc);
    vt_enc_init(&s->reply);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct said *s = *state;
    vault_drop_all(&s->v);
    vt_enc_fini(&s->enc);
    vt_enc_fini(&s->reply);
    free(s);
    return 0;
}

static int say(struct said *s, int *fds, unsigned n_fds)
{
    struct vt_frame f;
    struct vt_err err;
    assert_int_equal(vt_enc_end(&s->enc, &err), 0);
    assert_int_equal(vt_frame_open(&f, s->enc.buf, s->enc.len, 8192, &err), 0);
    int rc = vault_take(&s->v, &f, fds, n_fds, &s->reply, s->out, &s->n_out, &s->answer, &s->err);
    vt_frame_close(&f);
    return rc;
}

static const uint8_t *key_of(uint8_t k)
{
    static uint8_t key[VAULT_KEY];
    memset(key, k, sizeof key);
    return key;
}

static int put(struct said *s, const char *name, uint8_t key, uint64_t bytes)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    vt_enc_begin(&s->enc, VT_F_VAULT_PUT, 0, 0);
    vt_enc_str(&s->enc, VT_VAULT_PUT_NAME, name);
    vt_enc_bin(&s->enc, VT_VAULT_PUT_KEY, key_of(key), VAULT_KEY);
    vt_enc_u64(&s->enc, VT_VAULT_PUT_BYTES, bytes);
    int rc = say(s, &fd, 1);
    assert_int_equal(fd, rc == 0 ? -1 : fd);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int whole(struct said *s, const char *name, uint64_t seal)
{
    vt_enc_begin(&s->enc, VT_F_VAULT_WHOLE, 0, 0);
    vt_enc_str(&s->enc, VT_VAULT_WHOLE_NAME, name);
    vt_enc_u64(&s->enc, VT_VAULT_WHOLE_SEAL, seal);
    return say(s, NULL, 0);
}

static void row(struct said *s, const char *name, uint8_t key, uint64_t bytes)
{
    vt_enc_put_array(&s->enc, 3);
    vt_enc_put_str(&s->enc, name);
    vt_enc_put_bin(&s->enc, key_of(key), VAULT_KEY);
    vt_enc_put_u64(&s->enc, bytes);
}

static void claim_two(struct said *s, uint8_t key1, uint64_t bytes1, uint8_t key2)
{
    vt_enc_begin(&s->enc, VT_F_VAULT_CLAIM, 0, 0);
    vt_enc_array(&s->enc, VT_VAULT_CLAIM_LIST, 2);
    row(s, "weights", key1, bytes1);
    row(s, "kv", key2, 64);
    assert_int_equal(say(s, NULL, 0), 0);
    assert_true(s->answer);
}

static void give_two(struct said *s)
{
    assert_int_equal(put(s, "weights", 1, 4096), 0);
    assert_int_equal(put(s, "kv", 2, 64), 0);
    assert_false(s->answer);
}

static void claim_gives_what_fits(void **state)
{
    struct said *s = *state;
    struct vt_frame f;
    char name[VAULT_NAME];
    give_two(s);
    assert_int_equal(whole(s, "weights", 77), 0);
    assert_int_equal(whole(s, "kv", 78), 0);
    assert_int_equal(vault_bytes(&s->v), 4160);
    claim_two(s, 1, 4096, 2);
    assert_int_equal(s->n_out, 2);
    assert_int_equal(vt_frame_open(&f, s->reply.buf, s->reply.len, 8192, &s->err), 0);
    const msgpack_object_array *list = vt_frame_array(&f, VT_VAULT_HAVE_LIST);
    assert_int_equal(list->size, 2);
    for (unsigned i = 0; i < 2; i++) {
        const msgpack_object_array *r = vt_array_array(list, i);
        bool weights = strcmp(vt_array_str(r, 0, name, sizeof name), "weights") == 0;
        assert_int_equal(vt_array_u64(r, 1, 0), weights ? 77 : 78);
        assert_true(fcntl(s->out[i], F_GETFD) >= 0);
    }
    vt_frame_close(&f);
}

static void what_is_not_filled_is_dropped(void **state)
{
    struct said *s = *state;
    give_two(s);
    assert_int_equal(whole(s, "kv", 1), 0);
    claim_two(s, 1, 4096, 2);
    assert_int_equal(s->n_out, 1);
    assert_int_equal(s->v.n, 1);
}

static void another_key_or_size_is_dropped(void **state)
{
    struct said *s = *state;
    give_two(s);
    whole(s, "weights", 0);
    whole(s, "kv", 0);
    claim_two(s, 1, 4097, 3);
    assert_int_equal(s->n_out, 0);
    assert_int_equal(s->v.n, 0);
}

static void unclaimed_is_dropped(void **state)
{
    struct said *s = *state;
    give_two(s);
    assert_int_equal(put(s, "window", 1, 1), 0);
    whole(s, "weights", 0);
    whole(s, "kv", 0);
    whole(s, "window", 0);
    claim_two(s, 1, 4096, 2);
    assert_int_equal(s->v.n, 2);
}

static void a_second_put_takes_the_place(void **state)
{
    struct said *s = *state;
    give_two(s);
    whole(s, "kv", 5);
    assert_int_equal(put(s, "weights", 9, 1), 0);
    assert_int_equal(s->v.n, 2);
    assert_int_equal(vault_bytes(&s->v), 65);
    claim_two(s, 9, 1, 2); /* it is not filled any more */
    assert_int_equal(s->n_out, 1);
}

static void nonsense_is_refused(void **state)
{
    struct said *s = *state;
    char name[VAULT_NAME];
    assert_int_equal(whole(s, "weights", 1), -1);
    assert_int_equal(put(s, "", 1, 1), -1);
    vt_enc_begin(&s->enc, VT_F_VAULT_PUT, 0, 0); /* without a descriptor */
    vt_enc_str(&s->enc, VT_VAULT_PUT_NAME, "kv");
    vt_enc_bin(&s->enc, VT_VAULT_PUT_KEY, key_of(1), VAULT_KEY);
    vt_enc_u64(&s->enc, VT_VAULT_PUT_BYTES, 1);
    assert_int_equal(say(s, NULL, 0), -1);
    vt_enc_begin(&s->enc, VT_F_PING, 0, 0);
    vt_enc_u64(&s->enc, VT_PING_TOKEN, 1);
    assert_int_equal(say(s, NULL, 0), -1);
    for (int i = 0; i < VAULT_MAX; i++) {
        name[0] = (char)('a' + i);
        name[1] = '\0';
        assert_int_equal(put(s, name, 1, 1), 0);
    }
    assert_int_equal(put(s, "more", 1, 1), -1);
    assert_int_equal(s->v.n, VAULT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(claim_gives_what_fits, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_not_filled_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(another_key_or_size_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(unclaimed_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(a_second_put_takes_the_place, setup, teardown),
        cmocka_unit_test_setup_teardown(nonsense_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
