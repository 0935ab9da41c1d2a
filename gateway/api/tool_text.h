/* Tools for models whose chat template shows none: the tools and the calls and results of earlier turns are written into the
 * messages as text, in the form that the scanner's generic dialect reads. */
#ifndef TOOL_TEXT_H
#define TOOL_TEXT_H

#include "../http/error.h"
#include "../template/caps.h"

#include <jansson.h>

/* messages: checked, changed in place. tools: an array, or NULL when none may be called now. */
int tool_text_write(json_t *messages, const json_t *tools, const struct template_caps *caps,
                    struct api_err *e);

#endif
