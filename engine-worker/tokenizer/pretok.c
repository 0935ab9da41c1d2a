#include "pretok.h"

#include "unicode.h"

#include <string.h>

/* The class of the character at `at`, its length in *len; at the end of the text: 0 and length 0. */
static inline unsigned peek(const uint8_t *s, size_t n, size_t at, size_t *len)
{
    if (at >= n) {
        *len = 0;
        return 0;
    }
    uint32_t cp;
    *len = u8_decode(s + at, n - at, &cp);
    return u_class(cp);
}

/* End of the run of characters that have a bit of mask. */
static size_t run(const uint8_t *s, size_t n, size_t at, unsigned mask)
{
    size_t len;
    while (peek(s, n, at, &len) & mask)
        at += len;
    return at;
}

/* End of the run of characters that have no bit of mask. */
static size_t run_not(const uint8_t *s, size_t n, size_t at, unsigned mask)
{
    size_t len;
    while (!(peek(s, n, at, &len) & mask) && len)
        at += len;
    return at;
}

static size_t run_max(const uint8_t *s, size_t n, size_t at, unsigned mask, unsigned max)
{
    size_t len;
    while (max-- && (peek(s, n, at, &len) & mask))
        at += len;
    return at;
}

/* 's 't 're 've 'm 'll 'd; 0 when none is there. */
static size_t contraction(const uint8_t *s, size_t n, bool any_case)
{
    if (n < 2 || s[0] != '\'')
        return 0;
    const unsigned fold = any_case ? 0x20 : 0;
    const unsigned a = s[1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (n < 3)
        return 0;
    const unsigned b = s[2] | fold;
    return ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) ? 3 : 0;
}

/* `\s*[\r\n]+|\s+(?!\S)|\s+`, the first only with newlines set. */
static size_t spaces(const uint8_t *s, size_t n, bool newlines)
{
    size_t at = 0, last = 0, after_newline = 0, len;
    for (unsigned c; (c = peek(s, n, at, &len)) & U_SP; at += len) {
        last = at;
        if (c & U_NL)
            after_newline = at + len;
    }
    if (newlines && after_newline)
        return after_newline;
    /* a run before a non-space leaves its last character to the next piece, unless it is the only one */
    return at == n || last == 0 ? at : last;
}

static size_t match_gpt2(const uint8_t *s, size_t n, unsigned arg)
{
    (void)arg;
    const size_t m = contraction(s, n, false);
    if (m)
        return m;
    size_t at = s[0] == ' ', len;
    const unsigned c = peek(s, n, at, &len);
    if (len && !(c & U_SP)) {
        if (c & U_L)
            return run(s, n, at + len, U_L);
        if (c & U_N)
            return run(s, n, at + len, U_N);
        return run_not(s, n, at + len, U_SP | U_L | U_N);
    }
    return spaces(s, n, false);
}

enum { DIGITS_3 = 1, MARKS = 2, CONTRACTION_TAIL = 4 };

/* ` ?[^\s\p{L}\p{N}]+[\r\n]*` with more breaks in `tail`; 0 when it does not match. */
static size_t symbols(const uint8_t *s, size_t n, unsigned not_these, bool slash)
{
    const size_t from = s[0] == ' ';
    size_t at = run_not(s, n, from, not_these);
    if (at == from)
        return 0;
    while (at < n && (s[at] == '\r' || s[at] == '\n' || (slash && s[at] == '/')))
        at++;
    return at;
}

/* llama-bpe, qwen2 and qwen35. */
static size_t match_qwen(const uint8_t *s, size_t n, unsigned arg)
{
    const unsigned letters = arg & MARKS ? U_L | U_M : U_L;
    size_t m = contraction(s, n, true);
    if (m)
        return m;
    size_t len, next_len;
    const unsigned c = peek(s, n, 0, &len);
    if (c & letters)
        return run(s, n, len, letters);
    if (!(c & (U_L | U_N | U_NL)) && (peek(s, n, len, &next_len) & letters))
        return run(s, n, len + next_len, letters);
    if (c & U_N)
        return run_max(s, n, 0, U_N, arg & DIGITS_3 ? 3 : 1);
    m = symbols(s, n, U_SP | U_N | letters, false);
    return m ? m : spaces(s, n, true);
}

