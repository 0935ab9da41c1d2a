/* Decoder: each sequence, whole and split at every byte; pastes; late answers; time. */
#include "term/decode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct sink {
    char s[8192];
    size_t n;
};

/* Events as words: "C-M-a", "enter", "paste[…]", "press0@3,4", "answer2=255". */
static void write_event(void *arg, const struct term_event *ev)
{
    static const char *const names[] = {"?",   "enter", "tab",  "esc", "bs",   "ins",  "del",  "home",
                                        "end", "pgup",  "pgdn", "up",  "down", "left", "right"};
    static const char *const mice[] = {"press", "release", "drag", "wheelup", "wheeldown"};
    struct sink *k = arg;
    char *p = k->s + k->n;
    size_t room = sizeof k->s - k->n;
    int n = 0;
    unsigned mods = ev->kind == TE_KEY ? ev->u.key.mods : ev->kind == TE_MOUSE ? ev->u.mouse.mods : 0;
    char m[8];
    snprintf(m, sizeof m, "%s%s%s", mods & TM_CTRL ? "C-" : "", mods & TM_ALT ? "M-" : "",
             mods & TM_SHIFT ? "S-" : "");
    switch (ev->kind) {
    case TE_KEY:
        if (ev->u.key.key == TK_CHAR && ev->u.key.cp < 0x7f)
            n = snprintf(p, room, "%s%c ", m, (int)ev->u.key.cp);
        else if (ev->u.key.key == TK_CHAR)
            n = snprintf(p, room, "%sU+%X ", m, (unsigned)ev->u.key.cp);
        else if (ev->u.key.key >= TK_F1)
            n = snprintf(p, room, "%sf%d ", m, (int)(ev->u.key.key - TK_F1 + 1));
        else
            n = snprintf(p, room, "%s%s ", m, names[ev->u.key.key]);
        break;
    case TE_PASTE: n = snprintf(p, room, "paste[%.*s] ", (int)ev->u.paste.n, ev->u.paste.text); break;
    case TE_MOUSE:
        n = snprintf(p, room, "%s%s%d@%d,%d ", m, mice[ev->u.mouse.what], ev->u.mouse.button, ev->u.mouse.x,
                     ev->u.mouse.y);
        break;
    case TE_FOCUS: n = snprintf(p, room, "focus%d ", ev->u.focused); break;
    case TE_ANSWER:
        n = snprintf(p, room, "answer%d=%x ", (int)ev->u.answer.what, (unsigned)ev->u.answer.value);
        break;
    }
    k->n += (size_t)n < room ? (size_t)n : room - 1;
}

struct pair {
    const char *in, *out;
};

