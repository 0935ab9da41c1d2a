/* Verbs of ctl about profiles, blessed records and what was learned. */
#include "ctl_verbs.h"

#include "profiles.h"
#include "suspects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "" when it is not there. What does not fit is refused: half of a shape is another shape. */
static int arg(const msgpack_object_map *args, const char *key, char *out, size_t size, struct vt_err *err)
{
    const msgpack_object *o = args != NULL ? vt_map_get_str(args, key) : NULL;
    out[0] = '\0';
    if (o == NULL || o->type != MSGPACK_OBJECT_STR)
        return 0;
    if (o->via.str.size >= size)
        return vt_fail(err, VT_E_PARAM, "%s: %u bytes are too long, %zu are legal", key, o->via.str.size,
                       size - 1);
    vt_obj_str(o, out, size);
    return 0;
}

static bool flag(const msgpack_object_map *args, const char *key)
{
    const msgpack_object *o = args != NULL ? vt_map_get_str(args, key) : NULL;
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER && o->via.u64 != 0;
}

static int started(struct vt_enc *e, uint64_t op)
{
    if (op == 0)
        return -1;
    vt_enc_u64(e, VT_CTL_REP_OP, op);
    return 0;
}

static int move(uint64_t (*begin)(struct sup *s, const char *name, bool force, struct vt_err *err),
                const char *key, struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                struct vt_err *err)
{
    char name[128];
    if (arg(args, key, name, sizeof name, err) < 0)
        return -1;
    return started(e, begin(s, name, flag(args, "force"), err));
}

static int verb_apply(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return move(profiles_apply, "profile", s, args, e, err);
}

static int verb_probe(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return move(profiles_probe, "profile", s, args, e, err);
}

static int verb_rollback(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    return move(profiles_rollback, "tag", s, args, e, err);
}

static int verb_suspects_clear(struct sup *s, const msgpack_object_map *args, struct vt_enc *e,
                               struct vt_err *err)
{
    char hash[80];
    if (arg(args, "hash", hash, sizeof hash, err) < 0)
        return -1;
    int n = suspects_clear(s, hash, err);
    if (n < 0)
        return -1;
    vt_enc_map(e, VT_CTL_REP_RESULT, 1);
    vt_enc_put_str(e, "cleared");
    vt_enc_put_u64(e, (uint64_t)n);
    return 0;
}

static int done(struct vt_enc *e, const char *key, const char *value)
{
    vt_enc_map(e, VT_CTL_REP_RESULT, 1);
    vt_enc_put_str(e, key);
    vt_enc_put_str(e, value);
    return 0;
}

static int verb_bless(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char tag[128], note[400], out[128];
    if (arg(args, "tag", tag, sizeof tag, err) < 0 || arg(args, "note", note, sizeof note, err) < 0 ||
        profiles_bless(s, tag, note, out, sizeof out, err) < 0)
        return -1;
    return done(e, "tag", out);
}

static int verb_forbid(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char shape[512], note[400];
    if (arg(args, "shape", shape, sizeof shape, err) < 0 || arg(args, "note", note, sizeof note, err) < 0 ||
        profiles_forbid(s, shape, note, err) < 0)
        return -1;
    return done(e, "shape", shape);
}

static int verb_verdict(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char subject[128], note[400];
    if (arg(args, "subject", subject, sizeof subject, err) < 0 ||
        arg(args, "note", note, sizeof note, err) < 0 || profiles_verdict(s, subject, note, err) < 0)
        return -1;
    return done(e, "subject", subject);
}

static uint64_t number(const msgpack_object_map *args, const char *key)
{
    const msgpack_object *o = args != NULL ? vt_map_get_str(args, key) : NULL;
    return o != NULL && o->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? o->via.u64 : 0;
}

static int verb_certify(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char fp[64];
    const struct shape_depth d = {.tokens = number(args, "tokens"),
                                  .decode_milli = number(args, "decode_milli"),
                                  .prompt_milli = number(args, "prompt_milli")};
    if (arg(args, "fp", fp, sizeof fp, err) < 0 || profiles_certify(s, fp, &d, err) < 0)
        return -1;
    return done(e, "fp", fp);
}

/* ---- records, as they are ---- */

/* As JSON text: records nest deeper than frames may. */
static void put_json(struct vt_enc *e, const json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY);
    vt_enc_put_str(e, text != NULL ? text : "null");
    free(text);
}

/* Frames are bounded, records less so: a map or list is told in parts, from the `from`-th entry on. */
#define PER_REPLY 8

static int verb_record(struct sup *s, const msgpack_object_map *args, struct vt_enc *e, struct vt_err *err)
{
    char name[32];
    const msgpack_object *from = args != NULL ? vt_map_get_str(args, "from") : NULL;
    size_t at = from != NULL && from->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? (size_t)from->via.u64 : 0,
           i = 0, n = 0;
    if (arg(args, "name", name, sizeof name, err) < 0)
        return -1;
    const json_t *r = profiles_record(s, name);
    if (r == NULL && strcmp(name, "suspects") == 0)
        r = suspects_record(s);
    const char *key;
    json_t *v;
    if (r == NULL)
        return vt_fail(err, VT_E_NOT_FOUND,
                       "no record %s; there are blessed, forbidden, measures, verdicts, suspects, active",
                       name);
    const json_t *list = json_object_get(r, "entries");
    size_t total = list != NULL ? json_array_size(list) : json_object_size(r);
    n = at < total ? (total - at < PER_REPLY ? total - at : PER_REPLY) : 0;
    vt_enc_map(e, VT_CTL_REP_RESULT, 2);
    vt_enc_put_str(e, "entries");
    vt_enc_put_array(e, (unsigned)n);
    for (; list != NULL && i < n; i++)
        put_json(e, json_array_get(list, at + i));
    i = 0;
    json_object_foreach(list == NULL ? (json_t *)(uintptr_t)r : NULL, key, v)
    {
        if (i >= at && i < at + n) {
            json_t *one = json_pack("{s:s, s:O}", "key", key, "value", v);
            put_json(e, one);
            json_decref(one);
        }
        i++;
    }
    vt_enc_put_str(e, "total");
    vt_enc_put_u64(e, total);
    return 0;
}

const struct verb profile_verbs[] = {
    {"profile.apply", VERB_ADMIN, verb_apply},
    {"profile.probe", VERB_ADMIN, verb_probe},
    {"profile.rollback", VERB_ADMIN, verb_rollback},
    {"bless", VERB_ADMIN, verb_bless},
    {"certify", VERB_ADMIN, verb_certify},
    {"forbid", VERB_ADMIN, verb_forbid},
    {"verdict", VERB_ADMIN, verb_verdict},
    {"record", VERB_READ, verb_record},
    {"suspects.clear", VERB_ADMIN, verb_suspects_clear},
};
const size_t n_profile_verbs = sizeof profile_verbs / sizeof profile_verbs[0];
