#include "view/fence.h"

#include <string.h>

static size_t marks(const char *line, size_t n, size_t *indent)
{
    size_t at = 0, end;
    while (at < n && line[at] == ' ')
        at++;
    *indent = at;
    for (end = at; end < n && line[end] == line[at] && strchr("`~", line[at]) && line[at]; end++)
        ;
    return end - at;
}

bool fence_opens(const char *line, size_t n, struct fence *out)
{
    size_t indent, have = marks(line, n, &indent);
    if (have < 3)
        return false;
    if (line[indent] == '`' && memchr(line + indent + have, '`', n - indent - have))
        return false; /* a span of code */
    *out = (struct fence){.mark = line[indent], .n = have, .indent = indent};
    return true;
}

bool fence_closes(const struct fence *f, const char *line, size_t n)
{
    size_t indent, have = marks(line, n, &indent);
    if (have < f->n || line[indent] != f->mark || indent > f->indent + 3)
        return false;
    for (size_t i = indent + have; i < n; i++)
        if (!strchr(" \t\r", line[i]) || !line[i])
            return false;
    return true;
}

void fence_step(struct fence *f, const char *line, size_t n)
{
    if (!f->n) {
        fence_opens(line, n, f);
        return;
    }
    bool column = n && !strchr(" \t\r", line[0]);
    if (fence_closes(f, line, n) || (f->indent && column))
        f->n = 0;
}
