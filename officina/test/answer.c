#include "check.h"
#include "gate.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct answer {
    struct gate *g;
    struct conn *c;
    json_t *body, *calls;
    const struct block *b;
    char *call_id, *text, *thought; /* of an answer that is not streamed; NULL: nothing */
    unsigned number;
    int slot, n_calls;
    long prompt, cached, completion;
    size_t made; /* bytes of text, thoughts and calls */
    bool stream, usage, progress;
    const char *reason;
};

static void record(struct gate *g, const struct request *r, unsigned number)
{
    char path[1024];
    if (!g->record)
        return;
    snprintf(path, sizeof path, "%s/request-%04u.json", g->record, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, r->body, r->len) != (ssize_t)r->len)
        gate_problem(g, "a request could not be recorded");
    if (fd >= 0)
        close(fd);
}

/* Tokens of the prompt that a slot could reuse: at any byte, or only when it holds a prefix as a whole. */
static size_t reusable(const struct gate *g, const char *held, const char *prompt)
{
    size_t n = held ? check_common(held, prompt) : 0;
    bool any = strcmp(gate_option(g, "cut", "any"), "any") == 0;
    return any || (held && n == strlen(held)) ? n : 0;
}

static void choose_slot(struct answer *a, const char *prompt)
{
    struct gate *g = a->g;
    int n = atoi(gate_option(g, "slots", "1"));
    n = n < 1 ? 1 : n > GATE_SLOTS ? GATE_SLOTS : n;
    const json_t *want = json_object_get(a->body, "id_slot");
    size_t best = 0;
    a->slot =
        json_is_integer(want) && json_integer_value(want) >= 0 ? (int)(json_integer_value(want) % n) : 0;
    for (int i = 0; !json_is_integer(want) && i < n; i++)
        if (reusable(g, g->slots[i], prompt) > best) {
            best = reusable(g, g->slots[i], prompt);
            a->slot = i;
        }
    a->prompt = (long)strlen(prompt) / 4 + 1;
    a->cached = (long)reusable(g, g->slots[a->slot], prompt) / 4;
    free(g->slots[a->slot]);
    g->slots[a->slot] = strdup(prompt);
}

static json_t *chunk(const struct answer *a, json_t *delta, const char *reason)
{
    char id[32];
    snprintf(id, sizeof id, "chatcmpl-%u", a->number);
    return json_pack("{s:s, s:s, s:i, s:s, s:[{s:i, s:o, s:s?}]}", "id", id, "object",
                     "chat.completion.chunk", "created", 1, "model", gate_option(a->g, "model", "scripted-1"),
                     "choices", "index", 0, "delta", delta, "finish_reason", reason);
}

static void append(char **text, const char *s, size_t n)
{
    size_t have = *text ? strlen(*text) : 0;
    *text = realloc(*text, have + n + 1);
    memcpy(*text + have, s, n);
    (*text)[have + n] = 0;
}

/* The next piece of s, of about `delta` bytes, never within a character. */
static size_t piece(const char *s, size_t delta)
{
    size_t n = strnlen(s, delta ? delta : 1);
    while (((unsigned char)s[n] & 0xc0) == 0x80)
        n++;
    return n;
}

static void talk(struct answer *a, const char *s, bool thought)
{
    double gap = atof(gate_option(a->g, "gap", "0"));
    size_t delta = (size_t)atoi(gate_option(a->g, "delta", "8"));
    while (*s && !a->c->broken && !(thought && a->g->end_think)) {
        size_t n = piece(s, delta);
        a->made += n;
        if (a->stream)
            conn_event(a->c,
                       chunk(a, json_pack("{s:s%}", thought ? "reasoning_content" : "content", s, n), NULL));
        else
            append(thought ? &a->thought : &a->text, s, n);
        s += n;
        if (gap > 0)
            gate_sleep(gap);
        if (conn_gone(a->c))
            a->c->broken = true;
    }
}

