/* vitriolctl: asks a running vitriold and steers it. */
#include "vitriolctl.h"

#include "ctl_http.h"
#include "ctl_show.h"
#include "past.h"

#include "build_id.h"
#include "clock.h"
#include "config.h"
#include "sock_ctl.h"
#include "suggest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int call_print(json_t *v)
{
    json_dumpf(v, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    putchar('\n');
    return VT_EX_OK;
}

int call_fail(const struct call *c, const struct vt_err *err)
{
    bool later = err->code == VT_E_DEADLINE || err->code == VT_E_LIMIT;
    int rc = later ? VT_EX_TEMPFAIL : vt_err_exit(err);
    if (c->json) {
        json_t *out =
            json_pack("{s:{s:i, s:i, s:s}}", "error", "code", err->code, "exit", rc, "text", err->text);
        call_print(out);
        json_decref(out);
    }
    fprintf(stderr, "vitriolctl: %s\n", err->text);
    return rc;
}

int call_misused(const struct call *c, const char *what)
{
    struct vt_err err;
    vt_fail(&err, VT_E_USAGE, "%s", what);
    return call_fail(c, &err);
}

/* ---- asking ---- */

static int exit_of_state(const char *state)
{
    if (strcmp(state, "ready") == 0)
        return VT_EX_OK;
    if (strcmp(state, "failed") == 0)
        return VT_EX_INTERNAL;
    return strcmp(state, "down") == 0 ? VT_EX_UNAVAILABLE : VT_EX_TEMPFAIL;
}

static int cmd_status(struct call *c)
{
    struct vt_err err;
    json_t *st = client_call(&c->client, "status", NULL, NULL, &err);
    if (st == NULL)
        return call_fail(c, &err);
    int rc = exit_of_state(client_str(st, "state"));
    bool foreign = client_verify(&c->client, st, &err) < 0;
    if (foreign) {
        json_object_set_new(st, "foreign", json_string(err.text));
        rc = VT_EX_UNAVAILABLE;
    }
    if (c->json)
        call_print(st);
    else
        show_status(st);
    if (foreign)
        fprintf(stderr, "vitriolctl: %s\n", err.text);
    json_decref(st);
    return rc;
}

static int cmd_health(struct call *c)
{
    struct vt_err err;
    json_t *h = client_call(&c->client, "health", NULL, NULL, &err);
    if (h == NULL)
        return call_fail(c, &err);
    int rc = exit_of_state(client_str(h, "state"));
    if (c->json)
        call_print(h);
    else if (client_num(h, "retry_ms") > 0)
        printf("%s, expected ready in %llu s\n", client_str(h, "state"),
               (unsigned long long)(client_num(h, "retry_ms") + 999) / 1000);
    else
        printf("%s\n", client_str(h, "state"));
    json_decref(h);
    return rc;
}

/* A vitriold that is not there yet may still come; one whose engine failed for good will not change by waiting. */
static int cmd_wait(struct call *c)
{
    int timeout = c->timeout_s >= 0 ? c->timeout_s : 1800;
    const struct vt_clock clock = vt_clock_real();
    uint64_t end = vt_mono(&clock) + VT_SEC((uint64_t)timeout);
    char said[sizeof((struct vt_err *)NULL)->text] = "";
    for (;;) {
        struct vt_err err;
        json_t *h = client_call(&c->client, "health", NULL, NULL, &err);
        bool ready = h != NULL && strcmp(client_str(h, "state"), "ready") == 0;
        bool failed = h != NULL && strcmp(client_str(h, "state"), "failed") == 0;
        if (h != NULL)
            vt_fail(&err, VT_E_DEADLINE, "it is %s", client_str(h, "state"));
        if (ready && c->json)
            call_print(h);
        json_decref(h);
        if (ready)
            return VT_EX_OK;
        if (failed) {
            vt_fail(&err, VT_E_INTERNAL, "the engine has failed; vitriolctl status says why");
            return call_fail(c, &err);
        }
        if (vt_mono(&clock) >= end) {
            snprintf(said, sizeof said, "%s", err.text);
            vt_fail(&err, VT_E_DEADLINE, "not ready within %d s: %.300s", timeout, said);
            return call_fail(c, &err);
        }
        if (!c->json && strcmp(said, err.text) != 0)
            fprintf(stderr, "vitriolctl: waiting up to %d s for ready: %s\n", timeout, err.text);
        snprintf(said, sizeof said, "%s", err.text);
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    }
}

static int cmd_fingerprint(struct call *c)
{
    struct vt_err err;
    /* A state directory that is named is asked for itself, whatever runs. */
    bool past = c->history && c->state != NULL;
    json_t *r = past ? NULL : client_call(&c->client, "fingerprint", NULL, NULL, &err);
    if (r == NULL && c->history && (past || err.code == VT_E_UNAVAILABLE))
        r = past_launches(c->state, &err);
    if (r == NULL)
        return call_fail(c, &err);
    if (c->json)
        call_print(r);
    else
        show_fingerprint(r, c->history, c->diff);
    json_decref(r);
    return VT_EX_OK;
}

/* Those that are named so or begin so. */
static json_t *chosen_keys(const json_t *result, const char *beginning)
{
    json_t *out = json_array();
    size_t i;
    json_t *k;
    json_array_foreach(json_object_get(result, "keys"), i, k)
    {
        if (strncmp(client_str(k, "key"), beginning, strlen(beginning)) == 0)
            json_array_append(out, k);
    }
    return out;
}

static int cmd_config(struct call *c)
{
    struct vt_err err;
    int first = c->n_args > 0 && strcmp(c->arg[0], "show") == 0 ? 1 : 0;
    if (c->n_args > first + 1)
        return call_misused(c, "config show takes one key or the beginning of one");
    json_t *r = client_call(&c->client, "config.show", NULL, NULL, &err);
    if (r == NULL)
        return call_fail(c, &err);
    int rc = VT_EX_OK;
    json_t *keys = chosen_keys(r, c->n_args > first ? c->arg[first] : "");
    if (json_array_size(keys) == 0) {
        vt_config_find(c->arg[first], &err); /* names the nearest */
        err.code = VT_E_USAGE;
        rc = call_fail(c, &err);
    } else if (c->json) {
        call_print(keys);
    } else {
        show_config(keys, c->origin);
    }
    json_decref(keys);
    json_decref(r);
    return rc;
}

static int cmd_version(struct call *c)
{
    struct vt_err err;
    json_t *r = client_call(&c->client, "version", NULL, NULL, &err);
    if (c->json) {
        json_t *out =
            json_pack("{s:s, s:o}", "vitriolctl", VT_BUILD_ID, "vitriold", r != NULL ? r : json_null());
        call_print(out);
        json_decref(out);
        return VT_EX_OK;
    }
    printf("vitriolctl %s\n", VT_BUILD_ID);
    if (r != NULL)
        printf("vitriold   %s (nng %s)\n", client_str(r, "build"), client_str(r, "nng"));
    else
        printf("vitriold   not running in %s\n", c->client.run);
    json_decref(r);
    return VT_EX_OK;
}

static int cmd_slots(struct call *c)
{
    struct vt_err err;
    json_t *st = client_call(&c->client, "status", NULL, NULL, &err);
    if (st == NULL)
        return call_fail(c, &err);
    json_t *slots = http_get_json(client_str(st, "address"), "/slots", c->key_file, &err);
    json_decref(st);
    if (slots == NULL)
        return call_fail(c, &err);
    if (c->json)
        call_print(slots);
    else
        show_slots(slots);
    json_decref(slots);
    return VT_EX_OK;
}

/* ---- events ---- */

static void print_event(const struct call *c, const json_t *e)
{
    if (c->json) {
        json_dumpf(e, stdout, JSON_COMPACT);
        putchar('\n');
    } else {
        show_event(e);
    }
    fflush(stdout);
}

/* Everything after seq that vitriold still has; returns the last number seen. */
static uint64_t catch_up(const struct call *c, uint64_t seq, struct vt_err *err, int *rc)
{
    for (;;) {
        size_t i;
        const json_t *e;
        json_t *r =
            client_call(&c->client, "events.since", json_pack("{s:I}", "seq", (json_int_t)seq), NULL, err);
        *rc = r != NULL ? 0 : -1;
        if (r == NULL)
            return seq;
        uint64_t before = seq, last = client_num(r, "last");
        json_array_foreach(json_object_get(r, "events"), i, e)
        {
            print_event(c, e);
            seq = client_num(e, "seq");
        }
        json_decref(r);
        if (seq >= last || seq == before)
            return seq;
    }
}

static int follow(struct call *c, uint64_t seq, struct vt_sub *sub, struct vt_err *err)
{
    for (;;) {
        uint8_t *buf;
        size_t len;
        int rc = vt_sub_recv(sub, 2000, &buf, &len, err);
        if (rc < 0)
            return call_fail(c, err);
        json_t *e = rc == 1 ? client_event(buf, len) : NULL;
        uint64_t got = e != NULL ? client_num(e, "seq") : 0;
        if (rc == 1)
            vt_req_free(buf, len);
        if (got == seq + 1) {
            print_event(c, e);
            seq = got;
        } else if (got > seq || rc == 0) {
            /* A gap, or silence in which one may hide, or vitriold is gone. */
            seq = catch_up(c, seq, err, &rc);
            if (rc < 0) {
                json_decref(e);
                return call_fail(c, err);
            }
        }
        json_decref(e);
    }
}

static int cmd_events(struct call *c)
{
    struct vt_err err;
    struct vt_sub *sub = NULL;
    char tele[160];
    int rc;
    snprintf(tele, sizeof tele, "%s/tele", c->client.run);
    if (c->follow && client_find(&c->client, c->run, &err) == 0 &&
        vt_sub_dial(&sub, tele, "\x95\x01\x23", 3, &err) < 0)
        return client_absent(&c->client, &err), call_fail(c, &err);
    uint64_t seq = catch_up(c, 0, &err, &rc);
    if (rc < 0) {
        vt_sub_close(sub);
        return call_fail(c, &err);
    }
    rc = c->follow ? follow(c, seq, sub, &err) : VT_EX_OK;
    vt_sub_close(sub);
    return rc;
}

/* ---- acting ---- */

static int report(const struct call *c, json_t *st)
{
    bool ok = strcmp(client_str(st, "state"), "done") == 0;
    if (c->json)
        call_print(st);
    else
        printf("%s of %s %s in %.1f s%s%s\n", client_str(st, "verb"), client_str(st, "child"),
               client_str(st, "state"), (double)client_num(st, "elapsed_ms") / 1000.0,
               client_str(st, "text")[0] != '\0' ? ": " : "", client_str(st, "text"));
    if (!c->json && strcmp(client_str(st, "verb"), "export") == 0)
        printf("  %llu slots saved, %llu unchanged, %llu failed; %llu tokens, %llu bytes written\n",
               (unsigned long long)client_num(st, "saved"), (unsigned long long)client_num(st, "skipped"),
               (unsigned long long)client_num(st, "failed"), (unsigned long long)client_num(st, "tokens"),
               (unsigned long long)client_num(st, "bytes"));
    const struct vt_err why = {.code = (int)client_num(st, "code")};
    bool memory = why.code == VT_E_MEM_PRESSURE || why.code == VT_E_DEVICE_MEM;
    bool gate = memory || (why.code >= VT_E_CONFIG && why.code <= VT_E_PERM); /* it tells what to mend */
    json_decref(st);
    return ok ? VT_EX_OK : gate ? vt_err_exit(&why) : VT_EX_INTERNAL;
}

int call_act(struct call *c, const char *verb, json_t *args, bool wait, int timeout_s)
{
    struct vt_err err;
    uint64_t op = 0;
    json_t *r = client_call(&c->client, verb, args, &op, &err);
    if (r == NULL)
        return call_fail(c, &err);
    if (op == 0) { /* done at once */
        if (c->json)
            call_print(r);
        else
            printf("%s is %s\n", client_str(r, "child"), client_str(r, "state"));
        json_decref(r);
        return VT_EX_OK;
    }
    json_decref(r);
    if (wait) {
        json_t *st = client_follow(&c->client, op, c->timeout_s >= 0 ? c->timeout_s : timeout_s, &err);
        return st != NULL ? report(c, st) : call_fail(c, &err);
    }
    if (c->json) {
        json_t *out = json_pack("{s:I, s:s}", "op", (json_int_t)op, "state", "running");
        call_print(out);
        json_decref(out);
    } else {
        printf("operation %llu started; vitriolctl op %llu tells how it went\n", (unsigned long long)op,
               (unsigned long long)op);
    }
    return VT_EX_OK;
}

static json_t *child_arg(const struct call *c)
{
    return c->n_args > 0 ? json_pack("{s:s}", "child", c->arg[0]) : NULL;
}

static int cmd_bounce(struct call *c)
{
    return call_act(c, "bounce", child_arg(c), c->wait, 3600);
}

static int cmd_drain(struct call *c)
{
    return call_act(c, "drain", child_arg(c), c->wait, 3600);
}

static int cmd_start(struct call *c)
{
    return call_act(c, "start", child_arg(c), c->wait, 3600);
}

static int cmd_stop(struct call *c)
{
    return call_act(c, "stop", child_arg(c), c->wait, 60);
}

static int cmd_reset(struct call *c)
{
    return call_act(c, "reset", child_arg(c), false, 0);
}

bool call_number(const char *text, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *out <= INT64_MAX;
}

static int cmd_checkpoint(struct call *c)
{
    json_t *args = NULL;
    if (c->n_args > 0) {
        uint64_t slot;
        if (!call_number(c->arg[0], &slot))
            return call_misused(c, "checkpoint takes the number of a slot, or nothing for all");
        args = json_pack("{s:I}", "slot", (json_int_t)slot);
    }
    return call_act(c, "export", args, true, 300);
}

static int cmd_op(struct call *c)
{
    struct vt_err err;
    uint64_t op;
    if (c->n_args != 1 || !call_number(c->arg[0], &op))
        return call_misused(c, "op takes the number of an operation");
    json_t *st =
        c->wait ? client_follow(&c->client, op, c->timeout_s >= 0 ? c->timeout_s : 3600, &err)
                : client_call(&c->client, "op.status", json_pack("{s:I}", "op", (json_int_t)op), NULL, &err);
    if (st == NULL)
        return call_fail(c, &err);
    bool running = strcmp(client_str(st, "state"), "running") == 0;
    int rc = report(c, st);
    return running ? VT_EX_TEMPFAIL : rc;
}

/* ---- command line ---- */

static const struct command {
    const char *name;
    int (*run)(struct call *c);
    int max_args;
    const char *help;
} commands[] = {
    {"status", cmd_status, 0, "what runs, and whether it is what answers"},
    {"health", cmd_health, 0, "one word: ready, loading, draining, failed, down"},
    {"wait", cmd_wait, 0, "--ready: wait until it is ready (--timeout S)"},
    {"bounce", cmd_bounce, 1, "[child] restart it in order; streams go on (--wait)"},
    {"drain", cmd_drain, 1, "[child] end its work and leave it down (--wait)"},
    {"checkpoint", cmd_checkpoint, 1, "[slot] save now"},
    {"slots", cmd_slots, 0, "the engine's slots (--api-key-file F where keys are set)"},
    {"fingerprint", cmd_fingerprint, 0, "the line that says what runs (--diff; --history [--state-dir DIR])"},
    {"events", cmd_events, 0, "what happened (-f: and happens)"},
    {"config", cmd_config, 2, "show [key] effective configuration (--origin)"},
    {"start", cmd_start, 1, "[child] start one that is down (--wait)"},
    {"stop", cmd_stop, 1, "[child] stop it now (--wait)"},
    {"reset", cmd_reset, 1, "[child] forget its failures and start it"},
    {"store", cmd_store, 2, "list, verify, forget: checkpoints (--tenant T, --slot N)"},
    {"apply", cmd_apply, 1,
     "PROFILE run another profile: every gate first, back if it fails (--force, --wait)"},
    {"probe", cmd_probe, 1, "PROFILE start it unrouted, keep what it measures, return (--force, --wait)"},
    {"bless", cmd_bless, 1, "[TAG] what runs is the operating point (--note TEXT)"},
    {"certify", cmd_certify, 1,
     "[TOKENS] fill a slot so deep and keep how fast it is there (--api-key-file F)"},
    {"blessed", cmd_blessed, 1, "[TAG] the blessed records, or one"},
    {"rollback", cmd_rollback, 1, "[TAG] run a blessed record again (--force, --wait)"},
    {"forbid", cmd_forbid, 1, "[KEY=VALUE,…] --note EVIDENCE: a shape known to fail; without one: list them"},
    {"measures", cmd_measures, 1, "[KEY] what shapes took, each for itself"},
    {"verdicts", cmd_verdicts, 1, "[SUBJECT --note TEXT] what was tried and left, with its figure"},
    {"suspects", cmd_suspects, 2,
     "[clear [HASH]] prompts that were in flight at crashes, quarantined ones among them"},
    {"shield", cmd_shield, 0, "whom the out-of-memory shield has marked, and whom it leaves alone"},
    {"op", cmd_op, 1, "N how operation N went (--wait)"},
    {"version", cmd_version, 0, "builds of vitriolctl and vitriold"},
};
#define ARGUMENT_MAX 4096 /* bytes; a frame holds them all */
#define N_COMMANDS   (sizeof commands / sizeof commands[0])

static void usage(FILE *out)
{
    fputs("usage: vitriolctl [--run-dir DIR] [--json] COMMAND [arguments]\n", out);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].help);
    fputs(
        "Exit codes of status and health: 0 ready, 75 loading or draining, 69 down or foreign, 70 failed.\n",
        out);
}

