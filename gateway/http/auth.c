#include "auth.h"

#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

struct auth {
    size_t n;
    uint8_t (*digest)[VT_SHA256_LEN];
};

static int add(struct auth *a, const char *key, size_t n)
{
    void *p = realloc(a->digest, (a->n + 1) * sizeof *a->digest);
    if (!p)
        return -1;
    a->digest = p;
    vt_sha256(key, n, a->digest[a->n++]);
    return 0;
}

static int read_keys(struct auth *a, int fd, const char *path, struct vt_err *err)
{
    struct stat st;
    char text[65536];
    if (fstat(fd, &st))
        return vt_fail_errno(err, VT_E_CONFIG, "http.api_keys_file: cannot examine %s", path);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 077) || (st.st_uid != geteuid() && st.st_uid != 0))
        return vt_fail(
            err, VT_E_CONFIG,
            "http.api_keys_file: %s must be a plain file of mode 0600 that belongs to the service user "
            "(chmod 600, chown)",
            path);
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0 || n == (ssize_t)sizeof text)
        return vt_fail(err, VT_E_CONFIG, "http.api_keys_file: %s cannot be read, or is larger than 64 KiB",
                       path);
    for (char *p = text, *end = text + n; p < end;) {
        char *nl = memchr(p, '\n', (size_t)(end - p));
        char *stop = nl ? nl : end;
        char *next = stop + (nl != NULL);
        while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
            stop--;
        while (p < stop && (*p == ' ' || *p == '\t'))
            p++;
        if (p < stop && *p != '#' && add(a, p, (size_t)(stop - p)))
            return vt_fail(err, VT_E_NOMEM, "http.api_keys_file: out of memory");
        p = next;
    }
    explicit_bzero(text, sizeof text);
    if (a->n == 0)
        return vt_fail(err, VT_E_CONFIG,
                       "http.api_keys_file: %s holds no key; leave the setting empty to need none", path);
    return 0;
}

int auth_load(struct auth **out, const char *path, struct vt_err *err)
{
    struct auth *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a)
        return vt_fail(err, VT_E_NOMEM, "http.api_keys_file: out of memory");
    if (*path) {
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        int r = fd < 0 ? vt_fail_errno(err, VT_E_CONFIG, "http.api_keys_file: cannot open %s", path)
                       : read_keys(a, fd, path, err);
        if (fd >= 0)
            close(fd);
        if (r) {
            auth_free(a);
            return -1;
        }
    }
    *out = a;
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    free(a->digest);
    free(a);
}

bool auth_ok(const struct auth *a, const char *authorization, const char *x_api_key)
{
    if (a->n == 0)
        return true;
    const char *key = authorization ? authorization : x_api_key;
    if (!key)
        return false;
    if (authorization && strncasecmp(key, "Bearer ", 7) == 0)
        key += 7;
    while (*key == ' ')
        key++;
    uint8_t digest[VT_SHA256_LEN];
    vt_sha256(key, strlen(key), digest);
    int hit = 0;
    for (size_t i = 0; i < a->n; i++) /* all of them, whichever fits */
        hit |= vt_equal_ct(a->digest[i], digest, sizeof digest);
    return hit;
}
