/* Suspects: the hashes of prompts that were in flight at crashes, as the gateway finds them (gateway/route/blame.h), kept over
 * its restarts and ours. No prompt is ever here, only its SHA-256. The main thread alone. */
#ifndef SUSPECTS_H
#define SUSPECTS_H

#include "sup.h"

#include <jansson.h>

int suspects_open(struct sup *s, struct vt_err *err);
void suspects_close(struct sup *s);
/* SUSPECT of the gateway. */
void suspects_said(struct sup *s, const struct vt_frame *f);
/* The gateway has just been welcomed, or something was cleared: all that are younger than a day. */
void suspects_tell(struct sup *s);
/* hash: the first 8 digits of one or more; "" : all. The number of those that are cleared. */
int suspects_clear(struct sup *s, const char *hash, struct vt_err *err);
const json_t *
suspects_record(const struct sup *s); /* hash -> {class, crashes, in_flight, last_us, quarantined} */

#endif
