#include "launch.h"

#include "child.h"
#include "device.h"
#include "events.h"
#include "profiles.h"
#include "shape.h"
#include "spawn.h"
#include "sup.h"

#include "build_id.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void launch_clear(struct launch *l)
{
    kv_clear(&l->requested);
    kv_clear(&l->effective);
    kv_clear(&l->facts);
    kv_clear(&l->map);
    kv_clear(&l->previous);
    memset(l, 0, sizeof *l);
}

/* ---- command line ---- */

static bool concerns(const struct child *c, enum vt_config_key k)
{
    const struct vt_config *cfg = c->sup->cfg;
    /* A value that is the default says nothing, whoever wrote it. */
    bool set = !vt_config_is_default(cfg, k);
    if (k == VT_CFG_LOG_LEVEL)
        return set;
    switch (c->role) {
    case ROLE_ENGINE:
        if (k == VT_CFG_ENGINE_PROGRAM || k == VT_CFG_ENGINE_ARGS)
            return false;
        if (sup_external(cfg))
            return vt_config_in(k, "external") || k == VT_CFG_ENGINE_KIND || k == VT_CFG_MODEL_PATH ||
                   (set && vt_config_in(k, "engine"));
        if (vt_config_in(k, "external"))
            return false;
        return shape_has(k) || k == VT_CFG_MODEL_PATH || k == VT_CFG_ENGINE_VAULT ||
               (set && (vt_config_in(k, "engine") || vt_config_in(k, "store")));
    case ROLE_GATEWAY:
        if (k == VT_CFG_HTTP_LISTEN)
            return false;
        if (k == VT_CFG_ENGINE_KIND || k == VT_CFG_EXTERNAL_CTX_TOKENS || k == VT_CFG_EXTERNAL_SLOTS ||
            k == VT_CFG_EXTERNAL_MODEL)
            return sup_external(cfg);
        return k == VT_CFG_MODEL_PATH || (set && (vt_config_in(k, "http") || vt_config_in(k, "gateway")));
    case ROLE_VAULT: return false;
    case ROLE_SHIELD:
        return set &&
               (vt_config_in(k, "shield") || k == VT_CFG_PATHS_PROC_ROOT || k == VT_CFG_PATHS_CGROUP_ROOT);
    case ROLE_STORE: return k == VT_CFG_PATHS_STATE_DIR || (set && vt_config_in(k, "store"));
    default: return false;
    }
}

/* The value as the child needs it: paths that were chosen by default are resolved here. */
static const char *value_for(const struct child *c, enum vt_config_key k, char *buf, size_t size)
{
    if (k == VT_CFG_MODEL_PATH)
        return c->sup->model;
    if (k == VT_CFG_PATHS_STATE_DIR)
        return c->sup->dir.state;
    if (k == VT_CFG_ENGINE_DEVICE)
        return device_name(c->sup);
    if (k == VT_CFG_ENGINE_CTX_TOKENS && c->role == ROLE_ENGINE) {
        snprintf(buf, size, "%u", device_window(c->sup));
        return buf;
    }
    if (k == VT_CFG_ENGINE_VAULT)
        return sup_role(c->sup, ROLE_VAULT) != NULL ? "on" : "off";
    return vt_config_text(c->sup->cfg, k, buf, size);
}

struct argv {
    char **v;
    unsigned n, cap;
    bool failed;
};

static void push(struct argv *a, char *text)
{
    if (text == NULL || a->n + 1 >= a->cap) {
        free(text);
        a->failed = true;
        return;
    }
    a->v[a->n++] = text;
}

