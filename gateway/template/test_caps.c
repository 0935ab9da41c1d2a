#include "caps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct template_caps caps(const char *text)
{
    struct jinja *t;
    struct vt_err err;
    struct template_caps c;
    if (jinja_parse(&t, text, strlen(text), &err))
        fail_msg("%s", err.text);
    template_caps_find(t, text, strlen(text), &c);
    jinja_free(t);
    return c;
}

static void chatml(void **state)
{
    const struct template_caps c = caps("{% if tools %}{% for t in tools %}{{ t | tojson }}{% endfor %}{% "
                                        "endif %}{% for m in messages %}<|{{ m.role }}|>"
                                        "{{ m.content if m.content else '' }}{% for c in m.tool_calls or [] "
                                        "%}{{ c.function.name }}{% if c.function.arguments is string %}"
                                        "{{ c.function.arguments }}{% else %}{{ c.function.arguments | "
                                        "tojson }}{% endif %}{% endfor %}{% endfor %}"
                                        "{% if enable_thinking is false %}<think></think>{% endif %}");
    assert_true(c.system && c.tools && c.tool_calls && c.thinking_switch);
    assert_false(c.developer || c.parts_only || c.object_arguments || c.null_content);
}

static void objects(void **state)
{
    /* writes JSON: a string would be quoted twice */
    struct template_caps c =
        caps("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
             "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}");
    assert_true(c.tool_calls && c.object_arguments);
    assert_false(c.tools || c.null_content || c.thinking_switch);
    /* walks through the arguments */
    c = caps("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% for k, v in "
             "c.function.arguments.items() %}"
             "{{ k }}={{ v }}{% endfor %}{% endfor %}{% endfor %}");
    assert_true(c.tool_calls && c.object_arguments);
    /* only prints them: a string is right, an object would come out as Python's */
    c = caps("{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.arguments "
             "}}{% endfor %}{% endfor %}");
    assert_true(c.tool_calls);
    assert_false(c.object_arguments);
}

static void null_beside_calls(void **state)
{
    const struct template_caps c = caps("{% for m in messages %}{% if m.role == 'assistant' and m.content is "
                                        "none %}{% for c in m.tool_calls %}"
                                        "{{ c.function.name + c.function.arguments }}{% endfor %}{% else "
                                        "%}{{ m.content }}{% endif %}{% endfor %}");
    assert_true(c.tool_calls && c.null_content);
    assert_false(c.object_arguments);
}

static void parts_of_content(void **state)
{
    const struct template_caps c =
        caps("{% for m in messages %}{% for p in m.content %}{{ p.text + '' }}{% endfor %}{% endfor %}");
    assert_true(c.parts_only && c.system);
    assert_false(c.tool_calls);
}

static void refusals(void **state)
{
    struct template_caps c =
        caps("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
             "{% if m.role == 'developer' %}{% endif %}{{ m.content }}{% endfor %}");
    assert_true(c.developer);
    assert_false(c.system || c.tool_calls || c.tools);
    c = caps("{{ raise_exception('never') }}");
    assert_false(c.system || c.parts_only || c.tools || c.tool_calls || c.thinking_switch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chatml),           cmocka_unit_test(objects),  cmocka_unit_test(null_beside_calls),
        cmocka_unit_test(parts_of_content), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
