#include "json_lines.h"

#include <stdio.h>
#include <stdlib.h>

int json_lines(const char *program, json_t *(*answer)(const json_t *question))
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int code = 0;
    while (code == 0 && (n = getline(&line, &cap, stdin)) > 0) {
        json_t *q = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        json_t *a = json_is_object(q) ? answer(q) : NULL;
        if (a) {
            json_dumpf(a, stdout, JSON_COMPACT);
            putchar('\n');
            fflush(stdout);
        } else {
            fprintf(stderr, "%s: a line is no question: %.200s\n", program, line);
            code = 65;
        }
        json_decref(a);
        json_decref(q);
    }
    free(line);
    return code;
}
