#include "util/text.h"
#include "view/markdown.h"

#include <string.h>

#define CODE_LEFT 2 /* columns before a frame of code */

static size_t line_end(const char *s, size_t n, size_t at)
{
    const char *nl = memchr(s + at, '\n', n - at);
    return nl ? (size_t)(nl - s) : n;
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r", s[i]) || !s[i])
            return false;
    return true;
}

/* Such a line behind a blank one goes on with nothing that was before it. */
static bool begins_block(const char *s, size_t n)
{
    return n && (s[0] & 0x80 || !strchr(" \t\r\n-+*>=[0123456789", s[0]));
}

/* "[name]: where": what it defines may be used before it. */
static bool defines(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n && at < 3 && s[at] == ' ')
        at++;
    if (at == n || s[at] != '[')
        return false;
    const char *close = memchr(s + at, ']', n - at);
    return close && close + 1 < s + n && close[1] == ':';
}

/* Is there a line from `at` on, outside of code, that defines a link? f: whether that place is in code. */
static bool any_definition(const char *s, size_t n, size_t at, struct fence f)
{
    while (at < n) {
        size_t end = line_end(s, n, at);
        if (!f.n && defines(s + at, end - at))
            return true;
        fence_step(&f, s + at, end - at);
        at = end + 1;
    }
    return false;
}

/* End of the part of text that begins at `at`; n when no other begins yet. */
static size_t part_end(const char *s, size_t n, size_t at)
{
    struct fence f = {0}, opens;
    bool blank = false;
    size_t from = at;
    while (at < n) {
        size_t end = line_end(s, n, at), len = end - at;
        if (!f.n && at > from &&
            ((blank && begins_block(s + at, len)) || (end < n && fence_opens(s + at, len, &opens) &&
                                                      !opens.indent))) /* a whole line is sure to be one */
            return at;
        blank = is_blank(s + at, len);
        fence_step(&f, s + at, len);
        at = end + 1;
    }
    return n;
}

static int wide_of(const struct markdown_look *look)
{
    int wide = look->wide - CODE_LEFT;
    return wide > 8 ? wide : 8;
}

static void begin_code(struct rows *out, size_t base, const char *s, size_t len, const struct fence *f,
                       const struct markdown_look *look, struct markdown_keep *k)
{
    size_t at = f->n;
    while (at < len && s[at] == ' ')
        at++;
    while (len > at && strchr(" \t\r", s[len - 1]))
        len--;
    if (out->n > base)
        rows_add(out);
    k->in_code = true;
    code_grow_begin(&k->code, out, CODE_LEFT, s + at, len - at, wide_of(look), look->glyphs);
}

/* Lines of code from `at` up to the fence that ends it or the end of the text. Returns where the text goes on. */
static size_t more_code(struct rows *out, size_t base, const char *s, size_t n, const struct fence *f,
                        const struct markdown_look *look, struct markdown_keep *k)
{
    size_t at = k->at, end = at;
    bool closed = false;
    while (at < n && !closed) {
        end = line_end(s, n, at);
        closed = fence_closes(f, s + at, end - at);
        if (closed)
            break;
        at = end + 1;
    }
    size_t stop = at < n ? at : n;
    bool ends = closed && end < n; /* without its newline the line may still become another one */
    size_t whole = code_grow_lines(&k->code, out, CODE_LEFT, s + k->at, stop - k->at, ends, wide_of(look),
                                   look->scroll, look->glyphs);
    k->at = ends ? end + 1 : k->at + whole;
    k->rows = (ends ? out->n : k->code.row + 1 + k->code.lines) - base;
    k->in_code = !ends;
    return ends ? k->at : n;
}

size_t markdown_grow(struct rows *out, size_t base, const char *s, size_t n, const struct markdown_look *look,
                     struct markdown_keep *k)
{
    if (!k->whole && any_definition(s, n, k->at, k->in_code ? k->fence : (struct fence){0}))
        *k = (struct markdown_keep){.whole = true};
    size_t first = base + k->rows;
    rows_cut(out, first);
    if (k->whole) {
        markdown_part(out, false, s, n, look);
        return first;
    }
    while (k->at < n || k->in_code) {
        if (k->in_code) {
            if (more_code(out, base, s, n, &k->fence, look, k) == n)
                break;
            continue;
        }
        size_t end = line_end(s, n, k->at);
        if (fence_opens(s + k->at, end - k->at, &k->fence) && !k->fence.indent && end < n) {
            begin_code(out, base, s + k->at, end - k->at, &k->fence, look, k);
            k->at = end + 1;
            k->rows = out->n - base;
            continue;
        }
        size_t part = part_end(s, n, k->at);
        markdown_part(out, out->n > base, s + k->at, part - k->at, look);
        if (part == n)
            break;
        k->at = part;
        k->rows = out->n - base;
    }
    return first;
}

void markdown_layout(struct rows *out, const char *s, size_t n, const struct markdown_look *look)
{
    struct markdown_keep k = {0};
    markdown_grow(out, out->n, s, n, look, &k);
}
