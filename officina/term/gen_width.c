/* Writes the width table: ranges of code points whose width on a screen is not 1, from utf8proc's Unicode data.
 *
 * Run once at build time; its output is included by width.c. Rules: combining marks, format characters, controls and
 * the vowels and finals of Hangul that join the syllable before them have 0, East Asian wide and full-width characters
 * have 2, all others 1. Ambiguous ones are narrow, as terminals draw them in Western locales. */
#include <stdio.h>
#include <utf8proc.h>

static int width_of(utf8proc_int32_t cp)
{
    const utf8proc_property_t *p = utf8proc_get_property(cp);
    if (p->category == UTF8PROC_CATEGORY_MN || p->category == UTF8PROC_CATEGORY_ME ||
        p->category == UTF8PROC_CATEGORY_CF || p->category == UTF8PROC_CATEGORY_CC ||
        p->category == UTF8PROC_CATEGORY_ZL || p->category == UTF8PROC_CATEGORY_ZP ||
        p->category == UTF8PROC_CATEGORY_CS)
        return 0;
    if ((cp >= 0x1160 && cp <= 0x11ff) || (cp >= 0xd7b0 && cp <= 0xd7ff))
        return 0;
    return utf8proc_charwidth(cp) == 2 ? 2 : 1;
}

int main(void)
{
    printf("/* Made by gen_width.c from Unicode %s. */\n", utf8proc_unicode_version());
    utf8proc_int32_t first = 0;
    int width = width_of(0);
    for (utf8proc_int32_t cp = 1; cp <= 0x110000; cp++) {
        int w = cp <= 0x10ffff ? width_of(cp) : -1;
        if (w == width)
            continue;
        if (width != 1)
            printf("{0x%x, 0x%x, %d},\n", (unsigned)first, (unsigned)cp - 1, width);
        first = cp;
        width = w;
    }
    return 0;
}
