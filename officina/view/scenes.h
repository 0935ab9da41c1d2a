/* Scenes: models of the moments that the frames' tests and the manual show. Each makes a fresh model; model_free() ends it.
 * Times are fixed, so frames are too. */
#ifndef OFF_SCENES_H
#define OFF_SCENES_H

#include "core/model.h"
#include "view/ui.h"

#define SCENE_NOW 1764503000000000ull /* 2025-11-30 11:43:20 UTC */

struct scene {
    const char *name;
    int w, h; /* of the mock-up; 0: every size */
    struct model *(*make)(struct ui *u);
};

extern const struct scene scenes[];
extern const size_t n_scenes;

#endif
