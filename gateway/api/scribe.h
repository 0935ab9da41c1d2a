/* Scribe: runs drafts. Short bodies on the spot, long ones on a thread beside the loop, one after the other. */
#ifndef SCRIBE_H
#define SCRIBE_H

#include "draft.h"

struct scribe;

int scribe_new(struct scribe **out, struct gateway *gw, struct vt_err *err);
void scribe_free(struct scribe *s); /* waits for the draft in work */

/* Reads the body of r, has fn make a draft of it, and answers: with the reply of the draft, or by generating in the shape
 * of surface. */
void scribe_take(struct gateway *gw, struct http_req *r, draft_fn fn, const struct surface *surface);

/* The same for what is no generation: start takes the draft's prompts and extra, or what else it needs of it. */
typedef void (*scribe_start)(struct gateway *gw, struct http_req *r, struct draft *d);
void scribe_take_for(struct gateway *gw, struct http_req *r, draft_fn fn, scribe_start start);

#endif
