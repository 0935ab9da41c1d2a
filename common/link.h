/* Child: what every child process of vitriold (engine, store, gateway, shield) shares: its arguments, the nonce, the
 * lifeline with HELLO, WELCOME, beats and orders, and the data links that LINK_OPEN mints. One sd-event loop, main thread.
 *
 * argv of a child:  PROGRAM --name engine0 --gen 7 --lifeline PATH [--http-fds N] [--model-file KEY] [--set section.key=value]… [EXTRA]
 * Descriptors: 0 /dev/null, 1 and 2 the log pipe, 3 the nonce pipe (16 bytes), 4… HTTP listening sockets (gateway only). */
#ifndef VT_LINK_H
#define VT_LINK_H

#include "clock.h"
#include "config.h"
#include "err.h"
#include "frame.h"
#include "log.h"
#include "sock.h"

#include <systemd/sd-event.h>

#define VT_NONCE_LEN 16
#define VT_NONCE_FD  3
#define VT_HTTP_FD0  4
/* A relayed request's target with its query, and the NUL. */
#define VT_PROXY_PATH_MAX 4096

struct vt_child_args {
    const char *name; /* borrowed from argv */
    const char *lifeline;
    uint32_t gen;
    int http_fds;
    const char *model_file; /* gguf_key of the model that was checked; NULL: none was */
    const char *extra;      /* the one argument that is no option, or NULL; most programs refuse it */
    uint8_t nonce[VT_NONCE_LEN];
};

/* Parses argv, applies every --set to cfg (origin "command line"), reads the nonce from descriptor 3 and closes it. A
 * nonce that does not come within 5 s is an error. */
int vt_child_args(struct vt_child_args *a, int argc, char **argv, struct vt_config *cfg, struct vt_err *err);
/* Whether --version is all that was said; then it is answered on standard output. */
bool vt_told_version(int argc, char **argv, const char *program);

struct vt_child;
struct vt_link; /* one data link (d.*, k.*, s.*) of this process */

/* The child's side of its conversation. Every callback runs on the loop's thread. Frames are valid during the call only.
 * A callback may send and may close links. NULL members are skipped. */
struct vt_child_ops {
    /* WELCOME has come: the instance id (16 bytes) is known; start loading. */
    void (*on_welcome)(void *arg, const uint8_t instance[16]);
    /* Any lifeline frame that the common code does not handle itself (ORDER, ROUTES, INTERRUPTED, HOLD, LAUNCH_…). */
    void (*on_lifeline)(void *arg, const struct vt_frame *f);
    /* Fill the beat. */
    void (*on_beat)(void *arg, struct vt_enc *beat);
    /* A data link is up (both ends have shaken hands). bulk: mapped ring or NULL. Keep link until on_link_down. */
    void (*on_link_up)(void *arg, struct vt_link *link, const char *peer_role, void *bulk, size_t bulk_bytes);
    void (*on_link)(void *arg, struct vt_link *link, const struct vt_frame *f);
    void (*on_link_down)(void *arg, struct vt_link *link);
    /* The supervisor is gone (lifeline lost for 5 s, or its process ended). Default (NULL): the loop ends with 85. Where
     * it is set, SIGALRM ends the process 3 s later. */
    void (*on_orphan)(void *arg);
};

/* Makes the child: dials the lifeline, repeats HELLO every 250 ms for up to 5 s, sends beats each second after WELCOME.
 * role: "engine", "store", "gateway", "shield". Arms the parent-death signal (SIGKILL for engine and store) and the signal
 * rule: SIGTERM, SIGINT and SIGHUP are obeyed only when the parent is gone, else they become a NOTE. Blocks these signals
 * and ignores SIGPIPE, so it comes before any thread. Files and sockets of links are made below the lifeline's folder only.
 * ev, log and clock are borrowed. When the supervisor refuses the child, the loop ends with exit code 76. */
int vt_child_new(struct vt_child **out, sd_event *ev, const struct vt_child_args *a, const char *role,
                 uint64_t caps, const struct vt_child_ops *ops, void *arg, struct vt_log *log,
                 const struct vt_clock *clock, struct vt_err *err);
