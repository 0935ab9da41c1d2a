#include "err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int vt_fail(struct vt_err *err, int code, const char *fmt, ...)
{
    if (err != NULL) {
        va_list ap;
        err->code = code;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return -1;
}

int vt_fail_errno(struct vt_err *err, int code, const char *fmt, ...)
{
    int saved = errno;
    if (err != NULL) {
        va_list ap;
        err->code = code;
        va_start(ap, fmt);
        int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
        if (n >= 0 && (size_t)n < sizeof err->text)
            snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", strerror(saved));
    }
    errno = saved;
    return -1;
}

int vt_fail_prefix(struct vt_err *err, const char *fmt, ...)
{
    if (err != NULL) {
        char tail[sizeof err->text];
        va_list ap;
        memcpy(tail, err->text, sizeof tail);
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text - 2, fmt, ap);
        va_end(ap);
        size_t n = strlen(err->text);
        err->text[n++] = ':';
        err->text[n++] = ' ';
        size_t m = strnlen(tail, sizeof err->text - 1 - n);
        memcpy(err->text + n, tail, m);
        err->text[n + m] = '\0';
    }
    return -1;
}

int vt_err_exit(const struct vt_err *err)
{
    switch (err->code) {
    case VT_E_OK: return VT_EX_OK;
    case VT_E_USAGE:
    case VT_E_UNKNOWN:
    case VT_E_NO_SLOT:
    case VT_E_PARAM: return VT_EX_USAGE;
    case VT_E_PAYLOAD:
    case VT_E_CORRUPT: return VT_EX_PAYLOAD;
    case VT_E_NO_INPUT:
    case VT_E_NOT_FOUND:
    case VT_E_NO_MODEL: return VT_EX_NOINPUT;
    case VT_E_UNAVAILABLE:
    case VT_E_NO_ENGINE: return VT_EX_UNAVAILABLE;
    case VT_E_OS: return VT_EX_OS;
    case VT_E_CLOBBER: return VT_EX_CANTCREAT;
    case VT_E_IO:
    case VT_E_DISK_FULL: return VT_EX_IO;
    case VT_E_LOADING:
    case VT_E_DRAINING:
    case VT_E_BOUNCING:
    case VT_E_BUSY: return VT_EX_TEMPFAIL;
    case VT_E_VERSION:
    case VT_E_BAD_FRAME: return VT_EX_PROTOCOL;
    case VT_E_PERM:
    case VT_E_CREDENTIALS: return VT_EX_PERM;
    case VT_E_CONFIG: return VT_EX_CONFIG;
    case VT_E_DEVICE_LOST: return VT_EX_DEVICE_LOST;
    case VT_E_DEVICE_MEM: return VT_EX_DEVICE_OOM_RUN;
    case VT_E_MEM_PRESSURE:
    case VT_E_NOMEM: return VT_EX_HOST_MEM;
    default: return VT_EX_INTERNAL;
    }
}
