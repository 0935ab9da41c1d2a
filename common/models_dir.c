#include "models_dir.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int vt_models_dir(const struct vt_config *c, char *out, size_t size, struct vt_err *err)
{
    const char *set = vt_config_str(c, VT_CFG_PATHS_MODELS_DIR), *xdg = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    int n = 0;
    if (set[0] != '\0')
        n = snprintf(out, size, "%s", set);
    else if (geteuid() == 0)
        n = snprintf(out, size, "/var/lib/vitriol/models");
    else if (xdg != NULL && xdg[0] == '/')
        n = snprintf(out, size, "%s/vitriol/models", xdg);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, size, "%s/.local/share/vitriol/models", home);
    else
        return vt_fail(err, VT_E_CONFIG,
                       "paths.models_dir is empty and there is no HOME to choose one; set it");
    if (n < 0 || (size_t)n >= size)
        return vt_fail(err, VT_E_CONFIG, "paths.models_dir: the path is too long");
    return 0;
}

/* NAME-00001-of-00003.gguf */
static bool is_first_part(const char *file, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(file, name, n) == 0 && strncmp(file + n, "-00001-of-", 10) == 0 &&
           strcmp(file + n + 10 + strspn(file + n + 10, "0123456789"), ".gguf") == 0;
}

static bool find_first_part(const char *dir, const char *name, char *out, size_t size)
{
    bool found = false;
    DIR *d = opendir(dir);
    for (const struct dirent *e; d != NULL && !found && (e = readdir(d)) != NULL;) {
        found = is_first_part(e->d_name, name);
        if (found)
            snprintf(out, size, "%s/%s", dir, e->d_name);
    }
    if (d != NULL)
        closedir(d);
    return found;
}

int vt_models_find(const struct vt_config *c, const char *name, char *out, size_t size, struct vt_err *err)
{
    char dir[1024];
    if (strchr(name, '/') != NULL || access(name, F_OK) == 0) {
        snprintf(out, size, "%s", name);
        return 0;
    }
    if (vt_models_dir(c, dir, sizeof dir, err) < 0)
        return -1;
    snprintf(out, size, "%s/%s", dir, name);
    if (name[0] != '\0' && access(out, F_OK) == 0)
        return 0;
    snprintf(out, size, "%s/%s.gguf", dir, name);
    if (access(out, F_OK) == 0 || find_first_part(dir, name, out, size))
        return 0;
    return vt_fail(err, VT_E_NO_INPUT,
                   "%s is neither a file here nor a model in %s; fetch one with vitriol pull", name, dir);
}
