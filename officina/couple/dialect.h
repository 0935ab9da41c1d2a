/* Dialects: history in a coupling's own words. Pure: the same arguments give the same bytes, for ever within a version;
 * prefixes of requests are byte-stable because of that and because bytes once made are kept. A coupling with `redact`
 * gets secrets as [redacted abcd]. Caller frees texts. */
#ifndef OFF_DIALECT_H
#define OFF_DIALECT_H

#include "core/model.h"
#include "couple/coupling.h"

/* The opening of a request body up to the first message: tools and the system message (fixed text and opening note). */
void dialect_head(struct text *t, const struct coupling *c, const char *tools_json, const char *opening);
/* What follows the last message. model: served model's name or NULL. max_tokens: UNKNOWN: no limit. */
void dialect_tail(struct text *t, const struct coupling *c, const char *model, int64_t max_tokens,
                  bool progress);

/* One message each, as JSON objects. note: text that rides at its head, or NULL. */
void dialect_user(struct text *t, const struct coupling *c, const char *note, const char *body, size_t len);
/* An answer: its reasoning, text and calls; n items of one answer. Faulty arguments are sent as {"_invalid":…}. */
void dialect_answer(struct text *t, const struct coupling *c, const struct item *items, size_t n);
void dialect_result(struct text *t, const struct coupling *c, const struct call *call, const char *note,
                    const char *steer);
/* The system text that is compiled in. */
const char *dialect_system(void);

#endif
