/* Configuration: one table of keys (config.def), seven layers, each value with its origin.
 *
 * defaults < vendor file < site file < site drop-ins < profile < user file < environment < command line < blessed record.
 * Unset and empty are different. Unknown or duplicate keys, values out of range and a unit suffix that does
 * not fit are errors naming file, line and key, with the nearest legal names. Built on one thread, then
 * read-only for all. */
#ifndef VT_CONFIG_H
#define VT_CONFIG_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum vt_config_key {
#define CFG(id, name, type, dflt, min, max, reload, doc) VT_CFG_##id,
#include "config.def"
#undef CFG
    VT_CFG_COUNT
};

enum vt_config_type { VT_T_BOOL, VT_T_INT, VT_T_FLOAT, VT_T_STR, VT_T_PATH, VT_T_ENUM };
/* When a changed value takes effect: at once, after a drain, or with a new process. */
enum vt_config_reload { VT_R_LIVE, VT_R_DRAIN, VT_R_RESTART };
enum vt_config_layer {
    VT_L_DEFAULT,
    VT_L_VENDOR,
    VT_L_SITE,
    VT_L_DROPIN,
    VT_L_PROFILE,
    VT_L_USER,
    VT_L_ENV,
    VT_L_CMDLINE,
    VT_L_RECORD /* a complete state that an operator chose by name at run time */
};

struct vt_config;

struct vt_config *vt_config_new(void); /* built-in defaults; NULL when memory is out */
void vt_config_free(struct vt_config *c);

/* One value: name is "section.key". origin: e.g. "/etc/vitriol/vitriol.conf:12", copied. */
int vt_config_set(struct vt_config *c, enum vt_config_layer layer, const char *name, const char *value,
                  const char *origin, struct vt_err *err);
/* A file of `key = value` lines in [sections]. missing_ok: an absent file is no error. */
int vt_config_file(struct vt_config *c, enum vt_config_layer layer, const char *path, bool missing_ok,
                   struct vt_err *err);
/* The same from memory: text of len bytes, name for messages. */
int vt_config_parse(struct vt_config *c, enum vt_config_layer layer, const char *text, size_t len,
                    const char *name, struct vt_err *err);
/* VITRIOL_SECTION_KEY variables; any other VITRIOL_* name is an error, except the internal ones of the child
 * environment. */
int vt_config_env(struct vt_config *c, char **envp, struct vt_err *err);
/* All file layers in order from the standard places below etc (e.g. "/etc/vitriol") and vendor. */
int vt_config_layers(struct vt_config *c, const char *vendor, const char *etc, bool user_files,
                     struct vt_err *err);
/* The profile that profile.name chooses after all other layers are in: NAME.conf in paths.profiles_dir, else in
 * etc/profiles, else in vendor/profiles. The profile "default" may be absent. What it locks (profile.locked) and a layer
 * above it sets is an error; a record is no such layer. */
int vt_config_profile(struct vt_config *c, const char *vendor, const char *etc, struct vt_err *err);
/* Rules over several keys (pool divides into slots, windows are multiples of 256, …). */
int vt_config_check(const struct vt_config *c, struct vt_err *err);

bool vt_config_bool(const struct vt_config *c, enum vt_config_key k);
int64_t vt_config_int(const struct vt_config *c, enum vt_config_key k);
double vt_config_float(const struct vt_config *c, enum vt_config_key k);
const char *vt_config_str(const struct vt_config *c, enum vt_config_key k); /* never NULL; "" when empty */
bool vt_config_is_set(const struct vt_config *c, enum vt_config_key k);     /* by any layer above defaults */

bool vt_config_is_default(const struct vt_config *c, enum vt_config_key k); /* its value, whoever set it */

const char *vt_config_name(enum vt_config_key k); /* "engine.slots" */
bool vt_config_in(enum vt_config_key k, const char *section);
/* The key of a name, or -1 with the nearest names in err. */
int vt_config_find(const char *name, struct vt_err *err);
/* The value as text, in the form the parser reads. */
const char *vt_config_text(const struct vt_config *c, enum vt_config_key k, char *out, size_t size);
enum vt_config_layer vt_config_layer_of(const struct vt_config *c, enum vt_config_key k);
const char *vt_config_origin(const struct vt_config *c, enum vt_config_key k);
enum vt_config_reload vt_config_reload_class(enum vt_config_key k);
const char *vt_config_doc(enum vt_config_key k);
/* The reference page (docs/CONFIG_REFERENCE.md). */
void vt_config_print_reference(FILE *out);

#endif
