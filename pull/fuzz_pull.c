/* What comes from outside: the hub's listing, header lines, and the source that a person wrote. */
#include "http.h"
#include "hub.h"
#include "source.h"

#include <stdlib.h>
#include <string.h>

static void listing(const char *s, size_t n)
{
    struct hub_list l;
    struct vt_err err;
    if (hub_parse(&l, s, n, &err))
        return;
    (void)hub_choose(&l, "", &err);
    (void)hub_choose(&l, "Q4_K_M", &err);
    hub_free(&l);
}

static void headers(const char *s, size_t n)
{
    struct http_reply r = {.linked_size = -1};
    for (size_t from = 0; from < n;) {
        const char *end = memchr(s + from, '\n', n - from);
        const size_t len = end ? (size_t)(end - s) - from + 1 : n - from;
        http_header(&r, s + from, len);
        from += len;
    }
}

static void source(const char *text)
{
    struct source s;
    struct vt_err err;
    char url[SOURCE_URL_MAX], name[300], part[SOURCE_URL_MAX];
    if (source_parse(&s, text, &err))
        return;
    if (s.hub) {
        if (source_hub_url(&s, "https://h", s.rev, s.file, url, sizeof url, &err))
            return;
    } else {
        memcpy(url, s.url, sizeof url);
    }
    if (source_name(url, name, sizeof name, &err) == 0 && (strchr(name, '/') || name[0] == '.'))
        abort();
    source_part(url, source_parts(url), part, sizeof part);
    source_shown(url, part, sizeof part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size);
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    if (data[0] % 3 == 0)
        listing(text, size - 1);
    else if (data[0] % 3 == 1)
        headers(text, size - 1);
    else
        source(text);
    free(text);
    return 0;
}
