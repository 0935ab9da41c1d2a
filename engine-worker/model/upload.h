/* Upload: the model in the memory of a backend that has its own. A copy of struct model whose weights, vectors and tables are
 * there; the host's model stays what it is, and both go on being needed: fw_new takes this one. */
#ifndef MODEL_UPLOAD_H
#define MODEL_UPLOAD_H

#include "model.h"

struct upload; /* a copy, and its memory when nobody else owns that */

/* Memory of somebody else, upload_plan bytes of the backend; zeroed: own memory. */
struct upload_place {
    void *memory;
    bool whole; /* holds the model already: nothing is written */
};

/* Told in bytes of the file's tensors that have arrived; NULL: nobody asks. */
typedef void upload_progress(void *arg, uint64_t done, uint64_t total);

/* m and be are borrowed. VT_E_DEVICE_MEM: it does not fit; VT_E_CAPABILITY names the tensor's type. On failure nothing is held. */
int upload_new(struct upload **out, const struct model *m, struct be *be, const struct upload_place *at,
               upload_progress *progress, void *arg, struct vt_err *err);
void upload_free(struct upload *u); /* NULL is fine */
const struct model *upload_model(const struct upload *u);
uint64_t upload_bytes(const struct upload *u); /* taken */
/* A checksum of all that was uploaded; waits for it. */
int upload_seal(const struct upload *u, uint64_t *out, struct vt_err *err);
/* What upload_new will take. VT_E_CAPABILITY names a type that the device cannot read. */
int upload_plan(const struct model *m, struct be *be, uint64_t *bytes, struct vt_err *err);

#endif