static void call(struct answer *a, const struct step *s)
{
    char id[32];
    pthread_mutex_lock(&a->g->lock);
    snprintf(id, sizeof id, "call_%u", ++a->g->calls);
    pthread_mutex_unlock(&a->g->lock);
    const char *use = a->call_id ? a->call_id : id, *args = s->more;
    int index = a->n_calls++;
    if (a->stream) {
        conn_event(a->c,
                   chunk(a,
                         json_pack("{s:[{s:i, s:s, s:s, s:{s:s, s:s}}]}", "tool_calls", "index", index, "id",
                                   use, "type", "function", "function", "name", s->text, "arguments", ""),
                         NULL));
        size_t delta = (size_t)atoi(gate_option(a->g, "delta", "8"));
        for (size_t n; *args && !a->c->broken; args += n) {
            n = piece(args, delta);
            conn_event(a->c, chunk(a,
                                   json_pack("{s:[{s:i, s:{s:s%}}]}", "tool_calls", "index", index,
                                             "function", "arguments", args, n),
                                   NULL));
        }
    } else {
        json_array_append_new(a->calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", use, "type", "function",
                                                  "function", "name", s->text, "arguments", args));
    }
    a->made += strlen(s->more) + strlen(s->text);
    free(a->call_id);
    a->call_id = NULL;
}

static json_t *usage(const struct answer *a)
{
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)a->prompt, "completion_tokens",
                     (json_int_t)a->completion, "total_tokens", (json_int_t)(a->prompt + a->completion),
                     "prompt_tokens_details", "cached_tokens", (json_int_t)a->cached);
}

static json_t *timings(const struct answer *a)
{
    double read = atof(gate_option(a->g, "read", "131")), decode = atof(gate_option(a->g, "decode", "11.3"));
    long fresh = a->prompt - a->cached;
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "cache_n", (json_int_t)a->cached, "prompt_n",
                     (json_int_t)fresh, "prompt_ms", (double)fresh * 1000 / read, "prompt_per_second", read,
                     "predicted_n", (json_int_t)a->completion, "predicted_ms",
                     (double)a->completion * 1000 / decode, "predicted_per_second", decode);
}

static void finish(struct answer *a, const char *reason)
{
    a->reason = reason ? reason : a->n_calls ? "tool_calls" : "stop";
    if (a->completion < 0)
        a->completion = (long)a->made / 4 + 1;
    if (!a->stream)
        return;
    json_t *last = chunk(a, json_object(), a->reason);
    if (!a->usage)
        json_object_set_new(last, "timings", timings(a));
    conn_event(a->c, last);
    if (a->usage) {
        json_t *u = chunk(a, json_object(), NULL);
        json_object_set_new(u, "choices", json_array());
        json_object_set_new(u, "usage", usage(a));
        json_object_set_new(u, "timings", timings(a));
        conn_event(a->c, u);
    }
    conn_stream(a->c, "data: [DONE]\n\n", 14);
}

static void hang(struct answer *a)
{
    while (!conn_gone(a->c))
        gate_sleep(20);
    gate_log(a->g, "hung %u: the client left", a->number);
    a->c->broken = true;
}

static void nap(struct answer *a, double ms)
{
    for (uint64_t until = gate_now() + (uint64_t)(ms * 1000); gate_now() < until && !a->c->broken;) {
        double left = (double)(until - gate_now()) / 1000;
        gate_sleep(left > 20 ? 20 : left > 0 ? left : 0);
        if (conn_gone(a->c))
            a->c->broken = true;
    }
}

static void progress(struct answer *a, const struct step *s)
{
    if (!a->progress || !a->stream)
        return;
    json_t *o = chunk(a, json_object(), NULL);
    json_object_set_new(o, "prompt_progress",
                        json_pack("{s:I, s:I, s:I, s:f}", "total", (json_int_t)s->n[0], "cache",
                                  (json_int_t)s->n[1], "processed", (json_int_t)s->n[2], "time_ms",
                                  s->n[2] * 1000 / atof(gate_option(a->g, "read", "131"))));
    conn_event(a->c, o);
}

