/* str.format(): "{}", "{0}", "{name.attr[key]!r:>8.2f}". Replacement fields inside of a format are not supported. */
#include "eval.h"
#include "points.h"

#include <stdio.h>
#include <string.h>

struct format_spec {
    const char *fill; /* one code point */
    size_t fill_n;
    char align, sign, type; /* 0 = not said */
    bool alternate, zero, comma;
    int width, precision; /* -1 = not said */
};

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* Digits at p[*i]; -1 when there are none or too many. */
static int read_number(const char *p, size_t n, size_t *i)
{
    int v = -1;
    for (; *i < n && p[*i] >= '0' && p[*i] <= '9' && v < 10000; ++*i)
        v = (v < 0 ? 0 : v * 10) + (p[*i] - '0');
    return v;
}

static int read_spec(struct eval *e, const char *p, size_t n, struct format_spec *s)
{
    size_t i = 0;
    uint32_t cp;
    const size_t first = n ? point_get(p, n, &cp) : 0;
    *s = (struct format_spec){.fill = " ", .fill_n = 1, .width = -1, .precision = -1};
    if (first && first < n && is_align(p[first])) {
        s->fill = p;
        s->fill_n = first;
        s->align = p[first];
        i = first + 1;
    } else if (n && is_align(p[0])) {
        s->align = p[i++];
    }
    if (i < n && (p[i] == '+' || p[i] == '-' || p[i] == ' '))
        s->sign = p[i++];
    if (i < n && p[i] == '#') {
        s->alternate = true;
        i++;
    }
    if (i < n && p[i] == '0') {
        s->zero = true;
        i++;
    }
    s->width = read_number(p, n, &i);
    if (i < n && p[i] == ',') {
        s->comma = true;
        i++;
    }
    if (i < n && p[i] == '.') {
        i++;
        s->precision = read_number(p, n, &i);
        if (s->precision < 0)
            return eval_fail(e, "format: the precision is missing");
    }
    if (i < n)
        s->type = p[i++];
    if (i < n || s->width > 1000 || s->precision > 300)
        return eval_fail(e, "format: the specification '%.*s' is not supported", n > 60 ? 60 : (int)n, p);
    return 0;
}

static int fill(struct builder *b, const struct format_spec *s, size_t times)
{
    while (times-- > 0)
        if (builder_add(b, s->fill, s->fill_n, false))
            return -1;
    return 0;
}

/* text with `sign` bytes that stay in front of a '=' padding. */
static int padded(struct eval *e, struct builder *b, const struct format_spec *s, char align,
                  const struct string *text, size_t sign)
{
    const size_t have = points_count(text->p, text->n);
    const size_t pad = s->width > 0 && (size_t)s->width > have ? (size_t)s->width - have : 0;
    const size_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0;
    int r;
    if (align == '=')
        r = builder_slice(b, text, 0, sign) || fill(b, s, pad) ||
            builder_slice(b, text, sign, text->n - sign);
    else
        r = fill(b, s, left) || builder_string(b, text) || fill(b, s, pad - left);
    return r ? eval_exhausted(e) : 0;
}

static int format_string(struct eval *e, struct builder *b, const struct format_spec *s,
                         const struct string *text)
{
    if ((s->type && s->type != 's') || s->sign || s->comma || s->alternate || s->align == '=')
        return eval_fail(e, "format: this specification does not fit a string");
    struct string cut = *text;
    if (s->precision >= 0)
        cut.n = points_offset(text->p, text->n, (size_t)s->precision);
    struct format_spec own = *s;
    if (s->zero && !s->align && s->fill[0] == ' ')
        own.fill = "0";
    return padded(e, b, &own, s->align ? s->align : '<', &cut, 0);
}

/* Commas between the thousands of the digits at the head of in. */
static void group(const char *in, char *out)
{
    const size_t n = strspn(in, "0123456789");
    for (size_t i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            *out++ = ',';
        *out++ = in[i];
    }
    strcpy(out, in + n); /* out has room for a comma after every digit */
}

