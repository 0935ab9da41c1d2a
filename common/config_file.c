/* The layers that come from outside: files, drop-ins, the profile, the environment. */
#include "config.h"

#include "dialect.h"
#include "suggest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX   (256u * 1024u)
#define ENV_PREFIX "VITRIOL_"

/* Names of the child environment and of the programs' own start; they are no keys. */
static const char *const internal_env[] = {"VITRIOL_INSTANCE", "VITRIOL_RUN_DIR", "VITRIOL_LIBEXEC",
                                           "VITRIOL_MODELS",   "VITRIOL_CHILD",   "VITRIOL_GEN",
                                           "VITRIOL_BUILD_DIR"};

struct parser {
    struct vt_config *c;
    enum vt_config_layer layer;
    char section[64];
    unsigned seen[VT_CFG_COUNT]; /* line of each key of this file */
};

static int take_section(struct parser *p, const struct vt_dialect *l, struct vt_err *err)
{
    const char *s = l->section;
    size_t n = strlen(s);
    if (n < 3 || s[n - 1] != ']' || n - 2 >= sizeof p->section)
        return vt_fail(err, VT_E_CONFIG, "%s:%u: \"%.64s\" is no section header; write [section]", l->file,
                       l->line, s);
    memcpy(p->section, s + 1, n - 2);
    p->section[n - 2] = '\0';
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        const char *name = vt_config_name((enum vt_config_key)k);
        if (strncmp(name, p->section, n - 2) == 0 && name[n - 2] == '.')
            return 0;
    }
    const char *list[VT_CFG_COUNT];
    char words[VT_CFG_COUNT][32];
    size_t count = 0;
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        const char *name = vt_config_name((enum vt_config_key)k);
        snprintf(words[count], sizeof words[0], "%.*s", (int)strcspn(name, "."), name);
        if (count == 0 || strcmp(words[count - 1], words[count]) != 0) {
            list[count] = words[count];
            count++;
        }
    }
    char hint[160];
    return vt_fail(err, VT_E_CONFIG, "%s:%u: unknown section [%.32s]%s", l->file, l->line, p->section,
                   vt_suggest(p->section, list, count, hint, sizeof hint));
}

static int take_assignment(struct parser *p, const struct vt_dialect *l, struct vt_err *err)
{
    if (p->section[0] == '\0')
        return vt_fail(err, VT_E_CONFIG, "%s:%u: %.64s stands before the first [section]", l->file, l->line,
                       l->key);
    char full[192];
    char origin[PATH_MAX];
    snprintf(full, sizeof full, "%s.%.120s", p->section, l->key);
    snprintf(origin, sizeof origin, "%.*s:%u", PATH_MAX - 16, l->file, l->line);
    int k = vt_config_find(full, err);
    if (k < 0)
        return vt_fail_prefix(err, "%s", origin);
    if (p->seen[k] != 0)
        return vt_fail(err, VT_E_CONFIG, "%s: %s: given twice in this file (before: line %u)", origin, full,
                       p->seen[k]);
    p->seen[k] = l->line;
    return vt_config_set(p->c, p->layer, full, l->value, origin, err);
}

static int take_line(void *arg, struct vt_dialect *l, struct vt_err *err)
{
    return l->section != NULL ? take_section(arg, l, err) : take_assignment(arg, l, err);
}

int vt_config_parse(struct vt_config *c, enum vt_config_layer layer, const char *text, size_t len,
                    const char *name, struct vt_err *err)
{
    struct parser p = {.c = c, .layer = layer};
    return vt_dialect_read(text, len, name, false, take_line, &p, err);
}

