/* The processor's operations behind the face of a device with memory of its own: weights are uploaded, batches are moved there, memory
 * outlives the process, and there is only so much of it. So that everything about a GPU but its arithmetic is tested where
 * there is none. Models with experts do not run on it. */
#include "fault.h"

#include "../backend/internal.h"
#include "build_id.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MEMORY     (640u << 20) /* of the device */
#define SHARED_MAX 64

struct fake {
    struct be_pool *pool;
};

static _Atomic uint64_t used; /* by this process, for itself */

static _Atomic int present; /* the fault that everything meets */

void fault_inject(enum fault f)
{
    atomic_store(&present, f);
}

static int trouble(struct vt_err *err)
{
    while (atomic_load(&present) == FAULT_SPIN)
        sleep(1);
    if (atomic_load(&present) == FAULT_FULL)
        return vt_fail(err, VT_E_DEVICE_MEM, "GPU 0: wait: out of memory");
    return atomic_load(&present) == FAULT_LOST
               ? vt_fail(err, VT_E_DEVICE_LOST, "GPU 0: wait: an illegal memory access was encountered")
               : 0;
}

/* ---- the world: what befalls the device whoever uses it ----
 *
 * Lines of the file beside the run directory (RUN_DIR.gpu): lost, hang, none, wrong, taken MIB. */

struct world {
    bool lost, hang, none, wrong;
    uint64_t taken;
};

static struct world look_at_world(void)
{
    struct world w = {0};
    const char *run = getenv("VITRIOL_RUN_DIR");
    char path[4096], line[64];
    unsigned long long mib;
    snprintf(path, sizeof path, "%.4000s.gpu", run != NULL ? run : "");
    FILE *f = run != NULL ? fopen(path, "re") : NULL;
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        w.lost = w.lost || strcmp(line, "lost\n") == 0;
        w.hang = w.hang || strcmp(line, "hang\n") == 0;
        w.none = w.none || strcmp(line, "none\n") == 0;
        w.wrong = w.wrong || strcmp(line, "wrong\n") == 0;
        if (sscanf(line, "taken %llu", &mib) == 1)
            w.taken = mib << 20;
    }
    if (f != NULL)
        fclose(f);
    return w;
}

/* ---- shared memory, that of this process and of its siblings, of which one is the vault ---- */

struct shared {
    ino_t seen[SHARED_MAX];
    unsigned n;
    uint64_t bytes;
};

static void add_shared(struct shared *s, const struct stat *st)
{
    for (unsigned i = 0; i < s->n; i++)
        if (s->seen[i] == st->st_ino)
            return;
    if (s->n < SHARED_MAX)
        s->seen[s->n++] = st->st_ino;
    s->bytes += (uint64_t)st->st_size;
}

static void look_into(struct shared *s, long pid)
{
    char path[64], target[32];
    struct dirent *e;
    struct stat st;
    snprintf(path, sizeof path, "/proc/%ld/fd", pid);
    DIR *d = opendir(path);
    while (d && (e = readdir(d)) != NULL) {
        ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, "/memfd:vitriol", 14) == 0 && fstatat(dirfd(d), e->d_name, &st, 0) == 0)
            add_shared(s, &st);
    }
    if (d)
        closedir(d);
}

static uint64_t shared_bytes(void)
{
    struct shared s = {0};
    char path[64];
    long pid;
    look_into(&s, (long)getpid());
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", (long)getppid(), (long)getppid());
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%ld", &pid) == 1)
        look_into(&s, pid);
    if (f)
        fclose(f);
    return s.bytes;
}

static uint64_t free_of_device(void)
{
    uint64_t taken = atomic_load(&used) + shared_bytes() + look_at_world().taken;
    return taken < MEMORY ? MEMORY - taken : 0;
}

static int room(size_t bytes, struct vt_err *err)
{
    uint64_t free_bytes = free_of_device();
    if (bytes > free_bytes || atomic_load(&present) == FAULT_FULL)
        return vt_fail(err, VT_E_DEVICE_MEM, "GPU 0: %.1f MiB asked for, %.1f MiB of %.1f MiB are free",
                       (double)bytes / 1048576, (double)free_bytes / 1048576, (double)MEMORY / 1048576);
    return 0;
}

