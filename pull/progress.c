#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_US VT_MS(200)
#define LINE_US VT_SEC(10)
#define BAR_MAX 30

const char *progress_bytes(uint64_t n, char out[32])
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double v = (double)n;
    size_t u = 0;
    while (v >= 1000 && u + 1 < sizeof units / sizeof *units) {
        v /= 1000;
        u++;
    }
    snprintf(out, 32, u && v < 100 ? "%.2f %s" : "%.0f %s", v, units[u]);
    return out;
}

void progress_begin(struct progress *p, const char *what, uint64_t have)
{
    p->what = what;
    p->first = have;
    p->start_us = p->shown_us = p->rate_us = vt_mono(&p->clock);
    p->rate_bytes = have;
    p->rate = 0;
}

static void measure(struct progress *p, uint64_t now, uint64_t have)
{
    const double s = (double)(now - p->rate_us) / 1e6;
    if (s < 0.5 || have < p->rate_bytes)
        return;
    const double current = (double)(have - p->rate_bytes) / s;
    p->rate = p->rate == 0 ? current : 0.7 * p->rate + 0.3 * current;
    p->rate_us = now;
    p->rate_bytes = have;
}

static int columns(void)
{
    struct winsize w;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : 80;
}

static void rest(const struct progress *p, uint64_t have, uint64_t total, char *out, size_t size)
{
    out[0] = '\0';
    if (p->rate < 1 || total <= have)
        return;
    const uint64_t s = (uint64_t)((double)(total - have) / p->rate);
    if (s < 3600)
        snprintf(out, size, ", %llu:%02llu left", (unsigned long long)s / 60, (unsigned long long)s % 60);
    else
        snprintf(out, size, ", %llu:%02llu h left", (unsigned long long)s / 3600,
                 (unsigned long long)s / 60 % 60);
}

static void draw(struct progress *p, uint64_t have, uint64_t total)
{
    char a[32], b[32], r[32], left[48], line[512], bar[BAR_MAX + 1] = "";
    progress_bytes(have, a);
    progress_bytes(total, b);
    progress_bytes((uint64_t)p->rate, r);
    rest(p, have, total, left, sizeof left);
    const unsigned percent = total ? (unsigned)(100.0 * (double)have / (double)total) : 0;
    if (p->terminal && total) {
        const unsigned full = percent * BAR_MAX / 100 < BAR_MAX ? percent * BAR_MAX / 100 : BAR_MAX;
        memset(bar, '-', BAR_MAX);
        memset(bar, '#', full);
        bar[BAR_MAX] = '\0';
    }
    if (total)
        snprintf(line, sizeof line, "%s %s%s%u%%, %s of %s, %s/s%s", p->what, bar, bar[0] ? " " : "", percent,
                 a, b, r, left);
    else
        snprintf(line, sizeof line, "%s %s, %s/s", p->what, a, r);
    if (p->terminal)
        fprintf(stderr, "\r\033[K%.*s", columns() - 1, line);
    else
        fprintf(stderr, "%s\n", line);
    fflush(stderr);
    p->drawn = p->terminal;
}

void progress_show(struct progress *p, uint64_t have, uint64_t total)
{
    const uint64_t now = vt_mono(&p->clock);
    measure(p, now, have);
    if (p->quiet || now - p->shown_us < (p->terminal ? DRAW_US : LINE_US))
        return;
    p->shown_us = now;
    draw(p, have, total);
}

void progress_clear(struct progress *p)
{
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = false;
}
