#include "suspects.h"

#include "child.h"
#include "events.h"
#include "evidence.h"
#include "record.h"

#include "hash.h"

#include <stdio.h>
#include <string.h>

#define KEPT       256
#define DAY_US     86400000000ll
#define MIN_DIGITS 8

int suspects_open(struct sup *s, struct vt_err *err)
{
    s->suspects = record_load(s->dir.state, "suspects", s->log);
    return s->suspects != NULL ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
}

void suspects_close(struct sup *s)
{
    json_decref(s->suspects);
    s->suspects = NULL;
}

const json_t *suspects_record(const struct sup *s)
{
    return s->suspects;
}

static json_int_t last_of(const json_t *v)
{
    return json_integer_value(json_object_get(v, "last_us"));
}

static void forget_old(struct sup *s)
{
    const char *key, *oldest = NULL;
    json_t *v;
    void *tmp;
    json_int_t now = (json_int_t)vt_wall(&s->clock), at = INT64_MAX;
    json_object_foreach_safe(s->suspects, tmp, key, v)
    {
        if (now - last_of(v) > DAY_US)
            json_object_del(s->suspects, key);
    }
    json_object_foreach(s->suspects, key, v)
    {
        if (last_of(v) < at) {
            at = last_of(v);
            oldest = key;
        }
    }
    if (json_object_size(s->suspects) > KEPT && oldest != NULL)
        json_object_del(s->suspects, oldest);
}

static void save(struct sup *s)
{
    struct vt_err err;
    if (record_save(s->dir.state, "suspects", s->suspects, &err) < 0)
        vt_log(s->log, VT_LOG_WARNING, "suspects are not kept: %s", err.text);
}

void suspects_said(struct sup *s, const struct vt_frame *f)
{
    const uint8_t *sha = vt_frame_bin_n(f, VT_SUSPECT_PROMPT_SHA, VT_SHA256_LEN);
    unsigned class = (unsigned)vt_frame_u64(f, VT_SUSPECT_CLASS, 0);
    uint64_t crashes = vt_frame_u64(f, VT_SUSPECT_CRASHES, 0), n = vt_frame_u64(f, VT_SUSPECT_IN_FLIGHT, 1);
    bool quarantined = vt_frame_u64(f, VT_SUSPECT_QUARANTINED, 0) != 0;
    char hex[2 * VT_SHA256_LEN + 1], label[64];
    if (sha == NULL)
        return;
    vt_hex(sha, VT_SHA256_LEN, hex);
    json_object_set_new(s->suspects, hex,
                        json_pack("{s:s, s:I, s:I, s:I, s:b}", "class",
                                  exit_class_name(class < CLASS_COUNT ? (enum exit_class) class : CLASS_NONE),
                                  "crashes", (json_int_t)crashes, "in_flight", (json_int_t)n, "last_us",
                                  (json_int_t)vt_wall(&s->clock), "quarantined", (int)quarantined));
    forget_old(s);
    save(s);
    char line[256];
    snprintf(line, sizeof line, "\nin flight: request %.60s, prompt %s (%llu crashes%s)\n",
             vt_frame_str(f, VT_SUSPECT_LABEL, label, sizeof label), hex, (unsigned long long)crashes,
             quarantined ? ", quarantined" : "");
    evidence_add(s, line);
    event_text(s, EVENT_SUSPECT, sup_role(s, ROLE_ENGINE), VT_LOG_WARNING,
               "request %s (prompt %.16s) was in flight at %llu crash%s, this time with %llu others: %s",
               vt_frame_str(f, VT_SUSPECT_LABEL, label, sizeof label), hex, (unsigned long long)crashes,
               crashes == 1 ? "" : "es", (unsigned long long)(n > 0 ? n - 1 : 0),
               quarantined ? "quarantined" : "suspect");
}

void suspects_tell(struct sup *s)
{
    struct child *gw = sup_role(s, ROLE_GATEWAY);
    const char *key;
    json_t *v;
    if (gw == NULL || !gw->welcomed || s->suspects == NULL)
        return;
    forget_old(s);
    struct vt_enc *e = child_begin(gw, VT_F_SUSPECTS, 0);
    vt_enc_array(e, VT_SUSPECTS_LIST, (unsigned)json_object_size(s->suspects));
    json_object_foreach(s->suspects, key, v)
    {
        uint8_t sha[VT_SHA256_LEN] = {0};
        vt_unhex(key, sha, sizeof sha);
        vt_enc_put_array(e, 4);
        vt_enc_put_bin(e, sha, sizeof sha);
        vt_enc_put_u64(e, (uint64_t)json_integer_value(json_object_get(v, "crashes")));
        vt_enc_put_u64(e, json_is_true(json_object_get(v, "quarantined")));
        vt_enc_put_u64(e, (uint64_t)last_of(v));
    }
    child_send(gw);
}

int suspects_clear(struct sup *s, const char *hash, struct vt_err *err)
{
    const char *key;
    json_t *v;
    void *tmp;
    size_t n = strlen(hash);
    int cleared = 0;
    if (n > 0 && (n < MIN_DIGITS || strspn(hash, "0123456789abcdef") != n))
        return vt_fail(err, VT_E_PARAM, "\"%.64s\" is no hash: its first %d digits or more are needed", hash,
                       MIN_DIGITS);
    json_object_foreach_safe(s->suspects, tmp, key, v)
    {
        if (strncmp(key, hash, n) == 0 && json_object_del(s->suspects, key) == 0)
            cleared++;
    }
    if (cleared == 0)
        return vt_fail(err, VT_E_NOT_FOUND, n > 0 ? "no suspect %s" : "there is no suspect%s", hash);
    save(s);
    suspects_tell(s);
    return cleared;
}