static int digits_of_int(struct eval *e, const struct format_spec *s, uint64_t v, char *out, size_t size)
{
    const char *prefix = !s->alternate    ? ""
                         : s->type == 'x' ? "0x"
                         : s->type == 'X' ? "0X"
                         : s->type == 'o' ? "0o"
                         : s->type == 'b' ? "0b"
                                          : "";
    if (s->precision >= 0)
        return eval_fail(e, "format: an integer has no precision");
    if (s->type == 'b') {
        char bits[65];
        size_t k = sizeof bits - 1;
        bits[k] = 0;
        do
            bits[--k] = (char)('0' + (v & 1));
        while (v >>= 1);
        snprintf(out, size, "%s%s", prefix, bits + k);
    } else if (s->type == 'x') {
        snprintf(out, size, "%s%llx", prefix, (unsigned long long)v);
    } else if (s->type == 'X') {
        snprintf(out, size, "%s%llX", prefix, (unsigned long long)v);
    } else if (s->type == 'o') {
        snprintf(out, size, "%s%llo", prefix, (unsigned long long)v);
    } else {
        snprintf(out, size, "%llu", (unsigned long long)v);
    }
    return 0;
}

static int digits_of_float(struct eval *e, const struct format_spec *s, double f, char *out, size_t size)
{
    const int precision = s->precision < 0 ? 6 : s->precision;
    switch (s->type) {
    case 'f':
    case 'F': snprintf(out, size, "%.*f", precision, f); return 0;
    case '%': snprintf(out, size, "%.*f%%", precision, f * 100); return 0;
    case 'e': snprintf(out, size, "%.*e", precision, f); return 0;
    case 'E': snprintf(out, size, "%.*E", precision, f); return 0;
    case 'g': snprintf(out, size, "%.*g", precision, f); return 0;
    case 'G': snprintf(out, size, "%.*G", precision, f); return 0;
    default: break;
    }
    if (s->type || s->precision >= 0)
        return eval_fail(e, "format: this specification does not fit a number");
    float_repr(f, out);
    return 0;
}

static int format_number(struct eval *e, struct builder *b, const struct format_spec *s,
                         const struct value *v)
{
    char digits[700], text[1000];
    double f = 0;
    value_number(v, &f);
    const bool integer = v->type != V_FLOAT && (!s->type || strchr("dxXob", s->type));
    bool negative = f < 0;
    if (integer) {
        const int64_t i = v->type == V_INT ? v->i : v->b;
        const uint64_t magnitude = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        if (digits_of_int(e, s, magnitude, digits, sizeof digits))
            return -1;
    } else {
        if (digits_of_float(e, s, f, digits, sizeof digits))
            return -1;
        negative = digits[0] == '-';
        if (negative)
            memmove(digits, digits + 1, strlen(digits));
    }
    const char *sign = negative ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    strcpy(text, sign);
    if (s->comma)
        group(digits, text + strlen(sign));
    else
        strcpy(text + strlen(sign), digits);
    struct format_spec own = *s;
    if (s->zero && !s->align)
        own.fill = "0";
    const struct string t = {.p = text, .n = strlen(text)};
    return padded(e, b, &own, s->align ? s->align : s->zero ? '=' : '>', &t, strlen(sign));
}

static int format_value(struct eval *e, struct builder *b, const char *spec, size_t n, const struct value *v)
{
    struct format_spec s;
    if (n == 0)
        return print_str(e, b, v);
    if (read_spec(e, spec, n, &s))
        return -1;
    if (v->type == V_STRING)
        return format_string(e, b, &s, v->s);
    if (v->type == V_INT || v->type == V_FLOAT || v->type == V_BOOL)
        return format_number(e, b, &s, v);
    return eval_fail(e, "format: a %s takes no specification", value_type_name(v));
}

