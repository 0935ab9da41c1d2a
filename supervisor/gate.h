/* Gate: what is checked before a child is started and before a running one is stopped for it. Bytes first, then shape:
 * the model's file exists, its header opens, every tensor lies inside it and has the shape that its architecture asks for, and the
 * host has the memory that the engine will need. */
#ifndef GATE_H
#define GATE_H

#include "sup.h"

#include "plan.h"

/* Finds the model (model.path, else the embedded one) and fills s->model and s->model_name. */
int gate_find_model(struct sup *s, struct vt_err *err);
/* VT_E_NO_INPUT, VT_E_PAYLOAD, VT_E_CONFIG (a restart cannot help) or VT_E_MEM_PRESSURE (it may). Of an engine that may compute on
 * a GPU only the host's part is compared here: the GPU's needs a question to it (device.h). */
int gate_engine(const struct sup *s, struct vt_err *err);
/* The same for an engine that ends up on this processor, whatever engine.device allows. */
int gate_processor(const struct sup *s, struct vt_err *err);

/* need against what is free; available 0: it is not known, and nothing is refused. */
int gate_memory(const struct vt_plan *need, uint64_t available, struct vt_err *err);
/* What the configured model and shape need on this processor (engine-worker/model/sizing.h), measured where this shape has run;
 * the same errors as gate_engine but for the last. No tensor is read. */
int gate_engine_need(const struct sup *s, struct vt_plan *need, struct vt_err *err);
/* What of it the host's memory has to hold. */
int gate_host_need(const struct sup *s, struct vt_plan *need, struct vt_err *err);

/* Whether the engine may compute on a GPU. */
bool gate_gpu(const struct sup *s);
/* Whether the engine gets a vault: engine.vault, and whether it may compute on a GPU. */
bool gate_vault(const struct sup *s);

#endif
