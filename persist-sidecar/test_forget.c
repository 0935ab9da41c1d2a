/* By hand: the list, forgetting for good, and a pass over every block, in the store and as ctl's frames ask for them. */
#include "frame.h"
#include "serve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fixture_assert.h"

/* Is a piece of the talk in the file: its ids, the bytes of a block, its name? */
static bool in_file(struct fix *f, const char *file, const struct talk *t, const uint8_t *names)
{
    uint32_t ids[8];
    uint8_t block[4096];
    size_t len;
    const uint8_t *d = sim_file(f->sim, file, &len);
    if (d == NULL)
        return false;
    for (uint32_t at = 0; at + 8 <= t->n_items; at += 8) {
        for (uint32_t i = 0; i < 8; i++)
            ids[i] = talk_item(t, at + i);
        if (memmem(d, len, ids, sizeof ids) != NULL)
            return true;
    }
    for (uint32_t i = 0; i < t->n_items / t->block_tokens; i++) {
        talk_fill(names + 32u * (size_t)i, 0, block, sizeof block);
        if (memmem(d, len, names + 32u * (size_t)i, 32) != NULL || memmem(d, len, block + 1000, 64) != NULL ||
            memmem(d, len, block + 3000, 64) != NULL)
            return true;
    }
    return false;
}

static bool anywhere(struct fix *f, const struct talk *t, const uint8_t *names)
{
    return in_file(f, "store.db", t, names) || in_file(f, "store.db-journal", t, names);
}

