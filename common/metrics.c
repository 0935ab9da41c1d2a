#include "metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void vt_metrics_init(struct vt_metrics *m)
{
    memset(m, 0, sizeof *m);
}

void vt_metrics_fini(struct vt_metrics *m)
{
    free(m->text);
    memset(m, 0, sizeof *m);
}

static void add(struct vt_metrics *m, const char *s, size_t n)
{
    if (m->failed)
        return;
    if (m->len + n + 1 > m->cap) {
        size_t cap = m->cap < 4096 ? 4096 : m->cap * 2;
        while (cap < m->len + n + 1)
            cap *= 2;
        char *p = realloc(m->text, cap);
        if (p == NULL) {
            m->failed = 1;
            return;
        }
        m->text = p;
        m->cap = cap;
    }
    memcpy(m->text + m->len, s, n);
    m->len += n;
    m->text[m->len] = 0;
}

static void add_str(struct vt_metrics *m, const char *s)
{
    add(m, s, strlen(s));
}

/* Label values escape backslash, quote and newline; help texts only the first and the last. */
static void add_escaped(struct vt_metrics *m, const char *s, int quote)
{
    for (; *s != 0; s++) {
        if (*s == '\\')
            add(m, "\\\\", 2);
        else if (*s == '\n')
            add(m, "\\n", 2);
        else if (*s == '"' && quote)
            add(m, "\\\"", 2);
        else
            add(m, s, 1);
    }
}

void vt_metrics_family(struct vt_metrics *m, const char *name, const char *type, const char *help)
{
    add_str(m, "# HELP ");
    add_str(m, name);
    add_str(m, " ");
    add_escaped(m, help, 0);
    add_str(m, "\n# TYPE ");
    add_str(m, name);
    add_str(m, " ");
    add_str(m, type);
    add_str(m, "\n");
}

static void head(struct vt_metrics *m, const char *name, const char *const *labels)
{
    add_str(m, name);
    if (labels == NULL || labels[0] == NULL) {
        add_str(m, " ");
        return;
    }
    for (int i = 0; labels[i] != NULL && labels[i + 1] != NULL; i += 2) {
        add_str(m, i == 0 ? "{" : ",");
        add_str(m, labels[i]);
        add_str(m, "=\"");
        add_escaped(m, labels[i + 1], 1);
        add_str(m, "\"");
    }
    add_str(m, "} ");
}

void vt_metrics_sample(struct vt_metrics *m, const char *name, const char *const *labels, double value)
{
    char text[40];
    if (isnan(value))
        value = 0;
    if (isinf(value))
        snprintf(text, sizeof text, "%s\n", value > 0 ? "+Inf" : "-Inf");
    else
        snprintf(text, sizeof text, "%.12g\n", value);
    head(m, name, labels);
    add_str(m, text);
}

void vt_metrics_count(struct vt_metrics *m, const char *name, const char *const *labels, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64 "\n", value);
    head(m, name, labels);
    add_str(m, text);
}
