/* Launch: what one generation of a child was told, what it applied, and the record of it in the store. */
#ifndef LAUNCH_H
#define LAUNCH_H

#include "fingerprint.h"
#include "kv.h"
#include "shape.h"

#include "config.h"
#include "err.h"
#include "frame.h"

struct child;
struct sup;

struct launch {
    struct kv requested;             /* keys given on its command line */
    struct kv effective, facts, map; /* as reported; map is what was hashed */
    struct kv previous;              /* of the last launch that the store knows */
    bool previous_known;             /* the store has answered */
    bool previous_found;
    char previous_fp[FINGERPRINT_FP];
    uint64_t window, slots, pool_tokens, modalities, kv_bytes_per_token;
    struct shape_depth depth; /* as this shape was measured; tokens 0: never */
    char env[5], args[5];
    char model_file[13]; /* gguf_key of the model that its gate saw; "": none */
    char fp[FINGERPRINT_FP];
    char line[FINGERPRINT_LINE];
    char diff[1024], bdiff[1024]; /* against the launch before, and the blessed record */
    uint64_t store_id;            /* row of the launch table; 0: not acknowledged */
    bool put;                     /* LAUNCH_PUT was sent to the current store */
};

void launch_clear(struct launch *l);
/* The command line of a generation. argv is owned by the caller (launch_argv_free). */
char **launch_argv(struct child *c);
void launch_argv_free(char **argv);
/* Asks the store for the last launch of this child. */
void launch_ask(struct child *c);
/* READY has come: takes its values over and checks them against what was requested; -1 names the key. */
int launch_ready(struct child *c, const struct vt_frame *f, struct vt_err *err);
/* Makes the line, logs it and gives it to the store. */
void launch_announce(struct child *c);
/* The generation is over. */
void launch_end(struct child *c, const char *evidence);
/* LAUNCH_LAST_IS and LAUNCH_PUT_DONE of the store. */
void launch_from_store(struct sup *s, const struct vt_frame *f);
/* A new store: what it does not know yet is told again. */
void launch_tell_store(struct sup *s);

/* One launch of this vitriold, for `fingerprint --history`. */
#define LAUNCH_PAST 16
struct launch_past {
    char child[24];
    uint32_t gen;
    char fp[FINGERPRINT_FP];
    uint64_t at_us; /* wall clock */
    char diff[256];
    char line[FINGERPRINT_LINE];
};

#endif
