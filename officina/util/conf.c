#include "util/conf.h"

#include "dialect.h"
#include "util/file.h"
#include "util/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_LARGEST (1024u * 1024u)
#define KEYS_MAX     64

struct parser {
    struct conf_line at;
    char section[128], name[128];
    char *seen[KEYS_MAX]; /* keys of this section */
    size_t n_seen;
    conf_taker take;
    void *arg;
};

int conf_fail(const struct conf_line *l, struct vt_err *err, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return vt_fail(err, VT_E_CONFIG, "%.80s:%u: %s", l->file, l->line, text);
}

int conf_bool(const struct conf_line *l, bool *out, struct vt_err *err)
{
    static const char *const yes[] = {"yes", "on", "true"}, *const no[] = {"no", "off", "false"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(l->value, yes[i]) == 0 || strcmp(l->value, no[i]) == 0) {
            *out = strcmp(l->value, yes[i]) == 0;
            return 0;
        }
    }
    return conf_fail(l, err, "%.40s = %.40s: write yes or no", l->key, l->value);
}

static void forget_seen(struct parser *p)
{
    for (size_t i = 0; i < p->n_seen; i++)
        free(p->seen[i]);
    p->n_seen = 0;
}

static int section(struct parser *p, char *s, struct vt_err *err)
{
    size_t n = strlen(s);
    if (n < 3 || s[n - 1] != ']' || n >= sizeof p->section)
        return conf_fail(&p->at, err, "\"%.64s\" is no section; write [kind] or [kind name]", s);
    s[n - 1] = '\0';
    char *kind = vt_trim(s + 1);
    char *blank = kind + strcspn(kind, " \t");
    char *name = *blank != '\0' ? vt_trim(blank + 1) : blank;
    *blank = '\0';
    memcpy(p->section, kind, strlen(kind) + 1);
    memcpy(p->name, name, strlen(name) + 1);
    p->at.kind = p->section;
    p->at.name = p->name;
    p->at.key = p->at.value = NULL;
    forget_seen(p);
    return p->take(p->arg, &p->at, err);
}

static int assignment(struct parser *p, const struct vt_dialect *l, struct vt_err *err)
{
    p->at.key = l->key;
    p->at.value = l->value;
    for (size_t i = 0; i < p->n_seen; i++)
        if (strcmp(p->seen[i], p->at.key) == 0)
            return conf_fail(&p->at, err, "%.64s is given twice in this section", p->at.key);
    if (p->n_seen == KEYS_MAX)
        return conf_fail(&p->at, err, "a section holds at most %d keys", KEYS_MAX);
    p->seen[p->n_seen++] = mem_dup(p->at.key);
    return p->take(p->arg, &p->at, err);
}

static int take_line(void *arg, struct vt_dialect *l, struct vt_err *err)
{
    struct parser *p = arg;
    p->at.line = l->line;
    return l->section != NULL ? section(p, l->section, err) : assignment(p, l, err);
}

int conf_parse(const char *text, size_t len, const char *file, conf_taker take, void *arg, struct vt_err *err)
{
    struct parser p = {.at = {.file = file, .kind = "", .name = ""}, .take = take, .arg = arg};
    int rc = vt_dialect_read(text, len, file, true, take_line, &p, err);
    forget_seen(&p);
    return rc;
}

int conf_file(const char *path, bool missing_ok, bool own_only, conf_taker take, void *arg,
              struct vt_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR) && missing_ok)
        return 0;
    struct text t = {0};
    if (file_read(path, FILE_LARGEST, &t, err) < 0)
        return -1;
    int rc = 0;
    if (own_only && (st.st_uid != geteuid() || (st.st_mode & 077) != 0))
        rc = vt_fail(err, VT_E_CONFIG, "%s: others may read or own it; chmod 600 it", path);
    if (rc == 0)
        rc = conf_parse(text_str(&t), t.len, path, take, arg, err);
    text_free(&t);
    return rc;
}
