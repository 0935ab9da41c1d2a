#include "worker_priv.h"

#include "series.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VRAM_READ_US VT_SEC(5)

/* ---- READY ---- */

static bool is_mine(const char *name)
{
    static const char *const others[] = {"model.path", "store.autosave_s", "store.turn_save_ms",
                                         "store.restore_budget_s", "store.prefix_wait_ms"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(name, others[i]) == 0)
            return true;
    }
    return strncmp(name, "engine.", 7) == 0;
}

/* What the core made of a key, not what it was told. */
static const char *effective(const struct worker *w, enum vt_config_key k, char *out, size_t size)
{
    const struct eng_facts *f = compute_facts(w->compute);
    const char *name = vt_config_name(k);
    if (strcmp(name, w->faults.lie_effective) == 0)
        return "lie";
    switch (k) {
    case VT_CFG_ENGINE_SLOTS: snprintf(out, size, "%u", f->slots); return out;
    case VT_CFG_ENGINE_CTX_TOKENS: snprintf(out, size, "%u", f->window); return out;
    case VT_CFG_ENGINE_THREADS: snprintf(out, size, "%d", f->threads); return out;
    case VT_CFG_ENGINE_DEVICE: snprintf(out, size, "%s", f->device); return out;
    case VT_CFG_ENGINE_SIMD: snprintf(out, size, "%s", f->simd); return out;
    default: break;
    }
    return vt_config_text(w->cfg, k, out, size);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(vt_config_name(*(const enum vt_config_key *)a),
                  vt_config_name(*(const enum vt_config_key *)b));
}

static void put_effective(struct worker *w, struct vt_enc *e)
{
    enum vt_config_key keys[VT_CFG_COUNT];
    char text[1024];
    unsigned n = 0;
    for (int k = 0; k < VT_CFG_COUNT; k++) {
        const char *name = vt_config_name((enum vt_config_key)k);
        if (is_mine(name) && strcmp(name, w->faults.drop_option) != 0)
            keys[n++] = (enum vt_config_key)k;
    }
    qsort(keys, n, sizeof keys[0], by_name);
    vt_enc_map(e, VT_READY_EFFECTIVE, n);
    for (unsigned i = 0; i < n; i++) {
        vt_enc_put_str(e, vt_config_name(keys[i]));
        vt_enc_put_str(e, effective(w, keys[i], text, sizeof text));
    }
}

static void put_plan(struct vt_enc *e, const struct eng_facts *f)
{
    const struct {
        const char *name;
        uint64_t planned, measured;
    } row[] = {{"weights", f->weights_planned, f->weights_measured},
               {"kv", f->kv_planned, f->kv_measured},
               {"work", f->work_planned, f->work_measured}};
    vt_enc_array(e, VT_READY_PLAN, 3);
    for (int i = 0; i < 3; i++) {
        vt_enc_put_array(e, 3);
        vt_enc_put_str(e, row[i].name);
        vt_enc_put_u64(e, row[i].planned);
        vt_enc_put_u64(e, row[i].measured);
    }
}

/* Measured against planned, all terms together. */
static void plan_delta(const struct eng_facts *f, char *out, size_t size)
{
    uint64_t planned = f->weights_planned + f->kv_planned + f->work_planned;
    uint64_t measured = f->weights_measured + f->kv_measured + f->work_measured;
    double d = planned > 0 ? 100.0 * ((double)measured - (double)planned) / (double)planned : 0;
    snprintf(out, size, "%+.1f%%", d);
}

