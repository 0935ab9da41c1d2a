/* The token for the hub, from where its own programs keep it: $HF_TOKEN, or the file $HF_TOKEN_PATH, $HF_HOME/token,
 * ~/.cache/huggingface/token. It is never written anywhere. */
#ifndef PULL_TOKEN_H
#define PULL_TOKEN_H

#include "err.h"

#define TOKEN_MAX 512

/* out is "" when there is none. An unreadable file that was named, or a text that is no token, is an error. */
int token_find(char out[TOKEN_MAX], struct vt_err *err);

#endif