/* A word of gpt-4o from `at`: `[upper-ish]*[lower-ish]+`, or with lower optional `[upper-ish]+[lower-ish]*`. 0 = none. */
static size_t cased_word(const uint8_t *s, size_t n, size_t at, bool lower_optional)
{
    const unsigned upper = U_LU | U_LT | U_LM | U_LO | U_M, lower = U_LL | U_LM | U_LO | U_M;
    const size_t from = at;
    size_t len, both_end = 0;
    for (unsigned c; (c = peek(s, n, at, &len)) & upper; at += len)
        if (c & lower)
            both_end = at + len;
    const size_t end = run(s, n, at, lower);
    if (lower_optional)
        return at > from ? end : 0;
    /* without a lower-case letter behind it, the first run gives back to its last character that may also be lower */
    return end > at ? end : both_end;
}

/* gpt-4o and tekken. */
static size_t match_o200k(const uint8_t *s, size_t n, unsigned arg)
{
    size_t len;
    const unsigned c = peek(s, n, 0, &len);
    const bool prefix = !(c & (U_L | U_N | U_NL));
    for (int pass = 0; pass < 2; pass++) {
        size_t end = prefix ? cased_word(s, n, len, pass) : 0;
        if (!end)
            end = cased_word(s, n, 0, pass);
        if (end)
            return end + (arg & CONTRACTION_TAIL ? contraction(s + end, n - end, true) : 0);
    }
    if (c & U_N)
        return run_max(s, n, 0, U_N, arg & DIGITS_3 ? 3 : 1);
    const size_t m = symbols(s, n, U_SP | U_L | U_N, true);
    return m ? m : spaces(s, n, true);
}

/* The third stage of deepseek-v3; digits were cut out before. */
static size_t match_deepseek3(const uint8_t *s, size_t n, unsigned arg)
{
    (void)arg;
    size_t len, next_len;
    const unsigned c = peek(s, n, 0, &len);
    if (s[0] < 128 && (c & (U_P | U_S))) {
        size_t at = 1;
        while (at < n && s[at] < 128 && (u_ascii_class[s[at]] & U_L))
            at++;
        if (at > 1)
            return at;
    }
    if (c & (U_L | U_M))
        return run(s, n, len, U_L | U_M);
    if (!(c & (U_P | U_S | U_NL)) && (peek(s, n, len, &next_len) & (U_L | U_M)))
        return run(s, n, len + next_len, U_L | U_M);
    const size_t from = s[0] == ' ';
    size_t at = run(s, n, from, U_P | U_S);
    if (at > from) {
        while (at < n && (s[at] == '\r' || s[at] == '\n'))
            at++;
        return at;
    }
    return c & U_SP ? spaces(s, n, true) : 0;
}

/* `\p{N}{1,arg}`, without a limit for 0. */
static size_t match_digits(const uint8_t *s, size_t n, unsigned arg)
{
    return arg ? run_max(s, n, 0, U_N, arg) : run(s, n, 0, U_N);
}

static size_t match_three_digits(const uint8_t *s, size_t n, unsigned arg)
{
    (void)arg;
    if (n < 3)
        return 0;
    for (int i = 0; i < 3; i++)
        if (s[i] < '0' || s[i] > '9')
            return 0;
    return 3;
}

/* `[\p{P}$+<=>^~|]+`, with the backtick for arg 1. */
static size_t match_punctuation(const uint8_t *s, size_t n, unsigned arg)
{
    size_t at = 0, len;
    for (;; at += len) {
        const unsigned c = peek(s, n, at, &len);
        if (!len || !((c & U_P) || (s[at] < 128 && (c & U_S) && (s[at] != '`' || arg))))
            return at;
    }
}

static size_t match_newline(const uint8_t *s, size_t n, unsigned arg)
{
    (void)n, (void)arg;
    return s[0] == '\r' || s[0] == '\n';
}

/* `\s?[class]+` */
static size_t match_spaced(const uint8_t *s, size_t n, unsigned arg)
{
    size_t len;
    const size_t from = peek(s, n, 0, &len) & U_SP ? len : 0;
    const size_t at = run(s, n, from, arg);
    return at > from ? at : 0;
}

enum { CJK_V3, CJK_CODER };

