#include "mem_psi.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A window of two seconds is all that an unprivileged process gets. The kernel takes the last byte for the end of the
 * text, so that the terminating zero has to be written, too. */
static const char trigger[] = "some 150000 2000000";

int mem_psi_arm(const char *path, char *why, size_t size)
{
    struct statfs fs;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        return -1;
    }
    /* Any other file would be written to. */
    if (fstatfs(fd, &fs) < 0 || (fs.f_type != PROC_SUPER_MAGIC && fs.f_type != CGROUP2_SUPER_MAGIC)) {
        snprintf(why, size, "%s: not the kernel's", path);
        close(fd);
        return -1;
    }
    if (write(fd, trigger, sizeof trigger) < 0) {
        snprintf(why, size, "%s: %s", path, strerror(errno));
        close(fd);
        return -1;
    }
    return fd;
}
