#include "telemetry.h"

#include "series.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHILDREN = 32, MAX_SERIES = 128, WINDOW = 60, MAX_CLASSES = 24 };

struct child {
    char name[65], class[33];
    uint64_t gen, state, restarts, step_age_ms;
    struct {
        char class[33];
        uint64_t n;
    } by_class[MAX_CLASSES]; /* of the restarts */
    unsigned n_classes;
    bool listed;
    uint64_t base[MAX_SERIES], counter[MAX_SERIES]; /* base: of generations that are over */
    double gauge[MAX_SERIES];
    bool has_counter[MAX_SERIES], has_gauge[MAX_SERIES];
};

struct sample {
    uint64_t at, prompt, prompt_us, predicted, predicted_us;
};

struct telemetry {
    struct child child[MAX_CHILDREN];
    unsigned n;
    struct sample window[WINDOW]; /* about one a second, newest at head */
    unsigned head, filled;
};

struct telemetry *telemetry_new(void)
{
    return calloc(1, sizeof(struct telemetry));
}

void telemetry_free(struct telemetry *t)
{
    free(t);
}

static struct child *child_named(struct telemetry *t, const char *name)
{
    for (unsigned i = 0; i < t->n; i++)
        if (strcmp(t->child[i].name, name) == 0)
            return &t->child[i];
    if (t->n == MAX_CHILDREN)
        return NULL;
    struct child *c = &t->child[t->n++];
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

static void new_generation(struct child *c, uint64_t gen)
{
    if (c->gen == gen)
        return;
    for (unsigned i = 0; i < MAX_SERIES; i++) {
        /* A high-water mark is no sum. */
        c->base[i] = i == VT_SERIES_MAX_TOKENS ? 0 : c->base[i] + c->counter[i];
        c->counter[i] = 0;
        c->has_gauge[i] = false;
    }
    c->gen = gen;
}

static void take_counters(struct child *c, const msgpack_object_map *m)
{
    for (unsigned i = 0; m && i < MAX_SERIES; i++) {
        const msgpack_object *v = vt_map_get(m, i);
        if (!v || v->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
            continue;
        c->counter[i] = v->via.u64;
        c->has_counter[i] = true;
    }
}

static void take_gauges(struct child *c, const msgpack_object_map *m)
{
    for (unsigned i = 0; m && i < MAX_SERIES; i++) {
        if (!vt_map_get(m, i))
            continue;
        c->gauge[i] = vt_map_f64(m, i, 0);
        c->has_gauge[i] = true;
    }
}

/* class, restarts, class, restarts, ... */
static void take_classes(struct child *c, const msgpack_object_array *list)
{
    c->n_classes = 0;
    for (unsigned i = 0; list && i + 1 < list->size && c->n_classes < MAX_CLASSES; i += 2) {
        vt_array_str(list, i, c->by_class[c->n_classes].class, sizeof c->by_class[0].class);
        c->by_class[c->n_classes++].n = vt_array_u64(list, i + 1, 0);
    }
}

static void take_list(struct telemetry *t, const msgpack_object_array *list)
{
    char name[65];
    for (unsigned i = 0; list && i < list->size; i++) {
        const msgpack_object_array *row = vt_array_array(list, i);
        struct child *c = row ? child_named(t, vt_array_str(row, 0, name, sizeof name)) : NULL;
        if (!c)
            continue;
        new_generation(c, vt_array_u64(row, 1, c->gen));
        c->state = vt_array_u64(row, 2, 0);
        c->restarts = vt_array_u64(row, 3, 0);
        c->step_age_ms = vt_array_u64(row, 4, 0);
        vt_array_str(row, 5, c->class, sizeof c->class);
        take_classes(c, vt_array_array(row, 6));
        c->listed = true;
    }
}

static void remember(struct telemetry *t, uint64_t now)
{
    if (t->filled > 0 && now - t->window[t->head].at < 900000)
        return;
    t->head = (t->head + 1) % WINDOW;
    t->filled += t->filled < WINDOW;
    t->window[t->head] = (struct sample){
        .at = now,
        .prompt = telemetry_counter(t, VT_SERIES_PROMPT_TOKENS),
        .prompt_us = telemetry_counter(t, VT_SERIES_PROMPT_US),
        .predicted = telemetry_counter(t, VT_SERIES_PREDICTED),
        .predicted_us = telemetry_counter(t, VT_SERIES_PREDICTED_US),
    };
}

void telemetry_frame(struct telemetry *t, const struct vt_frame *f, uint64_t now)
{
    char name[65];
    struct child *c;
    switch (f->type) {
    case VT_F_T_ENGINE:
    case VT_F_T_STORE: /* same keys */
        c = child_named(t, vt_frame_str(f, VT_T_ENGINE_CHILD, name, sizeof name));
        if (!c)
            return;
        new_generation(c, vt_frame_u64(f, VT_T_ENGINE_GEN, 0));
        take_counters(c, vt_frame_map(f, VT_T_ENGINE_COUNTERS));
        take_gauges(c, vt_frame_map(f, VT_T_ENGINE_GAUGES));
        if (f->type == VT_F_T_ENGINE)
            remember(t, now);
        return;
    case VT_F_T_CHILDREN:
        take_list(t, vt_frame_array(f, VT_T_CHILDREN_LIST));
        c = child_named(t, "vitriold");
        if (!c)
            return;
        take_counters(c, vt_frame_map(f, VT_T_CHILDREN_COUNTERS));
        take_gauges(c, vt_frame_map(f, VT_T_CHILDREN_GAUGES));
        return;
    default: return;
    }
}

uint64_t telemetry_counter(const struct telemetry *t, unsigned num)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < t->n; i++) {
        uint64_t v = t->child[i].base[num] + t->child[i].counter[num];
        if (num == VT_SERIES_MAX_TOKENS)
            sum = v > sum ? v : sum;
        else
            sum += v;
    }
    return sum;
}

