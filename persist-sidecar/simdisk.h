/* A disk in memory under SQLite, for tests: every file has what the kernel shows and what would survive a
 * power loss.
 *
 * Un-synced writes are kept in order; a power loss keeps, for each sector, any prefix of the writes to it
 * (none, some, all), so that writes arrive reordered and torn. A failed sync loses the dirty data and lets
 * later syncs succeed, as Linux does. */
#ifndef STORE_SIMDISK_H
#define STORE_SIMDISK_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_call { SIM_OPEN, SIM_READ, SIM_WRITE, SIM_TRUNCATE, SIM_SYNC, SIM_KINDS, SIM_ANY = SIM_KINDS };
enum sim_loss {
    SIM_KILL,
    SIM_DROP,
    SIM_RANDOM_4K,
    SIM_RANDOM_512
}; /* kill -9: the kernel keeps what it got */

struct simdisk;

struct simdisk *sim_new(const char *name);
void sim_free(struct simdisk *d);
sqlite3_vfs *sim_vfs(struct simdisk *d);
/* The k-th call of this kind from now fails with rc (SIM_ANY: of any kind that changes something, or a sync).
 * A negative half: a write fails after half of it arrived. k = 0: nothing fails. */
void sim_fail(struct simdisk *d, enum sim_call kind, uint64_t k, int rc, bool half);
/* From the k-th changing call on, nothing reaches the disk and every call fails: the process is gone. */
void sim_crash(struct simdisk *d, uint64_t k);
bool sim_fired(const struct simdisk *d); /* the fault or the crash came */
void sim_die(struct simdisk *d);         /* the process is gone now */
/* What the next process finds. Clears faults. */
void sim_restart(struct simdisk *d, enum sim_loss loss, uint64_t seed);
void sim_lie(struct simdisk *d, bool on);                   /* syncs report success and do nothing */
void sim_limit(struct simdisk *d, uint64_t bytes);          /* size of the disk; 0 = endless */
uint64_t sim_bytes(const struct simdisk *d);                /* on it now */
uint64_t sim_synced_after_failure(const struct simdisk *d); /* syncs of a file after one of it had failed */
uint64_t sim_changes(const struct simdisk *d);              /* changing calls so far */
/* The content that the kernel shows, for tests that damage it. NULL when absent. */
uint8_t *sim_file(struct simdisk *d, const char *suffix, size_t *len);
/* A copy of the disk as it is shown (all of it durable). */
struct simdisk *sim_clone(const struct simdisk *d, const char *name);

#endif
