#include "jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int render(const char *text, size_t n, const char *vars, const struct jinja_limits *lim, char **out,
                  struct vt_err *err)
{
    struct jinja *t;
    size_t len;
    *out = NULL;
    err->text[0] = 0;
    if (jinja_parse(&t, text, n, err))
        return -1;
    json_t *v = json_loads(vars ? vars : "{}", 0, NULL);
    assert_non_null(v);
    const int rc = jinja_render(t, v, lim, 1700000000000000u, out, &len, err);
    json_decref(v);
    jinja_free(t);
    return rc;
}

static void gives(const char *text, const char *vars, const char *want)
{
    char *out;
    struct vt_err err;
    if (render(text, strlen(text), vars, NULL, &out, &err))
        fail_msg("%s: %s", text, err.text);
    if (strcmp(out, want) != 0)
        fail_msg("%s gives '%s', not '%s'", text, out, want);
    free(out);
}

static void fails(const char *text, const char *vars, const char *part)
{
    char *out;
    struct vt_err err;
    assert_int_equal(render(text, strlen(text), vars, NULL, &out, &err), -1);
    assert_int_equal(err.code, VT_E_PARAM);
    if (!strstr(err.text, part))
        fail_msg("%s: '%s' does not mention '%s'", text, err.text, part);
}

static void white_space(void **state)
{
    gives("a\n", NULL, "a");
    gives("a\n\n", NULL, "a\n");
    gives("a\r\nb\r", NULL, "a\nb");
    gives("  {% if true %}\nx\n  {% endif %}\ny", NULL, "x\ny");
    gives("a {%- if true -%} b {%- endif -%} c", NULL, "abc");
    gives("  {%+ if true %}x{% endif +%}\nz", NULL, "  x\nz");
    gives("{{ 1 }}\n{{- 2 }}", NULL, "12");
    gives("a\n  {# c #}\nb", NULL, "a\nb");
    gives("{% raw %}{{ x }}{% endraw %}", NULL, "{{ x }}");
    gives("{{ '}}' }}{{ {'a': {'b': 1}}.a.b }}", NULL, "}}1");
}

static void expressions(void **state)
{
    gives("{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }}", NULL,
          "6 3.5 -4 2 1024");
    gives("{{ 1 < 2 < 3 }} {{ not 1 == 2 }} {{ 'a' in 'cat' }} {{ 4 not in [1] }}", NULL,
          "True True True True");
    gives("{{ 'x' ~ 1 ~ none ~ 1.0 }} {{ 'a' if false else 'b' }} {{ ('a' if false) is defined }}", NULL,
          "x1None1.0 b False");
    gives("{{ [1, 'a', true, none, 2.5, (1,), {'k': []}] }}", NULL,
          "[1, 'a', True, None, 2.5, (1,), {'k': []}]");
    gives("{{ 'Hello'[1:3] }} {{ 'Hello'[::-1] }} {{ [1,2,3][-1] }} {{ 'h\303\251y'[1] }}", NULL,
          "el olleH 3 \303\251");
    gives("{{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 100.0 }}", NULL, "1e+16 0.30000000000000004 1e-05 100.0");
    gives("{{ \"it's\" | string }} {{ [\"it's\", '\"'] }}", NULL, "it's [\"it's\", '\"']");
}

