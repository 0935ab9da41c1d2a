#include "points.h"

#include <utf8proc.h>

size_t point_get(const char *s, size_t n, uint32_t *cp)
{
    const unsigned char c = (unsigned char)s[0];
    if (c < 0x80) {
        *cp = c;
        return 1;
    }
    utf8proc_int32_t v;
    const utf8proc_ssize_t k =
        utf8proc_iterate((const utf8proc_uint8_t *)s, n > 4 ? 4 : (utf8proc_ssize_t)n, &v);
    if (k <= 0) {
        *cp = 0xFFFD;
        return 1;
    }
    *cp = (uint32_t)v;
    return (size_t)k;
}

size_t point_put(uint32_t cp, char *out)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

size_t utf8_valid(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        if ((unsigned char)s[i] < 0x80) {
            i++;
            continue;
        }
        utf8proc_int32_t v;
        const size_t left = n - i;
        const utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)s + i, left > 4 ? 4 : (utf8proc_ssize_t)left, &v);
        if (k <= 0)
            break;
        i += (size_t)k;
    }
    return i;
}

size_t points_count(const char *s, size_t n)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        k += ((unsigned char)s[i] & 0xC0) != 0x80;
    return k;
}

size_t points_offset(const char *s, size_t n, size_t k)
{
    for (size_t i = 0; i < n; i++)
        if (((unsigned char)s[i] & 0xC0) != 0x80 && k-- == 0)
            return i;
    return n;
}

bool point_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1C && cp <= 0x1F);
    return cp == 0x85 || cp == 0xA0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}

size_t space_run(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n) {
        uint32_t cp;
        const size_t k = point_get(s + i, n - i, &cp);
        if (!point_is_space(cp))
            break;
        i += k;
    }
    return i;
}

size_t space_end(const char *s, size_t n)
{
    while (n > 0) {
        size_t i = n - 1;
        while (i > 0 && ((unsigned char)s[i] & 0xC0) == 0x80)
            i--;
        uint32_t cp;
        point_get(s + i, n - i, &cp);
        if (!point_is_space(cp))
            break;
        n = i;
    }
    return n;
}

static utf8proc_category_t category(uint32_t cp)
{
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool point_is_upper(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LU;
}

bool point_is_lower(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_LL || cp == 0xAA || cp == 0xBA;
}

bool point_is_alpha(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool point_is_digit(uint32_t cp)
{
    return category(cp) == UTF8PROC_CATEGORY_ND || cp == 0xB2 || cp == 0xB3 || cp == 0xB9;
}

bool point_is_printable(uint32_t cp)
{
    if (cp < 0x80)
        return cp >= 0x20 && cp < 0x7F;
    const utf8proc_category_t c = category(cp);
    return c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS;
}

size_t point_upper(uint32_t cp, char *out)
{
    if (cp == 0xDF) { /* the one everyday letter whose upper case is two */
        out[0] = out[1] = 'S';
        return 2;
    }
    return point_put((uint32_t)utf8proc_toupper((utf8proc_int32_t)cp), out);
}

size_t point_lower(uint32_t cp, char *out)
{
    return point_put((uint32_t)utf8proc_tolower((utf8proc_int32_t)cp), out);
}
