/* Items and turns as JSON: the form in which the store keeps what its columns do not, and in which a resumed conversation
 * comes back (EV_STORED). */
#ifndef OFF_ITEM_JSON_H
#define OFF_ITEM_JSON_H

#include "core/model.h"
#include "util/json.h"

json_t *item_to_json(const struct item *it);
/* Appends the item; returns -1 when it makes no sense. */
int item_from_json(struct model *m, const json_t *o);
json_t *turn_to_json(const struct turn *t);
int turn_from_json(struct model *m, const json_t *o);

#endif