static void put_facts(const struct worker *w, struct vt_enc *e, const struct eng_facts *f)
{
    char spec[32];
    char number[9][24], delta[24], layout[2 * 6 + 1], sha[2 * 6 + 1];
    snprintf(number[0], sizeof number[0], "%llu", (unsigned long long)f->model_bytes);
    snprintf(number[1], sizeof number[1], "%u", f->n_ctx_train);
    snprintf(number[2], sizeof number[2], "%u", f->n_embd);
    snprintf(number[3], sizeof number[3], "%u", f->n_layer);
    snprintf(number[4], sizeof number[4], "%llu", (unsigned long long)f->n_params);
    snprintf(number[5], sizeof number[5], "%d", f->threads);
    snprintf(number[6], sizeof number[6], "%u", f->n_vocab);
    plan_delta(f, delta, sizeof delta);
    snprintf(number[7], sizeof number[7], "%u", f->numerics);
    vt_hex(f->layout_fp, 6, layout);
    vt_hex(f->payload, 6, sha);
    snprintf(number[8], sizeof number[8], "%llu", (unsigned long long)f->gpu_free);
    drafting_name(w->cfg, spec, sizeof spec);
    const char *const pair[][2] = {{"arch", f->arch},
                                   {"bytes", number[0]},
                                   {"ctx_train", number[1]},
                                   {"device", f->device},
                                   {"embd", number[2]},
                                   {"free", f->gpu[0] ? number[8] : "-"},
                                   {"gpus", f->gpu[0] ? f->gpu_uuid : "none"},
                                   {"kv", "k:f16,v:f16"},
                                   {"layers", number[3]},
                                   {"layout", layout},
                                   {"model", f->model},
                                   {"numerics", number[7]},
                                   {"params", number[4]},
                                   {"plan_delta", delta},
                                   {"sha", sha},
                                   {"simd", f->simd},
                                   {"spec", spec},
                                   {"threads", number[5]},
                                   {"vocab", number[6]}};
    vt_enc_map(e, VT_READY_FACTS, sizeof pair / sizeof pair[0]);
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; i++) {
        vt_enc_put_str(e, pair[i][0]);
        vt_enc_put_str(e, pair[i][1]);
    }
}

/* Parts of the way to READY, in the log; the times are ends of parts that follow each other. */
void report_load(struct worker *w)
{
    const struct eng_facts *f = compute_facts(w->compute);
    vt_log(w->log, VT_LOG_NOTICE,
           "loaded: process %.0f ms, model file and device %.0f ms, rest of the device %.0f ms, weights %.0f "
           "ms (%s), KV %.0f ms "
           "(%u pages kept, "
           "%u spoilt), %s",
           (double)w->process_us / 1e3, (double)f->model_us / 1e3, (double)f->device_us / 1e3,
           (double)f->weights_us / 1e3, f->weights_kept ? "kept" : "loaded", (double)f->pools_us / 1e3,
           f->kv_kept, f->kv_spoilt, f->vault ? "a vault holds it" : "no vault");
    if (w->keep != NULL && keep_trouble(w->keep)[0] != '\0')
        vt_log(w->log, VT_LOG_WARNING, "memory of the engine before was not taken over: %s",
               keep_trouble(w->keep));
}

void report_ready(struct worker *w)
{
    const struct eng_facts *f = compute_facts(w->compute);
    struct vt_enc *e = vt_child_begin(w->child, VT_F_READY, 0);
    if (f->device_note[0])
        vt_log(w->log, VT_LOG_NOTICE, "the model runs on the CPU: %s", f->device_note);
    put_effective(w, e);
    put_plan(e, f);
    vt_enc_u64(e, VT_READY_KV_BYTES_PER_TOKEN, f->kv_bytes_per_token);
    vt_enc_u64(e, VT_READY_POOL_TOKENS, f->pool_tokens);
    vt_enc_u64(e, VT_READY_SLOTS, f->slots);
    vt_enc_u64(e, VT_READY_WINDOW, f->window);
    vt_enc_u64(e, VT_READY_MODALITIES, 1); /* text */
    vt_enc_bin(e, VT_READY_LAYOUT, f->layout, f->layout_len);
    vt_enc_bin(e, VT_READY_LAYOUT_FP, f->layout_fp, sizeof f->layout_fp);
    vt_enc_u64(e, VT_READY_HYBRID, f->rec_bytes > 0);
    put_facts(w, e, f);
    vt_child_send(w->child);
}

/* ---- T_ENGINE ---- */

static void rates(struct worker *w, const struct eng_counters *now)
{
    uint64_t t = vt_mono(&w->clock);
    double s = (double)(t - w->then_at) / 1e6;
    if (w->then_at != 0 && s < 5)
        return;
    if (w->then_at != 0) {
        w->prompt_rate = (double)(now->prompt_tokens - w->then.prompt_tokens) / s;
        w->predicted_rate = (double)(now->predicted - w->then.predicted) / s;
    }
    w->then = *now;
    w->then_at = t;
}