static void filters_and_tests(void **state)
{
    static const char vars[] = "{\"m\": [{\"r\": \"u\", \"c\": \"x\"}, {\"r\": \"a\", \"c\": \"y\"}], \"d\": "
                               "{\"b\": 1, \"a\": [2]}}";
    gives("{{ m | selectattr('r', 'equalto', 'u') | map(attribute='c') | list }}", vars, "['x']");
    gives("{{ m | rejectattr('r', 'in', ['u']) | list | length }}", vars, "1");
    gives("{{ d | tojson }} {{ d | tojson(indent=1) }} {{ d | dictsort }}", vars,
          "{\"b\": 1, \"a\": [2]} {\n \"b\": 1,\n \"a\": [\n  2\n ]\n} [('a', [2]), ('b', 1)]");
    gives("{{ '<&>' | tojson }} {{ '<' | e }} {{ d | items | list }}", vars,
          "\"<&>\" &lt; [('b', 1), ('a', [2])]");
    gives("{{ x | default('q') }} {{ '' | d('q', true) }} {{ ' a ' | trim }} {{ 'ab' | replace('a', 'c') }}",
          vars, "q q a cb");
    gives("{{ [3,1,2] | sort | join(',') }} {{ [1,2] | sum }} {{ 2.5 | round }} {{ '7' | int + 1 }}", vars,
          "1,2,3 3 2.0 8");
    gives("{{ 4 is divisibleby 2 }} {{ x is undefined }} {{ d is mapping }} {{ 's' is sequence }} {{ none is "
          "none }}",
          vars, "True True True True True");
    gives("{% for g, l in m | groupby('r') %}{{ g }}{{ l | length }}{% endfor %}", vars, "a1u1");
}

static void statements(void **state)
{
    gives("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{{ loop.last }}{% else %}no{% endfor %}", NULL,
          "a1True");
    gives("{% for x in range(9) if x is odd %}{% if x == 7 %}{% break %}{% endif %}{{ loop.index0 }}{{ x }} "
          "{% endfor %}",
          NULL, "01 13 25 ");
    gives("{% set ns = namespace(n=0) %}{% for x in [1,2] %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
          NULL, "3");
    gives("{% set x = 1 %}{% for i in [2] %}{% set x = i %}{% endfor %}{{ x }}", NULL, "1");
    gives("{% macro f(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}{% call f(3, "
          "b=4) %}!{% endcall %}",
          NULL, "1234!");
    gives("{% set x | upper %}a{% endset %}{{ x }}{% filter upper %}b{% endfilter %}{% with y = 5 %}{{ y "
          "}}{% endwith %}",
          NULL, "AB5");
    gives("{% generation %}kept{% endgeneration %}", NULL, "kept");
    gives("{% set l = [] %}{% set _ = l.append(1) %}{{ l }}", NULL, "[1]");
    gives("{% for n in [{'c': [{'c': []}]}] recursive %}({{ loop.depth }}{{ loop(n.c) }}){% endfor %}", NULL,
          "(1(2))");
}

static void undefined(void **state)
{
    gives("[{{ nope }}]{{ nope is defined }}{% if nope %}x{% endif %}{% for i in nope %}{% endfor %}", NULL,
          "[]False");
    fails("{{ nope.x }}", NULL, "'nope' is undefined");
    fails("{{ nope + 1 }}", NULL, "'nope' is undefined");
    fails("{{ nope() }}", NULL, "'nope' is undefined");
    gives("{{ {}.x is defined }}", NULL, "False");
    fails("{{ {}.x.y }}", NULL, "'x' is undefined");
}

static void messages(void **state)
{
    char *out;
    struct vt_err err;
    static const char raise[] = "{{ raise_exception('roles must alternate') }}";
    assert_int_equal(render(raise, strlen(raise), NULL, NULL, &out, &err), -1);
    assert_string_equal(err.text, "roles must alternate");
    fails("a\n  {{ 1 / 0 }}", NULL, "line 2, column 10");
    fails("{% if x %}", NULL, "ends before {% elif %}");
    fails("\n{% foo %}", NULL, "line 2, column 4: 'foo' is not a statement");
    fails("{{ 'abc }}", NULL, "a string has no end");
    fails("{{ (1 }}", NULL, "expected ')'");
    fails("{# x", NULL, "{# without #}");
    fails("{{ 1 | nofilter }}", NULL, "no filter named 'nofilter'");
    fails("{{ 1 is notest }}", NULL, "no test named 'notest'");
    fails("{% break %}", NULL, "outside of a loop");
    fails("{% for x in [1] %}{% set y %}{% break %}{% endset %}{% endfor %}", NULL, "break cannot leave");
    fails("{{ {[1]: 2} }}", NULL, "a list cannot be a key");
    fails("{{ 9223372036854775807 + 1 }}", NULL, "64 bits");
    fails("{% set x.y = 1 %}", NULL, "no namespace");
    fails("{% include 'x' %}", NULL, "'include' is not a statement");
    fails("\xFF", NULL, "not UTF-8 at byte 0");
}

