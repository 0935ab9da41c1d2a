#include "payload.h"

#include "record.h"

#include "gguf.h"
#include "hash.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE      (1u << 20)
#define REMEMBERED 64

struct payload {
    pthread_t thread;
    bool running;
    atomic_bool done, stop;
    char path[1024], key[160], sha[65];
    char failed[160]; /* why reading ended, "" when it went well */
    json_t *known;    /* identity -> hex */
};

static void key_of(const struct stat *st, char *out, size_t size)
{
    snprintf(out, size, "%llu:%llu:%llu:%lld.%09ld:%lld.%09ld", (unsigned long long)st->st_dev,
             (unsigned long long)st->st_ino, (unsigned long long)st->st_size, (long long)st->st_mtim.tv_sec,
             st->st_mtim.tv_nsec, (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec);
}

static void hash_file(struct payload *p, int fd)
{
    uint8_t *buf = malloc(PIECE), digest[VT_SHA256_LEN];
    struct vt_sha256 *h = vt_sha256_new();
    ssize_t n = -1;
    while (buf != NULL && h != NULL && !atomic_load(&p->stop) && (n = read(fd, buf, PIECE)) > 0)
        vt_sha256_add(h, buf, (size_t)n);
    if (buf == NULL || h == NULL)
        snprintf(p->failed, sizeof p->failed, "out of memory");
    else if (n < 0)
        snprintf(p->failed, sizeof p->failed, "%s", strerror(errno));
    else if (!atomic_load(&p->stop)) {
        vt_sha256_end(h, digest);
        vt_hex(digest, sizeof digest, p->sha);
    }
    if (h != NULL)
        vt_sha256_free(h);
    free(buf);
}

static void *run(void *arg)
{
    struct payload *p = arg;
    struct stat st;
    char key[sizeof p->key];
    int fd = open(p->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        snprintf(p->failed, sizeof p->failed, "%s", strerror(errno));
    } else {
        hash_file(p, fd);
        key_of(&st, key, sizeof key);
        if (fstat(fd, &st) < 0 || strcmp(key, p->key) != 0)
            snprintf(p->failed, sizeof p->failed, "the file changed while it was read");
    }
    if (fd >= 0)
        close(fd);
    atomic_store(&p->done, true);
    return NULL;
}

static struct payload *state(struct sup *s)
{
    if (s->payload == NULL && (s->payload = calloc(1, sizeof *s->payload)) != NULL)
        s->payload->known = record_load(s->dir.state, "payloads", s->log);
    return s->payload;
}

/* Takes the result of a thread that is over. */
static void collect(struct sup *s, struct payload *p)
{
    struct vt_err err;
    if (!p->running || !atomic_load(&p->done))
        return;
    pthread_join(p->thread, NULL);
    p->running = false;
    if (p->failed[0] != '\0' || p->sha[0] == '\0')
        return;
    if (json_object_size(p->known) >= REMEMBERED)
        json_object_clear(p->known);
    json_object_set_new(p->known, p->key, json_string(p->sha));
    if (record_save(s->dir.state, "payloads", p->known, &err) < 0)
        vt_log(s->log, VT_LOG_WARNING, "the model's hash is not remembered: %s", err.text);
}

static enum payload_state begin(struct payload *p, const char *path, const char *key, struct vt_err *err)
{
    if (p->running)
        return PAYLOAD_WORKING;
    atomic_store(&p->done, false);
    p->failed[0] = p->sha[0] = '\0';
    snprintf(p->path, sizeof p->path, "%s", path);
    snprintf(p->key, sizeof p->key, "%s", key);
    if (pthread_create(&p->thread, NULL, run, p) != 0) {
        vt_fail(err, VT_E_OS, "no thread to read %s", path);
        return PAYLOAD_BAD;
    }
    p->running = true;
    return PAYLOAD_WORKING;
}

static enum payload_state bad(void)
{
    return PAYLOAD_BAD;
}

static int check_bytes(const struct vt_config *cfg, const char *path, const struct stat *st,
                       struct vt_err *err)
{
    uint64_t want = (uint64_t)vt_config_int(cfg, VT_CFG_MODEL_BYTES), have = (uint64_t)st->st_size;
    struct gguf_file *f;
    if (want == 0 || want == have)
        return 0;
    /* A split file counts with all its parts; one that cannot be opened is judged by itself. */
    if (have < want && gguf_open(&f, path, true, NULL) == 0) {
        have = gguf_total_bytes(f);
        gguf_close(f);
    }
    if (have == want)
        return 0;
    return vt_fail(err, VT_E_PAYLOAD, "model %s has %llu bytes, %llu are expected (model.bytes): %s", path,
                   (unsigned long long)have, (unsigned long long)want,
                   have < want ? "it is cut short" : "it is another file");
}

enum payload_state payload_check(struct sup *s, const struct vt_config *cfg, const char *path,
                                 struct vt_err *err)
{
    if (sup_external(cfg) && path[0] == '\0')
        return PAYLOAD_GOOD;
    const char *want = vt_config_str(cfg, VT_CFG_MODEL_SHA256);
    struct payload *p = state(s);
    struct stat st;
    char key[160];
    if (p == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory"), bad();
    collect(s, p);
    if (stat(path, &st) < 0)
        return vt_fail_errno(err, VT_E_NO_INPUT, "model %s", path), bad();
    if (check_bytes(cfg, path, &st, err) < 0)
        return bad();
    if (want[0] == '\0')
        return PAYLOAD_GOOD;
    key_of(&st, key, sizeof key);
    const char *have = json_string_value(json_object_get(p->known, key));
    if (have == NULL && !p->running && p->failed[0] != '\0' && strcmp(p->key, key) == 0) {
        vt_fail(err, VT_E_PAYLOAD, "model %s cannot be read: %s", path, p->failed);
        p->failed[0] = '\0'; /* the next time it is tried again */
        return bad();
    }
    if (have == NULL)
        return begin(p, path, key, err);
    if (strcmp(have, want) == 0)
        return PAYLOAD_GOOD;
    vt_fail(err, VT_E_PAYLOAD,
            "model %s is damaged or another one: SHA-256 is %.12s\xe2\x80\xa6, model.sha256 says "
            "%.12s\xe2\x80\xa6",
            path, have, want);
    return bad();
}

int payload_of(const struct sup *s, char out[13], uint64_t *bytes, struct vt_err *err)
{
    if (!sup_external(s->cfg))
        return payload_identity(s->model, out, bytes, err);
    *bytes = 0;
    snprintf(out, 13, "external");
    return 0;
}

void payload_file(const char *path, char out[13])
{
    struct gguf_file *f;
    out[0] = '\0';
    if (gguf_open(&f, path, true, NULL) == 0)
        gguf_key(f, out);
    gguf_close(f);
}

int payload_identity(const char *path, char out[13], uint64_t *bytes, struct vt_err *err)
{
    struct gguf_file *f;
    uint8_t sum[32];
    char hex[65];
    if (gguf_open(&f, path, false, err) < 0)
        return -1;
    int rc = gguf_index_sha256(f, sum);
    *bytes = gguf_total_bytes(f);
    gguf_close(f);
    if (rc < 0)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    vt_hex(sum, sizeof sum, hex);
    snprintf(out, 13, "%.12s", hex);
    return 0;
}

void payload_close(struct sup *s)
{
    if (s->payload == NULL)
        return;
    atomic_store(&s->payload->stop, true);
    if (s->payload->running)
        pthread_join(s->payload->thread, NULL);
    json_decref(s->payload->known);
    free(s->payload);
    s->payload = NULL;
}
