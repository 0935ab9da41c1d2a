/* vitriolctl shield: what the shield has marked and what it leaves alone, as it said last. */
#include "vitriolctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_row(json_t *out, char *line)
{
    char *end = line + strlen(line);
    while (end > line && (end[-1] == '\n' || end[-1] == ' '))
        *--end = '\0';
    char *number = strrchr(line, ' ');
    uint64_t n;
    if (number == NULL || !call_number(number + 1, &n)) {
        json_object_set_new(out, "state", json_string(line));
        return;
    }
    while (number > line && *number == ' ')
        *number-- = '\0';
    json_object_set_new(out, line, json_integer((json_int_t)n));
}

int cmd_shield(struct call *c)
{
    struct vt_err err;
    char path[512], line[256];
    json_t *st = client_call(&c->client, "status", NULL, NULL, &err), *out;
    if (st == NULL)
        return call_fail(c, &err);
    snprintf(path, sizeof path, "%s/shield.report", client_str(st, "run_dir"));
    json_decref(st);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        vt_fail(&err, VT_E_UNAVAILABLE,
                "no shield runs here; shield.mode says when one does (vitriol.conf(5))");
        return call_fail(c, &err);
    }
    out = json_object();
    while (fgets(line, sizeof line, f) != NULL) {
        if (c->json)
            add_row(out, line);
        else
            fputs(line, stdout);
    }
    fclose(f);
    if (c->json)
        call_print(out);
    json_decref(out);
    return VT_EX_OK;
}