static void forgotten_for_good(void **state)
{
    struct fix f;
    struct store_erased gone;
    struct vt_err err;
    uint32_t kv;
    bool poisoned;
    uint8_t names[2][32 * 30], salt[2][32];
    fix_init(&f, true);
    opened(&f);
    struct talk mine = talk_of(1, 64 * 20 + 7), other = talk_of(2, 64 * 6);
    mine.tenant = "mine";
    mine.rec_bytes = 20000;
    mine.rec_every = 3;
    mine.fp[0] = 1;
    other.tenant = "other";
    struct talk grown = mine, named = mine;
    grown.n_items = 64 * 26; /* moves the head, so that rows are rewritten and pages split */
    named.name = "file";
    saved(&f, &other, NULL, NULL);
    saved(&f, &mine, NULL, NULL);
    saved(&f, &named, NULL, NULL);
    saved(&f, &grown, NULL, NULL);
    talk_names(&f, &grown, names[0]);
    talk_names(&f, &other, names[1]);
    assert_true(anywhere(&f, &grown, names[0]));
    assert_int_equal(store_salt_get(f.s, "mine", salt[0], &err), 0);
    if (store_forget(f.s, "mine", -1, &gone, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(gone.manifests >= 2);
    assert_true(gone.blocks >= 26 + 8);
    assert_false(anywhere(&f, &grown, names[0]));
    assert_true(anywhere(&f, &other, names[1]));
    assert_int_equal(db_int(f.s, "PRAGMA freelist_count", NULL), 0);
    assert_int_equal(fix_restore(&f, &grown, &kv, &poisoned, &err), -1);
    assert_int_equal(err.code, VT_E_NOT_FOUND);
    assert_int_equal(restored(&f, &other, &kv), 64 * 6);
    assert_int_equal(kv, 64 * 6);
    assert_int_equal(fix_check(&f, true), 0);
    /* It can be saved again, under another salt. */
    saved(&f, &mine, NULL, NULL);
    assert_int_equal(store_salt_get(f.s, "mine", salt[1], &err), 0);
    assert_memory_not_equal(salt[0], salt[1], 32);
    fix_fini(&f);
}

static void one_slot_is_forgotten(void **state)
{
    struct fix f;
    struct store_erased gone;
    struct store_row *rows;
    struct vt_err err;
    size_t n;
    uint32_t kv;
    uint8_t names[32 * 12];
    fix_init(&f, true);
    opened(&f);
    struct talk a = talk_of(5, 64 * 10), same = a, b = talk_of(6, 64 * 4);
    same.slot = 2; /* shares every block with slot 0 */
    b.slot = 1;
    saved(&f, &a, NULL, NULL);
    f.time.wall += VT_SEC(1);
    saved(&f, &same, NULL, NULL);
    f.time.wall += VT_SEC(1);
    saved(&f, &b, NULL, NULL);
    assert_int_equal(store_rows(f.s, NULL, &rows, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_int_equal(rows[0].slot, 1); /* newest first */
    assert_int_equal(rows[0].ntok, 64 * 4);
    assert_int_equal(rows[0].good, 64 * 4);
    assert_string_equal(rows[0].tenant, "t");
    free(rows);
    talk_names(&f, &b, names);
    assert_int_equal(store_forget(f.s, "t", 1, &gone, &err), 0);
    assert_int_equal(gone.manifests, 1);
    assert_int_equal(gone.blocks, 4);
    assert_false(anywhere(&f, &b, names));
    assert_int_equal(store_forget(f.s, "t", 0, &gone, &err), 0);
    assert_int_equal(gone.blocks, 0);
    assert_int_equal(restored(&f, &same, &kv), 64 * 10);
    assert_int_equal(kv, 64 * 10);
    assert_int_equal(store_rows(f.s, "nobody", &rows, &n, &err), 0);
    assert_int_equal(n, 0);
    free(rows);
    assert_int_equal(store_forget(f.s, "no such/tenant", -1, &gone, &err), -1);
    assert_int_equal(err.code, VT_E_PARAM);
    assert_int_equal(fix_check(&f, true), 0);
    fix_fini(&f);
}

/* Without the zeroing, the search finds what was deleted: the test above can fail. */
static void red_plain_deletion(void **state)
{
    struct fix f;
    struct vt_err err;
    uint8_t names[32 * 12];
    fix_init(&f, true);
    opened(&f);
    struct talk t = talk_of(7, 64 * 10);
    saved(&f, &t, NULL, NULL);
    talk_names(&f, &t, names);
    assert_int_equal(db_exec(f.s, "DELETE FROM head; DELETE FROM manifest; DELETE FROM block", "plain", &err),
                     0);
    assert_true(anywhere(&f, &t, names));
    fix_fini(&f);
}

/* ---- frames ---- */

struct stage {
    struct fix f;
    struct serve *v;
    struct vt_enc enc;
    uint8_t *last;
    size_t len;
    unsigned answers;
};

static void on_send(void *arg, uint32_t link, const uint8_t *frame, size_t len)
{
    struct stage *s = arg;
    free(s->last);
    s->last = malloc(len);
    memcpy(s->last, frame, len);
    s->len = len;
    s->answers++;
}

static void on_fail(void *arg, uint32_t link, const struct vt_err *why)
{
    fail_msg("link %u failed: %s", link, why->text);
}

static void start(struct stage *s)
{
    static const struct serve_ops ops = {on_send, on_fail};
    struct serve_opts o = {.store = s->f.o, .ck_idle_us = VT_SEC(2)};
    struct vt_err err;
    if (serve_new(&s->v, &o, &ops, s, &err) < 0)
        fail_msg("%s", err.text);
}

static void ask(struct stage *s, uint64_t id, uint64_t verb, const char *tenant)
{
    struct vt_err err;
    vt_enc_begin(&s->enc, VT_F_STORE_ASK, id, 0);
    vt_enc_u64(&s->enc, VT_STORE_ASK_VERB, verb);
    if (tenant != NULL)
        vt_enc_str(&s->enc, VT_STORE_ASK_TENANT, tenant);
    assert_int_equal(vt_enc_end(&s->enc, &err), 0);
    serve_frame(s->v, s->enc.buf, s->enc.len);
}

static void work(struct stage *s)
{
    struct vt_err err;
    while (serve_step(s->v, &err) == SERVE_WORK || serve_upkeep(s->v, &err) == SERVE_WORK)
        ;
}

static uint64_t count_of(const struct vt_frame *f, const char *name)
{
    const msgpack_object *o = vt_map_get_str(vt_frame_map(f, VT_STORE_SAID_COUNTS), name);
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? o->via.u64 : UINT64_MAX;
}

static void opened_answer(struct stage *s, struct vt_frame *f, uint64_t id, uint64_t ok)
{
    assert_int_equal(vt_frame_open(f, s->last, s->len, 1 << 20, NULL), 0);
    assert_int_equal(f->type, VT_F_STORE_SAID);
    assert_int_equal(f->id, id);
    assert_int_equal(vt_frame_u64(f, VT_STORE_SAID_OK, 9), ok);
}

static void asked_by_frames(void **state)
{
    struct stage s = {0};
    struct vt_frame f;
    fix_init(&s.f, true);
    opened(&s.f);
    struct talk t = talk_of(8, 64 * 10);
    saved(&s.f, &t, NULL, NULL);
    sqlite3_db_config(s.f.s->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    assert_int_equal(
        db_exec(s.f.s, "UPDATE payload SET data=zeroblob(65536) WHERE block_id=4", "spoil", NULL), 0);
    fix_close(&s.f, true);
    vt_enc_init(&s.enc);
    start(&s);
    ask(&s, 1, 1, NULL);
    work(&s);
    opened_answer(&s, &f, 1, 1);
    const msgpack_object_array *list = vt_frame_array(&f, VT_STORE_SAID_LIST);
    assert_int_equal(list->size, 1);
    assert_int_equal(vt_array_u64(vt_array_array(list, 0), 4, 0), 64 * 10);
    vt_frame_close(&f);
    /* Two passes at once are one too many. */
    ask(&s, 2, 2, NULL);
    ask(&s, 3, 2, NULL);
    work(&s);
    assert_int_equal(s.answers, 3);
    opened_answer(&s, &f, 2, 1);
    assert_int_equal(count_of(&f, "blocks"), 10);
    assert_int_equal(count_of(&f, "bytes"), 65536 * 9);
    assert_int_equal(count_of(&f, "bad"), 1);
    vt_frame_close(&f);
    ask(&s, 4, 1, "t");
    work(&s);
    opened_answer(&s, &f, 4, 1);
    list = vt_frame_array(&f, VT_STORE_SAID_LIST);
    assert_int_equal(vt_array_u64(vt_array_array(list, 0), 4, 0), 64 * 3); /* cut before the bad block */
    vt_frame_close(&f);
    ask(&s, 5, 3, "t");
    work(&s);
    opened_answer(&s, &f, 5, 1);
    assert_int_equal(count_of(&f, "checkpoints"), 1);
    assert_int_equal(count_of(&f, "blocks"), 10);
    vt_frame_close(&f);
    ask(&s, 6, 3, NULL); /* of whom? */
    work(&s);
    opened_answer(&s, &f, 6, 0);
    vt_frame_close(&f);
    ask(&s, 7, 77, NULL);
    work(&s);
    opened_answer(&s, &f, 7, 0);
    vt_frame_close(&f);
    serve_free(s.v, true);
    vt_enc_fini(&s.enc);
    free(s.last);
    fix_fini(&s.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forgotten_for_good),
        cmocka_unit_test(one_slot_is_forgotten),
        cmocka_unit_test(red_plain_deletion),
        cmocka_unit_test(asked_by_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
