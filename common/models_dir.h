/* The folder of models that were fetched, and a model in it by its name. Any thread. */
#ifndef VT_MODELS_DIR_H
#define VT_MODELS_DIR_H

#include "config.h"

#include <stddef.h>

/* paths.models_dir; empty: /var/lib/vitriol/models for root, else ~/.local/share/vitriol/models. */
int vt_models_dir(const struct vt_config *c, char *out, size_t size, struct vt_err *err);
/* The file that a person means by --model: a path as it is; a plain name that is no file here, also NAME, NAME.gguf or the
 * first part of NAME in the folder. VT_E_NO_INPUT names the folder. */
int vt_models_find(const struct vt_config *c, const char *name, char *out, size_t size, struct vt_err *err);

#endif
