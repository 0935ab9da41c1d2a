#include "programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int program_find(const char *name, char *out, size_t size, struct vt_err *err)
{
    char self[1024], list[4096];
    const char *env = getenv("VITRIOL_LIBEXEC");
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    snprintf(list, sizeof list, "%s:%s:%s", self, env != NULL ? env : "", VT_DIR_LIBEXEC);
    char *save = NULL;
    for (char *dir = strtok_r(list, ":", &save); dir != NULL; dir = strtok_r(NULL, ":", &save)) {
        int len = snprintf(out, size, "%s/%s", dir, name);
        if (len > 0 && (size_t)len < size && access(out, X_OK) == 0)
            return 0;
    }
    return vt_fail(err, VT_E_NO_INPUT, "%s is neither in %s nor in VITRIOL_LIBEXEC nor in %s", name, self,
                   VT_DIR_LIBEXEC);
}
