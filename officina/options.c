#include "options.h"

#include "suggest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void options_usage(void)
{
    fputs("usage: vitriol officina [folder] [options]\n"
          "  -p, --print TEXT        one prompt without a screen; - reads standard input\n"
          "      --output-format F   text | json | stream-json (with -p or stream-json input)\n"
          "      --input-format F    text | stream-json\n"
          "      --mode M            plan | build\n"
          "      --allow RULE        may be repeated, e.g. 'bash:make *'; --deny RULE\n"
          "      --add-dir FOLDER    one more folder for tools and commands; may be repeated\n"
          "      --resume ID|last    go on with a conversation; --fork: with a copy\n"
          "      --coupling NAME     of couplings.conf; --engine URL replaces the default one's address\n"
          "      --max-turns N       requests to the model for one prompt\n"
          "      --sandbox S         project | strict | off\n"
          "      --color C           auto | never | 16 | 256 | 24bit;  --ascii  --no-mouse  --no-motion\n"
          "      --print-on-exit     the conversation as text when the screen closes\n"
          "      --dump-frame WxH    draw the conversation to standard output and leave\n"
          "      --record FILE       write an event log;  --replay FILE reads one (with --dump-frame)\n"
          "Inside: F1 or /help. man officina has the rest.\n",
          stdout);
}

static int one_of(const char *option, const char *value, const char *const *words, int n, struct vt_err *err)
{
    char hint[160];
    for (int i = 0; i < n; i++)
        if (strcmp(value, words[i]) == 0)
            return i;
    vt_fail(err, VT_E_USAGE, "%s %.60s is not known%s", option, value,
            vt_suggest(value, words, (size_t)n, hint, sizeof hint));
    return -1;
}

static int number(const char *option, const char *value, int min, int max, int *out, struct vt_err *err)
{
    char *end;
    errno = 0;
    long v = strtol(value, &end, 10);
    if (end == value || *end != '\0' || errno != 0 || v < min || v > max)
        return vt_fail(err, VT_E_USAGE, "%s %.60s: write a number from %d to %d", option, value, min, max);
    *out = (int)v;
    return 0;
}

static int frame_size(struct options *o, const char *value, struct vt_err *err)
{
    char end;
    if (sscanf(value, "%dx%d%c", &o->dump_w, &o->dump_h, &end) != 2 || o->dump_w < 1 || o->dump_w > 1000 ||
        o->dump_h < 1 || o->dump_h > 500)
        return vt_fail(err, VT_E_USAGE, "--dump-frame %.40s: write COLUMNSxROWS, for example 80x24", value);
    return 0;
}

static void add(const char ***list, size_t *n, const char *value)
{
    *list = mem_grow(*list, (*n + 2) * sizeof **list);
    (*list)[(*n)++] = value;
    (*list)[*n] = NULL;
}

static const char *const valued[] = {"--print",      "--output-format", "--input-format", "--mode",
                                     "--allow",      "--deny",          "--resume",       "--coupling",
                                     "--engine",     "--max-turns",     "--sandbox",      "--color",
                                     "--dump-frame", "--replay",        "--record",       "--add-dir"};
static const char *const flags[] = {"--fork",          "--ascii", "--no-mouse", "--no-motion",
                                    "--print-on-exit", "--help",  "--version"};