static void push_f(struct argv *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void push_f(struct argv *a, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    va_end(ap);
    push(a, text);
}

void launch_argv_free(char **argv)
{
    for (char **p = argv; p != NULL && *p != NULL; p++)
        free(*p);
    free(argv);
}

static void push_extra(struct argv *a, const char *extra)
{
    while (*(extra += strspn(extra, " ")) != '\0') {
        size_t n = strcspn(extra, " ");
        push_f(a, "%.*s", (int)n, extra);
        extra += n;
    }
}

static void hash_args(const struct launch *l, const char *extra, char out[5])
{
    uint8_t digest[VT_SHA256_LEN];
    char hex[2 * VT_SHA256_LEN + 1];
    struct vt_sha256 *h = vt_sha256_new();
    memcpy(out, "????", 5);
    if (h == NULL)
        return;
    for (unsigned i = 0; i < l->requested.n; i++) {
        if (strcmp(l->requested.key[i], "model.path") == 0 || strncmp(l->requested.key[i], "paths.", 6) == 0)
            continue;
        vt_sha256_add(h, l->requested.key[i], strlen(l->requested.key[i]) + 1);
        vt_sha256_add(h, l->requested.value[i], strlen(l->requested.value[i]) + 1);
    }
    vt_sha256_add(h, extra, strlen(extra));
    vt_sha256_end(h, digest);
    vt_sha256_free(h);
    vt_hex(digest, sizeof digest, hex);
    memcpy(out, hex, 4);
}

char **launch_argv(struct child *c)
{
    const char *extra = c->role == ROLE_ENGINE && !sup_external(c->sup->cfg)
                            ? vt_config_str(c->sup->cfg, VT_CFG_ENGINE_ARGS)
                            : "";
    struct launch *l = &c->launch;
    struct argv a = {.cap = 2 * VT_CFG_COUNT + 16 + (unsigned)strlen(extra)};
    a.v = calloc(a.cap, sizeof *a.v);
    if (a.v == NULL)
        return NULL;
    kv_clear(&l->requested);
    const char *program;
    child_program(c, &program);
    push_f(&a, "%s", program);
    push_f(&a, "--name");
    push_f(&a, "%s", c->name);
    push_f(&a, "--gen");
    push_f(&a, "%u", c->gen);
    push_f(&a, "--lifeline");
    push_f(&a, "%s", c->life_path);
    if (c->role == ROLE_GATEWAY) {
        push_f(&a, "--http-fds");
        push_f(&a, "%d", c->sup->http.n);
    }
    if (l->model_file[0] != '\0') {
        push_f(&a, "--model-file");
        push_f(&a, "%s", l->model_file);
    }
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        char buf[4096];
        if (!concerns(c, (enum vt_config_key)k))
            continue;
        const char *name = vt_config_name((enum vt_config_key)k);
        const char *value = value_for(c, (enum vt_config_key)k, buf, sizeof buf);
        push_f(&a, "--set");
        push_f(&a, "%s=%s", name, value);
        if (kv_set(&l->requested, name, value) < 0)
            a.failed = true;
    }
    push_extra(&a, extra);
    hash_args(l, extra, l->args);
    if (a.failed) {
        launch_argv_free(a.v);
        return NULL;
    }
    return a.v;
}

/* ---- what was applied ---- */

/* Values that ask the engine to choose: its report is what it chose. */
static bool means_choose(const char *key, const char *value)
{
    static const char *const free_choice[][2] = {
        {"engine.threads", "0"}, {"engine.simd", "auto"}, {"engine.device", "auto"}, {"engine.device", ""}};
    for (size_t i = 0; i < sizeof free_choice / sizeof free_choice[0]; i++) {
        if (strcmp(key, free_choice[i][0]) == 0 && strcmp(value, free_choice[i][1]) == 0)
            return true;
    }
    return false;
}

static bool must_be_reported(const char *key)
{
    struct vt_err ignored;
    int k = vt_config_find(key, &ignored);
    return k >= 0 && shape_has((enum vt_config_key)k);
}

