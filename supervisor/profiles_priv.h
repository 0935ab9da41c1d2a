/* Between the files of profiles: the records (profiles.c) and the move to another configuration (profiles_move.c). */
#ifndef PROFILES_PRIV_H
#define PROFILES_PRIV_H

#include "candidate.h"
#include "profiles.h"

enum move_act { MOVE_APPLY, MOVE_PROBE, MOVE_ROLLBACK };
enum move_stage {
    MOVE_NONE,
    MOVE_VERIFYING, /* the model's bytes are read while everything runs */
    MOVE_SWITCHING, /* the new generation is on its way */
    MOVE_PROVING    /* it is ready, and not routed yet */
};

struct move {
    enum move_act act;
    enum move_stage stage;
    uint64_t op;
    struct candidate next;    /* until the switch */
    struct vt_config *before; /* from the switch on */
    json_t *record;           /* whose contract is to hold; NULL: none */
    char tag[96], from[64];
    bool gateway_too, canary_ok;
    uint32_t engine_gen, gateway_gen; /* before the switch */
    uint64_t proving_at;
    bool forced;
};

struct profiles {
    const struct options *options;
    json_t *blessed, *forbidden, *measures, *verdicts, *active;
    char devices[200];  /* of the last launch that was ready */
    bool launched;      /* one was */
    char expired[1024]; /* ban of another build that was told last */
    struct move move;
    bool auto_tried;
    sd_event_source *timer;
};

json_t **profiles_slot(struct profiles *p, const char *name);
int profiles_save(struct sup *s, const char *name, struct vt_err *err);
/* What clients are promised by what runs; owned. */
json_t *profiles_contract(struct sup *s, const struct child *engine);
/* The newest blessed record that is not what runs (fp); tag borrowed. */
json_t *profiles_newest_other(const struct profiles *p, const char *fp, const char **tag);
/* The shape that cfg asks for. */
int profiles_shape(const struct sup *s, const struct vt_config *cfg, const char *payload, struct kv *out);
int move_open(struct sup *s, struct vt_err *err);
void move_close(struct sup *s);

#endif