/* Which argument a field names, and how many fields without a name there were. */
static int field_base(struct eval *e, const char *p, size_t n, const struct args *args, size_t *next,
                      struct value *out)
{
    size_t i = 0;
    int place = read_number(p, n, &i);
    if (n == 0)
        place = (int)(*next)++;
    if (n == 0 || i == n) {
        if ((size_t)place >= args->n)
            return eval_fail(e, "format: there is no argument %d", place);
        *out = args->v[place];
        return 0;
    }
    for (size_t k = 0; k < args->n_kw; k++)
        if (args->kw[k].name->n == n && memcmp(args->kw[k].name->p, p, n) == 0) {
            *out = args->kw[k].value;
            return 0;
        }
    return eval_fail(e, "format: there is no argument '%.*s'", n > 60 ? 60 : (int)n, p);
}

/* ".attr" and "[key]" after the name of a field. */
static int field_path(struct eval *e, const char *p, size_t n, struct value *v)
{
    for (size_t i = 0; i < n;) {
        const bool item = p[i] == '[';
        const size_t from = i + 1;
        size_t end = from;
        while (end < n && (item ? p[end] != ']' : p[end] != '.' && p[end] != '['))
            end++;
        if (end == from || (item && end == n))
            return eval_fail(e, "format: a field is malformed");
        struct string *name = string_view(&e->arena, p + from, end - from, false);
        size_t k = 0;
        const int index = read_number(p + from, end - from, &k);
        const struct value base = *v;
        if (!name)
            return eval_exhausted(e);
        const struct value key = item && k == end - from ? v_int(index) : v_string(name);
        if (item ? eval_item(e, &base, &key, v) : eval_attr(e, &base, name, v))
            return -1;
        i = end + item;
    }
    return 0;
}

static int field(struct eval *e, struct builder *b, const char *p, size_t n, const struct args *args,
                 size_t *next)
{
    const char *colon = memchr(p, ':', n);
    size_t name_n = colon ? (size_t)(colon - p) : n;
    const char *spec = colon ? colon + 1 : p + n;
    const size_t spec_n = n - (size_t)(spec - p);
    char conversion = 0;
    if (memchr(p, '{', n))
        return eval_fail(e, "format: fields inside of a field are not supported");
    if (name_n >= 2 && p[name_n - 2] == '!') {
        conversion = p[name_n - 1];
        name_n -= 2;
    }
    size_t base_n = 0;
    while (base_n < name_n && p[base_n] != '.' && p[base_n] != '[')
        base_n++;
    struct value v;
    if (field_base(e, p, base_n, args, next, &v) || field_path(e, p + base_n, name_n - base_n, &v))
        return -1;
    if (conversion) {
        struct builder t = eval_builder(e);
        if (conversion != 'r' && conversion != 's')
            return eval_fail(e, "format: the conversion must be !s or !r");
        if ((conversion == 'r' ? print_repr(e, &t, &v) : print_str(e, &t, &v)) || eval_built(e, &t, &v))
            return -1;
    }
    return format_value(e, b, spec, spec_n, &v);
}

int str_format(struct eval *e, const struct string *s, const struct args *args, struct value *out)
{
    struct builder b = eval_builder(e);
    size_t next = 0;
    for (size_t i = 0; i < s->n;) {
        size_t at = i;
        while (at < s->n && s->p[at] != '{' && s->p[at] != '}')
            at++;
        if (eval_take(e, 1 + (at - i) / 64))
            return -1;
        if (builder_slice(&b, s, i, at - i))
            return eval_exhausted(e);
        if (at == s->n)
            break;
        if (at + 1 < s->n && s->p[at + 1] == s->p[at]) {
            if (builder_slice(&b, s, at, 1))
                return eval_exhausted(e);
            i = at + 2;
            continue;
        }
        const char *end = s->p[at] == '{' ? memchr(s->p + at, '}', s->n - at) : NULL;
        if (!end)
            return eval_fail(e, "format: a single '%c' in the string", s->p[at]);
        if (field(e, &b, s->p + at + 1, (size_t)(end - s->p) - at - 1, args, &next))
            return -1;
        i = (size_t)(end - s->p) + 1;
    }
    return eval_built(e, &b, out);
}
