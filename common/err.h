/* Errors: one type for every function that can fail in a way a person must read.
 *
 * A function that takes a `struct vt_err *` returns 0 or a useful value on success and -1 on failure; on failure it has
 * filled code and text. The text names the thing that is wrong and what to do about it; it never carries user content or
 * secrets. `err` may be NULL where the caller does not care. Not shared between threads. */
#ifndef VT_ERR_H
#define VT_ERR_H

#include <stdarg.h>
#include <stddef.h>

/* Codes that travel in frames (key 120) and choose the HTTP status; grouped as in docs/ARCHITECTURE.md. */
enum vt_code {
    VT_E_OK = 0,
    /* protocol */
    VT_E_BAD_FRAME = 101,
    VT_E_TOO_LARGE = 102,
    VT_E_VERSION = 103,
    VT_E_STALE_LINK = 104,
    VT_E_CREDENTIALS = 105,
    VT_E_UNKNOWN = 106,
    VT_E_LIMIT = 107,
    VT_E_NONCE = 108,
    /* admission: nothing ran */
    VT_E_DRAINING = 201,
    VT_E_QUEUE_FULL = 202,
    VT_E_LOADING = 203,
    VT_E_MEM_PRESSURE = 204,
    VT_E_NO_ENGINE = 205,
    VT_E_BOUNCING = 206,
    /* request */
    VT_E_WINDOW = 301,
    VT_E_PARAM = 302,
    VT_E_NO_MODEL = 303,
    VT_E_QUARANTINED = 304,
    VT_E_GRAMMAR = 305,
    VT_E_CAPABILITY = 306,
    VT_E_NO_SLOT = 307,
    /* run time */
    VT_E_INTERRUPTED = 401,
    VT_E_INTERRUPTED_FINAL = 402,
    VT_E_DEVICE_MEM = 403,
    VT_E_DEVICE_LOST = 404,
    VT_E_HUNG = 405,
    VT_E_CANCELLED = 406,
    VT_E_DEADLINE = 407,
    VT_E_STAGE_LOST = 408,
    VT_E_NOT_FINITE = 409,
    /* store */
    VT_E_NOT_FOUND = 501,
    VT_E_CORRUPT = 502,
    VT_E_LAYOUT = 503,
    VT_E_DISK_FULL = 504,
    VT_E_IO = 505,
    VT_E_CLOBBER = 506,
    VT_E_BUSY = 507,
    VT_E_QUOTA = 508,
    /* anything else */
    VT_E_INTERNAL = 900,
    VT_E_NOMEM = 901,
    VT_E_CONFIG = 902,      /* exit 78 */
    VT_E_PAYLOAD = 903,     /* exit 65: the file is there and wrong */
    VT_E_NO_INPUT = 904,    /* exit 66: the file is not there */
    VT_E_USAGE = 905,       /* exit 64 */
    VT_E_PERM = 906,        /* exit 77 */
    VT_E_UNAVAILABLE = 907, /* exit 69 */
    VT_E_OS = 908,          /* exit 71 */
};

/* Exit codes of every program. */
enum vt_exit {
    VT_EX_OK = 0,
    VT_EX_USAGE = 64,
    VT_EX_PAYLOAD = 65,
    VT_EX_NOINPUT = 66,
    VT_EX_UNAVAILABLE = 69,
    VT_EX_INTERNAL = 70,
    VT_EX_OS = 71,
    VT_EX_CANTCREAT = 73,
    VT_EX_IO = 74,
    VT_EX_TEMPFAIL = 75,
    VT_EX_PROTOCOL = 76,
    VT_EX_PERM = 77,
    VT_EX_CONFIG = 78,
    VT_EX_DEVICE_LOST = 80,
    VT_EX_DEVICE_OOM_LOAD = 81,
    VT_EX_DEVICE_OOM_RUN = 82,
    VT_EX_SELF_ABORT = 83,
    VT_EX_STORE_UNUSABLE = 84,
    VT_EX_LOST_SUPERVISOR = 85,
    VT_EX_HOST_MEM = 86,
};

struct vt_err {
    int code; /* enum vt_code */
    char text[512];
};

/* Fills err (when not NULL) and returns -1, so that `return vt_fail(err, …);` is the whole failure path. */
int vt_fail(struct vt_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same with ": strerror(errno)" appended. errno is read before anything else. */
int vt_fail_errno(struct vt_err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the text of an error that is already set; returns -1. */
int vt_fail_prefix(struct vt_err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The exit code (enum vt_exit) that a program ends with for this error. */
int vt_err_exit(const struct vt_err *err);

#endif
