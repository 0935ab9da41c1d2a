#include "config.h"

#include "suggest.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_MAX 4095

struct key {
    const char *name;
    enum vt_config_type type;
    const char *dflt;
    int64_t min, max;
    enum vt_config_reload reload;
    const char *doc;
};

static const struct key keys[VT_CFG_COUNT] = {
#define CFG(id, name, type, dflt, min, max, reload, doc)                                                     \
    [VT_CFG_##id] = {name, type, dflt, min, max, reload, doc},
#include "config.def"
#undef CFG
};

static const char *const names[VT_CFG_COUNT] = {
#define CFG(id, name, type, dflt, min, max, reload, doc) [VT_CFG_##id] = name,
#include "config.def"
#undef CFG
};

struct value {
    char *text; /* canonical form, owned */
    char *origin;
    int64_t i; /* booleans and integers */
    double f;
    enum vt_config_layer layer;
};

struct vt_config {
    struct value v[VT_CFG_COUNT];
};

/* The unit is the last part of the name; numbers may carry it, and no other. */
static const struct unit {
    const char *suffix, *word, *long_name;
} units[] = {
    {"_s", "s", "seconds"},
    {"_ms", "ms", "milliseconds"},
    {"_mib", "MiB", "mebibytes"},
    {"_tokens", "tokens", "tokens"},
};

static const struct unit *unit_of(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t m = strlen(units[i].suffix);
        if (n > m && strcmp(name + n - m, units[i].suffix) == 0)
            return &units[i];
    }
    return NULL;
}

static int bad(struct vt_err *err, const char *origin, const struct key *k, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int bad(struct vt_err *err, const char *origin, const struct key *k, const char *fmt, ...)
{
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return vt_fail(err, VT_E_CONFIG, "%s: %s: %s", origin, k->name, what);
}

static int bad_unit(struct vt_err *err, const char *origin, const struct key *k, const char *value,
                    const char *rest)
{
    const struct unit *u = unit_of(k->name);
    if (u == NULL)
        return bad(err, origin, k, "\"%.64s\" is not a whole number", value);
    int digits = (int)(rest - value);
    return bad(err, origin, k, "\"%.64s\" does not fit: the key is in %s, write %.*s or %.*s%s", value,
               u->long_name, digits, value, digits, value, u->word);
}

static int parse_int(const struct key *k, const char *value, const char *origin, int64_t *out,
                     struct vt_err *err)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (end == value || isspace((unsigned char)value[0]))
        return bad(err, origin, k, "\"%.64s\" is not a whole number", value);
    if (*end != '\0') {
        const char *rest = end + (*end == ' ');
        const struct unit *u = unit_of(k->name);
        if (u == NULL || strcasecmp(rest, u->word) != 0)
            return bad_unit(err, origin, k, value, end);
    }
    if (errno == ERANGE || n < k->min || n > k->max)
        return bad(err, origin, k, "%.64s is out of range, %lld to %lld are legal", value, (long long)k->min,
                   (long long)k->max);
    *out = n;
    return 0;
}

static int parse_bool(const struct key *k, const char *value, const char *origin, int64_t *out,
                      struct vt_err *err)
{
    static const char *const on[] = {"on", "yes", "true", "1"};
    static const char *const off[] = {"off", "no", "false", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(value, on[i]) == 0) {
            *out = 1;
            return 0;
        }
        if (strcasecmp(value, off[i]) == 0) {
            *out = 0;
            return 0;
        }
    }
    return bad(err, origin, k, "\"%.64s\" is neither on nor off", value);
}

static int parse_float(const struct key *k, const char *value, const char *origin, double *out,
                       struct vt_err *err)
{
    char *end;
    double f = strtod(value, &end);
    if (end == value || *end != '\0' || !isfinite(f))
        return bad(err, origin, k, "\"%.64s\" is not a number", value);
    if (f < (double)k->min || f > (double)k->max)
        return bad(err, origin, k, "%.64s is out of range, %lld to %lld are legal", value, (long long)k->min,
                   (long long)k->max);
    *out = f;
    return 0;
}

static bool enum_has(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (const char *p = words; p != NULL; p = strchr(p, '|'), p = p != NULL ? p + 1 : NULL) {
        if (n > 0 && strncmp(p, value, n) == 0 && (p[n] == '|' || p[n] == '\0'))
            return true;
    }
    return false;
}

