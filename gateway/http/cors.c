#include "cors.h"

#include <string.h>

bool cors_allowed(const char *allowed, const char *origin)
{
    size_t n = strlen(origin);
    for (const char *p = allowed; *p;) {
        while (*p == ' ' || *p == ',')
            p++;
        size_t k = strcspn(p, ", ");
        if ((k == 1 && *p == '*') || (k == n && n > 0 && memcmp(p, origin, n) == 0))
            return true;
        p += k;
    }
    return false;
}

void cors_headers(struct http_req *r, const char *allowed)
{
    const char *origin = http_get_header(r, "Origin");
    if (!origin)
        return;
    http_set_header(r, "Vary", "Origin");
    if (cors_allowed(allowed, origin))
        http_set_header(r, "Access-Control-Allow-Origin", origin);
}

void cors_preflight(struct http_req *r, const char *allowed)
{
    const char *asked = http_get_header(r, "Access-Control-Request-Headers");
    cors_headers(r, allowed);
    http_set_header(r, "Access-Control-Allow-Credentials", "true");
    http_set_header(r, "Access-Control-Allow-Methods", "GET, POST");
    http_set_header(r, "Access-Control-Allow-Headers", asked ? asked : "*");
    http_reply(r, 200, NULL, NULL, 0);
}
