/* Templates and their arguments: no crash, and the judge of shell lines reads a hostile argument as one word. */
#include "ext/template.h"

#include "tools/shell.h"
#include "util/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static size_t commands(const char *line, bool *known)
{
    struct shell_line l;
    shell_read(&l, line);
    size_t n = l.n;
    *known = l.why == NULL;
    shell_free(&l);
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *s = mem_dupn((const char *)data, size);
    const char *nl = strchr(s, '\n');
    struct text args = {0}; /* all nine are there */
    text_printf(&args, "%s x x x x x x x x x", nl ? nl + 1 : "");
    char *body = mem_dupn(s, nl ? (size_t)(nl - s) : strlen(s));
    struct template_part *p = NULL, *q = NULL;
    size_t n, m;
    int rc = template_fill(body, text_str(&args), &p, &n, NULL),
        plain = template_fill(body, "a b c d e f g h i", &q, &m, NULL);
    for (size_t i = 0; rc == 0 && i < n; i++)
        if (!p[i].text || (p[i].kind == TEMPLATE_TEXT && !*p[i].text))
            abort();
    /* With other words the line has as many commands as with plain ones. */
    for (size_t i = 0; rc == 0 && plain == 0 && n == m && i < n; i++) {
        bool a, b;
        if (p[i].kind != TEMPLATE_SHELL || q[i].kind != TEMPLATE_SHELL)
            continue;
        size_t x = commands(p[i].text, &a), y = commands(q[i].text, &b);
        if (a && b && y && x > y) /* an assignment alone is none */
            abort();
    }
    template_free(p, n);
    template_free(q, m);
    text_free(&args);
    free(body);
    free(s);
    return 0;
}