double telemetry_gauge(const struct telemetry *t, unsigned num)
{
    double sum = 0;
    for (unsigned i = 0; i < t->n; i++)
        if (t->child[i].has_gauge[num])
            sum += t->child[i].gauge[num];
    return sum;
}

int telemetry_child_state(const struct telemetry *t, const char *name)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->child[i].listed && strcmp(t->child[i].name, name) == 0)
            return (int)t->child[i].state;
    return -1;
}

static double rate(uint64_t n, uint64_t us)
{
    return us > 0 ? (double)n * 1e6 / (double)us : 0;
}

static const struct sample *oldest(const struct telemetry *t)
{
    return &t->window[(t->head + WINDOW - (t->filled ? t->filled - 1 : 0)) % WINDOW];
}

double telemetry_prompt_rate(const struct telemetry *t)
{
    const struct sample *a = oldest(t), *b = &t->window[t->head];
    return t->filled < 2 ? 0 : rate(b->prompt - a->prompt, b->prompt_us - a->prompt_us);
}

double telemetry_predicted_rate(const struct telemetry *t)
{
    const struct sample *a = oldest(t), *b = &t->window[t->head];
    return t->filled < 2 ? 0 : rate(b->predicted - a->predicted, b->predicted_us - a->predicted_us);
}

/* ---- text ---- */

static void write_compat(const struct telemetry *t, struct vt_metrics *m, const struct vt_series_row *row)
{
    bool counter = strcmp(row->kind, "counter") == 0;
    vt_metrics_family(m, row->name, row->kind, row->help);
    switch (row->num) {
    case VT_SERIES_PROMPT_US:
    case VT_SERIES_PREDICTED_US:
        vt_metrics_sample(m, row->name, NULL, (double)telemetry_counter(t, row->num) / 1e6);
        return;
    case VT_SERIES_PROMPT_RATE: vt_metrics_sample(m, row->name, NULL, telemetry_prompt_rate(t)); return;
    case VT_SERIES_PREDICTED_RATE: vt_metrics_sample(m, row->name, NULL, telemetry_predicted_rate(t)); return;
    default: break;
    }
    if (counter)
        vt_metrics_count(m, row->name, NULL, telemetry_counter(t, row->num));
    else
        vt_metrics_sample(m, row->name, NULL, telemetry_gauge(t, row->num));
}