static const struct pair pairs[] = {
    {"a", "a "},
    {"Ä€😀", "U+C4 U+20AC U+1F600 "},
    {"\x01\x1a\x1f\x1c", "C-a C-z C-_ C-\\ "},
    {"\r\n\t\x7f\x08", "enter C-j tab bs C-h "},
    {"\x1b[A\x1bOA\x1b[1;5A\x1b[1;2B\x1b[1;3C", "up up C-up S-down M-right "},
    {"\x1b[3~\x1b[5~\x1b[6;5~\x1b[1~\x1b[4~\x1b[7~", "del pgup C-pgdn home end home "},
    {"\x1bOP\x1b[11~\x1b[[B\x1b[24~\x1b[1;5R\x1b[19~", "f1 f1 f2 f12 C-f3 f8 "},
    {"\x1b[Z", "S-tab "},
    {"\x1bx\x1bX\x1b\r\x1b\x7f", "M-x M-X M-enter M-bs "},
    {"\x1bä", "M-U+E4 "},
    {"\x1b\x1b[A", "M-up "},
    {"\x1b[106;5u\x1b[13;2u\x1b[27u\x1b[97;3u\x1b[97;2u\x1b[57414u\x1b[57403u",
     "C-j S-enter esc M-a A enter 4 "},
    {"\x1b[97;1:3u\x1b[97;1:1u", "a "},
    {"\x1b[27;5;9~\x1b[27;2;13~", "C-tab S-enter "},
    {"\x1b[I\x1b[O", "focus1 focus0 "},
    {"\x1b[<0;4;5M\x1b[<0;4;5m\x1b[<32;5;5M\x1b[<64;1;1M\x1b[<65;1;1M\x1b[<16;2;2M",
     "press0@3,4 release0@3,4 drag0@4,4 wheelup0@0,0 wheeldown1@0,0 C-press0@1,1 "},
    {"\x1b[<0;0;0M\x1b[<M\x1b[<0;1M\x1b[<999999999999;1;1M", ""},
    {"\x1b[200~one\rtwo\r\nthree\x1b[31m\x07\x1b[201~x", "paste[one\ntwo\nthree[31m] x "},
    {"\x1b[200~\x1b[201\x1b[201~y", "paste[[201] y "},
    {"\x1b[200~\xff\xc3z\x1b[201~", "paste[\xef\xbf\xbd\xef\xbf\xbdz] "},
    {"\x1b[?62;22c\x1b[?2026;2$y\x1b[?1u\x1b]11;rgb:1e1e/1e1e/2e2e\x1b\\\x1b]11;#ffffff\x07q",
     "answer0=3e answer1=2 answer3=1 answer2=1e1e2e answer2=ffffff q "},
    {"\x1b[24;80R", "answer4=180050 "},
    {"\x1b[?1;2;3;4;5;6;7;8h\x1b[99zk", "k "},
    {"\x1bPunknown\x1b\\\x1b_apc\x1b\\k", "k "},
    {"\x1b[12\x01z", "C-a z "},
    {"\xc3(\xe2\x82", "U+FFFD ( U+FFFD "},
    {"\x80\xff", "U+FFFD U+FFFD "},
    {"\x1bOj\x1bOM\x1bO5P", "* enter C-f1 "},
    {"\x1b[a\x1bOa\x1b[3^\x1b[3$", "S-up C-up C-del S-del "},
    {"\x1b[\x1b[A", "up "},
};

static void run(struct sink *k, const char *in, size_t n, size_t split)
{
    struct decoder d;
    decode_init(&d, 30);
    k->n = 0;
    k->s[0] = '\0';
    if (split)
        decode_feed(&d, in, split, 100, write_event, k);
    decode_feed(&d, in + split, n - split, 110, write_event, k);
    decode_tick(&d, 100000, write_event, k);
    assert_true(decode_deadline(&d) == UINT64_MAX);
    decode_fini(&d);
}

static void test_sequences(void **state)
{
    struct sink k;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        size_t n = strlen(pairs[i].in);
        for (size_t split = 0; split < n; split++) {
            run(&k, pairs[i].in, n, split);
            if (strcmp(k.s, pairs[i].out) != 0)
                fail_msg("pair %zu split at %zu: got \"%s\", want \"%s\"", i, split, k.s, pairs[i].out);
        }
    }
}

/* Every byte on its own gives what the whole gives, for random mixtures of sequences. */
static void test_mixtures(void **state)
{
    static struct sink whole, split;
    unsigned seed = 11;
    for (int round = 0; round < 3000; round++) {
        char in[1024];
        size_t n = 0;
        for (int i = 0; i < 8; i++) {
            const char *part = pairs[rand_r(&seed) % (int)(sizeof pairs / sizeof pairs[0])].in;
            size_t len = strlen(part);
            memcpy(in + n, part, len);
            n += len;
        }
        for (int i = 0; i < round % 4; i++)
            in[rand_r(&seed) % (int)n] = (char)rand_r(&seed);
        run(&whole, in, n, 0);
        struct decoder d;
        decode_init(&d, 30);
        split.n = 0;
        split.s[0] = '\0';
        for (size_t i = 0; i < n; i++)
            decode_feed(&d, in + i, 1, 100, write_event, &split);
        decode_tick(&d, 100000, write_event, &split);
        decode_fini(&d);
        assert_string_equal(split.s, whole.s);
    }
}

