/* Gate: what is checked before a child is started and before a running one is stopped for it. Bytes first, then shape:
 * the model's file exists, its header opens, every tensor lies inside it, and the host has the memory that it will need. */
#ifndef GATE_H
#define GATE_H

#include "sup.h"

#include "plan.h"

/* Finds the model (model.path, else the embedded one) and fills s->model and s->model_name. */
int gate_find_model(struct sup *s, struct vt_err *err);
/* VT_E_NO_INPUT, VT_E_PAYLOAD, VT_E_CONFIG (a restart cannot help) or VT_E_MEM_PRESSURE (it may). */
int gate_engine(const struct sup *s, struct vt_err *err);

/* What an engine needs beside what is free; 0: it is not known, and nothing is refused. */
int gate_memory(const struct vt_plan *need, uint64_t available, struct vt_err *err);
/* What the configured model and shape need; the same errors as gate_engine but for the last. */
int gate_engine_need(const struct sup *s, struct vt_plan *need, struct vt_err *err);

/* Whether the engine may compute on a GPU. */
bool gate_gpu(const struct sup *s);
/* Whether the engine gets a vault: engine.vault, and whether it may compute on a GPU. */
bool gate_vault(const struct sup *s);

#endif
