/* Sup: everything that vitriold knows, in one place; made in main, passed down, used by the main thread alone.
 *
 * Only child.c changes a child's state. Every other module offers a noun (links, routes, ops, ctl …) and is called from
 * the loop or from child.c. */
#ifndef SUP_H
#define SUP_H

#include "childlog.h"
#include "exits.h"
#include "launch.h"
#include "leaf.h"
#include "liveness.h"
#include "orphans.h"
#include "restart.h"
#include "rundir.h"
#include "state.h"

#include "clock.h"
#include "config.h"
#include "err.h"
#include "frame.h"
#include "link.h"
#include "log.h"
#include "sock.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-event.h>

#define SUP_CHILDREN    8
#define SUP_NAME_MAX    24
#define SUP_FD_MAX      4
#define SUP_START_TIMES 10

enum child_role { ROLE_GATEWAY, ROLE_STORE, ROLE_ENGINE, ROLE_VAULT, ROLE_SHIELD, ROLE_COUNT };

/* What differs between the roles. */
struct role_info {
    const char *role;    /* as in HELLO */
    const char *program; /* file name */
    int death_signal;    /* sent by the kernel when vitriold dies */
    uint64_t first_backoff_us;
    bool breaker;
};
extern const struct role_info role_table[ROLE_COUNT];

struct sup;

struct child {
    struct sup *sup;
    char name[SUP_NAME_MAX];
    enum child_role role;
    const struct role_info *info;
    enum vt_child_state state;
    uint64_t since;        /* when the state began, monotonic us */
    bool want;             /* should it run */
    bool bounce;           /* it leaves only to come back */
    bool was_ready;        /* this generation reached ready */
    bool ever_ready;       /* some generation did */
    bool waits_for_others; /* an engine that has not been started yet: for store and vault */
    bool unrouted;         /* nothing is sent to it: it is being proved, or only measured */

    /* the process */
    int exe_fd; /* opened at start: what is executed is what was checked */
    char exe_path[256];
    int ext_fd; /* the same of vitriol-external; -1: not installed, or no engine */
    char ext_path[256];
    uint32_t gen;
    pid_t pid; /* 0: none */
    int pidfd;
    uint64_t spawned_at, ready_at, killed_at;
    bool ordered;               /* told to leave */
    enum exit_class killed_for; /* why we killed it */

    /* the lifeline */
    struct vt_sock *life;
    char life_path[108];
    uint32_t life_link;
    uint8_t nonce[VT_NONCE_LEN];
    bool welcomed;
    uint64_t life_down_at; /* lost while the process lives; 0: fine */
    struct vt_enc enc;
    uint8_t recent[16]; /* types of the last frames, for evidence */
    unsigned n_recent;
    uint64_t stale_frames;
    uint32_t data_link; /* the last one to the gateway that was up in this generation; 0: none */

    /* sources, made once and re-armed */
    sd_event_source *on_exit, *on_frame, *on_pipe, *on_log, *timer;

    struct liveness live;
    struct restart restart;
    unsigned restarts;                  /* generations that ended without an order */
    enum exit_class class;              /* why the last one ended, or why it is not started */
    char detail[256];                   /* the same for people */
    uint64_t next_start;                /* backoff and failed: monotonic us, 0: only by reset */
    uint64_t start_us[SUP_START_TIMES]; /* last times from spawn to ready */
    unsigned n_starts;
    unsigned load_phase;
    uint64_t load_done, load_total, load_began;
    uint64_t restarts_by_class[CLASS_COUNT];
    uint64_t hung_total;
    uint64_t rss_anon, pinned_host; /* as it says itself */
    struct childlog log;
    struct launch launch;  /* what runs: effective values, fingerprint */
    uint64_t op;           /* the bounce, drain or stop in progress; 0: none */
    uint64_t oom_kills;    /* of its cgroup, at spawn */
    char *evidence;        /* of the generation that is ending, owned; NULL: none */
    uint64_t payload_seen; /* identity of the model file when the gate refused it */
};

struct links;
struct routes;
struct ops;
struct ctl;
struct tele;
struct events;
struct duties;
struct memory;
struct store_asked;
struct profiles;
struct payload;
struct device;

struct http_listen {
    int fd[SUP_FD_MAX];
    int n;
    bool handed_over; /* by systemd or another launcher */
    char address[64]; /* of the first one, as bound */
};

struct sup {
    sd_event *ev;
    struct vt_clock clock;
    struct vt_log *log;
    struct vt_config *cfg;
    uint8_t instance[16];
    char instance_hex[33];
    char boot_id[40];
    uint64_t started_at;
    struct rundir dir;
    struct leaves leaves;
    struct orphans orphans; /* that a predecessor left and nobody can end */
    struct http_listen http;
    char model[1024];     /* absolute path of the model in use */
    char model_name[128]; /* shown to clients: the file's name without .gguf */
    uid_t run_uid;
    gid_t run_gid;
    struct child child[SUP_CHILDREN];
    unsigned n_children;
    uint32_t next_link;
    struct live_guard guard;
    bool stopping, hurried;
    uint64_t stop_asked_at;
    int exit_code;
    uint64_t hung_total, bounces_total, late_total;
    struct launch_past past[LAUNCH_PAST];
    unsigned n_past; /* launches so far; the ring holds the last ones */
    struct links *links;
    struct routes *routes;
    struct ops *ops;
    struct ctl *ctl;
    struct tele *tele;
    struct events *events;
    struct duties *duties;
    struct memory *memory;
    struct store_asked *asked; /* NULL: nothing was asked yet */
    char last_evidence[700];   /* file of the last crash, "": none */
    struct json_t *suspects;   /* hashes of prompts, suspects.h */
    struct profiles *profiles;
    struct payload *payload; /* NULL: no model was checked yet */
    struct device *device;   /* the engine's GPU, device.h */
    bool force_shape;        /* a forbidden shape was forced */
    uint64_t mem_credit;     /* bytes that come back before the next start */
    uint64_t mem_available;  /* bytes; 0: the reading could not be trusted */
    sd_event_source *tick;
};

static inline uint64_t sup_now(const struct sup *s)
{
    return vt_mono(&s->clock);
}

/* engine.kind: the engine's work is done by another server (external-worker/). */
static inline bool sup_external(const struct vt_config *cfg)
{
    return vt_config_str(cfg, VT_CFG_ENGINE_KIND)[0] == 'e';
}

struct child *sup_child(struct sup *s, const char *name);    /* NULL when there is none of that name */
struct child *sup_role(struct sup *s, enum child_role role); /* the first of that role */

#endif
