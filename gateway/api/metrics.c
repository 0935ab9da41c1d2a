/* GET /metrics: both families; ?compat=0 leaves out the one whose names no linter passes. */
#include "../http/dispatch.h"
#include "../http/error.h"
#include "../telemetry.h"
#include "api.h"
#include "series.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void gauge(struct vt_metrics *m, const char *name, const char *help, double v)
{
    vt_metrics_family(m, name, "gauge", help);
    vt_metrics_sample(m, name, NULL, v);
}

static void counter(struct vt_metrics *m, const char *name, const char *help, uint64_t v)
{
    vt_metrics_family(m, name, "counter", help);
    vt_metrics_count(m, name, NULL, v);
}

static void requests(const struct gateway *gw, struct vt_metrics *m)
{
    const struct stats *s = &gw->stats;
    unsigned held;
    uint64_t oldest, now = vt_mono(&gw->clock);
    unsigned open = router_open_jobs(&gw->router, &held, &oldest);
    uint32_t slots = router_ready(&gw->router) ? router_n_slots(&gw->router) : 0;
    gauge(m, "vitriol_requests_open", "Sequences in progress.", open);
    gauge(m, "vitriol_requests_running", "Sequences on a slot.", open < slots ? open : slots);
    gauge(m, "vitriol_requests_waiting", "Sequences that wait for a slot or an engine.",
          open < slots ? 0 : open - slots);
    gauge(m, "vitriol_queue_oldest_seconds", "Age of the oldest waiting request.",
          oldest ? (double)(now - oldest) / 1e6 : 0);
    counter(m, "vitriol_requests_held_total", "Requests held while an engine was away.",
            gw->router.held_total);
    counter(m, "vitriol_requests_resumed_total", "Requests resumed on a new engine generation.",
            gw->router.resumed_total);
    counter(m, "vitriol_requests_interrupted_total", "Requests ended by an interruption.",
            gw->router.interrupted_total);
    counter(m, "vitriol_sse_pings_total", "Keep-alive comments sent.", s->pings);
    vt_metrics_family(m, "vitriol_requests_finished_total", "counter", "Requests by how they ended.");
    for (int i = 0; i < END_COUNT; i++) {
        const char *const labels[] = {"reason", stats_end_name((enum stats_end)i), NULL};
        vt_metrics_count(m, "vitriol_requests_finished_total", labels, s->ended[i]);
    }
    vt_metrics_family(m, "vitriol_http_responses_total", "counter", "HTTP answers by endpoint and status.");
    for (unsigned e = 0; e < STATS_ENDPOINTS; e++) {
        for (unsigned c = 0; c < STATS_CODES; c++) {
            char code[8];
            const char *const labels[] = {"endpoint", dispatch_endpoint(e), "code", code, NULL};
            snprintf(code, sizeof code, "%u", stats_code(c));
            if (s->responses[e][c] > 0)
                vt_metrics_count(m, "vitriol_http_responses_total", labels, s->responses[e][c]);
        }
    }
}

static void tokens(const struct gateway *gw, struct vt_metrics *m)
{
    const struct stats *s = &gw->stats;
    const char *const ram[] = {"tier", "ram", NULL};
    counter(m, "vitriol_prompt_tokens_total", "Prompt tokens of finished requests, reused ones included.",
            s->prompt_tokens);
    counter(m, "vitriol_generation_tokens_total", "Tokens received from engines.", s->generated_tokens);
    counter(m, "vitriol_prefix_cache_query_tokens_total", "Prompt tokens that a prefix was looked up for.",
            s->prompt_tokens);
    vt_metrics_family(m, "vitriol_prefix_cache_hit_tokens_total", "counter",
                      "Prompt tokens found in a cache.");
    vt_metrics_count(m, "vitriol_prefix_cache_hit_tokens_total", ram, s->cached_tokens);
    gauge(m, "vitriol_kv_cache_usage_ratio", "Used part of the token pool.",
          telemetry_gauge(gw->telemetry, VT_SERIES_KV_RATIO));
    gauge(m, "vitriol_kv_cache_tokens", "Tokens in the pool.",
          telemetry_gauge(gw->telemetry, VT_SERIES_KV_TOKENS));
}

static void phases(const struct stats *s, struct vt_metrics *m)
{
    hist_write(&s->ttft, m, "vitriol_time_to_first_token_seconds", "From the request to its first token.");
    hist_write(&s->itl, m, "vitriol_inter_token_latency_seconds", "Between tokens of one sequence.");
    hist_write(&s->duration, m, "vitriol_request_duration_seconds", "Whole requests.");
    hist_write(&s->queue, m, "vitriol_request_queue_seconds", "Waiting for a slot.");
    hist_write(&s->prefill, m, "vitriol_request_prefill_seconds", "Evaluating prompts.");
    hist_write(&s->decode, m, "vitriol_request_decode_seconds", "Generating.");
    hist_write(&s->prompt, m, "vitriol_request_prompt_tokens", "Prompt tokens of a request.");
    hist_write(&s->generated, m, "vitriol_request_generation_tokens", "Generated tokens of a request.");
}

static void process(const struct gateway *gw, struct vt_metrics *m)
{
    const char *const labels[] = {"version", gw->build, "commit", gw->build, NULL};
    gauge(m, "process_start_time_seconds", "Start of the gateway, seconds since the epoch.",
          (double)gw->started);
    vt_metrics_family(m, "vitriol_build_info", "gauge", "1, with the build in its labels.");
    vt_metrics_sample(m, "vitriol_build_info", labels, 1);
}

void api_metrics(struct gateway *gw, struct http_req *r)
{
    struct vt_metrics m;
    char start[24];
    const char *compat = http_query(r, "compat");
    vt_metrics_init(&m);
    if (!compat || strcmp(compat, "0") != 0)
        telemetry_write(gw->telemetry, &m, true);
    telemetry_write(gw->telemetry, &m, false);
    requests(gw, &m);
    tokens(gw, &m);
    phases(&gw->stats, &m);
    process(gw, &m);
    if (m.failed) {
        vt_metrics_fini(&m);
        api_reply_json(r, 500, NULL);
        return;
    }
    snprintf(start, sizeof start, "%lld", (long long)gw->started);
    http_set_header(r, "Process-Start-Time-Unix", start);
    http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", m.text,
               m.len); /* the text is the reply's now */
}