static int check_text(const struct key *k, const char *value, const char *origin, struct vt_err *err)
{
    size_t n = strlen(value);
    int64_t max = k->max > 0 ? k->max : TEXT_MAX;
    if ((int64_t)n < k->min)
        return bad(err, origin, k,
                   "an empty value has no meaning here; leave the key out to get the default \"%s\"",
                   k->dflt);
    if ((int64_t)n > max)
        return bad(err, origin, k, "%zu bytes are too long, %lld are legal", n, (long long)max);
    return 0;
}

static int check_bytes(const struct key *k, const char *value, const char *origin, struct vt_err *err)
{
    for (const char *p = value; *p != '\0'; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return bad(err, origin, k, "the value holds a control character");
    }
    const char *open = strstr(value, "${");
    if (open != NULL && strchr(open, '}') != NULL)
        return bad(err, origin, k,
                   "\"%.64s\" holds an unresolved placeholder; values are taken as they stand", value);
    return 0;
}

/* Parses into *out, whose text is made here. */
static int parse_value(const struct key *k, const char *value, const char *origin, struct value *out,
                       struct vt_err *err)
{
    if (check_bytes(k, value, origin, err) < 0)
        return -1;
    if (value[0] == '\0' && k->type != VT_T_STR && k->type != VT_T_PATH)
        return bad(err, origin, k,
                   "an empty value has no meaning here; leave the key out to get the default");
    int n = 0;
    switch (k->type) {
    case VT_T_BOOL:
        if (parse_bool(k, value, origin, &out->i, err) < 0)
            return -1;
        out->text = strdup(out->i != 0 ? "on" : "off");
        break;
    case VT_T_INT:
        if (parse_int(k, value, origin, &out->i, err) < 0)
            return -1;
        n = asprintf(&out->text, "%lld", (long long)out->i);
        break;
    case VT_T_FLOAT:
        if (parse_float(k, value, origin, &out->f, err) < 0)
            return -1;
        n = asprintf(&out->text, "%.17g", out->f);
        break;
    case VT_T_ENUM:
        if (strchr(value, '|') != NULL || !enum_has(k->dflt, value))
            return bad(err, origin, k, "\"%.64s\" is not one of %s", value, k->dflt);
        out->text = strdup(value);
        break;
    case VT_T_STR:
    case VT_T_PATH:
        if (check_text(k, value, origin, err) < 0)
            return -1;
        out->text = strdup(value);
        break;
    }
    if (n < 0 || out->text == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    return 0;
}

static const char *default_text(const struct key *k, char *buf, size_t size)
{
    if (k->type != VT_T_ENUM)
        return k->dflt;
    snprintf(buf, size, "%.*s", (int)strcspn(k->dflt, "|"), k->dflt);
    return buf;
}

struct vt_config *vt_config_new(void)
{
    struct vt_config *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    for (int i = 0; i < VT_CFG_COUNT; i++) {
        char buf[64];
        struct vt_err err;
        c->v[i].origin = strdup("default");
        if (c->v[i].origin == NULL ||
            parse_value(&keys[i], default_text(&keys[i], buf, sizeof buf), "default", &c->v[i], &err) < 0) {
            vt_config_free(c);
            return NULL;
        }
    }
    return c;
}

void vt_config_free(struct vt_config *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < VT_CFG_COUNT; i++) {
        free(c->v[i].text);
        free(c->v[i].origin);
    }
    free(c);
}

int vt_config_find(const char *name, struct vt_err *err)
{
    for (int i = 0; i < VT_CFG_COUNT; i++) {
        if (strcmp(keys[i].name, name) == 0)
            return i;
    }
    char hint[256];
    return vt_fail(err, VT_E_CONFIG, "unknown key %.64s%s", name,
                   vt_suggest(name, names, VT_CFG_COUNT, hint, sizeof hint));
}

