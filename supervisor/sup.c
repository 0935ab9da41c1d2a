#include "sup.h"

#include <string.h>

struct child *sup_child(struct sup *s, const char *name)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        if (strcmp(s->child[i].name, name) == 0)
            return &s->child[i];
    }
    return NULL;
}

struct child *sup_role(struct sup *s, enum child_role role)
{
    for (unsigned i = 0; i < s->n_children; i++) {
        if (s->child[i].role == role)
            return &s->child[i];
    }
    return NULL;
}
