/* Filters that bring text into the form of something else: URLs, attributes, sizes. */
#include "filters.h"

#include "points.h"

#include <stdio.h>
#include <string.h>

static bool unreserved(char c)
{
    return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') || (c && strchr("_.-~", c));
}

/* Percent-encodes s; in a query a space is '+' and a slash is encoded as well. */
static int quote(struct eval *e, struct builder *b, const struct value *v, bool query)
{
    const struct string *s;
    if (arg_text(e, v, &s) || eval_take(e, 1 + s->n / 8))
        return -1;
    for (size_t i = 0; i < s->n; i++) {
        char hex[4];
        const char c = s->p[i];
        snprintf(hex, sizeof hex, "%%%02X", (unsigned char)c);
        const bool as_is = unreserved(c) || (c == '/' && !query);
        const char *to = as_is ? &s->p[i] : query && c == ' ' ? "+" : hex;
        if (builder_add(b, to, to == hex ? 3 : 1, string_input_at(s, i)))
            return eval_exhausted(e);
    }
    return 0;
}

static int quote_pair(struct eval *e, struct builder *b, bool first, const struct value *key,
                      const struct value *v)
{
    if (!first && builder_text(b, "&"))
        return eval_exhausted(e);
    if (quote(e, b, key, true))
        return -1;
    if (builder_text(b, "="))
        return eval_exhausted(e);
    return quote(e, b, v, true);
}

int filter_urlencode(struct eval *e, const struct args *args, struct value *out)
{
    const struct value *v = &args->v[0];
    struct builder b = eval_builder(e);
    if (args->n != 1 || args->n_kw)
        return eval_fail(e, "urlencode takes no arguments");
    if (v->type == V_DICT) {
        for (size_t i = 0; i < v->d->n; i++)
            if (quote_pair(e, &b, i == 0, &v->d->v[i].key, &v->d->v[i].value))
                return -1;
    } else if (v->type == V_LIST) {
        for (size_t i = 0; i < v->l->n; i++) {
            const struct list *pair;
            if (eval_items(e, &v->l->v[i], &pair))
                return -1;
            if (pair->n != 2)
                return eval_fail(e, "urlencode takes pairs of a name and a value");
            if (quote_pair(e, &b, i == 0, &pair->v[0], &pair->v[1]))
                return -1;
        }
    } else if (v->type != V_UNDEFINED && quote(e, &b, v, false)) {
        return -1;
    }
    return eval_built(e, &b, out);
}

static int escaped(struct eval *e, struct builder *b, const struct value *v)
{
    struct value in = *v, text;
    const struct args one = {.v = &in, .n = 1};
    if (filter_escape(e, &one, &text))
        return -1;
    return builder_string(b, text.s) ? eval_exhausted(e) : 0;
}

static int attribute(struct eval *e, struct builder *b, bool space, const struct pair *p)
{
    const struct string *name;
    if (arg_string(e, "the name of an attribute", &p->key, &name))
        return -1;
    for (size_t i = 0; i < name->n; i++)
        if (name->p[i] == 0 || strchr(" \t\n\r\v\f/>=", name->p[i]))
            return eval_fail(e, "invalid character in the name of an attribute");
    if ((space && builder_text(b, " ")) || escaped(e, b, &p->key))
        return eval_exhausted(e);
    if (builder_text(b, "=\""))
        return eval_exhausted(e);
    if (escaped(e, b, &p->value))
        return -1;
    return builder_text(b, "\"") ? eval_exhausted(e) : 0;
}

int filter_xmlattr(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"d", "autospace"};
    const struct value *v[2];
    struct builder b = eval_builder(e);
    if (eval_bind(e, "xmlattr", args, names, 2, 1, v))
        return -1;
    if (v[0]->type != V_DICT)
        return eval_fail(e, "xmlattr needs a mapping, not %s", value_type_name(v[0]));
    const bool lead = !v[1] || value_truth(v[1]);
    for (size_t i = 0; i < v[0]->d->n; i++) {
        const struct pair *p = &v[0]->d->v[i];
        if (p->value.type == V_NONE || p->value.type == V_UNDEFINED)
            continue;
        if (attribute(e, &b, lead || b.n > 0, p))
            return -1;
    }
    return eval_built(e, &b, out);
}

int filter_filesizeformat(struct eval *e, const struct args *args, struct value *out)
{
    static const char *const names[] = {"value", "binary"};
    static const char prefixes[] = "kMGTPEZY";
    const struct value *v[2];
    struct value number;
    struct builder b = eval_builder(e);
    char text[400];
    if (eval_bind(e, "filesizeformat", args, names, 2, 1, v))
        return -1;
    struct value in = *v[0];
    const struct args one = {.v = &in, .n = 1};
    if (filter_float(e, &one, &number))
        return -1;
    const bool binary = v[1] && value_truth(v[1]);
    const double base = binary ? 1024 : 1000, bytes = number.f;
    if (bytes == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (bytes < base) {
        snprintf(text, sizeof text, "%.0f Bytes",
                 bytes < 0 ? -(double)(int64_t)-bytes : (double)(int64_t)bytes);
    } else {
        double unit = base * base;
        size_t i = 0;
        for (; i + 1 < sizeof prefixes - 1 && bytes >= unit; i++)
            unit *= base;
        const char c = binary && i == 0 ? 'K' : prefixes[i];
        snprintf(text, sizeof text, "%.1f %c%s", base * bytes / unit, c, binary ? "iB" : "B");
    }
    return builder_text(&b, text) ? eval_exhausted(e) : eval_built(e, &b, out);
}