/* NUL is a character like any other. */
static void nul_bytes(void **state)
{
    static const char *const texts[] = {"{{ '%.2_' % 1 }}",
                                        "{{ '%_' % 1 }}",
                                        "{{ 0_1 }}",
                                        "{{ 'a_b' }}",
                                        "{{ '\\_' }}",
                                        "{%_%}",
                                        "_",
                                        "{{_}}",
                                        "{{ 'a_b' | tojson }}",
                                        "{{ 'a_b' | int }}",
                                        "{{ '1_' | float }}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[64], *out;
        struct vt_err err;
        const size_t n = strlen(texts[i]);
        for (size_t k = 0; k < n; k++)
            text[k] = texts[i][k] == '_' ? 0 : texts[i][k];
        if (render(text, n, NULL, NULL, &out, &err) == 0)
            free(out);
        else
            assert_int_equal(err.code, VT_E_PARAM);
    }
}

static void time_of_day(void **state)
{
    setenv("TZ", "UTC", 1);
    gives("{{ strftime_now('%Y-%m-%d %H:%M') }}", NULL, "2023-11-14 22:13");
}

static char *repeated(const char *unit, size_t times, size_t *n)
{
    const size_t len = strlen(unit);
    char *s = malloc(len * times + 1);
    assert_non_null(s);
    for (size_t i = 0; i < times; i++)
        memcpy(s + i * len, unit, len);
    *n = len * times;
    s[*n] = 0;
    return s;
}

/* Nesting without end is refused while parsing, not by the end of the stack. */
static void deep_text(void **state)
{
    static const char *const units[] = {"(",
                                        "[",
                                        "{1:",
                                        "-",
                                        "not ",
                                        "x[",
                                        "x(",
                                        "{% if 1 %}",
                                        "{% for x in y %}",
                                        "1 if 1 else ",
                                        "{% macro m() %}",
                                        "{% set x %}",
                                        "1|f(",
                                        "x is y("};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        const bool tag = units[i][0] == '{' && units[i][1] == '%';
        size_t n;
        char *body = repeated(units[i], 1000000 / strlen(units[i]), &n), *out;
        if (!tag && n > 3)
            memcpy(body, "{{ ", 3);
        struct vt_err err;
        assert_int_equal(render(body, n, NULL, NULL, &out, &err), -1);
        assert_int_equal(err.code, VT_E_PARAM);
        free(body);
    }
}

