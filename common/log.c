#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_LEN  512
#define MAX_FIELDS 16

struct record {
    enum vt_level level;
    int n;
    char *field[MAX_FIELDS]; /* "NAME=value", owned; field[0] is MESSAGE= */
};

struct vt_log {
    const char *name;
    enum vt_level max;
    bool journal, direct, stop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, drained;
    struct record queue[QUEUE_LEN];
    unsigned head, count;
    uint64_t dropped, dropped_told;
};

static const char *level_word(enum vt_level level)
{
    switch (level) {
    case VT_LOG_ERR: return "error";
    case VT_LOG_WARNING: return "warning";
    case VT_LOG_NOTICE: return "notice";
    case VT_LOG_INFO: return "info";
    default: return "debug";
    }
}

static void write_stderr(const struct vt_log *log, const struct record *r)
{
    char line[4096];
    int n = snprintf(line, sizeof line - 1, "%s: %s: %s", log->name, level_word(r->level),
                     r->field[0] + strlen("MESSAGE="));
    if (n < 0)
        return;
    if ((size_t)n > sizeof line - 2)
        n = sizeof line - 2;
    line[n++] = '\n';
    while (write(STDERR_FILENO, line, (size_t)n) < 0 && errno == EINTR) {
    }
}

static void write_journal(const struct vt_log *log, const struct record *r)
{
    struct iovec iov[MAX_FIELDS + 2];
    char prio[16];
    char ident[80];
    snprintf(prio, sizeof prio, "PRIORITY=%d", (int)r->level);
    snprintf(ident, sizeof ident, "SYSLOG_IDENTIFIER=%s", log->name);
    int n = 0;
    iov[n++] = (struct iovec){prio, strlen(prio)};
    iov[n++] = (struct iovec){ident, strlen(ident)};
    for (int i = 0; i < r->n; i++)
        iov[n++] = (struct iovec){r->field[i], strlen(r->field[i])};
    if (sd_journal_sendv(iov, n) < 0)
        write_stderr(log, r);
}

static void sink(const struct vt_log *log, struct record *r)
{
    if (log->journal)
        write_journal(log, r);
    else
        write_stderr(log, r);
    for (int i = 0; i < r->n; i++)
        free(r->field[i]);
}

static void tell_dropped(struct vt_log *log, uint64_t n)
{
    char *text = NULL;
    if (asprintf(&text, "MESSAGE=%llu log records were dropped: the log sink was slower than the writers",
                 (unsigned long long)n) < 0)
        return;
    struct record r = {.level = VT_LOG_WARNING, .n = 1, .field = {text}};
    sink(log, &r);
}

static void *drain(void *arg)
{
    struct vt_log *log = arg;
    pthread_mutex_lock(&log->lock);
    for (;;) {
        while (log->count == 0 && !log->stop)
            pthread_cond_wait(&log->more, &log->lock);
        if (log->count == 0)
            break;
        struct record r = log->queue[log->head];
        log->head = (log->head + 1) % QUEUE_LEN;
        log->count--;
        uint64_t lost = log->count == 0 ? log->dropped - log->dropped_told : 0;
        log->dropped_told += lost;
        pthread_mutex_unlock(&log->lock);
        sink(log, &r);
        if (lost > 0)
            tell_dropped(log, lost);
        pthread_mutex_lock(&log->lock);
        if (log->count == 0)
            pthread_cond_signal(&log->drained);
    }
    pthread_mutex_unlock(&log->lock);
    return NULL;
}

static bool journal_listens(void)
{
    return access("/run/systemd/journal/socket", F_OK) == 0 && !isatty(STDERR_FILENO);
}

struct vt_log *vt_log_new(const char *name, enum vt_sink sink_kind, enum vt_level max, int direct)
{
    struct vt_log *log = calloc(1, sizeof *log);
    if (log == NULL)
        return NULL;
    log->name = name;
    log->max = max;
    log->direct = direct != 0;
    log->journal = sink_kind == VT_SINK_AUTO && journal_listens();
    pthread_mutex_init(&log->lock, NULL);
    pthread_cond_init(&log->more, NULL);
    pthread_cond_init(&log->drained, NULL);
    if (!log->direct && pthread_create(&log->thread, NULL, drain, log) != 0)
        log->direct = true;
    return log;
}

void vt_log_free(struct vt_log *log)
{
    if (log == NULL)
        return;
    if (!log->direct) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        pthread_mutex_lock(&log->lock);
        log->stop = true;
        pthread_cond_signal(&log->more);
        while (log->count > 0 && pthread_cond_timedwait(&log->drained, &log->lock, &until) == 0) {
        }
        bool empty = log->count == 0;
        pthread_mutex_unlock(&log->lock);
        if (!empty)
            return; /* the sink is stuck; the process is about to end and a join could wait for ever */
        pthread_join(log->thread, NULL);
    }
    pthread_cond_destroy(&log->more);
    pthread_cond_destroy(&log->drained);
    pthread_mutex_destroy(&log->lock);
    free(log);
}

static void submit(struct vt_log *log, struct record *r)
{
    if (log->direct) {
        pthread_mutex_lock(&log->lock);
        sink(log, r);
        pthread_mutex_unlock(&log->lock);
        return;
    }
    pthread_mutex_lock(&log->lock);
    bool room = log->count < QUEUE_LEN;
    if (room) {
        log->queue[(log->head + log->count) % QUEUE_LEN] = *r;
        log->count++;
        pthread_cond_signal(&log->more);
    } else {
        log->dropped++;
    }
    pthread_mutex_unlock(&log->lock);
    if (!room) {
        for (int i = 0; i < r->n; i++)
            free(r->field[i]);
    }
}

void vt_log(struct vt_log *log, enum vt_level level, const char *fmt, ...)
{
    if (log == NULL || level > log->max)
        return;
    char *text = NULL;
    char *msg = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    n = asprintf(&msg, "MESSAGE=%s", text);
    free(text);
    if (n < 0)
        return;
    struct record r = {.level = level, .n = 1, .field = {msg}};
    submit(log, &r);
}

void vt_log_ev(struct vt_log *log, enum vt_level level, const char *event, const char *text, ...)
{
    if (log == NULL || level > log->max)
        return;
    struct record r = {.level = level};
    if (asprintf(&r.field[0], "MESSAGE=%s", text) < 0)
        return;
    r.n = 1;
    if (asprintf(&r.field[r.n], "VITRIOL_EVENT=%s", event) >= 0)
        r.n++;
    va_list ap;
    va_start(ap, text);
    const char *name;
    while (r.n < MAX_FIELDS && (name = va_arg(ap, const char *)) != NULL) {
        const char *value = va_arg(ap, const char *);
        if (asprintf(&r.field[r.n], "VITRIOL_%s=%s", name, value != NULL ? value : "") >= 0)
            r.n++;
    }
    va_end(ap);
    submit(log, &r);
}

uint64_t vt_log_dropped(const struct vt_log *log)
{
    return log->dropped;
}
