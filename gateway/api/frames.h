/* Frames: what stands around an answer that a grammar makes: thoughts before it, marks around calls, and in harmony the heads of
 * messages. */
#ifndef FRAMES_H
#define FRAMES_H

#include "../grammar/grammar.h"
#include "../model.h"

/* A mark: the control token where the vocabulary has one, else its letters. */
uint32_t frame_mark(const struct model *m, struct grammar *g, const char *text);
/* The head of a message of harmony that calls this function. */
uint32_t frame_call(const struct model *m, struct grammar *g, const char *function);
/* The whole answer. think_close: it begins inside of thoughts, which this mark ends; NULL: it does not. root: what was asked for;
 * calls: that is messages already. */
uint32_t frame_answer(const struct model *m, struct grammar *g, const char *think_close, uint32_t root,
                      bool calls);

#endif