/* Restores that take longer than what they spare are told once, and again when that was better in between. */
static void judge_restores(struct worker *w, const struct eng_counters *c, struct worth *worth)
{
    char text[120];
    double us = c->prompt_tokens > 0 ? (double)c->prompt_us / (double)c->prompt_tokens : 0;
    if (!checkpoint_turns_poor(w->checkpoint, us, worth))
        return;
    snprintf(text, sizeof text, "%llu of %llu tokens reused, %.3f s spent",
             (unsigned long long)worth->recent.reused, (unsigned long long)worth->recent.offered,
             (double)worth->recent.spent_us / 1e6);
    vt_log(w->log, VT_LOG_WARNING, "restores take longer than they spare: %s", text);
    vt_child_note(w->child, VT_NOTE_RESTORE_POOR, "restores", text);
}

static void judge_drafts(struct worker *w, const struct eng_counters *c)
{
    char text[120];
    enum drafting_verdict v =
        drafting_judge(&w->drafting, c, (uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_SPEC_FLOOR_PCT),
                       VT_SEC((uint64_t)vt_config_int(w->cfg, VT_CFG_ENGINE_SPEC_FLOOR_S)),
                       vt_mono(&w->clock), text, sizeof text);
    if (v != DRAFTING_FINE)
        vt_child_note(w->child, v == DRAFTING_POOR ? VT_NOTE_SPEC_POOR : VT_NOTE_SPEC_BLIND, "acceptance",
                      text);
}

/* The driver may take milliseconds to answer. */
static uint64_t vram_free(struct worker *w)
{
    uint64_t now = vt_mono(&w->clock);
    if (w->vram_at == 0 || now - w->vram_at >= VRAM_READ_US) {
        w->vram_at = now;
        w->vram_free = compute_device_free(w->compute);
    }
    return w->vram_free;
}