static int one_option(struct call *c, char **argv, int *i, struct vt_err *err)
{
    static const char *const names[] = {
        "--run-dir", "--json", "--follow",       "--origin", "--history", "--diff",      "--wait",  "--ready",
        "--timeout", "--help", "--api-key-file", "--tenant", "--slot",    "--state-dir", "--force", "--note"};
    struct {
        const char *name;
        bool *flag;
    } flags[] = {{"--json", &c->json},     {"--follow", &c->follow},   {"-f", &c->follow},
                 {"--origin", &c->origin}, {"--history", &c->history}, {"--diff", &c->diff},
                 {"--wait", &c->wait},     {"--ready", &c->ready},     {"--force", &c->force}};
    const char *arg = argv[*i];
    char name[64], hint[160];
    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++) {
        if (strcmp(arg, flags[k].name) == 0) {
            *flags[k].flag = true;
            return 0;
        }
    }
    const char *eq = strchr(arg, '=');
    snprintf(name, sizeof name, "%.*s", (int)(eq != NULL ? eq - arg : (long)strlen(arg)), arg);
    bool known = strcmp(name, "--run-dir") == 0 || strcmp(name, "--timeout") == 0 ||
                 strcmp(name, "--api-key-file") == 0 || strcmp(name, "--state-dir") == 0 ||
                 strcmp(name, "--tenant") == 0 || strcmp(name, "--slot") == 0 || strcmp(name, "--note") == 0;
    if (!known)
        return vt_fail(err, VT_E_USAGE, "unknown option %.64s%s", arg,
                       vt_suggest(arg, names, sizeof names / sizeof names[0], hint, sizeof hint));
    const char *value = eq != NULL ? eq + 1 : argv[*i + 1];
    if (value == NULL)
        return vt_fail(err, VT_E_USAGE, "%s needs a value", name);
    *i += eq == NULL;
    if (strlen(value) > ARGUMENT_MAX)
        return vt_fail(err, VT_E_USAGE, "%s: %zu bytes are too long", name, strlen(value));
    char *end;
    if (strcmp(name, "--run-dir") == 0)
        c->run = value;
    else if (strcmp(name, "--state-dir") == 0)
        c->state = value;
    else if (strcmp(name, "--api-key-file") == 0)
        c->key_file = value;
    else if (strcmp(name, "--tenant") == 0)
        c->tenant = value;
    else if (strcmp(name, "--slot") == 0)
        c->slot = value;
    else if (strcmp(name, "--note") == 0)
        c->note = value;
    else if ((c->timeout_s = (int)strtol(value, &end, 10)) < 0 || end == value ||
             (*end != '\0' && strcmp(end, "s") != 0))
        return vt_fail(err, VT_E_USAGE, "--timeout %s: a number of seconds is needed", value);
    return 0;
}

