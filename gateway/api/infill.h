/* Infill: the prompt of a request to fill in the middle: marks of the model around what stands before and behind the gap, other
 * files in front. Text of the client never speaks as a mark. */
#ifndef API_INFILL_H
#define API_INFILL_H

#include "draft.h"

struct infill {
    const json_t *prefix, *suffix; /* strings */
    const json_t *begun;           /* how the middle begins, a string; NULL: empty */
    const json_t *extra;           /* [{"filename", "text"}], the most important one last; NULL: none */
    const char *param;             /* named in errors about the whole */
};

/* Does the model know fill-in-the-middle? */
bool infill_possible(const struct model *m);
/* One prompt for the draft, its text included. Of extra the last tokens that fit are kept; what stands around the gap is never
 * cut: it fits or 400. */
int infill_prompt(struct draft *d, const struct infill *f, struct api_err *e);

#endif