int launch_ready(struct child *c, const struct vt_frame *f, struct vt_err *err)
{
    struct launch *l = &c->launch;
    if (kv_from_map(&l->effective, vt_frame_map(f, VT_READY_EFFECTIVE)) < 0 ||
        kv_from_map(&l->facts, vt_frame_map(f, VT_READY_FACTS)) < 0)
        return vt_fail(err, VT_E_BAD_FRAME, "%s reports more values than a launch holds", c->name);
    l->window = vt_frame_u64(f, VT_READY_WINDOW, 0);
    l->slots = vt_frame_u64(f, VT_READY_SLOTS, 0);
    l->pool_tokens = vt_frame_u64(f, VT_READY_POOL_TOKENS, 0);
    l->modalities = vt_frame_u64(f, VT_READY_MODALITIES, 0);
    l->kv_bytes_per_token = vt_frame_u64(f, VT_READY_KV_BYTES_PER_TOKEN, 0);
    if (c->role != ROLE_ENGINE)
        return 0;
    for (unsigned i = 0; i < l->requested.n; i++) {
        const char *key = l->requested.key[i], *want = l->requested.value[i];
        const char *have = kv_get(&l->effective, key);
        if (have == NULL && must_be_reported(key))
            return vt_fail(err, VT_E_CONFIG, "config_not_applied: %s (requested %s, not reported)", key,
                           want);
        if (have != NULL && !means_choose(key, want) && strcmp(have, want) != 0)
            return vt_fail(err, VT_E_CONFIG, "config_not_applied: %s (requested %s, effective %s)", key, want,
                           have);
    }
    return 0;
}

/* ---- the record ---- */

static struct child *living_store(struct sup *s)
{
    struct child *store = sup_role(s, ROLE_STORE);
    return store != NULL && store->welcomed &&
                   (store->state == VT_CHILD_READY || store->state == VT_CHILD_DRAINING)
               ? store
               : NULL;
}

void launch_ask(struct child *c)
{
    struct child *store = living_store(c->sup);
    if (store == NULL || c->role != ROLE_ENGINE)
        return;
    vt_enc_str(child_begin(store, VT_F_LAUNCH_LAST, 0), VT_LAUNCH_LAST_CHILD, c->name);
    child_send(store);
}

static void put(struct child *c, struct child *store)
{
    struct launch *l = &c->launch;
    struct vt_enc *e = child_begin(store, VT_F_LAUNCH_PUT, 0);
    vt_enc_str(e, VT_LAUNCH_PUT_CHILD, c->name);
    vt_enc_u64(e, VT_LAUNCH_PUT_GEN, c->gen);
    vt_enc_str(e, VT_LAUNCH_PUT_FP, l->fp);
    vt_enc_str(e, VT_LAUNCH_PUT_LINE, l->line);
    kv_put(&l->map, e, VT_LAUNCH_PUT_EFFECTIVE);
    vt_enc_str(e, VT_LAUNCH_PUT_DIFF_PREV, l->diff);
    vt_enc_str(e, VT_LAUNCH_PUT_DIFF_BLESS, l->bdiff);
    vt_enc_u64(e, VT_LAUNCH_PUT_STARTED_US, vt_wall(&c->sup->clock) - (sup_now(c->sup) - c->spawned_at));
    vt_enc_str(e, VT_LAUNCH_PUT_BOOT_ID, c->sup->boot_id);
    child_send(store);
    l->put = true;
}

static void remember(struct child *c)
{
    struct sup *s = c->sup;
    struct launch_past *p = &s->past[s->n_past++ % LAUNCH_PAST];
    *p = (struct launch_past){.gen = c->gen, .at_us = vt_wall(&s->clock)};
    snprintf(p->child, sizeof p->child, "%s", c->name);
    memcpy(p->fp, c->launch.fp, sizeof p->fp);
    snprintf(p->diff, sizeof p->diff, "%.255s", c->launch.diff);
    memcpy(p->line, c->launch.line, sizeof p->line);
}

