#include "link.h"

#include "build_id.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NONCE_WAIT_MS 5000

static int read_nonce(uint8_t nonce[VT_NONCE_LEN], struct vt_err *err)
{
    size_t have = 0;
    while (have < VT_NONCE_LEN) {
        struct pollfd p = {.fd = VT_NONCE_FD, .events = POLLIN};
        int rc = poll(&p, 1, NONCE_WAIT_MS);
        if (rc < 0 && errno == EINTR)
            continue;
        ssize_t n = rc > 0 ? read(VT_NONCE_FD, nonce + have, VT_NONCE_LEN - have) : 0;
        if (n <= 0)
            return vt_fail(err, VT_E_USAGE,
                           "descriptor %d gives no nonce: this program is started by vitriold only",
                           VT_NONCE_FD);
        have += (size_t)n;
    }
    close(VT_NONCE_FD);
    return 0;
}

bool vt_told_version(int argc, char **argv, const char *program)
{
    if (argc != 2 || strcmp(argv[1], "--version") != 0)
        return false;
    printf("%s %s\n", program, VT_BUILD_ID);
    return true;
}

static int set_key(struct vt_config *cfg, char *text, struct vt_err *err)
{
    char *eq = strchr(text, '=');
    if (eq == NULL)
        return vt_fail(err, VT_E_USAGE, "--set %s: section.key=value is needed", text);
    *eq = 0;
    int rc = vt_config_set(cfg, VT_L_CMDLINE, text, eq + 1, "command line", err);
    *eq = '=';
    return rc;
}

static int number(const char *name, const char *text, unsigned long max, unsigned long *out,
                  struct vt_err *err)
{
    char *end;
    errno = 0;
    *out = strtoul(text, &end, 10);
    if (errno != 0 || *end != 0 || end == text || text[0] == '-' || *out > max)
        return vt_fail(err, VT_E_USAGE, "%s %s: a number up to %lu is needed", name, text, max);
    return 0;
}

static int one_option(struct vt_child_args *a, const char *name, char *value, struct vt_config *cfg,
                      struct vt_err *err)
{
    unsigned long n;
    if (value == NULL)
        return vt_fail(err, VT_E_USAGE, "%s: a value is missing, or the option is unknown", name);
    if (strcmp(name, "--name") == 0) {
        a->name = value;
    } else if (strcmp(name, "--lifeline") == 0) {
        a->lifeline = value;
    } else if (strcmp(name, "--gen") == 0) {
        if (number(name, value, UINT32_MAX, &n, err) < 0)
            return -1;
        a->gen = (uint32_t)n;
    } else if (strcmp(name, "--http-fds") == 0) {
        if (number(name, value, 64, &n, err) < 0)
            return -1;
        a->http_fds = (int)n;
    } else if (strcmp(name, "--model-file") == 0) {
        a->model_file = value;
    } else if (strcmp(name, "--set") == 0) {
        return set_key(cfg, value, err);
    } else {
        return vt_fail(err, VT_E_USAGE, "%s: unknown option", name);
    }
    return 0;
}

int vt_child_args(struct vt_child_args *a, int argc, char **argv, struct vt_config *cfg, struct vt_err *err)
{
    memset(a, 0, sizeof *a);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-') {
            if (a->extra != NULL)
                return vt_fail(err, VT_E_USAGE, "%s: one argument beside the options, not two", argv[i]);
            a->extra = argv[i];
            continue;
        }
        if (one_option(a, argv[i], argv[i + 1], cfg, err) < 0)
            return -1;
        i++;
    }
    if (a->name == NULL || a->lifeline == NULL || a->gen == 0)
        return vt_fail(err, VT_E_USAGE,
                       "--name, --gen and --lifeline are needed: this program is started by vitriold");
    return read_nonce(a->nonce, err);
}