/* Long chains are no nesting. */
static void long_text(void **state)
{
    static const struct {
        const char *head, *unit, *tail, *want;
    } cases[] = {
        {"{{ 0", " + 1", " }}", "2000"},       {"{{ 'a'", "|upper|lower", " }}", "a"},
        {"{{ 1", " and 1", " }}", "1"},        {"{% if 0 %}", "{% elif 0 %}", "{% else %}x{% endif %}", "x"},
        {"{{ [", "1,", "]|length }}", "2000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        char *units = repeated(cases[i].unit, 2000, &n);
        char *text = malloc(n + 100);
        sprintf(text, "%s%s%s", cases[i].head, units, cases[i].tail);
        gives(text, NULL, cases[i].want);
        free(text);
        free(units);
    }
}

static void stops(const char *text, const char *vars, struct jinja_limits lim, const char *part)
{
    char *out;
    struct vt_err err;
    assert_int_equal(render(text, strlen(text), vars, &lim, &out, &err), -1);
    assert_int_equal(err.code, VT_E_PARAM);
    if (!strstr(err.text, part))
        fail_msg("%s: '%s' does not mention '%s'", text, err.text, part);
}

static void limits(void **state)
{
    static const struct jinja_limits few = {.steps = 10000}, small = {.output = 1000},
                                     poor = {.memory = 1 << 20}, flat = {.depth = 20};
    stops("{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}", NULL, few,
          "10000 steps");
    stops("{{ range(1000000000) }}", NULL, few, "10000 steps");
    stops("{{ [0] * 1000000000 }}", NULL, few, "10000 steps");
    stops("{{ 'x' * 1000000000 }}", NULL, few, "10000 steps");
    stops("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", NULL, (struct jinja_limits){0}, "levels deep");
    stops("{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}", NULL, flat, "levels deep");
    stops("{% for i in range(100) %}0123456789ABCDEF{% endfor %}", NULL, small, "longer than 1000 bytes");
    stops("{% set x %}{% for i in range(100) %}0123456789ABCDEF{% endfor %}{% endset %}", NULL, small,
          "longer than 1000 bytes");
    stops("{% set ns = namespace(s='0123456789') %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% "
          "endfor %}",
          NULL, poor, "bytes of memory");
    stops("{{ 'x'.ljust(100000000) }}", NULL, poor, "bytes of memory");
    stops("{{ ('x' * 1000) | replace('', 'y' * 10000) }}", NULL, poor, "bytes of memory");
    stops("{% set s = 'a' * 100000 %}{{ s.rfind('b' ~ s) }}{{ s.rfind(s ~ 'b') }}{{ s[1:].rfind('b' ~ s[2:]) "
          "}}",
          NULL, (struct jinja_limits){.steps = 1000000}, "1000000 steps");
    /* nested values: built level by level, then walked */
    static const char nest[] =
        "{% set ns = namespace(l=[]) %}{% for i in range(5000) %}{% set ns.l = [ns.l] %}{% endfor %}";
    char text[600];
    static const char *const walks[] = {"{{ ns.l }}", "{{ ns.l | tojson }}", "{{ ns.l == [ns.l] }}",
                                        "{{ ns.l < [ns.l] }}", "{{ {} if ns.l in [[ns.l]] }}"};
    for (size_t i = 0; i < sizeof walks / sizeof *walks; i++) {
        snprintf(text, sizeof text, "%s%s", nest, walks[i]);
        stops(text, NULL, (struct jinja_limits){0}, "levels deep");
    }
    /* shared values: small to build, endless to walk */
    static const char twice[] =
        "{% set ns = namespace(l=[], m=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% set ns.m = [ns.m, ns.m] %}{% endfor %}";
    static const char *const share[] = {"{{ ns.l == ns.m }}", "{{ ns.l | tojson | length }}",
                                        "{{ ns.l | string | length }}"};
    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
        snprintf(text, sizeof text, "%s%s", twice, share[i]);
        stops(text, NULL, (struct jinja_limits){.steps = 100000}, "100000 steps");
    }
    /* a list inside itself */
    stops("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", NULL, (struct jinja_limits){0}, "levels deep");
}

/* Every amount of memory: an answer or a clear refusal, never a crash. */
static void any_memory(void **state)
{
    static const char text[] = "{% macro f(a, b='x') %}{{ a ~ b }}{% endmacro %}{% for m in ms | "
                               "sort(attribute='k') if m.k > 1 %}{{ f(m.k, b=m) }}"
                               "{{ m | tojson(indent=2) }}{{ 'a,b'.split(',') | map('upper') | join('-') "
                               "}}{{ loop.index }}{% endfor %}";
    for (size_t memory = 65536; memory < 300000; memory += 4096) {
        char *out;
        struct vt_err err;
        const struct jinja_limits lim = {.memory = memory};
        if (render(text, strlen(text), "{\"ms\": [{\"k\": 3}, {\"k\": 1}, {\"k\": 2, \"z\": \"abc\"}]}", &lim,
                   &out, &err) == 0) {
            assert_non_null(strstr(out, "\"z\": \"abc\""));
            free(out);
        }
    }
}

