/* Test program: reads {"template": …, "vars": …, "trusted": …, "limits": {…}, "now": seconds} a line and writes {"out": …,
 * "spans": [[end, input], …]} or {"error": …} a line. */
#include "../json_lines.h"
#include "jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *answer(const json_t *q)
{
    struct vt_err err = {0};
    struct jinja *t = NULL;
    struct jinja_text r;
    const json_t *text = json_object_get(q, "template"), *l = json_object_get(q, "limits");
    const struct jinja_limits lim = {.steps = (uint64_t)json_integer_value(json_object_get(l, "steps")),
                                     .output = (size_t)json_integer_value(json_object_get(l, "output")),
                                     .memory = (size_t)json_integer_value(json_object_get(l, "memory")),
                                     .depth = (unsigned)json_integer_value(json_object_get(l, "depth"))};
    const uint64_t now = (uint64_t)json_integer_value(json_object_get(q, "now")) * 1000000u;
    if (!json_is_string(text))
        return NULL;
    json_t *a = json_object();
    if (jinja_parse(&t, json_string_value(text), json_string_length(text), &err) ||
        jinja_render_spans(t, json_object_get(q, "vars"), json_object_get(q, "trusted"), &lim, now, &r,
                           &err)) {
        json_object_set_new(a, "error", json_string(err.text));
        jinja_free(t);
        return a;
    }
    json_object_set_new(a, "out", json_stringn(r.text, r.len));
    json_t *spans = json_array();
    for (size_t i = 0; i < r.n_spans; i++)
        json_array_append_new(spans, json_pack("[I,b]", (json_int_t)r.spans[i].end, r.spans[i].input));
    json_object_set_new(a, "spans", spans);
    jinja_text_fini(&r);
    jinja_free(t);
    return a;
}

int main(void)
{
    return json_lines("jinja_cli", answer);
}
