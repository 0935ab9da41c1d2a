#include "clock.h"

#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void off_clock_init(struct off_clock *c, const char *setting)
{
    *c = (struct off_clock){0};
    c->fixed = setting != NULL && strcmp(setting, "fixed") == 0;
    c->file = setting != NULL && strncmp(setting, "file:", 5) == 0 ? setting + 5 : NULL;
}

uint64_t off_clock_now(struct off_clock *c)
{
    struct timespec t;
    if (c->fixed)
        return ++c->now; /* later than before, as every clock */
    if (c->file != NULL) {
        char buf[64] = "";
        FILE *f = fopen(c->file, "re");
        if (f != NULL) {
            if (fgets(buf, sizeof buf, f) == NULL)
                buf[0] = '\0';
            fclose(f);
        }
        uint64_t at = strtoull(buf, NULL, 10);
        c->now = at > c->now ? at : c->now;
        return c->now;
    }
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

void off_clock_reach(struct off_clock *c, uint64_t at)
{
    if (c->fixed && at > c->now)
        c->now = at;
}

void off_clock_id(struct off_clock *c, uint64_t n, char out[24])
{
    static const char letters[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint8_t bytes[8];
    if (c->fixed) {
        snprintf(out, 24, "s%04llu", (unsigned long long)n + 1);
        return;
    }
    vt_random(bytes, sizeof bytes);
    out[0] = 's';
    for (int i = 0; i < 8; i++)
        out[i + 1] = letters[bytes[i] & 31];
    out[9] = '\0';
}
