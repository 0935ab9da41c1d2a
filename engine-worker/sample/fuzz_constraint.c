/* Arbitrary bytes as the automaton of a request: loaded or refused; what is loaded makes masks and is advanced by tokens that
 * they allow, until an end or a limit. The text comes from the same bytes. */
#include "automaton.h"
#include "constraint.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N = 300, EOG = 299, STEPS = 64 };

static struct constraints *vocabulary(void)
{
    static uint8_t bytes[256];
    static const char *const words[] = {"ab",   "abc",   "{\"", "\": ", "}}",
                                        "]]]]", "\",\"", "  ",  "true", "\xc3\xa9"};
    static const uint32_t eog[] = {EOG};
    struct trie_token t[N] = {0};
    struct constraints *cs;
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        t[i] = (struct trie_token){&bytes[i], 1, false};
    }
    for (unsigned i = 0; i < 10; i++)
        t[256 + i] = (struct trie_token){(const uint8_t *)words[i], (uint32_t)strlen(words[i]), i == 3};
    return constraints_new(&cs, t, N, eog, 1, NULL) == 0 ? cs : NULL;
}

static uint32_t some_allowed(const struct token_mask *m, uint32_t from)
{
    for (uint32_t i = 0; i < N; i++)
        if (token_mask_has(m, (from + i) % N))
            return (from + i) % N;
    abort(); /* an empty mask is an error */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct constraints *cs;
    struct constraint c, copy;
    struct token_mask m;
    struct vt_err err = {0};
    if (!cs)
        cs = vocabulary();
    if (!cs || constraint_open(cs, data, size, &c, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    constraint_copy(&copy, &c);
    for (unsigned i = 0; i < STEPS && constraint_mask(&c, &m, &err) == 0; i++) {
        uint32_t id = some_allowed(&m, data[i % size] * 7u);
        bool end = id == EOG;
        if (end != (end && constraint_can_end(&c)))
            abort();
        if (constraint_advance(&c, id, &err) < 0 || end)
            break;
    }
    constraint_close(&c);
    constraint_close(&copy);
    return 0;
}
