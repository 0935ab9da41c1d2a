/* The bubblewrap argument builder: whatever the folders and the command are, options come from the builder
 * alone: every option is one that it knows, every path is absolute, and behind the one "--" stand the shell,
 * -c and the command as it came. */
#include "tools/box.h"

#include "util/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool is_option(const char *s, int *operands)
{
    static const struct {
        const char *name;
        int operands;
    } list[] = {{"--ro-bind", 2},     {"--bind", 2},        {"--ro-bind-try", 2},        {"--dev", 1},
                {"--proc", 1},        {"--tmpfs", 1},       {"--unshare-user-try", 0},   {"--unshare-pid", 0},
                {"--unshare-ipc", 0}, {"--unshare-uts", 0}, {"--unshare-cgroup-try", 0}, {"--unshare-net", 0},
                {"--cap-drop", 1},    {"--new-session", 0}, {"--die-with-parent", 0},    {"--seccomp", 1},
                {"--chdir", 1}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (strcmp(list[i].name, s) == 0) {
            *operands = list[i].operands;
            return true;
        }
    return false;
}

static char *absolute(const uint8_t **data, size_t *size)
{
    struct text t = {0};
    text_puts(&t, "/");
    while (*size && **data && **data != '\n') {
        text_add(&t, (const char *)*data, 1);
        ++*data;
        --*size;
    }
    if (*size) {
        ++*data;
        --*size;
    }
    return text_take(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 2000)
        return 0;
    uint8_t how = *data++;
    size--;
    struct box b = {.level = how & 1 ? BOX_PROJECT : BOX_STRICT, .filter = how & 2 ? 7 : -1};
    struct box_way w = {.read_only = how & 4, .network = how & 8};
    b.root = absolute(&data, &size);
    b.home = absolute(&data, &size);
    b.state = absolute(&data, &size);
    char *command = mem_dupn((const char *)data, size);
    char **v = box_argv(&b, &w, command);
    size_t i = 1;
    int n;
    bool writable = false, net = false;
    for (; v[i] && strcmp(v[i], "--") != 0; i += (size_t)n + 1) {
        if (!is_option(v[i], &n))
            abort();
        for (int k = 1; k <= n; k++)
            if (!v[i + (size_t)k] || (v[i + (size_t)k][0] != '/' && strcmp(v[i], "--cap-drop") != 0 &&
                                      strcmp(v[i], "--seccomp") != 0))
                abort();
        writable = writable || strcmp(v[i], "--bind") == 0;
        net = net || strcmp(v[i], "--unshare-net") == 0;
    }
    if (!v[i] || strcmp(v[i + 1], "/bin/sh") != 0 || strcmp(v[i + 2], "-c") != 0 ||
        strcmp(v[i + 3], command) != 0 || v[i + 4])
        abort();
    if (writable == w.read_only || net == w.network)
        abort();
    box_argv_free(v);
    free(b.root);
    free(b.home);
    free(b.state);
    free(command);
    return 0;
}
