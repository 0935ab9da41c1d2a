#include "ctl_client.h"

#include "listen.h"
#include "rundir.h"

#include "clock.h"
#include "frame.h"
#include "hash.h"
#include "sock_ctl.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- where ---- */

int client_find(struct client *c, const char *run, struct vt_err *err)
{
    struct vt_config *cfg = vt_config_new();
    struct vt_err ignored;
    char own[128] = "";
    if (cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    /* A configuration that vitriold would refuse must not keep anybody from asking. */
    vt_config_layers(cfg, VT_DIR_VENDOR, VT_DIR_ETC, geteuid() != 0, &ignored);
    vt_config_env(cfg, environ, &ignored);
    rundir_default_run(cfg, own, sizeof own, &ignored);
    vt_config_free(cfg);
    const char *choice = run != NULL ? run : own;
    if (run == NULL && rundir_holder(own) == 0 && rundir_holder("/run/vitriol") != 0)
        choice = "/run/vitriol";
    if (strlen(choice) > RUNDIR_MAX)
        return vt_fail(err, VT_E_USAGE, "--run-dir %s: longer than %d bytes", choice, RUNDIR_MAX);
    snprintf(c->run, sizeof c->run, "%s", choice);
    snprintf(c->ctl, sizeof c->ctl, "%s/ctl", choice);
    return 0;
}

static void port_owner(const struct client *c, char *out, size_t size)
{
    char path[256], address[80] = "", comm[64];
    snprintf(path, sizeof path, "%s/address", c->run);
    FILE *f = fopen(path, "re");
    out[0] = '\0';
    if (f != NULL && fgets(address, sizeof address, f) != NULL)
        address[strcspn(address, "\n")] = '\0';
    if (f != NULL)
        fclose(f);
    pid_t pid = strchr(address, ':') != NULL ? listen_owner(address, comm, sizeof comm) : 0;
    if (pid > 0 && strcmp(comm, "vitriol") == 0)
        snprintf(out, size, "; its launcher (pid %d) holds %s and may be starting it again", (int)pid,
                 address);
    else if (pid > 0)
        snprintf(out, size, "; %s is answered by pid %d (%s), which is not ours", address, (int)pid, comm);
}

int client_absent(const struct client *c, struct vt_err *err)
{
    char owner[256];
    struct stat st;
    pid_t holder = rundir_holder(c->run);
    if (holder < 0)
        return vt_fail(err, VT_E_PERM, "%s cannot be read; be root or a member of its group", c->run);
    if (holder > 0)
        return vt_fail(err, VT_E_UNAVAILABLE,
                       "vitriold (pid %d) in %s does not answer; it may be starting or stopping", (int)holder,
                       c->run);
    port_owner(c, owner, sizeof owner);
    bool there = stat(c->run, &st) == 0;
    return vt_fail(
        err, VT_E_UNAVAILABLE,
        "no vitriold in %s%s%s; start it with: systemctl start vitriol.target, or vitriol serve --run-dir %s",
        c->run, there ? "" : " (there is no such folder)", owner, c->run);
}

/* ---- JSON of frames ---- */

static json_t *from_object(const msgpack_object *o);

static json_t *from_map(const msgpack_object_map *m)
{
    json_t *out = json_object();
    for (uint32_t i = 0; m != NULL && i < m->size; i++) {
        char key[256];
        if (m->ptr[i].key.type == MSGPACK_OBJECT_STR)
            vt_obj_str(&m->ptr[i].key, key, sizeof key);
        else
            snprintf(key, sizeof key, "%llu", (unsigned long long)m->ptr[i].key.via.u64);
        json_object_set_new(out, key, from_object(&m->ptr[i].val));
    }
    return out;
}

static json_t *from_object(const msgpack_object *o)
{
    switch (o->type) {
    case MSGPACK_OBJECT_BOOLEAN: return json_boolean(o->via.boolean);
    case MSGPACK_OBJECT_POSITIVE_INTEGER: return json_integer((json_int_t)o->via.u64);
    case MSGPACK_OBJECT_NEGATIVE_INTEGER: return json_integer(o->via.i64);
    case MSGPACK_OBJECT_FLOAT32:
    case MSGPACK_OBJECT_FLOAT64: return json_real(o->via.f64);
    case MSGPACK_OBJECT_STR: return json_stringn(o->via.str.ptr, o->via.str.size);
    case MSGPACK_OBJECT_MAP: return from_map(&o->via.map);
    case MSGPACK_OBJECT_ARRAY: {
        json_t *out = json_array();
        for (uint32_t i = 0; i < o->via.array.size; i++)
            json_array_append_new(out, from_object(&o->via.array.ptr[i]));
        return out;
    }
    default: return json_null();
    }
}

json_t *client_event(const uint8_t *buf, size_t len)
{
    static const struct {
        unsigned key;
        const char *name;
    } names[] = {{VT_EVENT_SEQ, "seq"},   {VT_EVENT_CHILD, "child"}, {VT_EVENT_GEN, "gen"},
                 {VT_EVENT_FROM, "from"}, {VT_EVENT_TO, "to"},       {VT_EVENT_CLASS, "class"},
                 {VT_KEY_TEXT, "text"},   {VT_KEY_T_US, "t_us"}};
    struct vt_frame f;
    if (vt_frame_open(&f, buf, len, VT_CTL_MAX_FRAME, NULL) < 0)
        return NULL;
    json_t *out = f.type == VT_F_EVENT ? json_object() : NULL;
    for (size_t i = 0; out != NULL && i < sizeof names / sizeof names[0]; i++) {
        const msgpack_object *o = vt_map_get(f.body, names[i].key);
        json_object_set_new(out, names[i].name, o != NULL ? from_object(o) : json_string(""));
    }
    vt_frame_close(&f);
    return out;
}

/* ---- calls ---- */

static void put_args(struct vt_enc *e, json_t *args)
{
    const char *key;
    json_t *value;
    vt_enc_map(e, VT_CTL_REQ_ARGS, (unsigned)json_object_size(args));
    json_object_foreach(args, key, value)
    {
        vt_enc_put_str(e, key);
        if (json_is_integer(value))
            vt_enc_put_i64(e, json_integer_value(value));
        else
            vt_enc_put_str(e, json_string_value(value));
    }
}

static int pack(struct vt_enc *e, const char *verb, json_t *args, struct vt_err *err)
{
    uint8_t nonce[16];
    vt_random(nonce, sizeof nonce);
    vt_enc_begin(e, VT_F_CTL_REQ, 1, 0);
    vt_enc_str(e, VT_CTL_REQ_VERB, verb);
    if (args != NULL && json_object_size(args) > 0)
        put_args(e, args);
    vt_enc_bin(e, VT_CTL_REQ_NONCE, nonce, sizeof nonce);
    return vt_enc_end(e, err);
}

static json_t *unpack(const uint8_t *buf, size_t len, uint64_t *op, struct vt_err *err)
{
    struct vt_frame f;
    if (vt_frame_open(&f, buf, len, VT_CTL_MAX_FRAME, err) < 0)
        return NULL;
    json_t *out = NULL;
    if (f.type == VT_F_CTL_REP && vt_frame_u64(&f, VT_CTL_REP_OK, 0) != 0) {
        out = from_map(vt_frame_map(&f, VT_CTL_REP_RESULT));
        if (op != NULL)
            *op = vt_frame_u64(&f, VT_CTL_REP_OP, 0);
    } else {
        char text[sizeof err->text];
        vt_fail(err, (int)vt_frame_u64(&f, VT_KEY_CODE, VT_E_INTERNAL), "%s",
                vt_frame_str(&f, VT_KEY_TEXT, text, sizeof text));
    }
    vt_frame_close(&f);
    return out;
}

/* The kernel's word for what the process does: R, S, D, T, ..., '?' when it cannot be read. */
static char process_state(pid_t pid)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return '?';
    const char *end = fgets(text, sizeof text, f) != NULL ? strrchr(text, ')') : NULL;
    fclose(f);
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

static int no_answer(pid_t pid, char state, struct vt_err *err)
{
    if (state == 'T' || state == 't')
        return vt_fail(err, VT_E_DEADLINE,
                       "vitriold (pid %d) does not answer: it is stopped; kill -CONT %d lets it go on",
                       (int)pid, (int)pid);
    return vt_fail(err, VT_E_DEADLINE, "vitriold (pid %d) does not answer within %d ms: hung, in state %c",
                   (int)pid, CLIENT_TIMEOUT_MS, state);
}

/* One request and its reply, under a nonce of its own. */
static json_t *call_once(const struct client *c, const char *verb, json_t *args, uint64_t *op,
                         struct vt_err *err)
{
    struct vt_enc e;
    uint8_t *reply = NULL;
    size_t len = 0;
    json_t *out = NULL;
    vt_enc_init(&e);
    int rc = pack(&e, verb, args, err);
    pid_t holder = rundir_holder(c->run);
    char state = holder > 0 ? process_state(holder) : '?';
    if (rc == 0 && holder <= 0) {
        rc = client_absent(c, err); /* known at once, without waiting for a dial to fail */
    } else if (rc == 0 && state == 'T') {
        rc = no_answer(holder, state, err);
    } else if (rc == 0) {
        rc = vt_req_call(c->ctl, e.buf, e.len, CLIENT_TIMEOUT_MS, &reply, &len, err);
        if (rc < 0 && err->code == VT_E_UNAVAILABLE)
            client_absent(c, err);
        else if (rc < 0 && err->code == VT_E_DEADLINE)
            no_answer(holder, process_state(holder), err);
    }
    if (rc == 0) {
        out = unpack(reply, len, op, err);
        vt_req_free(reply, len);
    }
    vt_enc_fini(&e);
    return out;
}

json_t *client_call(const struct client *c, const char *verb, json_t *args, uint64_t *op, struct vt_err *err)
{
    /* vitriold counts calls by the second and has done nothing for one that it refuses for their number:
     * a script that calls in a loop is slowed down, not failed. */
    static const struct timespec pause = {.tv_nsec = 250000000};
    json_t *out = NULL;
    err->code = VT_E_LIMIT;
    for (int ms = 0; out == NULL && err->code == VT_E_LIMIT && ms < CLIENT_TIMEOUT_MS; ms += 250) {
        if (ms > 0)
            nanosleep(&pause, NULL);
        out = call_once(c, verb, args, op, err);
    }
    json_decref(args);
    return out;
}

json_t *client_follow(const struct client *c, uint64_t op, int timeout_s, struct vt_err *err)
{
    struct timespec pause = {.tv_nsec = 50000000};
    const struct vt_clock clock = vt_clock_real(); /* a wall clock may be set meanwhile */
    uint64_t end = vt_mono(&clock) + VT_SEC((uint64_t)timeout_s);
    for (;;) {
        json_t *st = client_call(c, "op.status", json_pack("{s:I}", "op", (json_int_t)op), NULL, err);
        if (st == NULL || strcmp(client_str(st, "state"), "running") != 0)
            return st;
        json_decref(st);
        if (vt_mono(&clock) > end) {
            vt_fail(err, VT_E_DEADLINE,
                    "operation %llu still runs after %d s; it goes on: vitriolctl op %llu",
                    (unsigned long long)op, timeout_s, (unsigned long long)op);
            return NULL;
        }
        nanosleep(&pause, NULL);
        pause.tv_nsec = 200000000;
    }
}

int client_verify(const struct client *c, const json_t *status, struct vt_err *err)
{
    uint64_t listening[8];
    pid_t holder = rundir_holder(c->run), pid = (pid_t)client_num(status, "pid");
    const char *address = client_str(status, "address");
    if (holder != pid)
        return vt_fail(err, VT_E_UNAVAILABLE, "pid %d answers on %s, but pid %d holds the lock", (int)pid,
                       c->ctl, (int)holder);
    unsigned n = listen_inodes(address, listening, 8);
    const json_t *ours = json_object_get(status, "http_inodes");
    for (unsigned i = 0; i < n; i++) {
        size_t k;
        const json_t *v;
        json_array_foreach(ours, k, v)
        {
            if ((uint64_t)json_integer_value(v) == listening[i])
                return 0;
        }
    }
    if (n == 0)
        return 0; /* another network namespace: not for us to see */
    char comm[64];
    pid_t who = listen_owner(address, comm, sizeof comm);
    return vt_fail(err, VT_E_UNAVAILABLE, "%s is answered by pid %d (%s), not by vitriold's gateway", address,
                   (int)who, comm);
}

const char *client_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

uint64_t client_num(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}