int vt_config_file(struct vt_config *c, enum vt_config_layer layer, const char *path, bool missing_ok,
                   struct vt_err *err)
{
    struct stat st;
    /* Whoever asks may not wait for who writes into a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        if (missing_ok && (errno == ENOENT || errno == ENOTDIR))
            return 0;
        return vt_fail_errno(err, VT_E_CONFIG, "%s", path);
    }
    if (fstat(fd, &st) < 0 || S_ISFIFO(st.st_mode)) {
        close(fd);
        return vt_fail(err, VT_E_CONFIG,
                       "%s: a pipe can be read once only; a configuration is read again: write it to a file",
                       path);
    }
    FILE *f = fdopen(fd, "r");
    if (f == NULL) {
        close(fd);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    char *text = malloc(FILE_MAX + 1);
    if (text == NULL) {
        fclose(f);
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    }
    size_t n = fread(text, 1, FILE_MAX + 1, f);
    int rc;
    if (ferror(f))
        rc = vt_fail_errno(err, VT_E_CONFIG, "%s: reading", path);
    else if (n > FILE_MAX)
        rc = vt_fail(err, VT_E_CONFIG, "%s: larger than %u bytes", path, FILE_MAX);
    else
        rc = vt_config_parse(c, layer, text, n, path, err);
    free(text);
    fclose(f);
    return rc;
}

static bool is_internal(const char *name, size_t n)
{
    for (size_t i = 0; i < sizeof internal_env / sizeof internal_env[0]; i++) {
        if (strlen(internal_env[i]) == n && strncmp(internal_env[i], name, n) == 0)
            return true;
    }
    return false;
}

/* VITRIOL_SECTION_KEY of a key. */
static void env_name(enum vt_config_key k, char *out, size_t size)
{
    snprintf(out, size, ENV_PREFIX "%s", vt_config_name(k));
    for (char *p = out; *p != '\0'; p++)
        *p = *p == '.' ? '_' : (char)toupper((unsigned char)*p);
}

static int unknown_env(const char *name, struct vt_err *err)
{
    char all[VT_CFG_COUNT][96];
    const char *list[VT_CFG_COUNT];
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        env_name((enum vt_config_key)k, all[k], sizeof all[k]);
        list[k] = all[k];
    }
    char hint[256];
    return vt_fail(err, VT_E_CONFIG, "environment: unknown variable %.64s%s", name,
                   vt_suggest(name, list, VT_CFG_COUNT, hint, sizeof hint));
}

int vt_config_env(struct vt_config *c, char **envp, struct vt_err *err)
{
    for (; envp != NULL && *envp != NULL; envp++) {
        const char *eq = strchr(*envp, '=');
        if (eq == NULL || strncmp(*envp, ENV_PREFIX, strlen(ENV_PREFIX)) != 0)
            continue;
        size_t n = (size_t)(eq - *envp);
        if (is_internal(*envp, n))
            continue;
        char name[96];
        char want[96];
        int found = -1;
        snprintf(name, sizeof name, "%.*s", (int)n, *envp);
        for (int k = 0; k < VT_CFG_COUNT && found < 0; k++) {
            env_name((enum vt_config_key)k, want, sizeof want);
            if (strcmp(name, want) == 0)
                found = k;
        }
        if (found < 0)
            return unknown_env(name, err);
        char origin[128];
        snprintf(origin, sizeof origin, "environment: %s", name);
        if (vt_config_set(c, VT_L_ENV, vt_config_name((enum vt_config_key)found), eq + 1, origin, err) < 0)
            return -1;
    }
    return 0;
}

static int is_conf(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".conf") == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int drop_ins(struct vt_config *c, const char *etc, struct vt_err *err)
{
    char dir[PATH_MAX];
    struct dirent **list;
    snprintf(dir, sizeof dir, "%s/conf.d", etc);
    int n = scandir(dir, &list, is_conf, by_bytes);
    if (n < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : vt_fail_errno(err, VT_E_CONFIG, "%s", dir);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX + 256];
        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (rc == 0)
            rc = vt_config_file(c, VT_L_DROPIN, path, false, err);
        free(list[i]);
    }
    free(list);
    return rc;
}

static int user_file(struct vt_config *c, struct vt_err *err)
{
    char path[PATH_MAX];
    const char *xdg = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    if (xdg != NULL && xdg[0] == '/')
        snprintf(path, sizeof path, "%s/vitriol/vitriol.conf", xdg);
    else if (home != NULL && home[0] == '/')
        snprintf(path, sizeof path, "%s/.config/vitriol/vitriol.conf", home);
    else
        return 0;
    return vt_config_file(c, VT_L_USER, path, true, err);
}

int vt_config_layers(struct vt_config *c, const char *vendor, const char *etc, bool user_files,
                     struct vt_err *err)
{
    char path[PATH_MAX];
    if (vendor != NULL) {
        snprintf(path, sizeof path, "%s/vitriol.conf", vendor);
        if (vt_config_file(c, VT_L_VENDOR, path, true, err) < 0)
            return -1;
    }
    if (etc != NULL) {
        snprintf(path, sizeof path, "%s/vitriol.conf", etc);
        if (vt_config_file(c, VT_L_SITE, path, true, err) < 0 || drop_ins(c, etc, err) < 0)
            return -1;
    }
    return user_files ? user_file(c, err) : 0;
}

