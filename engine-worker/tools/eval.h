/* Perplexity: the text cut into windows of ctx tokens without overlap; in each the tokens ctx/2+1 … ctx-1 are scored with
 * all earlier tokens of the window as context. */
#ifndef TOOL_EVAL_H
#define TOOL_EVAL_H

#include "lab.h"

struct eval_result {
    uint64_t windows, count;
    double nll, perplexity; /* nll: mean, natural logarithm */
};
/* max_windows 0: all. The lab's sequence 0 must hold ctx tokens. Where the tokenizer puts a start token in front of texts, it
 * replaces the first token of each window in ids. */
int eval_perplexity(struct lab *lab, uint32_t *ids, size_t n_ids, uint32_t ctx, uint32_t max_windows,
                    struct eval_result *out, struct vt_err *err);

#endif
