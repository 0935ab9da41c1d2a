/* vitriolctl apply, probe, rollback, bless and the records: what runs, what ran well, what is known to fail. */
#include "vitriolctl.h"

#include "ctl_show.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static int move(struct call *c, const char *verb, const char *key, const char *name)
{
    json_t *args = json_pack("{s:i, s:s}", "force", (int)c->force, key, name);
    if (args == NULL)
        return call_misused(c, "the name is not UTF-8");
    /* "profile" and "tag" sort behind "force", as ctl wants its keys. */
    return call_act(c, verb, args, c->wait, 3600);
}

int cmd_apply(struct call *c)
{
    return c->n_args != 1 ? call_misused(c, "apply takes the name of a profile")
                          : move(c, "profile.apply", "profile", c->arg[0]);
}

int cmd_probe(struct call *c)
{
    return c->n_args != 1 ? call_misused(c, "probe takes the name of a profile")
                          : move(c, "profile.probe", "profile", c->arg[0]);
}

int cmd_rollback(struct call *c)
{
    return move(c, "profile.rollback", "tag", c->n_args > 0 ? c->arg[0] : "");
}

/* A verb that answers at once with one word. */
static int tell(struct call *c, const char *verb, json_t *args, const char *key, const char *said)
{
    struct vt_err err;
    if (args == NULL)
        return call_misused(c, "the text is not UTF-8");
    json_t *r = client_call(&c->client, verb, args, NULL, &err);
    if (r == NULL)
        return call_fail(c, &err);
    if (c->json)
        call_print(r);
    else
        printf("%s %s\n", said, client_str(r, key));
    json_decref(r);
    return VT_EX_OK;
}

static const char *note(const struct call *c)
{
    return c->note != NULL ? c->note : "";
}

int cmd_bless(struct call *c)
{
    return tell(c, "bless", json_pack("{s:s, s:s}", "note", note(c), "tag", c->n_args > 0 ? c->arg[0] : ""),
                "tag", "blessed as");
}

/* ---- records ---- */

/* All entries of a record, in pages; owned, NULL: err. */
static json_t *record(const struct call *c, const char *name, struct vt_err *err)
{
    json_t *all = json_array(), *text;
    size_t i;
    for (;;) {
        size_t have = json_array_size(all);
        json_t *page = client_call(
            &c->client, "record", json_pack("{s:I, s:s}", "from", (json_int_t)have, "name", name), NULL, err);
        if (page == NULL) {
            json_decref(all);
            return NULL;
        }
        json_array_foreach(json_object_get(page, "entries"), i, text)
            json_array_append_new(all, json_loads(json_string_value(text), JSON_DECODE_ANY, NULL));
        uint64_t total = client_num(page, "total");
        json_decref(page);
        if (json_array_size(all) == have || json_array_size(all) >= total)
            return all;
    }
}

static const json_t *value_of(const json_t *entry)
{
    return json_object_get(entry, "value");
}

static void show_blessed(const json_t *e)
{
    char age[32];
    const json_t *r = value_of(e);
    uint64_t at = client_num(r, "at_us") / 1000000u, now = (uint64_t)time(NULL);
    printf("%-24s %-12s %s  %8s  %s\n", client_str(e, "key"), client_str(r, "profile"), client_str(r, "fp"),
           show_age(now > at ? now - at : 0, age, sizeof age), client_str(r, "note"));
}

static void show_note(const json_t *e)
{
    bool verdict = json_object_get(e, "subject") != NULL;
    printf("%s  %s\n  %s (build %s)\n", client_str(e, "date"), client_str(e, verdict ? "subject" : "shape"),
           client_str(e, verdict ? "text" : "evidence"), client_str(e, "build"));
}

static void show_measures(const json_t *e)
{
    const char *name;
    json_t *v;
    printf("%s\n", client_str(e, "key"));
    json_object_foreach(json_object_get(value_of(e), "shape"), name, v)
        printf("  %-28s %s\n", name, json_string_value(v));
    json_object_foreach(json_object_get(value_of(e), "values"), name, v)
        printf("  = %-26s %.10g (%" PRIu64 " times)\n", name,
               json_number_value(json_object_get(v, "measured")), client_num(v, "n"));
}

static int show(struct call *c, const char *name, void (*one)(const json_t *e))
{
    struct vt_err err;
    size_t i;
    const json_t *e;
    json_t *all = record(c, name, &err);
    const char *only = c->n_args > 0 ? c->arg[0] : NULL;
    unsigned n = 0;
    if (all == NULL)
        return call_fail(c, &err);
    json_array_foreach(all, i, e)
    {
        if (only != NULL && strcmp(only, client_str(e, "key")) != 0)
            continue;
        n++;
        if (only != NULL || !c->json)
            c->json || only != NULL ? (void)call_print((json_t *)(uintptr_t)e) : one(e);
    }
    if (c->json && only == NULL)
        call_print(all);
    else if (n == 0 && only == NULL)
        printf("nothing yet\n");
    json_decref(all);
    if (n == 0 && only != NULL) {
        vt_fail(&err, VT_E_NO_INPUT, "%s holds no %s", name, only);
        return call_fail(c, &err);
    }
    return VT_EX_OK;
}

int cmd_blessed(struct call *c)
{
    return show(c, "blessed", show_blessed);
}

int cmd_measures(struct call *c)
{
    return show(c, "measures", show_measures);
}

int cmd_forbid(struct call *c)
{
    if (c->n_args == 0)
        return show(c, "forbidden", show_note);
    return tell(c, "forbid", json_pack("{s:s, s:s}", "note", note(c), "shape", c->arg[0]), "shape",
                "forbidden:");
}

int cmd_verdicts(struct call *c)
{
    if (c->n_args == 0)
        return show(c, "verdicts", show_note);
    return tell(c, "verdict", json_pack("{s:s, s:s}", "note", note(c), "subject", c->arg[0]), "subject",
                "kept: the verdict on");
}

static void show_suspect(const json_t *e)
{
    char age[32];
    const json_t *r = value_of(e);
    uint64_t at = client_num(r, "last_us") / 1000000u, now = (uint64_t)time(NULL);
    printf("%.16s  %-11s  %" PRIu64 " crash%s, last %s ago: %s\n", client_str(e, "key"),
           json_is_true(json_object_get(r, "quarantined")) ? "quarantined" : "suspect",
           client_num(r, "crashes"), client_num(r, "crashes") == 1 ? "" : "es",
           show_age(now > at ? now - at : 0, age, sizeof age), client_str(r, "class"));
}

int cmd_suspects(struct call *c)
{
    struct vt_err err;
    if (c->n_args == 0)
        return show(c, "suspects", show_suspect);
    if (strcmp(c->arg[0], "clear") != 0)
        return call_misused(c, "suspects lists; suspects clear [HASH] forgets all, or those that begin so");
    json_t *args = json_pack("{s:s}", "hash", c->n_args > 1 ? c->arg[1] : "");
    json_t *r = args != NULL ? client_call(&c->client, "suspects.clear", args, NULL, &err) : NULL;
    if (args == NULL)
        return call_misused(c, "the hash is not UTF-8");
    if (r == NULL)
        return call_fail(c, &err);
    if (c->json)
        call_print(r);
    else
        printf("%" PRIu64 " cleared\n", client_num(r, "cleared"));
    json_decref(r);
    return VT_EX_OK;
}
