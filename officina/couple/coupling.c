#include "couple/coupling.h"

#include "suggest.h"
#include "util/conf.h"
#include "util/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define KEY_LONGEST 8192

struct reader {
    struct couplings *c;
    bool key_inside; /* a key is written in the file itself */
};

static void defaults(struct coupling *c, const char *name)
{
    *c = (struct coupling){.name = mem_dup(name),
                           .title = mem_dup(name),
                           .model = mem_dup("auto"),
                           .window = -1,
                           .certified = true,
                           .slot = -1,
                           .parallel = true,
                           .cap_session = -1,
                           .cap_day = -1,
                           .cap_month = -1,
                           .on_cap = mem_dup("stop"),
                           .gap_s = -1};
}

void coupling_clear(struct coupling *c)
{
    free(c->name);
    free(c->title);
    free(c->base_url);
    free(c->model);
    free(c->tenant);
    free(c->key);
    free(c->on_cap);
    *c = (struct coupling){0};
}

void couplings_free(struct couplings *c)
{
    for (size_t i = 0; i < c->n; i++)
        coupling_clear(&c->v[i]);
    free(c->v);
    *c = (struct couplings){0};
}

static void put(char **at, const char *value)
{
    free(*at);
    *at = mem_dup(value);
}

static int number(const struct conf_line *l, double *out, struct vt_err *err)
{
    char *end;
    errno = 0;
    *out = strtod(l->value, &end);
    if (end == l->value || *end != '\0' || errno != 0 || !isfinite(*out) || *out < 0 || *out > 1e12)
        return conf_fail(l, err, "%.40s = %.40s: write a number", l->key, l->value);
    return 0;
}

static int word(const struct conf_line *l, const char *const *words, int n, int *out, struct vt_err *err)
{
    char hint[160];
    for (int i = 0; i < n; i++) {
        if (strcmp(l->value, words[i]) == 0) {
            *out = i;
            return 0;
        }
    }
    return conf_fail(l, err, "%.40s = %.40s is none of its words%s", l->key, l->value,
                     vt_suggest(l->value, words, (size_t)n, hint, sizeof hint));
}

static bool is_local(const char *url)
{
    static const char *const near[] = {"http://127.", "http://localhost", "http://[::1]"};
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++) {
        size_t n = strlen(near[i]);
        if (strncasecmp(url, near[i], n) == 0 && (i == 0 || strchr(":/", url[n]) != NULL))
            return true;
    }
    return false;
}

static int set_url(struct coupling *c, const char *url, struct vt_err *err)
{
    if (strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0)
        return vt_fail(err, VT_E_CONFIG, "base_url %.100s: write http://HOST:PORT or https://…", url);
    put(&c->base_url, url);
    size_t n = strlen(c->base_url);
    while (n > 0 && c->base_url[n - 1] == '/')
        c->base_url[--n] = '\0';
    if (n > 3 && strcmp(c->base_url + n - 3, "/v1") == 0)
        c->base_url[n - 3] = '\0';
    c->local = is_local(c->base_url);
    return 0;
}

static int set_window(struct coupling *c, const struct conf_line *l, struct vt_err *err)
{
    double v;
    c->certified = strcmp(l->value, "certified") == 0;
    if (c->certified || strcmp(l->value, "props") == 0)
        return 0;
    if (number(l, &v, err) < 0 || v < 1024)
        return conf_fail(l, err, "window = %.40s: write certified, props or a number of tokens from 1024",
                         l->value);
    c->window = (int64_t)v;
    return 0;
}

static int set_slot(struct coupling *c, const struct conf_line *l)
{
    char *end;
    long v = strtol(l->value, &end, 10);
    if (*end == '\0' && end != l->value && v >= 0 && v < 1024)
        c->slot = (int)v;
    else if (strcmp(l->value, "auto") != 0)
        put(&c->tenant, l->value);
    return 0;
}

