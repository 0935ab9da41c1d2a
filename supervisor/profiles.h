/* Profiles: which configuration runs, and the way to another one and back.
 *
 * apply and rollback pass every gate while what runs is untouched; then the engine drains (and the gateway, if the model or
 * its own keys change), the next generation starts with the new configuration, and nothing is routed to it before it has
 * answered a canary and its contract is what the record says. What fails on the way brings the configuration before back.
 * probe does the same without ever routing, keeps what was measured, and returns.
 *
 * Records in the state directory: blessed, forbidden, measures, verdicts, active (which profile or record runs after the
 * next start). The main thread alone. */
#ifndef PROFILES_H
#define PROFILES_H

#include "options.h"
#include "shape.h"
#include "sup.h"

struct profiles;

/* The configuration that vitriold starts with: the layers, and the profile or record that was applied last unless the
 * environment or the command line names one. Owned by the caller, who gives it to sup; NULL: err. */
struct vt_config *profiles_first(const struct options *o, struct vt_err *err);
int profiles_open(struct sup *s, const struct options *o, struct vt_err *err);
void profiles_close(struct sup *s);

/* Each returns the number of an operation, or 0 with the reason. force: a forbidden shape is tried all the same. */
uint64_t profiles_apply(struct sup *s, const char *name, bool force, struct vt_err *err);
uint64_t profiles_probe(struct sup *s, const char *name, bool force, struct vt_err *err);
uint64_t profiles_rollback(struct sup *s, const char *tag, bool force,
                           struct vt_err *err); /* "": the newest other */
/* What runs is the operating point; tag "": profile@fp. The tag that it got into out. */
int profiles_bless(struct sup *s, const char *tag, const char *note, char *out, size_t size,
                   struct vt_err *err);
/* How deep the launch of that fingerprint was filled, and how fast it was there; at_us is set here. Kept for its shape. */
int profiles_certify(struct sup *s, const char *fp, const struct shape_depth *d, struct vt_err *err);
int profiles_forbid(struct sup *s, const char *shape, const char *evidence, struct vt_err *err);
int profiles_verdict(struct sup *s, const char *subject, const char *text, struct vt_err *err);
/* blessed, forbidden, measures, verdicts or active; NULL: no such record. Borrowed. */
const json_t *profiles_record(const struct sup *s, const char *name);

/* A launch is ready: what it measured is kept, differences to its plan are told. */
void profiles_launched(struct sup *s, struct child *c, const struct vt_frame *ready);
/* How it differs from the newest blessed record of its profile. tag: borrowed, "none" without one. */
void profiles_bdiff(const struct sup *s, const struct kv *map, char *bdiff, size_t size, const char **tag);
/* The profile that was left for the blessed record that runs now; "": none. */
const char *profiles_rolled_back_from(const struct sup *s);
/* It does not run because its shape is known to fail. */
int profiles_may_launch(const struct sup *s, const struct vt_config *cfg, struct vt_err *err);
/* Its engine guesses tokens though no blessed record says what that brings; model: the file that it would run. */
int profiles_may_draft(const struct sup *s, const struct vt_config *cfg, const char *model,
                       struct vt_err *err);
/* A term of the plan as this very shape measured it. */
bool profiles_measured(const struct sup *s, const char *payload, const char *name, double *out);
void profiles_canary(struct sup *s, const struct child *c, const struct vt_frame *f);
void profiles_tick(struct sup *s);

#endif
