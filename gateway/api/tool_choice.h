/* Tool choice: the fields of a chat request that say which tools may or must be called. A call that must be made becomes a
 * grammar of the answer, in the model's own dialect; what cannot be held is an error. */
#ifndef TOOL_CHOICE_H
#define TOOL_CHOICE_H

#include "draft.h"

int tool_choice_read(struct draft *d, struct api_err *e);

#endif
