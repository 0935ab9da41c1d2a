#include "listen.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define BACKLOG 511

static void format(const struct sockaddr_storage *a, char *out, size_t size)
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *s = (const struct sockaddr_in6 *)a;
        inet_ntop(AF_INET6, &s->sin6_addr, host, sizeof host);
        snprintf(out, size, "[%s]:%u", host, ntohs(s->sin6_port));
    } else {
        const struct sockaddr_in *s = (const struct sockaddr_in *)a;
        inet_ntop(AF_INET, &s->sin_addr, host, sizeof host);
        snprintf(out, size, "%s:%u", host, ntohs(s->sin_port));
    }
}

static int bound_to(int fd, char *out, size_t size)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0 || (a.ss_family != AF_INET && a.ss_family != AF_INET6))
        return -1;
    format(&a, out, size);
    return 0;
}

static struct addrinfo *resolve(const char *address, struct vt_err *err)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    size_t n = (size_t)(colon - address);
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    if (n >= 2 && address[0] == '[' && address[n - 1] == ']')
        snprintf(host, sizeof host, "%.*s", (int)n - 2, address + 1);
    else
        snprintf(host, sizeof host, "%.*s", (int)n, address);
    int rc = getaddrinfo(host, colon + 1, &hint, &list);
    if (rc == 0)
        return list;
    vt_fail(err, VT_E_CONFIG, "http.listen: %s: %s", address, gai_strerror(rc));
    return NULL;
}

