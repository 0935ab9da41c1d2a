#include "probe.h"

#include "seal.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROWS   512 /* of the proof: 4 MiB in each of two buffers */
#define WIDTH  2048
#define BYTES  (ROWS * WIDTH * sizeof(float))
#define ROUNDS 3

/* ---- proof ---- */

struct proof {
    float *x, *y, *back; /* of this process */
    void *dx, *dy, *seal;
};

static int take(struct proof *p, struct be *b, struct vt_err *err)
{
    p->x = malloc(BYTES);
    p->y = malloc(BYTES);
    p->back = malloc(BYTES);
    if (!p->x || !p->y || !p->back)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a proof");
    return be_alloc(b, &p->dx, BYTES, err) < 0 || be_alloc(b, &p->dy, BYTES, err) < 0 ||
                   be_alloc(b, &p->seal, sizeof(uint64_t), err) < 0
               ? -1
               : 0;
}

static void give_back(struct proof *p, struct be *b)
{
    be_release(b, p->dx, BYTES);
    be_release(b, p->dy, BYTES);
    be_release(b, p->seal, sizeof(uint64_t));
    free(p->x);
    free(p->y);
    free(p->back);
}

/* Sums of small whole numbers are exact, whatever adds them. */
static int compute(struct proof *p, struct be *b, struct vt_err *err)
{
    uint64_t seal = 0;
    for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++) {
        p->x[i] = (float)(i % 1021);
        p->y[i] = (float)(i % 509);
    }
    be_write(b, p->dx, p->x, BYTES);
    be_write(b, p->dy, p->y, BYTES);
    for (int i = 0; i < ROUNDS; i++)
        be_add(b, p->dy, p->dx, ROWS, WIDTH);
    be_seal(b, p->seal, p->dy, BYTES, BYTES);
    if (be_read(b, p->back, p->dy, BYTES, err) < 0 || be_read(b, &seal, p->seal, sizeof seal, err) < 0)
        return -1;
    for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++)
        if (p->back[i] != p->y[i] + ROUNDS * p->x[i])
            return vt_fail(err, VT_E_DEVICE_LOST, "it computes wrongly: value %zu is %g, not %g", i,
                           (double)p->back[i], (double)(p->y[i] + ROUNDS * p->x[i]));
    return seal == seal_of(p->back, BYTES, BYTES)
               ? 0
               : vt_fail(err, VT_E_DEVICE_LOST, "it computes wrongly: a checksum is not that of its bytes");
}

int probe_prove(struct be *b, struct vt_err *err)
{
    struct proof p = {0};
    int rc = take(&p, b, err);
    if (rc == 0)
        rc = compute(&p, b, err);
    give_back(&p, b);
    return rc;
}

/* ---- who has it open ---- */

static bool has_gpu_open(const char *pid)
{
    char path[64], target[64];
    struct dirent *e;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%.16s/fd", pid);
    DIR *d = opendir(path);
    while (d && !found && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strncmp(target, "/dev/nvidia", 11) == 0 && isdigit((unsigned char)target[11]);
    }
    if (d)
        closedir(d);
    return found;
}

static void read_comm(const char *pid, char *out, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%.16s/comm", pid);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(out, (int)size, f))
        snprintf(out, size, "?");
    if (f)
        fclose(f);
    for (char *p = out; *p; p++)
        *p = *p == '\n' ? '\0' : isprint((unsigned char)*p) && *p != '"' && *p != '\\' ? *p : '?';
}

static void find_holders(struct probe_answer *a)
{
    struct dirent *e;
    DIR *d = opendir("/proc");
    while (d && (e = readdir(d)) != NULL && a->n_holders < PROBE_HOLDERS) {
        int pid = isdigit((unsigned char)e->d_name[0]) ? atoi(e->d_name) : 0;
        if (pid <= 0 || pid == (int)getpid() || !has_gpu_open(e->d_name))
            continue;
        struct probe_holder *h = &a->holder[a->n_holders++];
        h->pid = pid;
        read_comm(e->d_name, h->comm, sizeof h->comm);
    }
    if (d)
        closedir(d);
}

/* ---- the question ---- */

static int plan(struct probe_answer *a, const struct probe_question *q, struct be *b, struct vt_err *err)
{
    struct gguf_file *f;
    struct model *m = NULL;
    if (gguf_open(&f, q->model, false, err) < 0)
        return -1;
    int rc = model_load(&m, f, q->model, err);
    if (rc == 0)
        rc = sizing_plan(&a->plan, m, b, &q->shape, err);
    a->planned = rc == 0;
    model_free(m);
    gguf_close(f);
    return rc;
}

int probe_ask(struct probe_answer *out, const struct probe_question *q, struct vt_err *err)
{
    struct be *b;
    *out = (struct probe_answer){0};
    if (gpu_facts(&out->facts, q->device, err) < 0)
        return -1;
    find_holders(out);
    if (!q->prove && !q->model)
        return 0;
    if (gpu_backend(&b, q->device, err) < 0)
        return -1;
    int rc = q->prove ? probe_prove(b, err) : 0;
    if (rc == 0 && q->model)
        rc = plan(out, q, b, err);
    be_free(b);
    return rc;
}
