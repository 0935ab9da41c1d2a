/* What is guessed is what stood behind the longest agreement; never from beyond the text, never from another text. */
#include "ngram.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ngram *make(uint32_t cap)
{
    struct ngram *g;
    struct vt_err err = {0};
    assert_int_equal(ngram_new(&g, cap, &err), 0);
    return g;
}

static void guesses(struct ngram *g, const char *text, uint32_t least, uint32_t most, const char *want)
{
    uint32_t items[256], out[64], n = (uint32_t)strlen(text);
    for (uint32_t i = 0; i < n; i++)
        items[i] = (unsigned char)text[i];
    uint32_t got = ngram_draft(g, items, n, least, most, out);
    assert_int_equal(got, strlen(want));
    for (uint32_t i = 0; i < got; i++)
        assert_int_equal(out[i], (unsigned char)want[i]);
}

static void once(const char *text, uint32_t least, uint32_t most, const char *want)
{
    struct ngram *g = make((uint32_t)strlen(text));
    guesses(g, text, least, most, want);
    ngram_free(g);
}

static void what_followed_follows(void **state)
{
    once("the cat sat; the c", 3, 4, "at s");
    once("the cat sat; the c", 5, 4, "at s");
    once("the cat sat; the c", 6, 4, ""); /* " the c" stands at the beginning without its blank */
    once("abcdefgh", 3, 4, "");
    once("", 3, 4, "");
    once("ab", 3, 4, "");
    once("abc", 3, 4, "");
    once("abcabc", 3, 0, "");
}

static void longest_then_newest(void **state)
{
    once("xabc1 yabc2 zabc3 xabc", 3, 1, "1"); /* four agree */
    once("_abc1 -abc2 +abc", 3, 1, "2");       /* equals: the newest */
}

static void a_repeating_text_goes_on(void **state)
{
    once("ababababab", 3, 5, "ababa");
    once("aaaa", 3, 6, "aaaaaa");
    once("xyzxyz", 3, 7, "xyzxyzx");
}

/* One id after the other, as a text is written: the same guess as from all of it at once. */
static void grows_with_the_text(void **state)
{
    static uint32_t items[2000];
    uint32_t a[8], b[8];
    struct ngram *grown = make(2000);
    for (uint32_t i = 0; i < 2000; i++)
        items[i] = i * i % 23 % 5;
    for (uint32_t n = 0; n <= 2000; n++) {
        uint32_t got = ngram_draft(grown, items, n, 3, 8, a);
        if (n % 97 != 0)
            continue;
        struct ngram *fresh = make(2000);
        assert_int_equal(ngram_draft(fresh, items, n, 3, 8, b), got);
        assert_memory_equal(a, b, got * sizeof *a);
        ngram_free(fresh);
    }
    ngram_free(grown);
}

static void another_text_is_not_remembered(void **state)
{
    struct ngram *g = make(64);
    guesses(g, "secret-secret-sec", 3, 3, "ret");
    ngram_clear(g);
    guesses(g, "a sec", 3, 3, "");
    ngram_clear(g);
    ngram_clear(g);
    guesses(g, "abcdabc", 3, 1, "d");
    ngram_free(g);
}

/* Runs whose buckets collide agree in nothing: ids are compared, not hashes. */
static void collisions_do_no_harm(void **state)
{
    static uint32_t items[4096];
    uint32_t out[4];
    struct ngram *g = make(4096);
    for (uint32_t i = 0; i < 4096; i++)
        items[i] = i * 2654435761u;
    for (uint32_t n = 1; n <= 4096; n++)
        assert_int_equal(ngram_draft(g, items, n, 3, 4, out), 0);
    ngram_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_followed_follows),          cmocka_unit_test(longest_then_newest),
        cmocka_unit_test(a_repeating_text_goes_on),       cmocka_unit_test(grows_with_the_text),
        cmocka_unit_test(another_text_is_not_remembered), cmocka_unit_test(collisions_do_no_harm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