/* Which bytes came from the client. */
static void marks(const char *text, const char *vars, const char *trusted, const char *want_text,
                  const char *want_marks)
{
    struct jinja *t;
    struct jinja_text r;
    struct vt_err err;
    char shown[500] = {0};
    assert_int_equal(jinja_parse(&t, text, strlen(text), &err), 0);
    json_t *v = json_loads(vars, 0, NULL), *w = trusted ? json_loads(trusted, 0, NULL) : NULL;
    if (jinja_render_spans(t, v, w, NULL, 0, &r, &err))
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(r.text, want_text);
    size_t at = 0;
    for (size_t i = 0; i < r.n_spans; i++) {
        assert_true(r.spans[i].end > at);
        memset(shown + at, r.spans[i].input ? 'i' : '.', r.spans[i].end - at);
        at = r.spans[i].end;
    }
    assert_int_equal(at, r.len);
    if (strcmp(shown, want_marks) != 0)
        fail_msg("%s: marks are %s, not %s", text, shown, want_marks);
    jinja_text_fini(&r);
    json_decref(v);
    json_decref(w);
    jinja_free(t);
}

static void provenance(void **state)
{
    static const char v[] = "{\"m\": {\"role\": \"user\", \"content\": \" a<b \"}, \"x\": \"pq,r\"}";
    marks("<{{ m.role }}>{{ m.content | trim }}</>", v, NULL, "<user>a<b</>", ".iiii.iii...");
    marks("{{ '<' + m.role + '>' + m.content }}", v, NULL, "<user> a<b ", ".iiii.iiiii");
    marks("{{ ('<' ~ x ~ '>')[1:] }}", v, NULL, "pq,r>", "iiii.");
    marks("{{ ('[' + x + ']').split(',') | join('|') }}", v, NULL, "[pq|r]", ".ii.i.");
    marks("{{ ('-' + x) | upper }}{{ 'lit' | replace('i', x) }}", v, NULL, "-PQ,Rlpq,rt", ".iiii.iiii.");
    marks("{{ x | replace(',', '--') }}", v, NULL, "pq--r", "ii..i");
    marks("{{ {'k': x} | tojson }}", v, NULL, "{\"k\": \"pq,r\"}", ".......iiii..");
    marks("{% set b %}({{ x }}){% endset %}{{ b }}{{ b | length }}", v, NULL, "(pq,r)6", ".iiii..");
    marks("{{ bos }}{{ x }}", v, "{\"bos\": \"<s>\"}", "<s>pq,r", "...iiii");
    marks("{% for k in m %}{{ k }}{% endfor %}", v, NULL, "rolecontent", "iiiiiiiiiii");
    marks("{{ x[::-1] }}{{ '%s!' % x }}{{ x | indent }}{{ ['a', x] }}", v, NULL, "r,qppq,r!pq,r['a', 'pq,r']",
          "iiiiiiii.iiii.......iiii..");
    marks("", v, NULL, "", "");
}

/* Work that grows faster than the text would hang the process: the steps must count it. */
static void no_slow_text(void **state)
{
    gives("{{ ('-' * 300000)|wordwrap(7)|length }}", NULL, "342857");
    gives("{{ ('a-b--' * 60000)|wordwrap(7)|length > 300000 }}", NULL, "True");
    fails("{% set x = range(300000)|list %}{% for i in range(300000) %}{% set _ = x.pop(0) %}{% endfor %}",
          NULL, "steps");
}

static void list_pop(void **state)
{
    gives("{% set x = [1, 2, 3] %}{{ x.pop(0) }}{{ x.pop() }}{{ x }}", NULL, "13[2]");
    fails("{{ [].pop() }}", NULL, "no such item");
    fails("{{ [1].pop(1) }}", NULL, "no such item");
    gives("{% set x = [1, 2] %}{% for i in x %}{{ i }}{% set _ = x.pop() %}{% endfor %}", NULL, "1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(white_space), cmocka_unit_test(expressions),  cmocka_unit_test(filters_and_tests),
        cmocka_unit_test(statements),  cmocka_unit_test(undefined),    cmocka_unit_test(messages),
        cmocka_unit_test(time_of_day), cmocka_unit_test(nul_bytes),    cmocka_unit_test(deep_text),
        cmocka_unit_test(long_text),   cmocka_unit_test(limits),       cmocka_unit_test(any_memory),
        cmocka_unit_test(provenance),  cmocka_unit_test(no_slow_text), cmocka_unit_test(list_pop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
