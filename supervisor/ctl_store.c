/* vitriolctl store: what the checkpoint store holds, whether it is whole, and forgetting. */
#include "vitriolctl.h"

#include "ctl_show.h"
#include "suggest.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define LIST_S   15
#define FORGET_S 150

/* ---- for people ---- */

static const char *bytes(uint64_t n, char *out, size_t size)
{
    if (n >= 10u << 20)
        snprintf(out, size, "%llu MiB", (unsigned long long)n >> 20);
    else if (n >= 10u << 10)
        snprintf(out, size, "%llu KiB", (unsigned long long)n >> 10);
    else
        snprintf(out, size, "%llu bytes", (unsigned long long)n);
    return out;
}

static void show_list(const json_t *rows)
{
    size_t i;
    const json_t *r;
    uint64_t now = (uint64_t)time(NULL);
    if (json_array_size(rows) == 0) {
        printf("no checkpoints\n");
        return;
    }
    printf("%-16s %4s %9s %10s %8s  %s\n", "tenant", "slot", "tokens", "restorable", "age", "slot file");
    json_array_foreach(rows, i, r)
    {
        char age[32], slot[24] = "-";
        uint64_t made = client_num(r, "created_us") / 1000000u;
        const char *file = client_str(r, "file");
        if (file[0] == '\0') /* a slot file is of no slot */
            snprintf(slot, sizeof slot, "%llu", (unsigned long long)client_num(r, "slot"));
        printf("%-16s %4s %9llu %10llu %8s  %s\n", client_str(r, "tenant"), slot,
               (unsigned long long)client_num(r, "tokens"), (unsigned long long)client_num(r, "restorable"),
               show_age(now > made ? now - made : 0, age, sizeof age), file);
    }
}

static int show_verified(const json_t *r)
{
    char size[32];
    unsigned long long bad = client_num(r, "bad");
    printf("%llu blocks, %s read: %llu damaged\n", (unsigned long long)client_num(r, "blocks"),
           bytes(client_num(r, "bytes"), size, sizeof size), bad);
    if (bad > 0)
        printf("checkpoints end before a damaged block; what is behind it is evaluated again\n");
    return bad > 0 ? VT_EX_PAYLOAD : VT_EX_OK;
}

static bool nothing(const json_t *r)
{
    return client_num(r, "checkpoints") == 0 && client_num(r, "blocks") == 0;
}

static void show_forgotten(const json_t *r)
{
    char size[32];
    if (nothing(r))
        return;
    printf("%llu checkpoints, %llu blocks, %s erased\n"
           "a slot that still holds the conversation saves it again when it changes: erase the slot, too\n",
           (unsigned long long)client_num(r, "checkpoints"), (unsigned long long)client_num(r, "blocks"),
           bytes(client_num(r, "bytes"), size, sizeof size));
}

/* ---- asking ---- */

/* The store's answer, in pages; NULL when it failed. */
static json_t *answer(const struct call *c, uint64_t op, struct vt_err *err)
{
    json_t *all = NULL;
    for (;;) {
        size_t have = json_array_size(json_object_get(all, "checkpoints"));
        json_t *page =
            client_call(&c->client, "store.result",
                        json_pack("{s:I, s:I}", "from", (json_int_t)have, "op", (json_int_t)op), NULL, err);
        json_t *rows = json_object_get(page, "checkpoints");
        if (page == NULL || all == NULL) {
            json_decref(page == NULL ? all : NULL);
            all = page;
        } else {
            json_array_extend(json_object_get(all, "checkpoints"), rows);
            json_decref(page);
        }
        size_t now = json_array_size(json_object_get(all, "checkpoints"));
        if (all == NULL || now == have || now >= client_num(all, "total"))
            return all;
    }
}

/* Asks and waits; the answer, or NULL. */
static json_t *ask(const struct call *c, const char *verb, json_t *args, int timeout_s, struct vt_err *err)
{
    uint64_t op = 0;
    json_t *started = client_call(&c->client, verb, args, &op, err);
    if (started == NULL)
        return NULL;
    json_decref(started);
    json_t *st = client_follow(&c->client, op, c->timeout_s >= 0 ? c->timeout_s : timeout_s, err);
    if (st == NULL)
        return NULL;
    json_decref(st);
    return answer(c, op, err);
}

static int store_list(const struct call *c)
{
    struct vt_err err;
    json_t *args = c->tenant != NULL ? json_pack("{s:s}", "tenant", c->tenant) : json_object();
    if (args == NULL)
        return call_misused(c, "--tenant: the name is not UTF-8");
    json_t *r = ask(c, "store.list", args, LIST_S, &err);
    if (r == NULL)
        return call_fail(c, &err);
    if (c->json)
        call_print(json_object_get(r, "checkpoints"));
    else
        show_list(json_object_get(r, "checkpoints"));
    json_decref(r);
    return VT_EX_OK;
}

static int store_verify(const struct call *c)
{
    struct vt_err err;
    json_t *r = ask(c, "store.verify", NULL, 24 * 3600, &err);
    if (r == NULL)
        return call_fail(c, &err);
    int rc = client_num(r, "bad") > 0 ? VT_EX_PAYLOAD : VT_EX_OK;
    if (c->json)
        call_print(r);
    else
        rc = show_verified(r);
    json_decref(r);
    return rc;
}

static int store_forget(const struct call *c)
{
    struct vt_err err;
    uint64_t slot = 0;
    if (c->tenant == NULL || c->tenant[0] == '\0')
        return call_misused(c, "store forget needs --tenant T; vitriolctl store list shows them");
    if (c->slot != NULL && !call_number(c->slot, &slot))
        return call_misused(c, "--slot takes the number of a slot");
    json_t *args = c->slot != NULL ? json_pack("{s:I, s:s}", "slot", (json_int_t)slot, "tenant", c->tenant)
                                   : json_pack("{s:s}", "tenant", c->tenant);
    if (args == NULL)
        return call_misused(c, "--tenant: the name is not UTF-8");
    json_t *r = ask(c, "store.forget", args, FORGET_S, &err);
    if (r == NULL)
        return call_fail(c, &err);
    int rc = nothing(r) ? VT_EX_NOINPUT : VT_EX_OK;
    if (c->json)
        call_print(r);
    else
        show_forgotten(r);
    if (rc != VT_EX_OK)
        fprintf(stderr, "vitriolctl: nothing of tenant %s%s%s was stored\n", c->tenant,
                c->slot != NULL ? ", slot " : "", c->slot != NULL ? c->slot : "");
    json_decref(r);
    return rc;
}

int cmd_store(struct call *c)
{
    static const char *const names[] = {"list", "verify", "forget"};
    char text[256], hint[160];
    if (c->n_args == 0)
        return call_misused(c, "store takes list, verify or forget");
    if (c->n_args > 1)
        return call_misused(c, "store list, verify and forget take options only: --tenant T, --slot N");
    if (c->slot != NULL && strcmp(c->arg[0], "forget") != 0)
        return call_misused(c, "--slot goes with store forget");
    if (strcmp(c->arg[0], "list") == 0)
        return store_list(c);
    if (strcmp(c->arg[0], "verify") == 0)
        return c->tenant != NULL ? call_misused(c, "store verify reads everything: it takes no --tenant")
                                 : store_verify(c);
    if (strcmp(c->arg[0], "forget") == 0)
        return store_forget(c);
    snprintf(text, sizeof text, "unknown command store %.64s%s", c->arg[0],
             vt_suggest(c->arg[0], names, 3, hint, sizeof hint));
    return call_misused(c, text);
}