static int parse(struct call *c, const char **verb, int argc, char **argv, struct vt_err *err)
{
    c->timeout_s = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            *verb = "help";
        else if (strcmp(argv[i], "--version") == 0)
            *verb = "version";
        else if (argv[i][0] == '-' && argv[i][1] != '\0') {
            if (one_option(c, argv, &i, err) < 0)
                return -1;
        } else if (*verb == NULL)
            *verb = argv[i];
        else if (c->n_args < 3)
            c->arg[c->n_args++] = argv[i];
        else
            return vt_fail(err, VT_E_USAGE, "too many arguments");
    }
    /* A variable of a script that was never set is not the same as nothing. */
    for (int i = 0; i < c->n_args; i++) {
        if (c->arg[i][0] == '\0')
            return vt_fail(err, VT_E_USAGE,
                           "an empty argument has no meaning here; leave it out for the default");
        if (strlen(c->arg[i]) > ARGUMENT_MAX)
            return vt_fail(err, VT_E_USAGE, "%.40s…: %zu bytes are too long", c->arg[i], strlen(c->arg[i]));
    }
    return 0;
}

static const struct command *find(const char *verb, struct vt_err *err)
{
    const char *names[N_COMMANDS];
    char hint[160];
    for (size_t i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (strcmp(commands[i].name, verb) == 0)
            return &commands[i];
    }
    vt_fail(err, VT_E_USAGE, "unknown command %.64s%s", verb,
            vt_suggest(verb, names, N_COMMANDS, hint, sizeof hint));
    return NULL;
}

int main(int argc, char **argv)
{
    struct call c = {0};
    struct vt_err err;
    const char *verb = NULL;
    if (parse(&c, &verb, argc, argv, &err) < 0)
        return call_fail(&c, &err);
    if (verb == NULL || strcmp(verb, "help") == 0) {
        usage(verb != NULL ? stdout : stderr);
        return verb != NULL ? VT_EX_OK : VT_EX_USAGE;
    }
    const struct command *cmd = find(verb, &err);
    if (cmd == NULL)
        return call_fail(&c, &err);
    if (c.n_args > cmd->max_args) {
        vt_fail(&err, VT_E_USAGE, "%s takes at most %d argument%s", verb, cmd->max_args,
                cmd->max_args == 1 ? "" : "s");
        return call_fail(&c, &err);
    }
    if (client_find(&c.client, c.run, &err) < 0)
        return call_fail(&c, &err);
    return cmd->run(&c);
}
