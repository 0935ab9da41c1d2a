/* Verbs of ctl: each fills the result of one reply. Keys of result maps ascend by bytes. */
#ifndef CTL_VERBS_H
#define CTL_VERBS_H

#include "sup.h"

enum verb_class { VERB_READ, VERB_OPERATE, VERB_ADMIN };

/* args: NULL when there are none. On success the verb has begun and filled CTL_REP's `ok` and `result`; on failure it has
 * written nothing and filled err. */
struct verb {
    const char *name;
    enum verb_class class;
    int (*run)(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err);
};

extern const struct verb profile_verbs[]; /* ctl_verbs_profile.c */
extern const size_t n_profile_verbs;

const struct verb *verb_find(const char *name);
/* "; did you mean …" for an unknown one. */
const char *verb_suggest(const char *name, char *out, size_t size);
/* What the appliance as a whole is: the words of `status`. */
const char *verb_overall(const struct sup *s);

#endif
