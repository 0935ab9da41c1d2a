/* Event logs: one JSON object a line, enough to replay a session to the same frames. */
#ifndef OFF_EVENT_LOG_H
#define OFF_EVENT_LOG_H

#include "core/event.h"
#include "err.h"

#include <stdio.h>

void event_log_write(FILE *out, const struct event *e);
/* Gives each event of the log to the sink; approvals and changes are the receiver's, strings are borrowed. -1 with err: line and
 * what is wrong. */
int event_log_read(FILE *in, const char *name, event_sink sink, void *arg, struct vt_err *err);

#endif
