/* Values as text: Python's str() and repr(), and JSON as json.dumps() writes it. */
#include "eval.h"
#include "points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t float_repr(double f, char *out)
{
    if (isnan(f))
        return (size_t)sprintf(out, "nan");
    if (isinf(f))
        return (size_t)sprintf(out, f < 0 ? "-inf" : "inf");
    /* the shortest digits that read back as the same number */
    char sci[40];
    int precision = 0;
    do {
        snprintf(sci, sizeof sci, "%.*e", precision, f);
    } while (strtod(sci, NULL) != f && ++precision < 17);
    char *exponent = strchr(sci, 'e');
    const int exp10 = atoi(exponent + 1);
    if (exp10 < -4 || exp10 >= 16) {
        const int n = (int)(exponent - sci);
        return (size_t)sprintf(out, "%.*se%c%02d", n, sci, exp10 < 0 ? '-' : '+', exp10 < 0 ? -exp10 : exp10);
    }
    const int decimals = precision > exp10 ? precision - exp10 : 1;
    return (size_t)sprintf(out, "%.*f", decimals, f);
}

static int text(struct eval *e, struct builder *b, const char *s)
{
    return builder_text(b, s) ? eval_exhausted(e) : 0;
}

static int number(struct eval *e, struct builder *b, const struct value *v)
{
    char buf[48];
    size_t n;
    if (v->type == V_INT)
        n = (size_t)snprintf(buf, sizeof buf, "%lld", (long long)v->i);
    else
        n = float_repr(v->f, buf);
    return builder_add(b, buf, n, false) ? eval_exhausted(e) : 0;
}

static int repr_char(struct builder *b, uint32_t cp, const char *p, size_t n, char quote, bool input)
{
    char buf[12];
    if (cp == (unsigned char)quote || cp == '\\') {
        buf[0] = '\\';
        buf[1] = (char)cp;
        return builder_add(b, buf, 2, input);
    }
    if (cp == '\n' || cp == '\r' || cp == '\t') {
        buf[0] = '\\';
        buf[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't';
        return builder_add(b, buf, 2, input);
    }
    if (point_is_printable(cp))
        return builder_add(b, p, n, input);
    const int len = snprintf(buf, sizeof buf,
                             cp < 0x100     ? "\\x%02x"
                             : cp < 0x10000 ? "\\u%04x"
                                            : "\\U%08x",
                             cp);
    return builder_add(b, buf, (size_t)len, input);
}

static int repr_string(struct eval *e, struct builder *b, const struct string *s)
{
    const char quote = memchr(s->p, '\'', s->n) && !memchr(s->p, '"', s->n) ? '"' : '\'';
    if (eval_take(e, s->n / 16))
        return -1;
    if (builder_add(b, &quote, 1, false))
        return eval_exhausted(e);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        const size_t n = point_get(s->p + i, s->n - i, &cp);
        if (repr_char(b, cp, s->p + i, n, quote, string_input_at(s, i)))
            return eval_exhausted(e);
        i += n;
    }
    return builder_add(b, &quote, 1, false) ? eval_exhausted(e) : 0;
}

static int repr_list(struct eval *e, struct builder *b, const struct list *l)
{
    static const char *const open[] = {"[", "(", "[", "dict_keys([", "dict_values([", "dict_items([", "["};
    static const char *const close[] = {"]", ")", "]", "])", "])", "])", "]"};
    if (text(e, b, open[l->kind]))
        return -1;
    for (size_t i = 0; i < l->n; i++)
        if ((i && text(e, b, ", ")) || print_repr(e, b, &l->v[i]))
            return -1;
    if (l->kind == L_TUPLE && l->n == 1 && text(e, b, ","))
        return -1;
    return text(e, b, close[l->kind]);
}

static int repr_dict(struct eval *e, struct builder *b, const struct dict *d)
{
    if (text(e, b, "{"))
        return -1;
    for (size_t i = 0; i < d->n; i++)
        if ((i && text(e, b, ", ")) || print_repr(e, b, &d->v[i].key) || text(e, b, ": ") ||
            print_repr(e, b, &d->v[i].value))
            return -1;
    return text(e, b, "}");
}

int print_repr(struct eval *e, struct builder *b, const struct value *v)
{
    if (eval_take(e, 1))
        return -1;
    switch ((enum value_type)v->type) {
    case V_UNDEFINED: return text(e, b, "Undefined");
    case V_NONE: return text(e, b, "None");
    case V_BOOL: return text(e, b, v->b ? "True" : "False");
    case V_INT:
    case V_FLOAT: return number(e, b, v);
    case V_STRING: return repr_string(e, b, v->s);
    case V_FUNC: return text(e, b, "<function>");
    case V_LOOP: return text(e, b, "<loop>");
    case V_LIST:
    case V_DICT:
    case V_NAMESPACE: break;
    }
    if (eval_enter(e) || (v->type == V_NAMESPACE && text(e, b, "<Namespace ")))
        return -1;
    int rc = v->type == V_LIST ? repr_list(e, b, v->l) : repr_dict(e, b, v->d);
    if (rc == 0 && v->type == V_NAMESPACE)
        rc = text(e, b, ">");
    eval_leave(e);
    return rc;
}

int print_str(struct eval *e, struct builder *b, const struct value *v)
{
    if (v->type == V_STRING)
        return builder_string(b, v->s) ? eval_exhausted(e) : eval_take(e, v->s->n / 64);
    return v->type == V_UNDEFINED ? 0 : print_repr(e, b, v);
}

/* ---- JSON ---- */