void vt_child_free(struct vt_child *c);
/* Blocks the signals that vt_child_new watches: before the log's thread exists, which would take one that only the loop may
 * judge. */
void vt_child_block_signals(void);
/* Tells that the order `id` to drain or stop is done, says BYE and ends the loop with exit code 0 once both are out. */
void vt_child_leave(struct vt_child *c, uint64_t id, unsigned verb);

/* An encoder for the lifeline: vt_child_begin, fill, vt_child_send. One frame at a time. */
struct vt_enc *vt_child_begin(struct vt_child *c, uint8_t type, uint64_t id);
int vt_child_send(struct vt_child *c);
/* Shortcuts. */
void vt_child_phase(struct vt_child *c, unsigned phase, uint64_t done, uint64_t total, const char *text);
void vt_child_note(struct vt_child *c, unsigned event, const char *key, const char *value);
/* Best effort FATAL, then the caller exits with vt_err_exit(err). */
void vt_child_fatal(struct vt_child *c, const struct vt_err *err);
/* The same for another exit code than the error's usual one. */
void vt_child_fatal_as(struct vt_child *c, const struct vt_err *err, int exit_code);

/* A lifeline frame that finds the queue full is kept and sent in order later, except BEAT and telemetry, which are dropped:
 * a stopped supervisor blocks nobody.
 * Frames of another link or a kind unknown here that were dropped so far. */
uint64_t vt_child_stale(const struct vt_child *c);

/* Data links. send returns -1 when the queue is full (VT_E_BUSY): keep the work and try again a little later. */
struct vt_enc *vt_link_begin(struct vt_link *l, uint8_t type, uint64_t id);
int vt_link_send(struct vt_link *l, struct vt_err *err);
/* A whole frame that another thread has encoded (vt_enc_end has passed it) for this link, or for the lifeline. */
int vt_link_send_frame(struct vt_link *l, const uint8_t *buf, size_t len, struct vt_err *err);
int vt_child_send_frame(struct vt_child *c, const uint8_t *buf, size_t len);
/* For answers that must not be lost: a frame that finds the queue full is kept and sent in order by the loop; later sends
 * are busy until then. -1 when the link is closed or a thousand frames are kept already. */
int vt_link_post(struct vt_link *l, struct vt_err *err);
/* The process at the other end, as the kernel knows it. */
pid_t vt_link_peer(const struct vt_link *l);
uint32_t vt_link_id(const struct vt_link *l);
void *vt_link_user(const struct vt_link *l);
void vt_link_set_user(struct vt_link *l, void *user);
/* Protocol error: closes the link, tells vitriold (LINK_STATE down, why). on_link_down is called. */
void vt_link_fail(struct vt_link *l, const struct vt_err *why);

/* Events of NOTE. */
enum {
    VT_NOTE_SIGNAL = 1, /* signal=…: somebody sent a signal that only the supervisor's death gives meaning */
    VT_NOTE_RESTORE_USELESS = 2, /* slot=…: a request that continues a restored slot reused nothing of it */
    VT_NOTE_PEER_STUCK = 3,      /* link=…: the peer does not read */
    VT_NOTE_RESTORE_POOR = 4,    /* restores=…: they take longer than what they spare */
    VT_NOTE_SPEC_POOR = 6,       /* acceptance=…: guessed tokens come out so seldom that they do not pay */
    VT_NOTE_SPEC_BLIND = 7, /* acceptance=…: no guess is ever refuted, a wrong one no more than a right one */
    VT_NOTE_STORE = 5,      /* store_rebuilt, disk_full, write_budget …=what happened */
};

/* Phases of a loading engine, key `phase` of PHASE. */
enum {
    VT_PHASE_WEIGHTS = 1,
    VT_PHASE_KV = 2,
    VT_PHASE_GRAPHS = 3,
    VT_PHASE_RESTORE = 4,
    VT_PHASE_SELFTEST = 5
};
enum {
    VT_ORDER_DRAIN = 1,
    VT_ORDER_PARK_ALL,
    VT_ORDER_EXPORT,
    VT_ORDER_QUIESCE,
    VT_ORDER_CONTINUE,
    VT_ORDER_STOP,
    VT_ORDER_LEVEL,
    VT_ORDER_CANARY
};

#endif
