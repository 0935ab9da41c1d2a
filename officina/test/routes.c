#include "check.h"
#include "gate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

const char *gate_option(const struct gate *g, const char *name, const char *dflt)
{
    return pairs_get(&g->script.engine, name, dflt);
}

void gate_count(struct gate *g, const char *series, double more)
{
    json_object_set_new(g->series, series,
                        json_real(json_number_value(json_object_get(g->series, series)) + more));
}

void gate_health(struct gate *g, const struct step *s)
{
    const char *boot = pairs_get(&s->pairs, "boot", NULL);
    bool up = strcmp(s->text, "up") == 0;
    free(g->health);
    g->health = strdup(up ? "ok" : s->text);
    g->eta = atof(pairs_get(&s->pairs, "eta", "20"));
    if (boot) {
        g->boot = (unsigned)atoi(boot);
        json_object_clear(g->series);
        for (int i = 0; i < GATE_SLOTS; i++) {
            free(g->slots[i]);
            g->slots[i] = NULL;
        }
    }
    bool down = strcmp(g->health, "down") == 0;
    gate_listen(g, !down);
    for (size_t i = 0; down && i < sizeof g->conns / sizeof *g->conns; i++)
        if (g->conns[i] >= 0)
            shutdown(g->conns[i], SHUT_RDWR);
}

void gate_telemetry(struct gate *g, const struct step *s)
{
    static const struct {
        const char *word, *series;
    } names[] = {{"decoded", "llamacpp:tokens_predicted_total"},
                 {"decode_seconds", "llamacpp:tokens_predicted_seconds_total"},
                 {"read", "llamacpp:prompt_tokens_total"},
                 {"read_seconds", "llamacpp:prompt_seconds_total"},
                 {"evicted", "vitriol_kv_evicted_tokens_total"},
                 {"processing", "llamacpp:requests_processing"},
                 {"deferred", "llamacpp:requests_deferred"}};
    for (size_t i = 0; i < s->pairs.n; i++) {
        const char *name = s->pairs.name[i];
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            if (strcmp(name, names[k].word) == 0)
                name = names[k].series;
        json_object_set_new(g->series, name, json_real(atof(s->pairs.value[i])));
    }
}

static int n_slots(const struct gate *g)
{
    int n = atoi(gate_option(g, "slots", "1"));
    return n < 1 ? 1 : n > GATE_SLOTS ? GATE_SLOTS : n;
}

static void health(struct gate *g, struct conn *c)
{
    char boot[32];
    snprintf(boot, sizeof boot, "boot-%u", g->boot);
    if (strcmp(g->health, "ok") == 0) {
        int busy = 0;
        for (int i = 0; i < n_slots(g); i++)
            busy += g->busy[i];
        conn_json(c, 200, NULL,
                  json_pack("{s:s, s:s, s:s, s:i, s:i}", "status", "ok", "state", "ok", "boot_id", boot,
                            "slots_idle", n_slots(g) - busy, "slots_processing", busy));
        return;
    }
    json_t *o = json_pack("{s:{s:i, s:s, s:s}, s:s, s:s}", "error", "code", 503, "message", "Loading model",
                          "type", "unavailable_error", "state", g->health, "boot_id", boot);
    if (strcmp(g->health, "bouncing") == 0)
        json_object_set_new(o, "bounce_eta_s", json_real(g->eta));
    conn_json(c, 503, "Retry-After: 1\r\n", o);
}

static bool option_on(const struct gate *g, const char *name)
{
    const char *v = gate_option(g, name, "yes");
    return strcmp(v, "yes") == 0 || strcmp(v, "on") == 0;
}

static void props(struct gate *g, struct conn *c)
{
    json_int_t window = atoll(gate_option(g, "n_ctx", "32768"));
    bool tools = option_on(g, "tools");
    const char *certified = gate_option(g, "certified", NULL), *model = gate_option(g, "model", "scripted-1");
    json_t *o = json_pack("{s:{s:I}, s:I, s:i, s:s, s:s, s:{s:b, s:b}, s:{s:b, s:b, s:b}, s:s, s:b, s:b}",
                          "default_generation_settings", "n_ctx", window, "n_ctx", window, "total_slots",
                          n_slots(g), "model_alias", model, "model_path", "/models/scripted.gguf",
                          "modalities", "vision", 0, "audio", 0, "chat_template_caps", "supports_system_role",
                          1, "supports_tools", tools, "supports_tool_calls", tools, "build_info", "scripted",
                          "endpoint_slots", 1, "endpoint_metrics", 1);
    if (certified)
        json_object_set_new(o, "certified",
                            json_pack("{s:I, s:f, s:s, s:s}", "tokens", (json_int_t)atoll(certified),
                                      "decode_per_second", atof(gate_option(g, "decode", "11.3")), "profile",
                                      "scripted", "date", "2026-01-01"));
    json_object_set_new(o, "cache",
                        json_pack("{s:b, s:b}", "checkpoints", option_on(g, "checkpoints"), "cut_anywhere",
                                  strcmp(gate_option(g, "cut", "any"), "any") == 0));
    conn_json(c, 200, NULL, o);
}

static void slots(struct gate *g, struct conn *c)
{
    json_t *list = json_array();
    for (int i = 0; i < n_slots(g); i++) {
        json_int_t held = g->slots[i] ? (json_int_t)strlen(g->slots[i]) / 4 : 0;
        json_array_append_new(list, json_pack("{s:i, s:I, s:b, s:I, s:I, s:[{s:b, s:I}]}", "id", i, "n_ctx",
                                              (json_int_t)atoll(gate_option(g, "n_ctx", "32768")),
                                              "is_processing", g->busy[i], "n_prompt_tokens", held,
                                              "n_prompt_tokens_cache", held, "next_token", "has_next_token",
                                              g->busy[i], "n_decoded", (json_int_t)0));
    }
    conn_json(c, 200, NULL, list);
}