/* Keys whose value is one of two or three words. */
static int set_word(struct coupling *c, const struct conf_line *l, struct vt_err *err)
{
    static const char *const kinds[] = {"vitriol", "openai", "openai-strict"};
    static const char *const reasonings[] = {"send", "preserve", "drop"};
    static const char *const ids[] = {"native", "nine"}, *const turns[] = {"user", "result"},
                             *const sends[] = {"yes", "ask"};
    int v = 0, rc;
    if (strcmp(l->key, "kind") == 0) {
        rc = word(l, kinds, 3, &v, err);
        c->kind = (enum coupling_kind)v;
    } else if (strcmp(l->key, "reasoning") == 0) {
        rc = word(l, reasonings, 3, &v, err);
        c->reasoning = (enum reasoning)v;
    } else if (strcmp(l->key, "tool_ids") == 0) {
        rc = word(l, ids, 2, &v, err);
        c->ids_nine = v == 1;
    } else if (strcmp(l->key, "mid_turn") == 0) {
        rc = word(l, turns, 2, &v, err);
        c->steer_in_result = v == 1;
    } else if (strcmp(l->key, "send") == 0) {
        rc = word(l, sends, 2, &v, err);
        c->ask_send = v == 1;
    } else {
        static const char *const keys[] = {
            "title",     "kind",         "base_url",  "model",    "window",      "slot",
            "reasoning", "tool_ids",     "mid_turn",  "parallel", "default",     "key",
            "price_in",  "price_cached", "price_out", "price",    "cap_session", "cap_day",
            "cap_month", "on_cap",       "send",      "redact",   "timeout_gap"};
        char hint[160];
        return conf_fail(l, err, "unknown key %.40s%s", l->key,
                         vt_suggest(l->key, keys, sizeof keys / sizeof keys[0], hint, sizeof hint));
    }
    return rc;
}

static int set_price(struct coupling *c, const struct conf_line *l, struct vt_err *err)
{
    const struct {
        const char *key;
        double *at;
        bool price;
    } keys[] = {{"price_in", &c->price_in, true},   {"price_cached", &c->price_cached, true},
                {"price_out", &c->price_out, true}, {"cap_session", &c->cap_session, false},
                {"cap_day", &c->cap_day, false},    {"cap_month", &c->cap_month, false}};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (strcmp(l->key, keys[i].key) != 0)
            continue;
        if (number(l, keys[i].at, err) < 0)
            return -1;
        c->priced = c->priced || keys[i].price;
        return 1;
    }
    return 0;
}

static int take(void *arg, const struct conf_line *l, struct vt_err *err)
{
    struct reader *r = arg;
    struct couplings *all = r->c;
    if (l->key == NULL) {
        if (strcmp(l->kind, "coupling") != 0 || l->name[0] == '\0')
            return conf_fail(l, err, "[%.40s]: write [coupling NAME]", l->kind);
        for (size_t i = 0; i < all->n; i++)
            if (strcmp(all->v[i].name, l->name) == 0)
                return conf_fail(l, err, "coupling %.40s is there twice", l->name);
        all->v = mem_room(all->v, all->n, &all->cap, sizeof *all->v);
        defaults(&all->v[all->n++], l->name);
        return 0;
    }
    if (all->n == 0)
        return conf_fail(l, err, "%.40s stands before the first [coupling NAME]", l->key);
    struct coupling *c = &all->v[all->n - 1];
    int priced = set_price(c, l, err);
    if (priced != 0)
        return priced < 0 ? -1 : 0;
    if (strcmp(l->key, "title") == 0)
        put(&c->title, l->value);
    else if (strcmp(l->key, "model") == 0)
        put(&c->model, l->value);
    else if (strcmp(l->key, "on_cap") == 0)
        put(&c->on_cap, l->value);
    else if (strcmp(l->key, "base_url") == 0)
        return set_url(c, l->value, err) < 0 ? vt_fail_prefix(err, "%.80s:%u", l->file, l->line) : 0;
    else if (strcmp(l->key, "window") == 0)
        return set_window(c, l, err);
    else if (strcmp(l->key, "slot") == 0)
        return set_slot(c, l);
    else if (strcmp(l->key, "parallel") == 0)
        return conf_bool(l, &c->parallel, err);
    else if (strcmp(l->key, "default") == 0)
        return conf_bool(l, &c->dflt, err);
    else if (strcmp(l->key, "redact") == 0)
        return conf_bool(l, &c->redact, err);
    else if (strcmp(l->key, "price") == 0 && strcmp(l->value, "none") == 0)
        c->priced = false, c->price_in = 0;
    else if (strcmp(l->key, "timeout_gap") == 0) {
        double v;
        if (number(l, &v, err) < 0)
            return -1;
        c->gap_s = v < 86400 ? (int)v : 86400;
    } else if (strcmp(l->key, "key") == 0) {
        put(&c->key, l->value);
        bool reference = strncmp(l->value, "env:", 4) == 0 || strncmp(l->value, "file:", 5) == 0 ||
                         strncmp(l->value, "cmd:", 4) == 0;
        r->key_inside = r->key_inside || !reference;
    } else {
        return set_word(c, l, err);
    }
    return 0;
}