static size_t match_cjk(const uint8_t *s, size_t n, unsigned arg)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        const size_t len = u8_decode(s + at, n - at, &cp);
        const bool in = arg == CJK_V3 ? (cp >= 0x4E00 && cp <= 0x9FA5) || (cp >= 0x3040 && cp <= 0x30FF)
                                      : (cp >= 0x0800 && cp <= 0x9FA5) || (cp >= 0xAC00 && cp <= 0xD7FF);
        if (!in)
            break;
        at += len;
    }
    return at;
}

/* Letters with case that the pattern of deepseek-llm leaves out: it lists those of an older Unicode, without the styled
 * letters of mathematics. */
static bool is_later_letter(uint32_t cp)
{
    static const uint32_t ranges[][2] = {
        {0x560, 0x588},   {0x10C7, 0x10FF},   {0x1C80, 0x1C8A},   {0x2D00, 0x2D2D},   {0xA790, 0xA7FA},
        {0xAB30, 0xAB68}, {0x10570, 0x105BC}, {0x10D50, 0x10D85}, {0x16E40, 0x16E7F}, {0x1D400, 0x1DFFF}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (cp >= ranges[i][0] && cp <= ranges[i][1])
            return true;
    return false;
}

/* `[!-/:-~]` in both widths, the quotation marks, and the first signs of CJK. */
static bool is_deepseek_sign(uint32_t cp)
{
    return (cp >= 0x21 && cp <= 0x2F) || (cp >= 0x3A && cp <= 0x7E) || (cp >= 0xFF01 && cp <= 0xFF0F) ||
           (cp >= 0xFF1A && cp <= 0xFF5E) || (cp >= 0x2018 && cp <= 0x201F) || (cp >= 0x3000 && cp <= 0x3002);
}

enum { DEEPSEEK_LETTERS, DEEPSEEK_SIGNS };

/* `\s?[letters]+` or `\s?[signs]+` of deepseek-llm. */
static size_t match_deepseek_llm(const uint8_t *s, size_t n, unsigned arg)
{
    uint32_t cp;
    size_t len = u8_decode(s, n, &cp);
    const size_t from = u_class(cp) & U_SP ? len : 0;
    size_t at = from;
    for (; at < n; at += len) {
        len = u8_decode(s + at, n - at, &cp);
        const bool in = arg == DEEPSEEK_SIGNS ? is_deepseek_sign(cp)
                                              : (u_class(cp) & (U_LU | U_LL | U_LT)) && !is_later_letter(cp);
        if (!in)
            break;
    }
    /* a space that is a sign itself (U+3000) stands alone when no sign follows */
    if (at == from && from && arg == DEEPSEEK_SIGNS && u8_decode(s, n, &cp) && is_deepseek_sign(cp))
        return from;
    return at > from ? at : 0;
}

/* `\s+$` */
static size_t match_last_spaces(const uint8_t *s, size_t n, unsigned arg)
{
    (void)arg;
    size_t at = n;
    while (at > 0) {
        size_t from = at - 1;
        while (from > 0 && at - from < 4 && (s[from] & 0xC0) == 0x80)
            from--;
        size_t len;
        if (!(peek(s, at, from, &len) & U_SP) || from + len != at)
            break;
        at = from;
    }
    return n - at;
}

static const struct pretok table[] = {
    {.name = "gpt-2", .stage = {{match_gpt2, 0}}},
    {.name = "smollm", .stage = {{match_digits, 1}, {match_gpt2, 0}}},
    {.name = "llama-bpe", .stage = {{match_qwen, DIGITS_3}}, .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .stage = {{match_qwen, DIGITS_3}}},
    {.name = "qwen2", .stage = {{match_qwen, 0}}, .nfc = true},
    {.name = "stablelm2", .stage = {{match_qwen, 0}}},
    {.name = "qwen35", .stage = {{match_qwen, MARKS}}, .nfc = true},
    {.name = "gpt-4o", .stage = {{match_o200k, DIGITS_3 | CONTRACTION_TAIL}}},
    {.name = "tekken", .stage = {{match_o200k, 0}}, .ignore_merges = true, .add_bos = true},
    {.name = "deepseek-v3", .stage = {{match_digits, 3}, {match_cjk, CJK_V3}, {match_deepseek3, 0}}},
    {.name = "deepseek-llm",
     .end_stage = 3,
     .stage = {{match_newline, 0},
               {match_deepseek_llm, DEEPSEEK_LETTERS},
               {match_deepseek_llm, DEEPSEEK_SIGNS},
               {match_last_spaces, 0},
               {match_cjk, CJK_CODER},
               {match_digits, 0}}},
    {.name = "deepseek-coder",
     .stage = {{match_newline, 0},
               {match_spaced, U_L},
               {match_spaced, U_P},
               {match_cjk, CJK_CODER},
               {match_digits, 1}}},
    {.name = "falcon", .stage = {{match_punctuation, 1}, {match_gpt2, 0}, {match_three_digits, 0}}},
    {.name = "default",
     .stage = {{match_punctuation, 0}, {match_gpt2, 0}, {match_digits, 0}, {match_three_digits, 0}}},
};

/* Other names that files use for the same pieces. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"gpt2", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"mpt", "gpt-2"},
    {"olmo", "gpt-2"},
    {"exaone4", "gpt-2"},
    {"trillion", "gpt-2"},
    {"modern-bert", "gpt-2"},
    {"starcoder", "smollm"},
    {"refact", "smollm"},
    {"command-r", "smollm"},
    {"codeshell", "smollm"},
    {"exaone", "smollm"},
    {"minerva-7b", "smollm"},
    {"llama3", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"lfm2", "llama-bpe"},
    {"smaug-bpe", "dbrx"},
    {"chatglm-bpe", "dbrx"},
    {"glm4", "dbrx"},
    {"deepseek-r1-qwen", "qwen2"},
    {"megrez", "qwen2"},
    {"hunyuan", "stablelm2"},
    {"solar-open", "stablelm2"},
    {"llama4", "gpt-4o"},
    {"kanana2", "gpt-4o"},
    {"hunyuan-dense", "deepseek-v3"},
    {"joyai-llm", "deepseek-v3"},
};

static bool is_name(const char *name, const char *s, size_t n)
{
    return strlen(name) == n && memcmp(name, s, n) == 0;
}

const struct pretok *pretok_find(const char *name, size_t len)
{
    if (len == 0)
        return pretok_find("default", 7);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (is_name(table[i].name, name, len))
            return &table[i];
    for (size_t i = 0; i < sizeof aliases / sizeof *aliases; i++)
        if (is_name(aliases[i].alias, name, len))
            return pretok_find(aliases[i].name, strlen(aliases[i].name));
    return NULL;
}

const char *pretok_names(void)
{
    return "gpt-2, smollm, llama-bpe, dbrx, qwen2, stablelm2, qwen35, gpt-4o, tekken, deepseek-v3, "
           "deepseek-llm, "
           "deepseek-coder, falcon, default";
}

static int split_stage(const struct pretok *p, size_t k, const uint8_t *s, size_t n, pretok_piece *fn,
                       void *ctx)
{
    if (k == sizeof p->stage / sizeof *p->stage || !p->stage[k].match)
        return fn(ctx, s, n);
    if (k > 0 && k == p->end_stage) {
        const size_t gap = n - p->stage[k].match(s, n, p->stage[k].arg);
        const int rc = gap ? split_stage(p, k + 1, s, gap, fn, ctx) : 0;
        return rc || gap == n ? rc : split_stage(p, k + 1, s + gap, n - gap, fn, ctx);
    }
    size_t at = 0, gap = 0;
    while (at < n) {
        const size_t m = p->stage[k].match(s + at, n - at, p->stage[k].arg);
        if (m == 0) {
            uint32_t cp;
            at += u8_decode(s + at, n - at, &cp);
            continue;
        }
        int rc = at > gap ? split_stage(p, k + 1, s + gap, at - gap, fn, ctx) : 0;
        if (rc == 0)
            rc = split_stage(p, k + 1, s + at, m, fn, ctx);
        if (rc)
            return rc;
        at += m;
        gap = at;
    }
    return at > gap ? split_stage(p, k + 1, s + gap, at - gap, fn, ctx) : 0;
}

int pretok_split(const struct pretok *p, const uint8_t *s, size_t n, pretok_piece *fn, void *ctx)
{
    return split_stage(p, 0, s, n, fn, ctx);
}
