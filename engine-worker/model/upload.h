/* Upload: the model in the memory of a backend that has its own. A copy of struct model whose weights, vectors and tables are
 * there; the host's model stays what it is, and both go on being needed: fw_new takes this one. */
#ifndef MODEL_UPLOAD_H
#define MODEL_UPLOAD_H

#include "model.h"

struct upload; /* a copy and the memory that it owns */

/* Told in bytes of the file's tensors that have arrived; NULL: nobody asks. */
typedef void upload_progress(void *arg, uint64_t done, uint64_t total);

/* m and be are borrowed. VT_E_DEVICE_MEM: it does not fit; VT_E_CAPABILITY names the tensor's type. On failure nothing is held. */
int upload_new(struct upload **out, const struct model *m, struct be *be, upload_progress *progress,
               void *arg, struct vt_err *err);
void upload_free(struct upload *u); /* NULL is fine */
const struct model *upload_model(const struct upload *u);
uint64_t upload_bytes(const struct upload *u); /* taken */
/* What upload_new will take. */
uint64_t upload_plan(const struct model *m, struct be *be);

#endif