static void fault_event(struct answer *a, const struct step *s)
{
    conn_event(a->c, json_pack("{s:{s:i, s:s, s:s}}", "error", "code", (int)s->n[0], "message", s->text,
                               "type", "server_error"));
}

/* One step; 0 when the answer is over. */
static int play(struct answer *a, const struct step *s)
{
    switch (s->kind) {
    case STEP_SAY: talk(a, s->text, false); break;
    case STEP_THINK: talk(a, s->text, true); break;
    case STEP_CALL: call(a, s); break;
    case STEP_CALL_ID:
        free(a->call_id);
        a->call_id = strdup(s->text);
        break;
    case STEP_PAUSE: nap(a, s->n[0]); break;
    case STEP_PING: conn_stream(a->c, ":\n\n", 3); break;
    case STEP_PROGRESS: progress(a, s); break;
    case STEP_USAGE:
        a->prompt = (long)s->n[0];
        a->completion = (long)s->n[1];
        a->cached = (long)s->n[2];
        break;
    case STEP_RAW: conn_stream(a->c, s->text, strlen(s->text)); break;
    case STEP_FAULT: fault_event(a, s); break;
    case STEP_END: finish(a, s->text); return 0;
    case STEP_DROP: conn_reset(a->c); return 0;
    case STEP_CUT: a->c->budget = (long)s->n[0]; break;
    case STEP_HANG: hang(a); return 0;
    case STEP_HEALTH:
    case STEP_TELEMETRY:
        pthread_mutex_lock(&a->g->lock);
        (s->kind == STEP_HEALTH ? gate_health : gate_telemetry)(a->g, s);
        pthread_mutex_unlock(&a->g->lock);
        break;
    default: break;
    }
    return !a->c->broken;
}

static void whole(struct answer *a)
{
    json_t *m = json_pack("{s:s, s:s?}", "role", "assistant", "content", a->text);
    if (a->thought)
        json_object_set_new(m, "reasoning_content", json_string(a->thought));
    if (json_array_size(a->calls))
        json_object_set(m, "tool_calls", a->calls);
    conn_json(a->c, 200, NULL,
              json_pack("{s:s, s:s, s:i, s:s, s:[{s:i, s:o, s:s?}], s:o, s:o}", "id", "chatcmpl-1", "object",
                        "chat.completion", "created", 1, "model", gate_option(a->g, "model", "scripted-1"),
                        "choices", "index", 0, "message", m, "finish_reason", a->reason, "usage", usage(a),
                        "timings", timings(a)));
}

static void play_block(struct answer *a)
{
    size_t i = 0, n = a->b->n_steps;
    const struct step *s = a->b->steps;
    for (; i < n && (s[i].kind == STEP_PAUSE || s[i].kind == STEP_HEALTH || s[i].kind == STEP_TELEMETRY); i++)
        if (!play(a, &s[i]))
            return;
    if (i < n && s[i].kind == STEP_STATUS) {
        int status = (int)s[i].n[0];
        const char *w = s[i].text ? s[i].text : "scripted refusal";
        conn_error(a->c, status, status == 429 || status == 503 ? "Retry-After: 1\r\n" : NULL,
                   strcmp(w, "loading") == 0 ? "Loading model" : w);
        return;
    }
    if (i < n && s[i].kind == STEP_DROP) {
        conn_reset(a->c);
        return;
    }
    if (a->stream) {
        conn_stream_begin(a->c);
        conn_event(a->c, chunk(a, json_pack("{s:s, s:n}", "role", "assistant", "content"), NULL));
    }
    while (i < n && play(a, &s[i]))
        i++;
    if (a->c->broken)
        return;
    if (a->stream)
        conn_stream_end(a->c);
    else
        whole(a);
}

