/* Store ask: what people ask the store by hand. A question is an operation (ops.h), since the store may be in a sync or reads
 * every block; its answer is kept beside it and read in pages. The last four answers are kept. */
#ifndef STORE_ASK_H
#define STORE_ASK_H

#include "sup.h"

enum store_question { STORE_LIST = 1, STORE_VERIFY = 2, STORE_FORGET = 3 };

void store_ask_close(struct sup *s);
/* The operation's number, or 0 with the reason. tenant "": all; slot < 0: all. */
uint64_t store_ask(struct sup *s, enum store_question q, const char *tenant, int64_t slot,
                   struct vt_err *err);
/* STORE_SAID. */
void store_ask_said(struct sup *s, const struct vt_frame *f);
/* Fills CTL_REP's result with what the store said, of a list the rows from `from` on. VT_E_BUSY while it runs; the reason if
 * it failed; VT_E_NOT_FOUND when it is not kept. */
int store_ask_result(struct sup *s, uint64_t op, uint64_t from, struct vt_enc *e, struct vt_err *err);

#endif