static int check(struct couplings *all, const char *file, struct vt_err *err)
{
    size_t defaults_n = 0;
    for (size_t i = 0; i < all->n; i++) {
        struct coupling *c = &all->v[i];
        defaults_n += c->dflt;
        if (c->base_url == NULL)
            return vt_fail(err, VT_E_CONFIG, "%.80s: coupling %.40s has no base_url", file, c->name);
        if (c->gap_s < 0)
            c->gap_s = c->local ? 0 : 60;
        bool capped = c->cap_session >= 0 || c->cap_day >= 0 || c->cap_month >= 0;
        if (capped && !c->priced)
            return vt_fail(err, VT_E_CONFIG,
                           "%.80s: coupling %.40s has a cap and no price; write price_in and price_out", file,
                           c->name);
        if (strncmp(c->on_cap, "couple:", 7) == 0 ? couplings_find(all, c->on_cap + 7, NULL) == NULL
                                                  : strcmp(c->on_cap, "stop") != 0)
            return vt_fail(err, VT_E_CONFIG, "%.80s: coupling %.40s: on_cap is stop or couple:NAME", file,
                           c->name);
    }
    if (defaults_n > 1)
        return vt_fail(err, VT_E_CONFIG, "%.80s: more than one coupling says default = yes", file);
    if (defaults_n == 0 && all->n != 0)
        all->v[0].dflt = true;
    return 0;
}

static void builtin(struct couplings *c)
{
    c->v = mem_room(c->v, c->n, &c->cap, sizeof *c->v);
    struct coupling *l = &c->v[c->n++];
    defaults(l, "lapis");
    put(&l->title, "Lapis Occultus – VITRIOL");
    put(&l->base_url, "http://127.0.0.1:8080");
    l->local = l->dflt = true;
    l->gap_s = 0;
}

int couplings_parse(struct couplings *c, const char *text, size_t len, const char *name, struct vt_err *err)
{
    struct reader r = {.c = c};
    return conf_parse(text, len, name, take, &r, err) < 0 ? -1 : check(c, name, err);
}

int couplings_load(struct couplings *c, const char *path, const char *engine_url, struct vt_err *err)
{
    struct reader r = {.c = c};
    if (conf_file(path, true, false, take, &r, err) < 0 || check(c, path, err) < 0)
        return -1;
    if (r.key_inside &&
        conf_file(path, false, true, take, &(struct reader){&(struct couplings){0}, false}, err) < 0)
        return -1;
    if (c->n == 0)
        builtin(c);
    for (size_t i = 0; engine_url != NULL && i < c->n; i++)
        if (c->v[i].dflt && set_url(&c->v[i], engine_url, err) < 0)
            return vt_fail_prefix(err, "--engine");
    return 0;
}

const struct coupling *couplings_find(const struct couplings *c, const char *name, struct vt_err *err)
{
    const char *names[64];
    size_t n = 0;
    char hint[160];
    for (size_t i = 0; i < c->n; i++) {
        if (name == NULL ? c->v[i].dflt : strcmp(c->v[i].name, name) == 0)
            return &c->v[i];
        if (n < 64)
            names[n++] = c->v[i].name;
    }
    vt_fail(err, VT_E_USAGE, "no coupling %.64s%s", name != NULL ? name : "is the default",
            vt_suggest(name != NULL ? name : "", names, n, hint, sizeof hint));
    return NULL;
}

