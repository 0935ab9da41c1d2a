#include "opts.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPT_NAME_MAX 64

static int parse_int(const struct opt *o, const char *name, const char *text, const char **end, int64_t *out,
                     struct vt_err *err)
{
    char *stop;
    errno = 0;
    long long v = strtoll(text, &stop, 10);
    if (stop == text || errno || v < o->min || v > o->max)
        return vt_fail(err, VT_E_USAGE, "%s takes a whole number from %lld to %lld, not \"%s\"", name,
                       (long long)o->min, (long long)o->max, text);
    *out = v;
    *end = stop;
    return 0;
}

static int parse_ints(const struct opt *o, const char *name, const char *text, struct vt_err *err)
{
    struct opt_list *l = o->to;
    const char *at = text;
    for (l->n = 0; l->n < OPT_LIST_MAX;) {
        if (parse_int(o, name, at, &at, &l->v[l->n++], err) < 0)
            return -1;
        if (!*at)
            return 0;
        if (*at++ != ',')
            break;
    }
    return vt_fail(err, VT_E_USAGE, "%s takes up to %d numbers separated by commas, not \"%s\"", name,
                   OPT_LIST_MAX, text);
}

/* Here and not where it is opened, since only here it is known which option named it. */
static int check_file(const char *name, const char *path, struct vt_err *err)
{
    struct stat st;
    if (strcmp(path, "-") == 0)
        return 0;
    if (stat(path, &st) < 0 || access(path, R_OK) < 0)
        return vt_fail_errno(err, errno == EACCES ? VT_E_PERM : VT_E_NO_INPUT, "%s %s", name, path);
    if (S_ISDIR(st.st_mode))
        return vt_fail(err, VT_E_NO_INPUT, "%s %s: this is a folder, a file is needed", name, path);
    return 0;
}

static int set(const struct opt *o, const char *name, const char *text, struct vt_err *err)
{
    const char *end = text;
    char *stop;
    switch (o->kind) {
    case OPT_FLAG: *(bool *)o->to = true; return 0;
    case OPT_STR: *(const char **)o->to = text; return 0;
    case OPT_IN: *(const char **)o->to = text; return check_file(name, text, err);
    case OPT_INT:
        if (parse_int(o, name, text, &end, o->to, err) < 0)
            return -1;
        return *end ? vt_fail(err, VT_E_USAGE, "%s takes a whole number, not \"%s\"", name, text) : 0;
    case OPT_FLOAT:
        *(double *)o->to = strtod(text, &stop);
        if (stop == text || *stop || !isfinite(*(double *)o->to))
            return vt_fail(err, VT_E_USAGE, "%s takes a number, not \"%s\"", name, text);
        return 0;
    case OPT_INTS: return parse_ints(o, name, text, err);
    }
    return -1;
}

/* The option that arg begins with; *value is what stands behind its '=', or NULL. */
static const struct opt *find(const struct opt *table, const char *arg, char name[OPT_NAME_MAX],
                              const char **value)
{
    const char *eq = strncmp(arg, "--", 2) == 0 ? strchr(arg, '=') : NULL;
    *value = eq ? eq + 1 : NULL;
    snprintf(name, OPT_NAME_MAX, "%.*s", (int)(eq ? eq - arg : (long)strlen(arg)), arg);
    for (const struct opt *o = table; o->name; o++)
        if (strcmp(name, o->name) == 0 || (o->alias && strcmp(name, o->alias) == 0))
            return o;
    return NULL;
}

static void print_help(const struct opt *table, const char *usage)
{
    printf("usage: vitriol-tool %s\n\n", usage);
    for (const struct opt *o = table; o->name; o++)
        printf("  %-4s%-15s %s\n", o->name[1] == '-' ? "" : o->name,
               o->name[1] == '-' ? o->name
               : o->alias        ? o->alias
                                 : "",
               o->help);
}

int opts_parse(const struct opt *table, const char *usage, int argc, char **argv, const char **rest,
               struct vt_err *err)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0) {
            print_help(table, usage);
            return 1;
        }
        if (arg[0] != '-' || arg[1] == 0) {
            if (!rest || *rest)
                return vt_fail(err, VT_E_USAGE, "\"%s\" is one argument too many; usage: vitriol-tool %s",
                               arg, usage);
            *rest = arg;
            continue;
        }
        char name[OPT_NAME_MAX];
        const char *value;
        const struct opt *o = find(table, arg, name, &value);
        if (!o)
            return vt_fail(err, VT_E_USAGE, "there is no option %s; usage: vitriol-tool %s", arg, usage);
        if (o->kind == OPT_FLAG ? value != NULL : !value && i + 1 == argc)
            return vt_fail(err, VT_E_USAGE, "%s %s", name, value ? "takes no value" : "needs a value");
        if (set(o, name, o->kind == OPT_FLAG || value ? value : argv[++i], err) < 0)
            return -1;
    }
    return 0;
}