static void metrics(struct gate *g, struct conn *c)
{
    char *out = NULL;
    size_t len;
    FILE *f = open_memstream(&out, &len);
    const char *name;
    json_t *v;
    json_object_foreach(g->series, name, v) fprintf(f, "%s %.3f\n", name, json_number_value(v));
    fclose(f);
    conn_reply(c, 200, "text/plain; version=0.0.4", NULL, out);
    free(out);
}

static void models(struct gate *g, struct conn *c)
{
    json_int_t window = atoll(gate_option(g, "n_ctx", "32768"));
    conn_json(c, 200, NULL,
              json_pack("{s:s, s:[{s:s, s:s, s:I, s:I}]}", "object", "list", "data", "id",
                        gate_option(g, "model", "scripted-1"), "object", "model", "max_model_len", window,
                        "context_length", window));
}

static int file_of(struct gate *g, const char *name, bool make)
{
    for (int i = 0; i < GATE_FILES; i++)
        if (g->files[i].name && strcmp(g->files[i].name, name) == 0)
            return i;
    for (int i = 0; make && i < GATE_FILES; i++)
        if (!g->files[i].name) {
            g->files[i].name = strdup(name);
            return i;
        }
    return -1;
}

static void slot_action(struct gate *g, struct conn *c, const struct request *r)
{
    int id = atoi(r->path + 7);
    json_t *body = json_loadb(r->body ? r->body : "", r->len, 0, NULL);
    const char *name = json_string_value(json_object_get(body, "filename"));
    bool save = strstr(r->path, "action=save"), restore = strstr(r->path, "action=restore");
    if (!option_on(g, "checkpoints"))
        conn_error(c, 501, NULL, "checkpoints are off");
    else if (id < 0 || id >= n_slots(g))
        conn_error(c, 400, NULL, "Invalid slot ID");
    else if (!save && !restore) {
        free(g->slots[id]);
        g->slots[id] = NULL;
        conn_json(c, 200, NULL, json_pack("{s:i, s:i}", "id_slot", id, "n_erased", 1));
    } else if (!name || !*name || strchr(name, '/') || file_of(g, name, save) < 0)
        conn_error(c, 400, NULL, "Invalid filename");
    else {
        int f = file_of(g, name, false);
        char **to = save ? &g->files[f].prompt : &g->slots[id],
             **from = save ? &g->slots[id] : &g->files[f].prompt;
        free(*to);
        *to = *from ? strdup(*from) : NULL;
        json_int_t n = *to ? (json_int_t)strlen(*to) / 4 : 0;
        conn_json(c, 200, NULL,
                  json_pack("{s:i, s:s, s:I, s:I, s:{s:f}}", "id_slot", id, "filename", name,
                            save ? "n_saved" : "n_restored", n, save ? "n_written" : "n_read", n * 512,
                            "timings", save ? "save_ms" : "restore_ms", 3.0));
    }
    json_decref(body);
}

static void count_tokens(struct conn *c, const struct request *r)
{
    json_t *body = json_loadb(r->body, r->len, 0, NULL);
    if (strncmp(r->path, "/tokenize", 9) == 0) {
        size_t n = strlen(json_string_value(json_object_get(body, "content")) ?: "") / 4;
        json_t *list = json_array();
        for (size_t i = 0; i < n; i++)
            json_array_append_new(list, json_integer((json_int_t)i));
        conn_json(c, 200, NULL, json_pack("{s:o}", "tokens", list));
    } else {
        char *prompt = check_prompt(body);
        conn_json(c, 200, NULL,
                  json_pack("{s:s, s:I}", "object", "response.input_tokens", "input_tokens",
                            (json_int_t)strlen(prompt) / 4 + 1));
        free(prompt);
    }
    json_decref(body);
}

static bool at(const struct request *r, const char *method, const char *path)
{
    size_t n = strlen(path);
    const char *p = strncmp(r->path, "/v1/", 4) == 0 ? r->path + 3 : r->path;
    return strcmp(r->method, method) == 0 && strncmp(p, path, n) == 0 && (!p[n] || p[n] == '?');
}

void route(struct gate *g, struct conn *c, const struct request *r)
{
    if (at(r, "POST", "/chat/completions")) {
        answer_chat(g, c, r);
        return;
    }
    pthread_mutex_lock(&g->lock);
    gate_log(g, "%s %s", r->method, r->path);
    bool served = strcmp(g->health, "ok") == 0;
    if (at(r, "GET", "/health"))
        health(g, c);
    else if (at(r, "GET", "/models"))
        models(g, c);
    else if (at(r, "GET", "/metrics"))
        metrics(g, c);
    else if (!served)
        conn_error(c, 503, "Retry-After: 1\r\n", "Loading model");
    else if (at(r, "GET", "/props"))
        props(g, c);
    else if (at(r, "GET", "/slots"))
        slots(g, c);
    else if (at(r, "POST", "/chat/completions/input_tokens") || at(r, "POST", "/tokenize"))
        count_tokens(c, r);
    else if (at(r, "POST", "/chat/completions/control")) {
        g->end_think = true;
        conn_json(c, 200, NULL, json_pack("{s:b}", "success", 1));
    } else if (strcmp(r->method, "POST") == 0 && strncmp(r->path, "/slots/", 7) == 0)
        slot_action(g, c, r);
    else
        conn_error(c, 404, NULL, "no such endpoint");
    pthread_mutex_unlock(&g->lock);
}