void report_counters(struct worker *w)
{
    struct compute_status *s = malloc(sizeof *s);
    struct checkpoint_stats ck;
    struct worth worth;
    if (s == NULL)
        return;
    const struct eng_facts *f = compute_facts(w->compute);
    compute_status(w->compute, s);
    checkpoint_stats(w->checkpoint, &ck);
    const struct eng_counters *c = &s->counters;
    rates(w, c);
    judge_restores(w, c, &worth);
    judge_drafts(w, c);
    const struct {
        unsigned num;
        uint64_t v;
    } counter[] = {{VT_SERIES_PROMPT_TOKENS, c->prompt_tokens},
                   {VT_SERIES_PROMPT_CACHED, c->prompt_reused},
                   {VT_SERIES_PROMPT_US, c->prompt_us},
                   {VT_SERIES_PREDICTED, c->predicted},
                   {VT_SERIES_PREDICTED_US, c->predict_us},
                   {VT_SERIES_DECODE_CALLS, c->decode_calls},
                   {VT_SERIES_MAX_TOKENS, c->max_tokens},
                   {VT_SERIES_CANCELLED, c->cancelled},
                   {VT_SERIES_PARKED, requests_parked(w->requests)},
                   {VT_SERIES_STALE_FRAMES, vt_child_stale(w->child)},
                   {VT_SERIES_CKPT_SAVES, ck.saves},
                   {VT_SERIES_CKPT_SKIPPED, ck.skipped},
                   {VT_SERIES_CKPT_REFUSED, ck.refused},
                   {VT_SERIES_CKPT_BYTES, ck.bytes},
                   {VT_SERIES_RESTORE_USELESS, worth.useless},
                   {VT_SERIES_SPEC_DRAFTS, c->spec_drafts},
                   {VT_SERIES_SPEC_DRAFTED, c->spec_drafted},
                   {VT_SERIES_SPEC_ACCEPTED, c->spec_accepted},
                   {VT_SERIES_PREFIX_ASKED, ck.fetches},
                   {VT_SERIES_PREFIX_TOKENS, ck.fetched_tokens},
                   {VT_SERIES_PREFIX_LATE, ck.fetches_late},
                   {VT_SERIES_RESTORE_TOKENS, worth.total.restored},
                   {VT_SERIES_RESTORE_REUSED, worth.total.reused},
                   {VT_SERIES_RESTORE_SPENT, worth.total.spent_us},
                   {VT_SERIES_KV_EVICTED, c->kv_evicted_tokens},
                   {VT_SERIES_KV_EVICTED_PAGES, c->kv_evicted_pages},
                   {VT_SERIES_SPEC_REFUTED, c->spec_refuted}}; /* ascending, as in every map */
    double pool = f->pool_tokens > 0 ? (double)f->pool_tokens : 1;
    const struct {
        unsigned num;
        double v;
    } gauge[] = {
        {VT_SERIES_BUSY_SLOTS, c->decode_calls > 0 ? (double)c->busy_slots_sum / (double)c->decode_calls : 0},
        {VT_SERIES_PROCESSING, c->processing},
        {VT_SERIES_DEFERRED, c->deferred},
        {VT_SERIES_KV_RATIO, (double)c->kv_used_tokens / pool},
        {VT_SERIES_KV_TOKENS, (double)c->kv_used_tokens},
        {VT_SERIES_PROMPT_RATE, w->prompt_rate},
        {VT_SERIES_PREDICTED_RATE, w->predicted_rate},
        {VT_SERIES_KV_POOL, (double)f->pool_tokens},
        {VT_SERIES_KV_PRICE, (double)f->kv_bytes_per_token},
        {VT_SERIES_HANDOFF, requests_unsent(w->requests)},
        {VT_SERIES_CKPT_AGE, ck.age_s},
        {VT_SERIES_RESTORE_US, (double)ck.restore_us / 1e6},
        {VT_SERIES_RESTORED_TOKENS, (double)ck.restored_tokens},
        {VT_SERIES_RESTORE_PAYS, !worth.poor},
        {VT_SERIES_VRAM_FREE, (double)vram_free(w)}};
    struct vt_enc *e = vt_child_begin(w->child, VT_F_T_ENGINE, 0);
    vt_enc_str(e, VT_T_ENGINE_CHILD, w->args.name);
    vt_enc_u64(e, VT_T_ENGINE_GEN, w->args.gen);
    vt_enc_map(e, VT_T_ENGINE_COUNTERS, sizeof counter / sizeof counter[0]);
    for (size_t i = 0; i < sizeof counter / sizeof counter[0]; i++) {
        vt_enc_put_u64(e, counter[i].num);
        vt_enc_put_u64(e, counter[i].v);
    }
    vt_enc_map(e, VT_T_ENGINE_GAUGES, sizeof gauge / sizeof gauge[0]);
    for (size_t i = 0; i < sizeof gauge / sizeof gauge[0]; i++) {
        vt_enc_put_u64(e, gauge[i].num);
        vt_enc_put_f64(e, gauge[i].v);
    }
    vt_child_send(w->child);
    free(s);
}

/* ---- SLOTS ---- */

void report_slots(struct worker *w, uint64_t id)
{
    struct compute_status *s = malloc(sizeof *s);
    if (s == NULL)
        return;
    compute_status(w->compute, s);
    struct vt_enc *e = vt_link_begin(w->gateway, VT_F_SLOTS, id);
    vt_enc_array(e, VT_SLOTS_LIST, s->n_slots);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        const struct eng_slot_info *i_ = &s->slot[i];
        const uint8_t *rid = requests_rid(w->requests, i_->rid);
        vt_enc_put_array(e, 11);
        vt_enc_put_u64(e, i_->slot);
        vt_enc_put_u64(e, i_->state);
        vt_enc_put_u64(e, i_->n_tokens);
        vt_enc_put_u64(e, i_->n_reused);
        vt_enc_put_str(e, i_->tenant);
        vt_enc_put_bin(e, rid, rid != NULL ? 16 : 0);
        vt_enc_put_u64(e, i_->n_prompt);
        vt_enc_put_u64(e, i_->n_decoded);
        vt_enc_put_u64(e, i_->n_remain);
        vt_enc_put_u64(e, i_->drafted);
        vt_enc_put_u64(e, i_->accepted);
    }
    vt_link_post(w->gateway, NULL);
    free(s);
}
