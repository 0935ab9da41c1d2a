#include "gpu.h"
#include "build_id.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MODULE "vitriol-cuda.so"

/* The one module of the process, opened once and for all: the CUDA runtime in it cannot be taken out again. */
static struct {
    pthread_once_t once;
    const struct gpu_module *m;
    char why[256];
} found = {.once = PTHREAD_ONCE_INIT};

static const struct gpu_module *open_at(const char *path)
{
    if (access(path, R_OK) != 0)
        return NULL;
    void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const struct gpu_module *m = h != NULL ? dlsym(h, "vitriol_gpu") : NULL;
    if (m == NULL) {
        const char *e = dlerror();
        snprintf(found.why, sizeof found.why, "%.100s: %.140s", path, e != NULL ? e : "not a module");
    } else if (strcmp(m->version, VT_BUILD_ID) != 0) {
        snprintf(found.why, sizeof found.why, "%.100s is of build %.60s, this is %.60s", path, m->version,
                 VT_BUILD_ID);
        m = NULL;
    }
    return m;
}

/* Of the driver, or of the one that a host lends to its guest. */
static bool has_device(void)
{
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
}

/* Beside the program, where the build tree has it, and where it is installed. */
static void look(void)
{
    char self[1024], path[1100];
    if (found.m != NULL)
        return;
    if (!has_device()) { /* the module is large: most machines need not read it */
        snprintf(found.why, sizeof found.why, "there is no NVIDIA GPU (no /dev/nvidiactl)");
        return;
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash != NULL)
        *slash = '\0';
    snprintf(found.why, sizeof found.why, "this build has no GPU code (%s)", MODULE);
    for (int i = 0; i < 3 && found.m == NULL; i++) {
        if (i < 2)
            snprintf(path, sizeof path, "%s/%s%s", self, i == 1 ? "../cuda/" : "", MODULE);
        else
            snprintf(path, sizeof path, "%s/%s", VT_DIR_LIBEXEC, MODULE);
        found.m = open_at(path);
    }
}

void gpu_use(const struct gpu_module *m)
{
    found.m = m;
}

int gpu_count(const char **why)
{
    pthread_once(&found.once, look);
    int n = found.m != NULL ? found.m->count() : 0;
    if (why != NULL)
        *why = found.m == NULL ? found.why : n == 0 ? "the driver of the NVIDIA GPU does not run" : "";
    return n;
}

static int check(int device, struct vt_err *err)
{
    const char *why;
    int n = gpu_count(&why);
    if (n == 0)
        return vt_fail(err, VT_E_CONFIG, "no GPU can be used: %s", why);
    if (device < 0 || device >= n)
        return vt_fail(err, VT_E_CONFIG, "there is no GPU %d; gpu:0 to gpu:%d can be used", device, n - 1);
    return 0;
}

int gpu_facts(struct gpu_facts *out, int device, struct vt_err *err)
{
    return check(device, err) < 0 ? -1 : found.m->facts(out, device, err);
}

int gpu_backend(struct be **out, int device, struct vt_err *err)
{
    *out = NULL;
    return check(device, err) < 0 ? -1 : found.m->backend(out, device, err);
}
