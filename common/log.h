/* Log: journal records where journald listens, lines on stderr elsewhere.
 *
 * A log is made once in main and passed down. Writers only format into a bounded queue; one thread writes it out, since
 * a stuck journal or a full pipe may block and a main loop may not. When the queue is full, records are dropped and
 * counted, and the count is reported when the sink drains. Prompts, completions and secrets are never logged.
 * Any thread may write. Children log to stderr, which vitriold reads and forwards. */
#ifndef VT_LOG_H
#define VT_LOG_H

#include <stdarg.h>
#include <stdint.h>

enum vt_level { VT_LOG_ERR = 3, VT_LOG_WARNING = 4, VT_LOG_NOTICE = 5, VT_LOG_INFO = 6, VT_LOG_DEBUG = 7 };

enum vt_sink {
    VT_SINK_AUTO,   /* journal if its socket exists and stderr is not a terminal, else stderr */
    VT_SINK_STDERR, /* "<level> name: text" lines */
};

struct vt_log;

/* name: the program ("vitriold", "engine0"), borrowed for the log's life. max: least important level that is kept.
 * direct: write in the caller's thread (short tools and tests). Returns NULL when memory is out. */
struct vt_log *vt_log_new(const char *name, enum vt_sink sink, enum vt_level max, int direct);
/* Drains what is queued for at most one second, then frees. */
void vt_log_free(struct vt_log *log);

/* log may be NULL: then nothing happens. */
void vt_log(struct vt_log *log, enum vt_level level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A structured record: fields are NULL-terminated pairs of (name, value) strings; names without the VITRIOL_ prefix and in
 * upper case, e.g. vt_log_ev(l, VT_LOG_NOTICE, "child-ready", "engine0 is ready", "CHILD", "engine0", "GEN", "3", NULL). */
void vt_log_ev(struct vt_log *log, enum vt_level level, const char *event, const char *text, ...)
    __attribute__((sentinel));

/* Records dropped so far. */
uint64_t vt_log_dropped(const struct vt_log *log);

#endif
