#include "ctl_http.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_MAX (1u << 20)

static int connect_to(const char *address, struct vt_err *err)
{
    char host[128];
    const char *colon = strrchr(address, ':');
    struct addrinfo hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *a = NULL;
    struct timeval t = {.tv_sec = 3};
    if (colon == NULL)
        return vt_fail(err, VT_E_UNAVAILABLE, "no HTTP address");
    bool v6 = address[0] == '[';
    snprintf(host, sizeof host, "%.*s", (int)(colon - address) - (v6 ? 2 : 0), address + v6);
    /* A wildcard listens everywhere, here too. */
    const char *where = strcmp(host, "0.0.0.0") == 0 ? "127.0.0.1" : strcmp(host, "::") == 0 ? "::1" : host;
    int rc = getaddrinfo(where, colon + 1, &hint, &a);
    if (rc != 0)
        return vt_fail(err, VT_E_UNAVAILABLE, "%s: %s", address, gai_strerror(rc));
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
    }
    if (fd < 0 || connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
        vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", address);
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    freeaddrinfo(a);
    return fd;
}

static int read_key(const char *path, char *key, size_t size, struct vt_err *err)
{
    key[0] = '\0';
    if (path == NULL)
        return 0;
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return vt_fail_errno(err, VT_E_NO_INPUT, "--api-key-file %s", path);
    if (fgets(key, (int)size, f) != NULL)
        key[strcspn(key, "\r\n")] = '\0';
    fclose(f);
    return 0;
}

static char *read_all(int fd, size_t *len, struct vt_err *err)
{
    char *buf = malloc(ANSWER_MAX + 1);
    *len = 0;
    while (buf != NULL && *len < ANSWER_MAX) {
        ssize_t n = recv(fd, buf + *len, ANSWER_MAX - *len, 0);
        if (n < 0) {
            vt_fail_errno(err, VT_E_UNAVAILABLE, "the gateway does not answer");
            free(buf);
            return NULL;
        }
        if (n == 0)
            break;
        *len += (size_t)n;
    }
    if (buf == NULL)
        vt_fail(err, VT_E_NOMEM, "out of memory");
    else
        buf[*len] = '\0';
    return buf;
}

static int refused(const char *path, int status, const json_t *answer, struct vt_err *err)
{
    const char *message = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    return vt_fail(err, status == 401 ? VT_E_PERM : VT_E_UNAVAILABLE, "%s answers %d%s%.200s", path, status,
                   message != NULL ? ": " : "", message != NULL ? message : "");
}

json_t *http_get_json(const char *address, const char *path, const char *key_file, struct vt_err *err)
{
    char key[512], request[1024];
    if (read_key(key_file, key, sizeof key, err) < 0)
        return NULL;
    int fd = connect_to(address, err);
    if (fd < 0)
        return NULL;
    /* HTTP/1.0: the answer ends with the connection, never in chunks. */
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: %s\r\n%s%s%s\r\n", path, address,
                     key[0] != '\0' ? "Authorization: Bearer " : "", key, key[0] != '\0' ? "\r\n" : "");
    size_t len = 0;
    char *buf = NULL;
    if (send(fd, request, (size_t)n, MSG_NOSIGNAL) == n)
        buf = read_all(fd, &len, err);
    else
        vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", address);
    close(fd);
    if (buf == NULL)
        return NULL;
    int status = 0;
    const char *body = strstr(buf, "\r\n\r\n");
    sscanf(buf, "HTTP/%*s %d", &status);
    json_t *out = body != NULL ? json_loads(body + 4, 0, NULL) : NULL;
    if (status != 200 || out == NULL) {
        refused(path, status, out, err);
        json_decref(out);
        out = NULL;
    }
    free(buf);
    return out;
}

/* ---- streams ---- */

static int post(int fd, const char *address, const char *path, const char *body, const char *key,
                struct vt_err *err)
{
    char head[1024];
    size_t len = strlen(body), at = 0;
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.0\r\nHost: %s\r\n%s%s%sContent-Type: application/json\r\n"
                     "Content-Length: %zu\r\n\r\n",
                     path, address, key[0] != '\0' ? "Authorization: Bearer " : "", key,
                     key[0] != '\0' ? "\r\n" : "", len);
    if (send(fd, head, (size_t)n, MSG_NOSIGNAL) != n)
        return vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", address);
    while (at < len) {
        ssize_t k = send(fd, body + at, len - at, MSG_NOSIGNAL);
        if (k <= 0)
            return vt_fail_errno(err, VT_E_UNAVAILABLE, "%s", address);
        at += (size_t)k;
    }
    return 0;
}

/* The status line and the rest of the head; the status, 0 when there is none. */
static int read_head(FILE *f, char **line, size_t *size)
{
    int status = 0;
    if (getline(line, size, f) > 0)
        sscanf(*line, "HTTP/%*s %d", &status);
    while (getline(line, size, f) > 0 && strcmp(*line, "\r\n") != 0)
        ;
    return status;
}

static int read_events(FILE *f, const char *path, void (*event)(void *arg, const json_t *e), void *arg,
                       struct vt_err *err)
{
    char *line = NULL;
    size_t size = 0;
    int rc = 0, status = read_head(f, &line, &size);
    while (rc == 0 && getline(&line, &size, f) > 0) {
        bool data = strncmp(line, "data: ", 6) == 0;
        json_t *e = json_loads(data ? line + 6 : line, JSON_ALLOW_NUL, NULL); /* texts may hold any byte */
        if (status != 200 || json_object_get(e, "error") != NULL)
            rc = refused(path, status, e, err);
        else if (data && e != NULL)
            event(arg, e);
        json_decref(e);
    }
    if (rc == 0 && ferror(f))
        rc = vt_fail(err, VT_E_UNAVAILABLE, "the gateway has fallen silent");
    else if (rc == 0 && status != 200)
        rc = refused(path, status, NULL, err);
    free(line);
    return rc;
}

int http_post_events(const char *address, const char *path, const json_t *body, const char *key_file,
                     int silence_s, void (*event)(void *arg, const json_t *e), void *arg, struct vt_err *err)
{
    char key[512];
    struct timeval t = {.tv_sec = silence_s};
    if (read_key(key_file, key, sizeof key, err) < 0)
        return -1;
    char *text = json_dumps(body, JSON_COMPACT);
    if (text == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    int fd = connect_to(address, err);
    int rc = fd < 0 ? -1 : post(fd, address, path, text, key, err);
    FILE *f = rc == 0 ? fdopen(fd, "r") : NULL;
    free(text);
    if (f == NULL) {
        if (rc == 0)
            rc = vt_fail(err, VT_E_NOMEM, "out of memory");
        if (fd >= 0)
            close(fd);
        return rc;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    rc = read_events(f, path, event, arg, err);
    fclose(f);
    return rc;
}