/* Everything that is judged before the first byte of the answer; the status. Lock is held. */
static int judge(struct answer *a, const struct request *r)
{
    struct gate *g = a->g;
    json_t *found = json_array(), *p;
    size_t i;
    a->number = ++g->requests;
    record(g, r, a->number);
    if (!a->body) {
        gate_problem(g, "a request whose body is no JSON object");
        json_decref(found);
        return 400;
    }
    char *prompt = check_prompt(a->body);
    size_t common = g->last_prompt ? check_common(g->last_prompt, prompt) : 0;
    size_t before = g->last_prompt ? strlen(g->last_prompt) : 0;
    int status = check_chat(a->body, strcmp(gate_option(g, "strict", "no"), "yes") == 0, found);
    if (g->block < g->script.n_blocks)
        a->b = &g->script.blocks[g->block];
    else
        json_array_append_new(found, json_sprintf("request %u: the script has no block for it", a->number));
    if (g->again && (!g->last_body || strcmp(g->last_body, r->body) != 0))
        json_array_append_new(
            found, json_sprintf("request %u: not the bytes of the one before, as it must be", a->number));
    if (a->b)
        check_expects(a->b, a->body, common, before, found);
    json_array_foreach(found, i, p) gate_problem(g, json_string_value(p));
    if (status == 200 && json_array_size(found))
        status = 500;
    gate_log(g, "chat %u: prompt %zu bytes, %zu as before of %zu%s", a->number, strlen(prompt), common,
             before, status == 200 ? "" : ", refused");
    if (a->b && a->b->number)
        g->block++;
    g->again = a->b && a->b->again;
    g->end_think = false;
    choose_slot(a, prompt);
    free(g->last_prompt);
    free(g->last_body);
    g->last_prompt = prompt;
    g->last_body = strdup(r->body);
    json_decref(found);
    return status;
}

void answer_chat(struct gate *g, struct conn *c, const struct request *r)
{
    struct answer a = {.g = g, .c = c, .completion = -1, .calls = json_array()};
    char words[256] = "the request cannot be read";
    a.body = json_loadb(r->body, r->len, JSON_REJECT_DUPLICATES, NULL);
    a.stream = json_is_true(json_object_get(a.body, "stream"));
    a.usage = json_is_true(json_object_get(json_object_get(a.body, "stream_options"), "include_usage"));
    a.progress = json_is_true(json_object_get(a.body, "return_progress"));
    pthread_mutex_lock(&g->lock);
    bool served = strcmp(g->health, "ok") == 0;
    int status = served ? judge(&a, r) : 503;
    if (status != 200 && status != 503)
        snprintf(words, sizeof words, "%s",
                 json_string_value(json_array_get(g->problems, json_array_size(g->problems) - 1)));
    if (status == 200)
        g->busy[a.slot] = true;
    pthread_mutex_unlock(&g->lock);
    if (!served)
        conn_error(c, 503, "Retry-After: 1\r\n", "Loading model");
    else if (status != 200)
        conn_error(c, status, NULL, words);
    else
        play_block(&a);
    pthread_mutex_lock(&g->lock);
    if (status == 200) {
        g->busy[a.slot] = false;
        long made = a.completion < 0 ? (long)a.made / 4 : a.completion;
        gate_count(g, "llamacpp:prompt_tokens_total", (double)(a.prompt - a.cached));
        gate_count(g, "llamacpp:prompt_tokens_cached_total", (double)a.cached);
        gate_count(g, "llamacpp:prompt_seconds_total",
                   (double)(a.prompt - a.cached) / atof(gate_option(g, "read", "131")));
        gate_count(g, "llamacpp:tokens_predicted_total", (double)made);
        gate_count(g, "llamacpp:tokens_predicted_seconds_total",
                   (double)made / atof(gate_option(g, "decode", "11.3")));
    }
    gate_verdict(g);
    pthread_mutex_unlock(&g->lock);
    free(a.call_id);
    free(a.text);
    free(a.thought);
    json_decref(a.calls);
    json_decref(a.body);
}