static int with_value(struct options *o, const char *name, const char *value, struct vt_err *err)
{
    static const char *const outputs[] = {"text", "json", "stream-json"},
                             *const inputs[] = {"text", "stream-json"}, *const modes[] = {"build", "plan"},
                             *const boxes[] = {"project", "strict", "off"},
                             *const colors[] = {"auto", "never", "16", "256", "24bit"};
    const struct {
        const char *name;
        const char **at;
    } plain[] = {{"--print", &o->print},   {"--resume", &o->resume}, {"--coupling", &o->coupling},
                 {"--engine", &o->engine}, {"--replay", &o->replay}, {"--record", &o->record}};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(name, plain[i].name) == 0) {
            *plain[i].at = value;
            return 0;
        }
    }
    int v = 0;
    if (strcmp(name, "--output-format") == 0) {
        v = one_of(name, value, outputs, 3, err);
        o->output = v == 2 ? OUT_STREAM : v == 1 ? OUT_JSON : OUT_TEXT;
    } else if (strcmp(name, "--input-format") == 0) {
        v = one_of(name, value, inputs, 2, err);
        o->stream_input = v == 1;
    } else if (strcmp(name, "--mode") == 0) {
        v = one_of(name, value, modes, 2, err);
        o->mode = v == 1 ? MODE_PLAN : MODE_BUILD;
        o->mode_given = true;
    } else if (strcmp(name, "--sandbox") == 0) {
        v = one_of(name, value, boxes, 3, err);
        o->sandbox = value;
    } else if (strcmp(name, "--color") == 0) {
        v = one_of(name, value, colors, 5, err);
        o->color = value;
    } else if (strcmp(name, "--max-turns") == 0) {
        return number(name, value, 1, 10000, &o->max_turns, err);
    } else if (strcmp(name, "--dump-frame") == 0) {
        return frame_size(o, value, err);
    } else if (strcmp(name, "--add-dir") == 0) {
        add(&o->dirs, &o->n_dirs, value);
    } else if (strcmp(name, "--allow") == 0) {
        add(&o->allow, &o->n_allow, value);
    } else {
        add(&o->deny, &o->n_deny, value);
    }
    return v < 0 ? -1 : 0;
}

static bool flag(struct options *o, const char *name)
{
    bool *const at[] = {&o->fork,          &o->ascii, &o->no_mouse, &o->no_motion,
                        &o->print_on_exit, &o->help,  &o->version};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        if (strcmp(name, flags[i]) == 0) {
            *at[i] = true;
            return true;
        }
    }
    return false;
}

static bool takes_value(const char *name)
{
    for (size_t i = 0; i < sizeof valued / sizeof valued[0]; i++)
        if (strcmp(name, valued[i]) == 0)
            return true;
    return false;
}

static int unknown(const char *name, struct vt_err *err)
{
    const char *all[32];
    size_t n = 0;
    char hint[160];
    for (size_t i = 0; i < sizeof valued / sizeof valued[0]; i++)
        all[n++] = valued[i];
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        all[n++] = flags[i];
    return vt_fail(err, VT_E_USAGE, "unknown option %.60s%s", name,
                   vt_suggest(name, all, n, hint, sizeof hint));
}

static int check(const struct options *o, struct vt_err *err)
{
    bool headless = o->print != NULL || o->stream_input;
    if (o->output != OUT_TEXT && !headless)
        return vt_fail(err, VT_E_USAGE, "--output-format needs -p TEXT or --input-format stream-json");
    if (o->fork && o->resume == NULL)
        return vt_fail(err, VT_E_USAGE, "--fork needs --resume ID or --resume last");
    if (o->replay != NULL && o->dump_w == 0)
        return vt_fail(err, VT_E_USAGE, "--replay needs --dump-frame WxH");
    return 0;
}

int options_parse(struct options *o, int argc, char **argv, struct vt_err *err)
{
    *o = (struct options){.sandbox = "project", .color = "auto"};
    bool only_names = false;
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        char name[64];
        if (only_names || a[0] != '-' || a[1] == '\0') {
            if (o->folder != NULL)
                return vt_fail(err, VT_E_USAGE, "%.100s: only one folder can be given", a);
            o->folder = a;
            continue;
        }
        if (strcmp(a, "--") == 0) {
            only_names = true;
            continue;
        }
        const char *eq = a[1] == '-' ? strchr(a, '=') : NULL;
        snprintf(name, sizeof name, "%.*s", eq != NULL ? (int)(eq - a < 63 ? eq - a : 63) : 63, a);
        if (strcmp(name, "-p") == 0)
            snprintf(name, sizeof name, "--print");
        if (strcmp(name, "-h") == 0)
            snprintf(name, sizeof name, "--help");
        if (takes_value(name)) {
            const char *value = eq != NULL ? eq + 1 : i + 1 < argc ? argv[++i] : NULL;
            if (value == NULL)
                return vt_fail(err, VT_E_USAGE, "%s needs a value", name);
            if (with_value(o, name, value, err) < 0)
                return -1;
        } else if (eq != NULL || !flag(o, name)) {
            return unknown(name, err);
        }
    }
    return o->help || o->version ? 0 : check(o, err);
}

void options_free(struct options *o)
{
    free((void *)o->dirs);
    free((void *)o->allow);
    free((void *)o->deny);
}