char *coupling_json(const struct coupling *c)
{
    json_t *o = json_object();
    js_set_str(o, "name", c->name);
    js_set_str(o, "title", c->title);
    js_set_str(o, "model", c->model);
    js_set_str(o, "on_cap", c->on_cap);
    js_set_int(o, "kind", c->kind);
    js_set_int(o, "window", c->window);
    js_set_int(o, "slot", c->slot);
    js_set_int(o, "reasoning", c->reasoning);
    js_set_int(o, "gap", c->gap_s);
    const struct {
        const char *key;
        bool v;
    } flags[] = {{"certified", c->certified}, {"nine", c->ids_nine}, {"steer_in_result", c->steer_in_result},
                 {"parallel", c->parallel},   {"priced", c->priced}, {"ask_send", c->ask_send},
                 {"redact", c->redact},       {"local", c->local}};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        json_object_set_new(o, flags[i].key, json_boolean(flags[i].v));
    const struct {
        const char *key;
        double v;
    } prices[] = {{"price_in", c->price_in},   {"price_cached", c->price_cached},
                  {"price_out", c->price_out}, {"cap_session", c->cap_session},
                  {"cap_day", c->cap_day},     {"cap_month", c->cap_month}};
    for (size_t i = 0; i < sizeof prices / sizeof prices[0]; i++)
        json_object_set_new(o, prices[i].key, json_real(prices[i].v));
    return js_dump(o);
}

void coupling_from_json(struct coupling *c, const json_t *o)
{
    const char *name = js_str(o, "name");
    coupling_clear(c);
    defaults(c, name != NULL ? name : "?");
    if (js_str(o, "title") != NULL)
        put(&c->title, js_str(o, "title"));
    if (js_str(o, "model") != NULL)
        put(&c->model, js_str(o, "model"));
    if (js_str(o, "on_cap") != NULL)
        put(&c->on_cap, js_str(o, "on_cap"));
    c->kind = (enum coupling_kind)js_int(o, "kind", 0);
    c->window = js_int(o, "window", -1);
    c->slot = (int)js_int(o, "slot", -1);
    c->reasoning = (enum reasoning)js_int(o, "reasoning", 0);
    c->gap_s = (int)js_int(o, "gap", 0);
    c->certified = js_bool(o, "certified", true);
    c->ids_nine = js_bool(o, "nine", false);
    c->steer_in_result = js_bool(o, "steer_in_result", false);
    c->parallel = js_bool(o, "parallel", true);
    c->priced = js_bool(o, "priced", false);
    c->ask_send = js_bool(o, "ask_send", false);
    c->redact = js_bool(o, "redact", false);
    c->local = js_bool(o, "local", true);
    c->price_in = js_num(o, "price_in", 0);
    c->price_cached = js_num(o, "price_cached", 0);
    c->price_out = js_num(o, "price_out", 0);
    c->cap_session = js_num(o, "cap_session", -1);
    c->cap_day = js_num(o, "cap_day", -1);
    c->cap_month = js_num(o, "cap_month", -1);
}

static int key_of_program(const struct coupling *c, struct text *t, struct vt_err *err)
{
    FILE *f = popen(c->key + 4, "re");
    char buf[1024];
    size_t n;
    if (f == NULL)
        return vt_fail_errno(err, VT_E_OS, "coupling %.40s: key program", c->name);
    while ((n = fread(buf, 1, sizeof buf, f)) > 0 && t->len < KEY_LONGEST)
        text_add(t, buf, n);
    explicit_bzero(buf, sizeof buf);
    if (pclose(f) != 0)
        return vt_fail(err, VT_E_CONFIG, "coupling %.40s: the key program failed", c->name);
    return 0;
}

int coupling_key(const struct coupling *c, char **out, struct vt_err *err)
{
    struct text t = {0};
    *out = NULL;
    if (c->key == NULL)
        return 0;
    if (strncmp(c->key, "env:", 4) == 0) {
        const char *v = getenv(c->key + 4);
        if (v == NULL)
            return vt_fail(err, VT_E_CONFIG, "coupling %.40s: the variable %.60s of its key is not set",
                           c->name, c->key + 4);
        text_puts(&t, v);
    } else if (strncmp(c->key, "file:", 5) == 0) {
        if (file_read(c->key + 5, KEY_LONGEST, &t, err) < 0)
            return vt_fail_prefix(err, "coupling %.40s: key", c->name);
    } else if (strncmp(c->key, "cmd:", 4) == 0) {
        if (key_of_program(c, &t, err) < 0) {
            text_free(&t);
            return -1;
        }
    } else {
        text_puts(&t, c->key);
    }
    while (t.len > 0 && strchr(" \t\r\n", t.s[t.len - 1]) != NULL)
        t.s[--t.len] = '\0';
    *out = text_take(&t);
    return 0;
}
