/* Any bytes as Markdown: laid out at some width, no row is wider than it may be. The first two bytes choose
 * the widths, and where the text is cut in two: grown in two pieces it has the same rows. */
#include "view/markdown.h"

#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    struct rows rows = {0};
    struct markdown_look look = {.width = 60 + data[0] % 60,
                                 .scroll = data[1] & 15,
                                 .glyphs = glyphs_of(data[1] & 16 ? GLYPHS_ASCII : GLYPHS_FULL)};
    look.wide = look.width + data[1] / 4;
    markdown_layout(&rows, (const char *)data + 2, size - 2, &look);
    for (size_t y = 0; y < rows.n; y++) {
        int width = 0;
        for (size_t i = 0; i < rows.v[y].n; i++)
            width += rows.v[y].c[i].width;
        if (width != rows.v[y].width)
            abort();
        if (width >
            look.wide + 200) /* markers nest to a fixed depth; text behind them is one column at least */
            abort();
    }
    struct rows grown = {0};
    struct markdown_keep keep = {0};
    size_t half = (size - 2) * data[0] / 256;
    markdown_grow(&grown, 0, (const char *)data + 2, half, &look, &keep);
    markdown_grow(&grown, 0, (const char *)data + 2, size - 2, &look, &keep);
    if (grown.n != rows.n)
        abort();
    for (size_t y = 0; y < rows.n; y++)
        if (grown.v[y].width != rows.v[y].width || grown.v[y].n != rows.v[y].n)
            abort();
    rows_free(&grown);
    rows_free(&rows);
    return 0;
}