void launch_announce(struct child *c)
{
    struct launch *l = &c->launch;
    struct fingerprint_in in = {.child = c->name,
                                .build = VT_BUILD_ID,
                                .profile = vt_config_str(c->sup->cfg, VT_CFG_PROFILE_NAME),
                                .boot_env = l->env,
                                .args = l->args,
                                .gen = c->gen,
                                .effective = &l->effective,
                                .facts = &l->facts,
                                .pool_tokens = l->pool_tokens,
                                .slots = l->slots,
                                .window = l->window,
                                .diff = l->diff,
                                .bdiff = l->bdiff,
                                .blessed = "none",
                                .rolled_back_from = profiles_rolled_back_from(c->sup)};
    if (c->role != ROLE_ENGINE || fingerprint_map(&in, &l->map) < 0)
        return;
    fingerprint_fp(&l->map, l->fp);
    if (!l->previous_known)
        snprintf(l->diff, sizeof l->diff, "unknown");
    else if (!l->previous_found)
        snprintf(l->diff, sizeof l->diff, "first");
    else
        fingerprint_diff(&l->previous, &l->map, l->diff, sizeof l->diff);
    profiles_bdiff(c->sup, &l->map, l->bdiff, sizeof l->bdiff, &in.blessed);
    fingerprint_line(&in, l->fp, l->line, sizeof l->line);
    if (strcmp(l->bdiff, "none") != 0 && vt_config_bool(c->sup->cfg, VT_CFG_PROFILE_PRODUCTION))
        event_text(c->sup, EVENT_DRIFT, c, VT_LOG_WARNING, "drift from the blessed record %s: %.180s",
                   in.blessed, l->bdiff);
    char gen[16];
    snprintf(gen, sizeof gen, "%u", c->gen);
    vt_log_ev(c->sup->log, VT_LOG_NOTICE, "fingerprint", l->line, "FP", l->fp, "FP_DIFF", l->diff, "BDIFF",
              l->bdiff, "CHILD", c->name, "GEN", gen, NULL);
    remember(c);
    struct child *store = living_store(c->sup);
    if (store != NULL)
        put(c, store);
    /* The next launch of this vitriold compares with this one, whether or not the store is there. */
    if (kv_copy(&l->previous, &l->map) == 0)
        l->previous_known = l->previous_found = true;
}

void launch_end(struct child *c, const char *evidence)
{
    struct launch *l = &c->launch;
    struct child *store = living_store(c->sup);
    if (l->store_id != 0 && store != NULL) {
        struct vt_enc *e = child_begin(store, VT_F_LAUNCH_END, 0);
        vt_enc_u64(e, VT_LAUNCH_END_ID, l->store_id);
        vt_enc_str(e, VT_LAUNCH_END_CLASS, exit_class_name(c->class));
        vt_enc_str(e, VT_LAUNCH_END_DETAIL, c->detail);
        vt_enc_u64(e, VT_LAUNCH_END_READY_US, c->ready_at != 0 ? c->ready_at - c->spawned_at : 0);
        if (evidence != NULL && evidence[0] != '\0')
            vt_enc_bin(e, VT_LAUNCH_END_EVIDENCE, evidence, strlen(evidence));
        child_send(store);
    }
    l->store_id = 0;
    l->put = false;
    l->fp[0] = l->line[0] = '\0';
}

void launch_from_store(struct sup *s, const struct vt_frame *f)
{
    char name[64];
    struct child *c = sup_child(s, vt_frame_str(f, VT_LAUNCH_LAST_IS_CHILD, name, sizeof name));
    if (c == NULL)
        return;
    struct launch *l = &c->launch;
    if (f->type == VT_F_LAUNCH_PUT_DONE) {
        l->store_id = l->put ? vt_frame_u64(f, VT_LAUNCH_PUT_DONE_ID, 0) : 0;
        return;
    }
    if (l->fp[0] != '\0' || l->previous_known)
        return; /* what this vitriold launched itself is newer */
    l->previous_known = true;
    l->previous_found = vt_frame_u64(f, VT_LAUNCH_LAST_IS_FOUND, 0) != 0;
    vt_frame_str(f, VT_LAUNCH_LAST_IS_FP, l->previous_fp, sizeof l->previous_fp);
    kv_from_map(&l->previous, vt_frame_map(f, VT_LAUNCH_LAST_IS_EFFECTIVE));
}

void launch_tell_store(struct sup *s)
{
    struct child *store = living_store(s);
    for (unsigned i = 0; store != NULL && i < s->n_children; i++) {
        struct child *c = &s->child[i];
        if (c->role != ROLE_ENGINE)
            continue;
        if (c->state == VT_CHILD_READY && c->launch.store_id == 0 && c->launch.fp[0] != '\0')
            put(c, store);
        else if (!c->launch.previous_known)
            launch_ask(c);
    }
}