static int bind_one(const struct addrinfo *a)
{
    int one = 1;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    /* Addresses in TIME_WAIT do not hinder a restart; a living listener still does. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

static int fail_bind(const char *address, struct vt_err *err)
{
    char comm[64];
    int saved = errno;
    if (saved != EADDRINUSE) {
        errno = saved;
        return vt_fail_errno(err, saved == EACCES ? VT_E_PERM : VT_E_UNAVAILABLE, "http.listen: %s", address);
    }
    pid_t pid = listen_owner(address, comm, sizeof comm);
    if (pid > 0)
        return vt_fail(err, VT_E_UNAVAILABLE,
                       "http.listen: %s is taken by pid %d (%s); end it or choose another address", address,
                       (int)pid, comm);
    return vt_fail(err, VT_E_UNAVAILABLE,
                   "http.listen: %s is taken by a process of another user; end it or choose another address",
                   address);
}

static int bind_all(struct http_listen *h, const char *address, struct vt_err *err)
{
    struct addrinfo *list = resolve(address, err);
    if (list == NULL)
        return -1;
    for (const struct addrinfo *a = list; a != NULL && h->n < SUP_FD_MAX; a = a->ai_next) {
        int fd = bind_one(a);
        if (fd >= 0) {
            h->fd[h->n++] = fd;
        } else if (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) {
            fail_bind(address, err);
            freeaddrinfo(list);
            listen_close(h);
            return -1;
        }
    }
    freeaddrinfo(list);
    if (h->n == 0) {
        errno = EADDRNOTAVAIL;
        return vt_fail_errno(err, VT_E_UNAVAILABLE, "http.listen: %s", address);
    }
    return 0;
}

static bool same_address(const char *have, const char *want)
{
    struct vt_err ignored;
    struct addrinfo *list = resolve(want, &ignored);
    const char *colon = strrchr(want, ':');
    bool same = false, any_port = colon != NULL && strcmp(colon, ":0") == 0;
    for (const struct addrinfo *a = list; a != NULL; a = a->ai_next) {
        struct sockaddr_storage s = {0};
        char text[64];
        memcpy(&s, a->ai_addr, a->ai_addrlen);
        format(&s, text, sizeof text);
        size_t n = any_port ? (size_t)(strrchr(text, ':') - text) : sizeof text;
        same = same || strncmp(text, have, n) == 0;
    }
    if (list != NULL)
        freeaddrinfo(list);
    return same;
}

static int take_over(struct http_listen *h, const struct vt_config *cfg, struct vt_err *err)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(1, &names);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        int fd = SD_LISTEN_FDS_START + i;
        char address[64];
        bool ours = names == NULL || strcmp(names[i], "http") == 0 || strcmp(names[i], "unknown") == 0 ||
                    strcmp(names[i], "vitriol.socket") == 0;
        if (rc < 0 || !ours || h->n >= SUP_FD_MAX || sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) <= 0 ||
            bound_to(fd, address, sizeof address) < 0) {
            close(fd);
            continue;
        }
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        h->fd[h->n++] = fd;
        h->handed_over = true;
        const char *want = vt_config_str(cfg, VT_CFG_HTTP_LISTEN);
        if (vt_config_is_set(cfg, VT_CFG_HTTP_LISTEN) && !same_address(address, want))
            rc = vt_fail(err, VT_E_CONFIG,
                         "the listening socket handed over is bound to %s, and http.listen says %s (%s): "
                         "remove the key, the "
                         "address belongs to whoever holds the socket (vitriol.socket)",
                         address, want, vt_config_origin(cfg, VT_CFG_HTTP_LISTEN));
    }
    for (int i = 0; names != NULL && names[i] != NULL; i++)
        free(names[i]);
    free(names);
    return rc;
}

int listen_open(struct http_listen *h, const struct vt_config *cfg, struct vt_err *err)
{
    memset(h, 0, sizeof *h);
    if (take_over(h, cfg, err) < 0)
        return -1;
    if (h->n == 0 && bind_all(h, vt_config_str(cfg, VT_CFG_HTTP_LISTEN), err) < 0)
        return -1;
    bound_to(h->fd[0], h->address, sizeof h->address);
    return 0;
}

void listen_close(struct http_listen *h)
{
    for (int i = 0; i < h->n; i++)
        close(h->fd[i]);
    h->n = 0;
}

/* ---- who is it ---- */

static unsigned scan_table(const char *table, uint16_t port, uint64_t *out, unsigned n, unsigned max)
{
    FILE *f = fopen(table, "re");
    char line[512];
    while (f != NULL && n < max && fgets(line, sizeof line, f) != NULL) {
        unsigned lport, state;
        unsigned long long inode;
        if (sscanf(line, " %*u: %*[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*s %*s %llu", &lport,
                   &state, &inode) == 3 &&
            lport == port && state == 0x0a)
            out[n++] = inode;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

unsigned listen_inodes(const char *address, uint64_t *out, unsigned max)
{
    const char *colon = strrchr(address, ':');
    uint16_t port = colon != NULL ? (uint16_t)atoi(colon + 1) : 0;
    unsigned n = scan_table("/proc/net/tcp", port, out, 0, max);
    return scan_table("/proc/net/tcp6", port, out, n, max);
}

static bool holds(const char *pid, const char *want)
{
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *dir = opendir(path);
    struct dirent *e;
    bool found = false;
    while (dir != NULL && !found && (e = readdir(dir)) != NULL) {
        char target[64];
        ssize_t n = readlinkat(dirfd(dir), e->d_name, target, sizeof target - 1);
        if (n <= 0)
            continue;
        target[n] = '\0';
        found = strcmp(target, want) == 0;
    }
    if (dir != NULL)
        closedir(dir);
    return found;
}

static void read_comm(pid_t pid, char *comm, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    snprintf(comm, size, "?");
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return;
    if (fgets(comm, (int)size, f) != NULL)
        comm[strcspn(comm, "\n")] = '\0';
    fclose(f);
}

pid_t listen_owner(const char *address, char *comm, size_t size)
{
    uint64_t ino;
    char want[64];
    snprintf(comm, size, "?");
    if (listen_inodes(address, &ino, 1) == 0)
        return 0;
    snprintf(want, sizeof want, "socket:[%llu]", (unsigned long long)ino);
    DIR *dir = opendir("/proc");
    struct dirent *e;
    pid_t pid = 0;
    while (dir != NULL && pid == 0 && (e = readdir(dir)) != NULL) {
        if (isdigit((unsigned char)e->d_name[0]) && holds(e->d_name, want))
            pid = (pid_t)atoi(e->d_name);
    }
    if (dir != NULL)
        closedir(dir);
    if (pid > 0)
        read_comm(pid, comm, size);
    return pid;
}