static int fake_alloc(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    if (room(bytes, err) < 0 || cpu_table()->alloc(b, out, bytes, err) < 0)
        return -1;
    atomic_fetch_add(&used, bytes);
    return 0;
}

static void fake_release(struct be *b, void *p, size_t bytes)
{
    if (p)
        atomic_fetch_sub(&used, bytes);
    cpu_table()->release(b, p, bytes);
}

static int fake_share(struct be *b, void **out, size_t bytes, int *fd, struct vt_err *err)
{
    return room(bytes, err) < 0 ? -1 : cpu_table()->share(b, out, bytes, fd, err);
}

static int fake_read(struct be *b, void *dst, const void *src, size_t bytes, struct vt_err *err)
{
    return trouble(err) < 0 ? -1 : cpu_table()->read(b, dst, src, bytes, err);
}

static int fake_sync(struct be *b, struct vt_err *err)
{
    return trouble(err);
}

static int fake_alloc_host(struct be *b, void **out, size_t bytes, struct vt_err *err)
{
    *out = calloc(1, bytes);
    return *out ? 0 : vt_fail(err, VT_E_NOMEM, "pinned memory");
}

static void fake_release_host(struct be *b, void *p)
{
    free(p);
}

static size_t fake_weight_bytes(const struct be *b, const struct be_weight *w, int n)
{
    return be_type_ok(w->type)
               ? (size_t)(ggml_row_bytes(w->type, (uint64_t)w->n_in) * (uint64_t)w->n_out) * (size_t)n
               : 0;
}

static int fake_upload(struct be *b, struct be_weight *out, void *memory, const struct be_weight *w, int n,
                       struct vt_err *err)
{
    size_t part = fake_weight_bytes(b, w, 1);
    for (int i = 0; i < n; i++)
        memcpy((uint8_t *)memory + (size_t)i * part, w[i].data, part);
    return trouble(err);
}

/* A device that answers, and wrongly. */
static void fake_add(struct be *b, float *y, const float *x, int64_t T, int64_t n)
{
    if (!look_at_world().wrong)
        cpu_table()->add(b, y, x, T, n);
}

static void fake_fini(struct be *b)
{
    struct fake *f = b->device;
    be_pool_free(f->pool);
    free(f);
}

/* ---- the module ---- */

static int fake_count(void)
{
    return look_at_world().none ? 0 : 1;
}

static int fake_facts(struct gpu_facts *out, int device, struct vt_err *err)
{
    struct world w = look_at_world();
    while (w.hang)
        sleep(1);
    if (w.lost)
        return vt_fail(err, VT_E_DEVICE_LOST, "GPU 0: its properties: the device has fallen off the bus");
    *out = (struct gpu_facts){.name = "fake",
                              .uuid = "0",
                              .sm = 90,
                              .free = free_of_device(),
                              .total = MEMORY,
                              .multiprocessors = 1};
    return 0;
}

static const struct be_ops *table(void)
{
    static struct be_ops ops;
    ops = *cpu_table();
    ops.name = "fake";
    ops.alloc = fake_alloc;
    ops.release = fake_release;
    ops.share = fake_share;
    ops.read = fake_read;
    ops.fetch = fake_read;
    ops.sync = fake_sync;
    ops.alloc_host = fake_alloc_host;
    ops.release_host = fake_release_host;
    ops.weight_bytes = fake_weight_bytes;
    ops.upload = fake_upload;
    ops.add = fake_add;
    ops.fini = fake_fini;
    return &ops;
}

static int fake_backend(struct be **out, int device, struct vt_err *err)
{
    struct fake *f = calloc(1, sizeof *f);
    if (!f || be_pool_new(&f->pool, 2, err) < 0 || be_new(out, f->pool, -1, err) < 0) {
        if (f)
            be_pool_free(f->pool);
        free(f);
        return -1;
    }
    (*out)->ops = table();
    (*out)->device = f;
    return 0;
}

const struct gpu_module *fault_module(void)
{
    static const struct gpu_module fake = {VT_BUILD_ID, fake_count, fake_facts, fake_backend};
    return &fake;
}
