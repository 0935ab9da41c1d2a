/* Gateway: the state of the process, made in main and handed to whoever answers requests. One thread. */
#ifndef GATEWAY_H
#define GATEWAY_H

#include "clock.h"
#include "config.h"
#include "http/auth.h"
#include "http/server.h"
#include "link.h"
#include "log.h"
#include "model.h"
#include "route/router.h"
#include "stats.h"

#include <sys/stat.h>

struct answer;
struct scribe;
struct relayed;
struct telemetry;

struct gateway {
    sd_event *ev;
    struct vt_config *cfg;
    struct vt_log *log;
    struct vt_clock clock;
    struct vt_child *child;
    struct http_server *http;
    struct auth *auth;
    struct model model;
    struct stat model_seen; /* of the file when it was read */
    struct router router;
    struct stats stats;
    struct telemetry *telemetry;
    struct scribe *scribe;
    struct answer *answers;  /* all that are not finished */
    struct relayed *relayed; /* requests of an external engine (proxy/proxy.h) */
    char instance[33];       /* hex; "" until the supervisor has said it */
    char build[64];
    int64_t started; /* wall seconds */
    int n_http_fds;
    uint64_t welcome_us; /* 0: the supervisor has not answered yet */
    uint64_t ticks;
    bool draining, orphaned;
    uint64_t leave_by; /* draining or orphaned: latest end, monotonic us */
    int exit_code;
};

#endif