int vt_config_set(struct vt_config *c, enum vt_config_layer layer, const char *name, const char *value,
                  const char *origin, struct vt_err *err)
{
    int k = vt_config_find(name, err);
    if (k < 0)
        return vt_fail_prefix(err, "%s", origin);
    struct value *old = &c->v[k];
    if (layer >= VT_L_CMDLINE && old->layer == layer)
        return bad(err, origin, &keys[k], "given twice (before: %s)", old->origin);
    struct value v = {.layer = layer};
    if (parse_value(&keys[k], value, origin, &v, err) < 0)
        return -1;
    v.origin = strdup(origin);
    if (v.origin == NULL) {
        free(v.text);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    if (layer < old->layer) {
        free(v.text);
        free(v.origin);
        return 0; /* checked, and outranked by what is there */
    }
    free(old->text);
    free(old->origin);
    *old = v;
    return 0;
}

int vt_config_check(const struct vt_config *c, struct vt_err *err)
{
    int64_t ctx = vt_config_int(c, VT_CFG_ENGINE_CTX_TOKENS);
    if (ctx % 256 != 0) {
        int64_t below = ctx / 256 * 256;
        return bad(err, vt_config_origin(c, VT_CFG_ENGINE_CTX_TOKENS), &keys[VT_CFG_ENGINE_CTX_TOKENS],
                   "%lld is no multiple of 256; the nearest legal windows are %lld and %lld", (long long)ctx,
                   (long long)(below > 0 ? below : 256), (long long)below + 256);
    }
    const char *listen = vt_config_str(c, VT_CFG_HTTP_LISTEN);
    const char *colon = strrchr(listen, ':');
    char *end = NULL;
    long port = colon != NULL ? strtol(colon + 1, &end, 10) : -1;
    if (colon == NULL || colon == listen || end == colon + 1 || *end != '\0' || port < 0 || port > 65535)
        return bad(err, vt_config_origin(c, VT_CFG_HTTP_LISTEN), &keys[VT_CFG_HTTP_LISTEN],
                   "\"%.64s\" is not ADDRESS:PORT", listen);
    bool external = strcmp(vt_config_str(c, VT_CFG_ENGINE_KIND), "external") == 0;
    const char *url = vt_config_str(c, VT_CFG_EXTERNAL_URL),
               *command = vt_config_str(c, VT_CFG_EXTERNAL_COMMAND);
    if (external && url[0] == '\0' && command[0] == '\0')
        return bad(err, vt_config_origin(c, VT_CFG_ENGINE_KIND), &keys[VT_CFG_ENGINE_KIND],
                   "external needs external.command, or external.url where the server runs already");
    if (external && url[0] == '\0' && strstr(command, "{port}") == NULL)
        return bad(err, vt_config_origin(c, VT_CFG_EXTERNAL_COMMAND), &keys[VT_CFG_EXTERNAL_COMMAND],
                   "the command takes no {port}, and external.url does not say where it will listen");
    if (url[0] != '\0' && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return bad(err, vt_config_origin(c, VT_CFG_EXTERNAL_URL), &keys[VT_CFG_EXTERNAL_URL],
                   "\"%.64s\" is not http://HOST:PORT", url);
    const char *sha = vt_config_str(c, VT_CFG_MODEL_SHA256);
    if (sha[0] != '\0' && (strlen(sha) != 64 || strspn(sha, "0123456789abcdef") != 64))
        return bad(err, vt_config_origin(c, VT_CFG_MODEL_SHA256), &keys[VT_CFG_MODEL_SHA256],
                   "\"%.64s\" is no SHA-256: 64 digits 0-9 a-f", sha);
    int64_t stall = vt_config_int(c, VT_CFG_ENGINE_LOAD_STALL_S);
    int64_t load = vt_config_int(c, VT_CFG_ENGINE_LOAD_MAX_S);
    if (load < stall)
        return bad(err, vt_config_origin(c, VT_CFG_ENGINE_LOAD_MAX_S), &keys[VT_CFG_ENGINE_LOAD_MAX_S],
                   "%lld is shorter than engine.load_stall_s = %lld, which could then never act",
                   (long long)load, (long long)stall);
    return 0;
}

bool vt_config_bool(const struct vt_config *c, enum vt_config_key k)
{
    assert(keys[k].type == VT_T_BOOL);
    return c->v[k].i != 0;
}

int64_t vt_config_int(const struct vt_config *c, enum vt_config_key k)
{
    assert(keys[k].type == VT_T_INT);
    return c->v[k].i;
}

double vt_config_float(const struct vt_config *c, enum vt_config_key k)
{
    assert(keys[k].type == VT_T_FLOAT);
    return c->v[k].f;
}

const char *vt_config_str(const struct vt_config *c, enum vt_config_key k)
{
    assert(keys[k].type == VT_T_STR || keys[k].type == VT_T_PATH || keys[k].type == VT_T_ENUM);
    return c->v[k].text;
}

bool vt_config_is_set(const struct vt_config *c, enum vt_config_key k)
{
    return c->v[k].layer > VT_L_DEFAULT;
}

bool vt_config_is_default(const struct vt_config *c, enum vt_config_key k)
{
    char buf[64];
    return strcmp(c->v[k].text, default_text(&keys[k], buf, sizeof buf)) == 0;
}

const char *vt_config_name(enum vt_config_key k)
{
    return keys[k].name;
}

bool vt_config_in(enum vt_config_key k, const char *section)
{
    size_t n = strlen(section);
    return strncmp(keys[k].name, section, n) == 0 && keys[k].name[n] == '.';
}

const char *vt_config_text(const struct vt_config *c, enum vt_config_key k, char *out, size_t size)
{
    snprintf(out, size, "%s", c->v[k].text);
    return out;
}

enum vt_config_layer vt_config_layer_of(const struct vt_config *c, enum vt_config_key k)
{
    return c->v[k].layer;
}

const char *vt_config_origin(const struct vt_config *c, enum vt_config_key k)
{
    return c->v[k].origin;
}

enum vt_config_reload vt_config_reload_class(enum vt_config_key k)
{
    return keys[k].reload;
}

const char *vt_config_doc(enum vt_config_key k)
{
    return keys[k].doc;
}

static void print_type(FILE *out, const struct key *k)
{
    const struct unit *u = unit_of(k->name);
    switch (k->type) {
    case VT_T_BOOL: fputs("on or off", out); break;
    case VT_T_INT:
        fprintf(out, "%lld to %lld%s%s", (long long)k->min, (long long)k->max, u != NULL ? " " : "",
                u != NULL ? u->word : "");
        break;
    case VT_T_FLOAT: fprintf(out, "number, %lld to %lld", (long long)k->min, (long long)k->max); break;
    case VT_T_STR: fputs("text", out); break;
    case VT_T_PATH: fputs("path", out); break;
    case VT_T_ENUM:
        for (const char *p = k->dflt; *p != '\0'; p++) {
            if (*p == '|')
                fputs(", ", out);
            else
                fputc(*p, out);
        }
        break;
    }
}

static void print_env_name(FILE *out, const char *name)
{
    fputs("VITRIOL_", out);
    for (const char *p = name; *p != '\0'; p++)
        fputc(*p == '.' ? '_' : toupper((unsigned char)*p), out);
}

void vt_config_print_reference(FILE *out)
{
    static const char *const reload[] = {"at once", "after a drain", "with a restart"};
    fputs(
        "# Configuration reference\n\n"
        "Generated from the one table of keys (`common/config.def`); do not edit.\n\n"
        "Files hold `key = value` lines in `[sections]`; a line that starts with `#` is a comment; there is "
        "no\n"
        "interpolation. Layers, each overriding the ones before: built-in defaults, vendor file, site file\n"
        "(`vitriol.conf`), site drop-ins (`conf.d/*.conf` in byte order), the profile that `profile.name` "
        "names\n"
        "(`profiles/NAME.conf`), the user's file (only when a user runs it), environment, command line\n"
        "(`--set section.key=value`). `vitriolctl config show --origin` prints the effective value and "
        "origin of every\n"
        "key. Unset and empty differ: only an unset key has its default. Unknown keys, duplicates, values "
        "out of range\n"
        "and wrong units stop the launch with exit code 78. A number may carry the unit of its key (`60s`), "
        "never\n"
        "another.\n",
        out);
    char section[32] = "";
    for (int i = 0; i < VT_CFG_COUNT; i++) {
        const struct key *k = &keys[i];
        int n = (int)strcspn(k->name, ".");
        if ((int)strlen(section) != n || strncmp(section, k->name, (size_t)n) != 0) {
            snprintf(section, sizeof section, "%.*s", n, k->name);
            fprintf(out, "\n## [%s]\n", section);
        }
        char buf[64];
        const char *dflt = default_text(k, buf, sizeof buf);
        fprintf(out, "\n### %s\n\n%s\n\n", k->name, k->doc);
        fputs("- values: ", out);
        print_type(out, k);
        fprintf(out, "\n- default: %s%s%s\n- changes take effect: %s\n- environment: `",
                dflt[0] != '\0' ? "`" : "empty", dflt, dflt[0] != '\0' ? "`" : "", reload[k->reload]);
        print_env_name(out, k->name);
        fputs("`\n", out);
    }
}
