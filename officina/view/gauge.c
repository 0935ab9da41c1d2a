#include "view/gauge.h"

#include <string.h>

static enum role place_role(int cell, int n, enum gauge_worry worry)
{
    int third = n ? cell * 100 / n : 0;
    enum role low = ROLE_VERDIGRIS, mid = ROLE_GOLD, high = ROLE_CINNABAR;
    if (worry == GAUGE_PLAIN)
        return ROLE_VERDIGRIS;
    if (worry == GAUGE_FULL_IS_GOOD) {
        low = ROLE_CINNABAR;
        high = ROLE_VERDIGRIS;
    }
    return third < 60 ? low : third < 85 ? mid : high;
}

void gauge_put(struct row *r, int n, int64_t value, int64_t of, int64_t notch, enum gauge_worry worry,
               const struct glyph_set *g)
{
    if (value < 0 || of <= 0) {
        for (int i = 0; i < n; i++)
            row_str(r, style_of(ROLE_DIM), g->unknown);
        return;
    }
    if (value > of)
        value = of;
    int steps = (int)((double)value / (double)of * 2 * n);
    int mark = notch > 0 && notch < of ? (int)((double)notch / (double)of * n) : -1;
    for (int i = 0; i < n; i++) {
        int k = steps - 2 * i;
        struct style st = style_of(k > 0 ? place_role(i, n, worry) : ROLE_DIM);
        if (i == mark)
            st = (struct style){.fg = ROLE_GOLD, .attr = ATTR_UNDERLINE};
        row_str(r, st, k >= 2 ? g->full : k == 1 ? g->half : g->empty);
    }
}

/* Level 0 to top of a sample. */
static int level(float v, double most, int top)
{
    if (!(v > 0) || most <= 0)
        return 0;
    int l = (int)(v / most * top + 0.999);
    return l < 1 ? 1 : l > top ? top : l;
}

static float sample(const float *samples, int n, int back)
{
    return back < n ? samples[n - 1 - back] : -1;
}

void gauge_history(struct row *r, int n, const float *samples, int n_samples, double most,
                   const struct glyph_set *g)
{
    static const char *const braille[5][5] = {{" ", "⢀", "⢠", "⢰", "⢸"},
                                              {"⡀", "⣀", "⣠", "⣰", "⣸"},
                                              {"⡄", "⣄", "⣤", "⣴", "⣼"},
                                              {"⡆", "⣆", "⣦", "⣶", "⣾"},
                                              {"⡇", "⣇", "⣧", "⣷", "⣿"}};
    static const char *const blocks[9] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const digits[10] = {" ", "1", "2", "3", "4", "5", "6", "7", "8", "9"};
    for (int i = 0; i < n; i++) {
        int back = n - 1 - i;
        const char *s;
        if (g->kind == GLYPHS_FULL)
            s = braille[level(sample(samples, n_samples, 2 * back + 1), most, 4)]
                       [level(sample(samples, n_samples, 2 * back), most, 4)];
        else if (g->kind == GLYPHS_BLOCKS)
            s = blocks[level(sample(samples, n_samples, back), most, 8)];
        else
            s = digits[level(sample(samples, n_samples, back), most, 9)];
        row_str(r, style_of(ROLE_VERDIGRIS), s);
    }
}
