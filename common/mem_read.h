/* Mem read: one sample of what the kernel says about memory, from the files below proc_root (/proc) and cgroup_root
 * (/sys/fs/cgroup), so that tests can build a world of their own. Every source is optional and says whether it is valid.
 *
 * cgroup: version 2 with every ancestor up to the root of the hierarchy; else the memory controller of version 1 with its
 * ancestors; else none. A file of /proc is split at the colon; a reading that contradicts itself (nothing available, more
 * available than there is) is a broken reader and makes the sample invalid: nobody acts on it. Bytes everywhere. */
#ifndef MEM_READ_H
#define MEM_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MEM_NO_LIMIT UINT64_MAX

struct mem_psi {
    bool valid;
    double some10, full10; /* percent, averages of 10 s */
};

enum mem_cgroup_kind { MEM_CGROUP_NONE, MEM_CGROUP_V1, MEM_CGROUP_V2 };

struct mem_cgroup {
    enum mem_cgroup_kind kind;
    char path[512];           /* directory of the unit: where pressure and events are read */
    uint64_t limit;           /* the tightest one of all ancestors, MEM_NO_LIMIT: none */
    uint64_t room;            /* the least of limit - used + reclaimable, MEM_NO_LIMIT: no limit */
    uint64_t ev_high, ev_max; /* counters: throttled at memory.high, limit reached (version 1: failcnt) */
    uint64_t refault_file;    /* pages, 0 when not told */
    bool refault_valid;
};

struct mem_vm {
    bool valid;
    uint64_t swap_in, refault_file; /* pages since boot */
};

/* What a process holds. */
struct mem_foot {
    bool valid;
    uint64_t rss_anon, rss_file, rss_shmem, swap, locked;
};

struct mem_sample {
    bool valid; /* meminfo can be trusted */
    uint64_t total, available, swap_total;
    struct mem_psi host, own; /* own: of the cgroup */
    struct mem_cgroup cgroup;
    struct mem_vm vm;
    /* filled by the caller from footprints */
    uint64_t hot_mapped; /* resident mapped weights: "available" for the kernel, needed for every token */
    uint64_t own_swap;   /* swapped out of our children */
};

/* Reads everything but the last two fields. True: s->valid. */
bool mem_read(struct mem_sample *s, const char *proc_root, const char *cgroup_root);
/* The cgroup alone. */
void mem_read_cgroup(struct mem_cgroup *c, const char *proc_root, const char *cgroup_root);
bool mem_read_psi(struct mem_psi *p, const char *path);
bool mem_read_foot(struct mem_foot *f, const char *proc_root, pid_t pid);
/* Bytes of a process that go with its end: anonymous, shared and swapped out. */
uint64_t mem_foot_private(const struct mem_foot *f);
/* MemAvailable; 0 when meminfo is not to be trusted. */
uint64_t mem_read_available(const char *proc_root);

/* What can still be used: the least of MemAvailable less the mapped weights, and the room below the limits. Swap adds
 * nothing. */
uint64_t mem_available_eff(const struct mem_sample *s);
/* What percentages are of: the smaller of MemTotal and the tightest limit. */
uint64_t mem_base(const struct mem_sample *s);

#endif
