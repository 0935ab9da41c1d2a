#include "childlog.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int childlog_init(struct childlog *l)
{
    memset(l, 0, sizeof *l);
    l->fd = -1;
    l->ring = calloc(CHILDLOG_LINES, sizeof *l->ring);
    return l->ring != NULL ? 0 : -1;
}

void childlog_fini(struct childlog *l)
{
    if (l->fd >= 0)
        close(l->fd);
    free(l->ring);
    l->ring = NULL;
    l->fd = -1;
}

/* Children write "name: level: text"; the level is taken over, the name is known. */
static enum vt_level level_of(const char **text, const char *child)
{
    static const struct {
        const char *word;
        enum vt_level level;
    } levels[] = {{"error: ", VT_LOG_ERR},
                  {"warning: ", VT_LOG_WARNING},
                  {"notice: ", VT_LOG_NOTICE},
                  {"info: ", VT_LOG_INFO},
                  {"debug: ", VT_LOG_DEBUG}};
    const char *p = *text;
    size_t n = strlen(child);
    if (strncmp(p, child, n) == 0 && p[n] == ':' && p[n + 1] == ' ')
        p += n + 2;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        size_t m = strlen(levels[i].word);
        if (strncmp(p, levels[i].word, m) == 0) {
            *text = p + m;
            return levels[i].level;
        }
    }
    *text = p;
    return VT_LOG_INFO;
}

static void end_line(struct childlog *l, struct vt_log *log, const char *child, uint64_t now)
{
    l->part[l->part_len] = '\0';
    memcpy(l->ring[l->n % CHILDLOG_LINES], l->part, l->part_len + 1);
    l->n++;
    uint64_t second = now / 1000000u;
    if (second != l->second) {
        l->second = second;
        l->in_second = 0;
    }
    if (l->in_second++ >= CHILDLOG_RATE) {
        l->suppressed++;
        return;
    }
    const char *text = l->part;
    enum vt_level level = level_of(&text, child);
    char line[CHILDLOG_LINE + 64];
    snprintf(line, sizeof line, "%s: %s", child, text);
    vt_log_ev(log, level, "child-log", line, "CHILD", child, NULL);
}

static void add(struct childlog *l, struct vt_log *log, const char *child, uint64_t now, const char *p,
                size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '\n') {
            if (l->part_len > 0)
                end_line(l, log, child, now);
            l->part_len = 0;
            l->cut = false;
        } else if (!l->cut) {
            if (l->part_len < CHILDLOG_LINE - 1)
                l->part[l->part_len++] = (unsigned char)p[i] < 0x20 && p[i] != '\t' ? '?' : p[i];
            else
                l->cut = true;
        }
    }
}

int childlog_read(struct childlog *l, struct vt_log *log, const char *child, uint64_t now)
{
    char buf[8192];
    for (int i = 0; i < 8; i++) {
        ssize_t n = read(l->fd, buf, sizeof buf);
        if (n > 0) {
            add(l, log, child, now, buf, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (l->part_len > 0) /* last words without a newline */
            end_line(l, log, child, now);
        l->part_len = 0;
        return 1;
    }
    return 0;
}

void childlog_tick(struct childlog *l, struct vt_log *log, const char *child)
{
    uint64_t n = l->suppressed - l->suppressed_told;
    if (n == 0)
        return;
    l->suppressed_told = l->suppressed;
    vt_log(log, VT_LOG_WARNING, "%s: %llu more lines were not forwarded (%d a second are)", child,
           (unsigned long long)n, CHILDLOG_RATE);
}

size_t childlog_tail(const struct childlog *l, unsigned n, char *out, size_t size)
{
    unsigned have = l->n < CHILDLOG_LINES ? l->n : CHILDLOG_LINES;
    if (n > have)
        n = have;
    size_t len = 0;
    if (size > 0)
        out[0] = '\0';
    for (unsigned i = l->n - n; i != l->n && len < size; i++) {
        int w = snprintf(out + len, size - len, "%s\n", l->ring[i % CHILDLOG_LINES]);
        if (w < 0 || (size_t)w >= size - len) {
            out[len] = '\0';
            break;
        }
        len += (size_t)w;
    }
    return len;
}
