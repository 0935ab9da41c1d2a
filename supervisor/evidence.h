/* Evidence: what can be read about a process that hangs or died, bounded in bytes and time, without user content. */
#ifndef EVIDENCE_H
#define EVIDENCE_H

#include "sup.h"

#define EVIDENCE_MAX 65536

/* A text of at most 64 KiB, owned by the caller; NULL when memory is out. Takes at most 3 s. */
char *evidence_capture(const struct child *c, const char *why);
#define EVIDENCE_FILES 32

/* Keeps what was captured of a generation that ended, as a file of the state directory (mode 0600; the newest EVIDENCE_FILES
 * stay), and tells where it is. It holds no prompt: those in flight are added by their hashes when the gateway names them. */
void evidence_keep(struct child *c);
void evidence_add(struct sup *s, const char *line);
/* Kernel's count of out-of-memory kills in the cgroup of a process; 0 where it cannot be read. */
uint64_t evidence_oom_kills(const struct sup *s, pid_t pid);
/* State letter of a process from /proc ('R', 'S', 'D', 'T', 'Z'), '?' when it is gone. */
char evidence_proc_state(const struct sup *s, pid_t pid);

#endif