static bool known(const struct telemetry *t, unsigned num)
{
    for (unsigned i = 0; i < t->n; i++)
        if (t->child[i].has_counter[num] || t->child[i].has_gauge[num])
            return true;
    return false;
}

static void write_own(const struct telemetry *t, struct vt_metrics *m, const struct vt_series_row *row)
{
    if (!known(t, row->num))
        return;
    vt_metrics_family(m, row->name, row->kind, row->help);
    for (unsigned i = 0; i < t->n; i++) {
        const struct child *c = &t->child[i];
        const char *const labels[] = {"worker", c->name, NULL};
        if (c->has_counter[row->num] && row->num == VT_SERIES_RESTORE_SPENT)
            vt_metrics_sample(m, row->name, labels, (double)(c->base[row->num] + c->counter[row->num]) / 1e6);
        else if (c->has_counter[row->num])
            vt_metrics_count(m, row->name, labels, c->base[row->num] + c->counter[row->num]);
        else if (c->has_gauge[row->num])
            vt_metrics_sample(m, row->name, labels, c->gauge[row->num]);
    }
}

static void write_restarts(const struct telemetry *t, struct vt_metrics *m)
{
    const struct vt_series_row *row = vt_series_row(VT_SERIES_CHILD_RESTARTS);
    vt_metrics_family(m, row->name, row->kind, row->help);
    for (unsigned i = 0; i < t->n; i++) {
        const struct child *c = &t->child[i];
        const char *const none[] = {"child", c->name, "class", "none", NULL};
        if (c->listed &&
            c->n_classes == 0) /* a series that is absent until something breaks hides a broken scrape */
            vt_metrics_count(m, row->name, none, c->restarts);
        for (unsigned k = 0; k < c->n_classes; k++) {
            const char *const labels[] = {"child", c->name, "class", c->by_class[k].class, NULL};
            vt_metrics_count(m, row->name, labels, c->by_class[k].n);
        }
    }
}

static void write_children(const struct telemetry *t, struct vt_metrics *m)
{
    static const struct {
        unsigned num;
        const char *name, *help;
    } own[] = {{0, "vitriol_worker_up", "1 while a child is ready."}};
    const unsigned nums[] = {VT_SERIES_CHILD_STATE, VT_SERIES_CHILD_GENERATION, VT_SERIES_STEP_AGE};
    for (int k = -1; k < 3; k++) {
        const struct vt_series_row *row = k < 0 ? NULL : vt_series_row(nums[k]);
        const char *name = row ? row->name : own[0].name;
        vt_metrics_family(m, name, row ? row->kind : "gauge", row ? row->help : own[0].help);
        for (unsigned i = 0; i < t->n; i++) {
            const struct child *c = &t->child[i];
            const char *const labels[] = {"worker", c->name, NULL};
            const double v[] = {(double)c->state, (double)c->gen, (double)c->step_age_ms / 1000};
            if (c->listed)
                vt_metrics_sample(m, name, labels, k < 0 ? c->state == 3 : v[k]);
        }
    }
}

static bool told_apart(unsigned num)
{
    return num == VT_SERIES_CHILD_STATE || num == VT_SERIES_CHILD_GENERATION ||
           num == VT_SERIES_CHILD_RESTARTS || num == VT_SERIES_STEP_AGE;
}

void telemetry_write(const struct telemetry *t, struct vt_metrics *m, bool compat)
{
    size_t n;
    const struct vt_series_row *rows = vt_series_rows(&n);
    for (size_t i = 0; i < n; i++) {
        bool is_compat = strncmp(rows[i].name, "llamacpp:", 9) == 0;
        /* The gateway's own are written by who counts them. */
        if (rows[i].num >= VT_SERIES_GW_HELD || is_compat != compat)
            continue;
        if (compat)
            write_compat(t, m, &rows[i]);
        else if (!told_apart(rows[i].num))
            write_own(t, m, &rows[i]);
    }
    if (compat)
        return;
    write_children(t, m);
    write_restarts(t, m);
}
