/* Composer's editor: movements, kill ring, undo, earlier prompts; nothing typed is ever lost. */
#include "view/edit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct edit *e_new(const char *s)
{
    struct edit *e = malloc(sizeof *e);
    assert_non_null(e);
    edit_init(e);
    edit_insert(e, s, strlen(s), EDIT_TYPE);
    return e;
}

static void e_free(struct edit *e)
{
    edit_fini(e);
    free(e);
}

static void is(const struct edit *e, const char *s, size_t caret)
{
    assert_string_equal(text_str(&e->text), s);
    assert_int_equal(e->caret, caret);
}

static void test_moves(void **state)
{
    struct edit *e = e_new("one two\nthree é👩‍💻x");
    edit_do(e, EDIT_LEFT);
    edit_do(e, EDIT_LEFT); /* over the joined emoji at once */
    assert_int_equal(e->caret, strlen("one two\nthree é"));
    edit_do(e, EDIT_BACKSPACE);
    assert_int_equal(e->caret, strlen("one two\nthree "));
    edit_do(e, EDIT_LINE_START);
    assert_int_equal(e->caret, 8);
    assert_true(edit_vertical(e, -1));
    assert_int_equal(e->caret, 0);
    assert_false(edit_vertical(e, -1));
    edit_do(e, EDIT_WORD_RIGHT);
    assert_int_equal(e->caret, 3);
    edit_do(e, EDIT_LINE_END);
    assert_int_equal(e->caret, 7);
    assert_true(edit_vertical(e, 1));
    assert_int_equal(e->caret, 8 + 7 > strlen("one two\nthree ") ? 14 : 15);
    edit_do(e, EDIT_TEXT_START);
    assert_false(edit_do(e, EDIT_LEFT));
    edit_do(e, EDIT_TEXT_END);
    assert_false(edit_do(e, EDIT_DELETE));
    e_free(e);
}

static void test_kill(void **state)
{
    struct edit *e = e_new("alpha beta gamma");
    edit_do(e, EDIT_KILL_WORD_LEFT);
    edit_do(e, EDIT_KILL_WORD_LEFT);
    is(e, "alpha ", 6);
    edit_do(e, EDIT_YANK_LAST); /* both, in their order */
    is(e, "alpha beta gamma", 16);
    edit_do(e, EDIT_TEXT_START);
    edit_do(e, EDIT_KILL_WORD_RIGHT);
    edit_do(e, EDIT_KILL_END);
    is(e, "", 0);
    edit_do(e, EDIT_YANK_LAST);
    is(e, "alpha beta gamma", 16);
    edit_do(e, EDIT_YANK_OLDER);
    is(e, "beta gamma", 10);
    edit_do(e, EDIT_KILL_START);
    is(e, "", 0);
    e_free(e);
}

static void test_undo(void **state)
{
    struct edit *e = e_new("");
    edit_insert(e, "a", 1, EDIT_TYPE);
    edit_insert(e, "b", 1, EDIT_TYPE);
    edit_insert(e, " ", 1, EDIT_TYPE);
    edit_insert(e, "c", 1, EDIT_TYPE);
    edit_insert(e, "pasted\ntext", 11, EDIT_OTHER);
    edit_do(e, EDIT_UNDO);
    is(e, "ab c", 4);
    edit_do(e, EDIT_UNDO);
    is(e, "ab", 2);
    edit_do(e, EDIT_REDO);
    is(e, "ab c", 4);
    edit_do(e, EDIT_REDO);
    is(e, "ab cpasted\ntext", 15);
    assert_false(edit_do(e, EDIT_REDO));
    edit_do(e, EDIT_UNDO);
    edit_insert(e, "x", 1, EDIT_TYPE);
    assert_false(edit_do(e, EDIT_REDO)); /* a change ends what could be redone */
    while (edit_do(e, EDIT_UNDO))
        ;
    is(e, "", 0);
    e_free(e);
}

static void test_history(void **state)
{
    static const char *const prompts[] = {"newest", "older"};
    struct edit *e = e_new("draft");
    assert_true(edit_history(e, prompts, 2, 1));
    is(e, "newest", 6);
    assert_true(edit_history(e, prompts, 2, 1));
    is(e, "older", 5);
    assert_false(edit_history(e, prompts, 2, 1));
    assert_true(edit_history(e, prompts, 2, -1));
    assert_true(edit_history(e, prompts, 2, -1));
    is(e, "draft", 5);
    assert_false(edit_history(e, prompts, 2, -1));
    edit_reset(e);
    is(e, "", 0);
    e_free(e);
}

/* Random acts: the caret stays at a border within the text, memory of undo stays bounded, undo of all gives the start. */
static void test_random(void **state)
{
    static const char *const bits[] = {"a", " ", "é", "漢", "\n", "👩‍💻", "word", "e\xcc\x81"};
    unsigned seed = 3;
    struct edit *e = e_new("");
    for (int i = 0; i < 40000; i++) {
        int act = rand_r(&seed) % 24;
        if (act <= EDIT_REDO) {
            edit_do(e, (enum edit_do)act);
        } else if (act < 20) {
            edit_vertical(e, act & 1 ? 1 : -1);
        } else {
            const char *b = bits[rand_r(&seed) % 8];
            edit_insert(e, b, strlen(b), (rand_r(&seed) & 1) ? EDIT_TYPE : EDIT_OTHER);
        }
        assert_true(e->caret <= e->text.len);
        assert_true(e->caret == 0 || e->caret == e->text.len ||
                    (text_str(&e->text)[e->caret] & 0xc0) != 0x80);
        assert_true(e->n_undo <= EDIT_UNDO_MAX && e->n_redo <= EDIT_UNDO_MAX);
        if (e->text.len > 4000)
            edit_reset(e);
    }
    e_free(e);
}

static void test_large(void **state)
{
    char *big = malloc(6u << 20);
    assert_non_null(big);
    memset(big, 'x', 6u << 20);
    struct edit *e = e_new("");
    edit_insert(e, big, 6u << 20, EDIT_OTHER);
    for (int i = 0; i < 5; i++)
        edit_insert(e, "y", 1, EDIT_OTHER);
    assert_true(e->bytes <= EDIT_UNDO_BYTES);
    assert_int_equal(e->text.len, (6u << 20) + 5);
    e_free(e);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves),   cmocka_unit_test(test_kill),   cmocka_unit_test(test_undo),
        cmocka_unit_test(test_history), cmocka_unit_test(test_random), cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