struct json {
    struct eval *e;
    struct builder *b;
    const struct json_style *style;
    int level;
};

static int json_value(struct json *j, const struct value *v);

static int json_char(struct json *j, uint32_t cp, const char *p, size_t n, bool input)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    char buf[16];
    const char *simple = cp && cp < 128 ? strchr(from, (int)cp) : NULL;
    if (simple) {
        buf[0] = '\\';
        buf[1] = to[simple - from];
        return builder_add(j->b, buf, 2, input);
    }
    int len = 0;
    if (cp < 0x20 || (j->style->ascii && cp >= 0x7F && cp < 0x10000))
        len = snprintf(buf, sizeof buf, "\\u%04x", cp);
    else if (j->style->ascii && cp >= 0x10000)
        len = snprintf(buf, sizeof buf, "\\u%04x\\u%04x", 0xD800 + ((cp - 0x10000) >> 10),
                       0xDC00 + ((cp - 0x10000) & 0x3FF));
    return len ? builder_add(j->b, buf, (size_t)len, input) : builder_add(j->b, p, n, input);
}

static int json_string(struct json *j, const struct string *s)
{
    if (eval_take(j->e, s->n / 16))
        return -1;
    if (builder_text(j->b, "\""))
        return eval_exhausted(j->e);
    for (size_t i = 0; i < s->n;) {
        uint32_t cp;
        const size_t n = point_get(s->p + i, s->n - i, &cp);
        if (json_char(j, cp, s->p + i, n, string_input_at(s, i)))
            return eval_exhausted(j->e);
        i += n;
    }
    return builder_text(j->b, "\"") ? eval_exhausted(j->e) : 0;
}

/* The break before an item, or before the closing bracket. */
static int json_break(struct json *j)
{
    if (j->style->indent < 0)
        return 0;
    if (text(j->e, j->b, "\n"))
        return -1;
    for (int i = 0; i < j->level * j->style->indent; i++)
        if (text(j->e, j->b, " "))
            return -1;
    return 0;
}

static int json_list(struct json *j, const struct list *l)
{
    if (l->n == 0)
        return text(j->e, j->b, "[]");
    if (text(j->e, j->b, "["))
        return -1;
    j->level++;
    for (size_t i = 0; i < l->n; i++)
        if ((i && text(j->e, j->b, j->style->item_separator)) || json_break(j) || json_value(j, &l->v[i]))
            return -1;
    j->level--;
    return json_break(j) || text(j->e, j->b, "]") ? -1 : 0;
}

static int json_key(struct json *j, const struct value *k)
{
    if (k->type == V_STRING)
        return json_string(j, k->s);
    if (k->type == V_LIST || k->type == V_UNDEFINED)
        return eval_fail(j->e, "a %s cannot be a key in JSON", value_type_name(k));
    return text(j->e, j->b, "\"") || json_value(j, k) || text(j->e, j->b, "\"") ? -1 : 0;
}

static int by_key(const void *a, const void *b)
{
    const struct pair *const *x = a, *const *y = b;
    const struct string *s = (*x)->key.s, *t = (*y)->key.s;
    const size_t n = s->n < t->n ? s->n : t->n;
    const int c = n ? memcmp(s->p, t->p, n) : 0;
    return c ? c : (s->n > t->n) - (s->n < t->n);
}

static int json_dict(struct json *j, const struct dict *d)
{
    if (d->n == 0)
        return text(j->e, j->b, "{}");
    const struct pair **order = arena_alloc(&j->e->arena, d->n * sizeof *order);
    if (!order)
        return eval_exhausted(j->e);
    for (size_t i = 0; i < d->n; i++) {
        order[i] = &d->v[i];
        if (j->style->sort && d->v[i].key.type != V_STRING)
            return eval_fail(j->e, "keys that are not strings cannot be sorted");
    }
    if (j->style->sort)
        qsort(order, d->n, sizeof *order, by_key);
    if (text(j->e, j->b, "{"))
        return -1;
    j->level++;
    for (size_t i = 0; i < d->n; i++)
        if ((i && text(j->e, j->b, j->style->item_separator)) || json_break(j) ||
            json_key(j, &order[i]->key) || text(j->e, j->b, j->style->key_separator) ||
            json_value(j, &order[i]->value))
            return -1;
    j->level--;
    return json_break(j) || text(j->e, j->b, "}") ? -1 : 0;
}

static int json_value(struct json *j, const struct value *v)
{
    if (eval_take(j->e, 1))
        return -1;
    switch ((enum value_type)v->type) {
    case V_NONE: return text(j->e, j->b, "null");
    case V_BOOL: return text(j->e, j->b, v->b ? "true" : "false");
    case V_INT: return number(j->e, j->b, v);
    case V_FLOAT:
        if (isnan(v->f) || isinf(v->f))
            return text(j->e, j->b, isnan(v->f) ? "NaN" : v->f < 0 ? "-Infinity" : "Infinity");
        return number(j->e, j->b, v);
    case V_STRING: return json_string(j, v->s);
    case V_LIST:
        if (v->l->kind > L_TUPLE)
            break;
        /* fall through */
    case V_DICT: {
        if (eval_enter(j->e))
            return -1;
        const int rc = v->type == V_LIST ? json_list(j, v->l) : json_dict(j, v->d);
        eval_leave(j->e);
        return rc;
    }
    default: break;
    }
    return eval_fail(j->e, "Object of type %s is not JSON serializable", value_type_name(v));
}

int print_json(struct eval *e, struct builder *b, const struct value *v, const struct json_style *style)
{
    struct json j = {e, b, style, 0};
    return json_value(&j, v);
}
