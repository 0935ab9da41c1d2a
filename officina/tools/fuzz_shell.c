/* The shell reader: it ends, never reads beyond, and what it calls "only reads" has no operator that it
 * overlooked: every command word that stands first in the line or behind an operator, outside of quotes, is
 * among the parts. */
#include "tools/shell.h"

#include "util/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct shell_line l, with;
    if (size > 4096 || memchr(data, 0, size))
        return 0;
    char *s = mem_dupn((const char *)data, size);
    shell_read(&l, s);
    for (size_t i = 0; i < l.n; i++) {
        char *words = shell_words(&l.parts[i]);
        if (shell_reads(&l.parts[i]) && l.parts[i].why)
            abort();
        shell_why_not(&l.parts[i]);
        free(words);
    }
    /* a line that can be read stays readable with a further command behind it, and that one is seen */
    struct text t = {0};
    text_printf(&t, "%s\nrm fuzz-mark", s);
    shell_read(&with, text_str(&t));
    bool seen = with.why != NULL;
    for (size_t i = 0; i < with.n; i++)
        seen = seen || (with.parts[i].argc == 2 && strcmp(with.parts[i].argv[1], "fuzz-mark") == 0);
    bool comment_or_escape = size && (s[size - 1] == '\\' || strstr(s, "<<"));
    if (!l.why && !seen && !comment_or_escape)
        abort();
    text_free(&t);
    shell_free(&l);
    shell_free(&with);
    free(s);
    return 0;
}
