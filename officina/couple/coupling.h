/* Couplings: where a conversation's requests go and in which dialect. Read from couplings.conf; without the file there
 * is one, `lapis`, the local engine at 127.0.0.1:8080. Built on one thread, then read only. */
#ifndef OFF_COUPLING_H
#define OFF_COUPLING_H

#include "err.h"
#include "util/json.h"

enum coupling_kind { KIND_VITRIOL, KIND_OPENAI, KIND_STRICT };
enum reasoning { REASONING_SEND, REASONING_PRESERVE, REASONING_DROP };

struct coupling {
    char *name, *title;
    enum coupling_kind kind;
    char *base_url; /* without a slash at its end; "/v1" is cut off */
    char *model;    /* "auto": what is served */
    int64_t window; /* tokens; UNKNOWN: as the engine says */
    bool certified; /* the certified depth where there is one, else the window of /props */
    int slot;       /* -1: any */
    char *tenant;   /* slot = name */
    enum reasoning reasoning;
    bool ids_nine;        /* tool ids of nine letters or digits */
    bool steer_in_result; /* mid_turn = result */
    bool parallel, dflt;
    char *key; /* env:NAME, file:PATH, cmd:PROGRAM ARGS or the key itself; NULL: none */
    bool priced;
    double price_in, price_cached, price_out; /* euro per million tokens */
    double cap_session, cap_day, cap_month;   /* euro; negative: none */
    char *on_cap;                             /* "stop" or "couple:NAME" */
    bool ask_send, redact;
    int gap_s; /* seconds between bytes; 0: no limit */
    bool local;
};

struct couplings {
    struct coupling *v;
    size_t n, cap;
};

/* path: couplings.conf; absent is no fault. engine_url: replaces the default coupling's address, or NULL. */
int couplings_load(struct couplings *c, const char *path, const char *engine_url, struct vt_err *err);
int couplings_parse(struct couplings *c, const char *text, size_t len, const char *name, struct vt_err *err);
void couplings_free(struct couplings *c);
/* name NULL: the default. NULL with the nearest names in err. */
const struct coupling *couplings_find(const struct couplings *c, const char *name, struct vt_err *err);

/* What the core needs to know of a coupling, as the text of EV_COUPLED. Caller frees. */
char *coupling_json(const struct coupling *c);
/* The reverse, for the core's copy: only dialect, window, prices and names. */
void coupling_from_json(struct coupling *c, const json_t *o);
void coupling_clear(struct coupling *c);
/* The key's bytes, or NULL with err when the reference leads nowhere; *out is NULL when there is no key. Caller wipes and
 * frees. */
int coupling_key(const struct coupling *c, char **out, struct vt_err *err);

#endif
