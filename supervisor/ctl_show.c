#include "ctl_show.h"

#include "ctl_client.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

const char *show_age(unsigned long long s, char *out, size_t size)
{
    if (s < 120)
        snprintf(out, size, "%llu s", s);
    else if (s < 2 * 3600)
        snprintf(out, size, "%llu min", s / 60);
    else if (s < 2 * 86400)
        snprintf(out, size, "%llu h", s / 3600);
    else
        snprintf(out, size, "%llu d", s / 86400);
    return out;
}

static void show_child(const json_t *c)
{
    char age[32], note[400] = "";
    const char *state = client_str(c, "state"), *class = client_str(c, "class");
    if (strcmp(state, "loading") == 0)
        snprintf(note, sizeof note, "%llu %%", (unsigned long long)client_num(c, "load_permille") / 10);
    else if (client_num(c, "step_age_ms") >= 5000)
        snprintf(note, sizeof note, "no step for %llu s",
                 (unsigned long long)client_num(c, "step_age_ms") / 1000);
    else if (client_num(c, "in_flight") > 0)
        snprintf(note, sizeof note, "%llu in flight", (unsigned long long)client_num(c, "in_flight"));
    bool gone = strcmp(state, "backoff") == 0 || strcmp(state, "failed") == 0 || strcmp(state, "down") == 0;
    if (gone && class[0] != '\0')
        snprintf(note, sizeof note, "%s: %.300s", class, client_str(c, "detail"));
    printf("  %-9s %-9s %4llu %8llu %9llu %8s  %s\n", client_str(c, "name"), state,
           (unsigned long long)client_num(c, "gen"), (unsigned long long)client_num(c, "pid"),
           (unsigned long long)client_num(c, "restarts"), show_age(client_num(c, "age_s"), age, sizeof age),
           note);
    if (gone && client_num(c, "next_start_ms") > 0)
        printf("  %-9s next start in %llu s\n", "",
               (unsigned long long)(client_num(c, "next_start_ms") + 999) / 1000);
}

void show_status(const json_t *s)
{
    char age[32];
    size_t i;
    const json_t *c;
    printf("%s   http://%s   pid %llu, up %s\n", client_str(s, "state"), client_str(s, "address"),
           (unsigned long long)client_num(s, "pid"), show_age(client_num(s, "uptime_s"), age, sizeof age));
    printf("  model     %s\n", client_str(s, "model"));
    if (client_num(s, "slots") > 0)
        printf("  shape     %llu slots of %llu tokens", (unsigned long long)client_num(s, "slots"),
               (unsigned long long)client_num(s, "window"));
    if (client_num(s, "slots") > 0 && client_num(s, "certified") > 0)
        printf(", certified %llu deep at %.1f tokens/s", (unsigned long long)client_num(s, "certified"),
               (double)client_num(s, "certified_decode_milli") / 1000);
    if (client_num(s, "slots") > 0)
        putchar('\n');
    printf("  launch    fp %s, profile %s, build %s\n",
           client_str(s, "fp")[0] != '\0' ? client_str(s, "fp") : "-", client_str(s, "profile"),
           client_str(s, "build"));
    if (client_num(s, "mem_level") > 0)
        printf("  memory    level %llu: %s; usable %llu of %llu MiB\n",
               (unsigned long long)client_num(s, "mem_level"), client_str(s, "mem_why"),
               (unsigned long long)client_num(s, "mem_usable") >> 20,
               (unsigned long long)client_num(s, "mem_base") >> 20);
    if (client_str(s, "device")[0] != '\0')
        printf("  device    %s\n", client_str(s, "device"));
    if (client_str(s, "overdue")[0] != '\0')
        printf("  overdue   %s\n", client_str(s, "overdue"));
    printf("  %-9s %-9s %4s %8s %9s %8s\n", "child", "state", "gen", "pid", "restarts", "since");
    json_array_foreach(json_object_get(s, "children"), i, c) show_child(c);
}

void show_event(const json_t *e)
{
    printf("%6llu  %12.3f  %-9s", (unsigned long long)client_num(e, "seq"),
           (double)client_num(e, "t_us") / 1e6,
           client_str(e, "child")[0] != '\0' ? client_str(e, "child") : "-");
    if (client_str(e, "to")[0] != '\0')
        printf(" gen %llu: %s -> %s", (unsigned long long)client_num(e, "gen"), client_str(e, "from"),
               client_str(e, "to"));
    if (client_str(e, "class")[0] != '\0')
        printf(" (%s)", client_str(e, "class"));
    if (client_str(e, "text")[0] != '\0')
        printf(" %s", client_str(e, "text"));
    putchar('\n');
}

void show_events(const json_t *events)
{
    size_t i;
    const json_t *e;
    json_array_foreach(events, i, e) show_event(e);
}

static void show_diff(const char *child, const char *diff)
{
    printf("%s:\n", child);
    while (*diff != '\0') {
        size_t n = strcspn(diff, ",");
        printf("  %.*s\n", (int)n, diff);
        diff += n + (diff[n] == ',');
    }
}

void show_fingerprint(const json_t *r, bool history, bool diff)
{
    size_t i;
    const json_t *l;
    if (!history) {
        json_array_foreach(json_object_get(r, "current"), i, l)
        {
            if (diff)
                show_diff(client_str(l, "child"), client_str(l, "diff"));
            else if (client_str(l, "line")[0] != '\0')
                printf("%s\n", client_str(l, "line"));
            else
                printf("%s: nothing runs\n", client_str(l, "child"));
        }
        return;
    }
    printf("%-20s %-9s %4s %-12s %s\n", "started", "child", "gen", "fp", "diff");
    json_array_foreach(json_object_get(r, "history"), i, l)
    {
        char when[32];
        time_t t = (time_t)(client_num(l, "at_us") / 1000000u);
        struct tm tm;
        strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", localtime_r(&t, &tm));
        printf("%-20s %-9s %4llu %-12s %s\n", when, client_str(l, "child"),
               (unsigned long long)client_num(l, "gen"), client_str(l, "fp"), client_str(l, "diff"));
    }
}

void show_config(const json_t *keys, bool origin)
{
    size_t i;
    const json_t *k;
    json_array_foreach(keys, i, k)
    {
        const char *key = client_str(k, "key");
        if (origin)
            printf("%-30s = %-28s # %s\n", key, client_str(k, "value"), client_str(k, "origin"));
        else
            printf("%s = %s\n", key, client_str(k, "value"));
    }
}

void show_slots(const json_t *slots)
{
    size_t i;
    const json_t *s;
    printf("%4s %-10s %8s %8s\n", "slot", "state", "window", "tokens");
    json_array_foreach(slots, i, s)
    {
        bool busy = json_is_true(json_object_get(s, "is_processing"));
        printf("%4lld %-10s %8lld %8lld\n", (long long)client_num(s, "id"), busy ? "working" : "idle",
               (long long)client_num(s, "n_ctx"), (long long)client_num(s, "n_tokens"));
    }
}