static void test_time(void **state)
{
    struct sink k = {.n = 0};
    struct decoder d;
    decode_init(&d, 30);
    decode_feed(&d, "\x1b", 1, 1000, write_event, &k);
    assert_int_equal(decode_deadline(&d), 1030);
    decode_tick(&d, 1029, write_event, &k);
    assert_int_equal(k.n, 0);
    decode_tick(&d, 1030, write_event, &k);
    assert_string_equal(k.s, "esc ");
    k.n = 0;
    decode_feed(&d, "\x1b", 1, 2000, write_event, &k);
    decode_feed(&d, "x", 1, 2040, write_event, &k); /* too late for Alt */
    assert_string_equal(k.s, "esc x ");
    k.n = 0;
    decode_feed(&d, "\x1b\x1b", 2, 3000, write_event, &k);
    decode_tick(&d, 3050, write_event, &k);
    assert_string_equal(k.s, "esc esc ");
    k.n = 0;
    decode_feed(&d, "\x1b[", 2, 4000, write_event, &k);
    decode_tick(&d, 5100, write_event, &k);
    assert_string_equal(k.s, "M-[ ");
    static const char *const keys[] = {"\x1b_", "\x1b^", "\x1b]",
                                       "\x1bP"}; /* no answers when nothing follows */
    for (size_t i = 0; i < 4; i++) {
        char want[16];
        k.n = 0;
        decode_feed(&d, keys[i], 2, 5200 + i * 100, write_event, &k);
        decode_feed(&d, "x", 1, 5231 + i * 100, write_event, &k); /* what is typed next is not swallowed */
        snprintf(want, sizeof want, "M-%c x ", keys[i][1]);
        assert_string_equal(k.s, want);
    }
    k.n = 0;
    decode_feed(&d, "\x1b[200~half", 10, 6000, write_event, &k);
    decode_tick(&d, 10999, write_event, &k);
    assert_int_equal(k.n, 0);
    decode_tick(&d, 11000, write_event, &k);
    assert_string_equal(k.s, "paste[half] ");
    decode_fini(&d);
}

static void test_long(void **state)
{
    struct sink k = {.n = 0};
    struct decoder d;
    decode_init(&d, 30);
    decode_feed(&d, "\x1b[", 2, 0, write_event, &k);
    for (int i = 0; i < 5000; i++)
        decode_feed(&d, "1;", 2, 0, write_event, &k);
    decode_feed(&d, "Ax", 2, 0, write_event, &k); /* swallowed to its end */
    assert_string_equal(k.s, "x ");
    k.n = 0;
    decode_feed(&d, "\x1b]52;", 5, 0, write_event, &k);
    for (int i = 0; i < 5000; i++)
        decode_feed(&d, "QUJD", 4, 0, write_event, &k);
    decode_feed(&d, "\ay", 2, 0, write_event, &k);
    assert_string_equal(k.s, "y ");
    decode_fini(&d);
}

static void count_paste(void *arg, const struct term_event *ev)
{
    size_t *n = arg;
    assert_int_equal(ev->kind, TE_PASTE);
    assert_true(ev->u.paste.cut);
    *n = ev->u.paste.n;
}

static void test_huge_paste(void **state)
{
    struct decoder d;
    size_t n = 0;
    char *block = malloc(1 << 20);
    assert_non_null(block);
    memset(block, 'x', 1 << 20);
    decode_init(&d, 30);
    decode_feed(&d, "\x1b[200~", 6, 0, count_paste, &n);
    for (int i = 0; i < 18; i++)
        decode_feed(&d, block, 1 << 20, 0, count_paste, &n);
    decode_feed(&d, "\x1b[201~", 6, 0, count_paste, &n);
    assert_int_equal(n, DECODE_PASTE_MAX);
    decode_fini(&d);
    free(block);
}

static void test_burst(void **state)
{
    struct sink k = {.n = 0};
    struct decoder d;
    assert_true(decode_is_burst("a\rb\rc\r", 6));
    assert_true(decode_is_burst("a\r\nb\r\nc\r\n", 9));
    assert_false(decode_is_burst("a\rb\r", 4));
    assert_false(decode_is_burst("\x1b[A\r\r\r", 6));
    decode_init(&d, 30);
    decode_burst(&d, "a\r\nb\x01\r", 6, write_event, &k);
    assert_string_equal(k.s, "paste[a\nb\n] ");
    decode_fini(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequences), cmocka_unit_test(test_mixtures),   cmocka_unit_test(test_time),
        cmocka_unit_test(test_long),      cmocka_unit_test(test_huge_paste), cmocka_unit_test(test_burst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