/* One pattern of profile.locked: a key, or a section with .* behind it. */
static bool matches(const char *pattern, size_t n, const char *key)
{
    if (n > 0 && pattern[n - 1] == '*')
        return strncmp(pattern, key, n - 1) == 0;
    return strlen(key) == n && strncmp(pattern, key, n) == 0;
}

static bool matches_before(const char *list, const char *end, const char *key)
{
    while (list < end) {
        size_t n = strcspn(list, ", ");
        if (matches(list, n, key))
            return true;
        list += n + strspn(list + n, ", ");
    }
    return false;
}

/* A pattern of the list that says nothing is a mistake in it: that no key is meant, or none that those before do not mean. */
static int check_pattern(const char *list, const char *pattern, size_t n, const char *origin,
                         struct vt_err *err)
{
    bool any = false;
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        const char *key = vt_config_name((enum vt_config_key)k);
        if (!matches(pattern, n, key))
            continue;
        any = true;
        if (!matches_before(list, pattern, key))
            return 0;
    }
    return any ? vt_fail(err, VT_E_CONFIG,
                         "%s: profile.locked: all that %.*s matches is matched before it; leave it out",
                         origin, (int)n, pattern)
               : vt_fail(err, VT_E_CONFIG, "%s: profile.locked: no key matches %.*s", origin, (int)n,
                         pattern);
}

static int keep_locked(const struct vt_config *c, struct vt_err *err)
{
    const char *origin = vt_config_origin(c, VT_CFG_PROFILE_LOCKED);
    const char *list = vt_config_str(c, VT_CFG_PROFILE_LOCKED);
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ", ");
        if (n > 0 && check_pattern(list, p, n, origin, err) < 0)
            return -1;
        for (int k = 0; n > 0 && k < VT_CFG_COUNT; k++) {
            enum vt_config_key key = (enum vt_config_key)k;
            enum vt_config_layer layer = vt_config_layer_of(c, key);
            if (layer > VT_L_PROFILE && layer < VT_L_RECORD && matches(p, n, vt_config_name(key)))
                return vt_fail(err, VT_E_CONFIG, "%s: %s is locked by profile %s (%s)",
                               vt_config_origin(c, key), vt_config_name(key),
                               vt_config_str(c, VT_CFG_PROFILE_NAME), origin);
        }
        p += n + strspn(p + n, ", ");
    }
    return 0;
}

int vt_config_profile(struct vt_config *c, const char *vendor, const char *etc, struct vt_err *err)
{
    const char *name = vt_config_str(c, VT_CFG_PROFILE_NAME);
    const char *own = vt_config_str(c, VT_CFG_PATHS_PROFILES_DIR);
    if (name[0] == '.' || strchr(name, '/') != NULL)
        return vt_fail(err, VT_E_CONFIG, "%s: profile.name: \"%s\" is a name, not a path",
                       vt_config_origin(c, VT_CFG_PROFILE_NAME), name);
    char path[3][PATH_MAX] = {"", "", ""};
    if (own[0] != '\0')
        snprintf(path[0], sizeof path[0], "%s/%s.conf", own, name);
    if (etc != NULL)
        snprintf(path[1], sizeof path[1], "%s/profiles/%s.conf", etc, name);
    if (vendor != NULL)
        snprintf(path[2], sizeof path[2], "%s/profiles/%s.conf", vendor, name);
    for (int i = 0; i < 3; i++) {
        if (path[i][0] == '\0' || access(path[i], R_OK) < 0)
            continue;
        char *chosen = strdup(name);
        int rc = vt_config_file(c, VT_L_PROFILE, path[i], false, err);
        /* A profile that renames itself would be two profiles at once. */
        if (rc == 0 && chosen != NULL && strcmp(chosen, vt_config_str(c, VT_CFG_PROFILE_NAME)) != 0)
            rc = vt_fail(err, VT_E_CONFIG, "%s: a profile cannot set profile.name", path[i]);
        free(chosen);
        return rc < 0 ? rc : keep_locked(c, err);
    }
    if (strcmp(name, "default") == 0)
        return 0;
    return vt_fail(err, VT_E_CONFIG, "%s: profile.name: no profile \"%s\" (looked for %s)",
                   vt_config_origin(c, VT_CFG_PROFILE_NAME), name,
                   path[0][0] != '\0'   ? path[0]
                   : path[1][0] != '\0' ? path[1]
                                        : path[2]);
}
