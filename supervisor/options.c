#include "options.h"

#include "suggest.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const struct option_key {
    const char *option, *key;
} option_keys[] = {
    {"--run-dir", "paths.run_dir"}, {"--state-dir", "paths.state_dir"}, {"--listen", "http.listen"},
    {"--model", "model.path"},      {"--slots", "engine.slots"},        {"--ctx", "engine.ctx_tokens"},
};
#define N_OPTION_KEYS (sizeof option_keys / sizeof option_keys[0])

void options_usage(FILE *out)
{
    fputs("usage: vitriold [options]\n"
          "  --run-dir DIR        sockets (paths.run_dir)\n"
          "  --state-dir DIR      checkpoints (paths.state_dir)\n"
          "  --listen ADDR:PORT   HTTP address, unless the socket is handed over (http.listen)\n"
          "  --model FILE         GGUF file (model.path)\n"
          "  --slots N            independent windows (engine.slots)\n"
          "  --ctx N              tokens of one window (engine.ctx_tokens)\n"
          "  --set SECTION.KEY=V  any other key; see vitriol.conf(5)\n"
          "  --config FILE        one more configuration file\n"
          "  --ready-fd N         write a newline there when the control plane answers\n"
          "  --foreground         accepted for clarity: vitriold never forks itself away\n"
          "  --unblessed          engine.spec runs though no blessed record holds its speed\n"
          "  --version, --help\n"
          "SIGTERM or SIGINT drains and exits 0; a second one hurries.\n",
          out);
}

static int set_pair(struct vt_config *cfg, const char *pair, struct vt_err *err)
{
    char name[128];
    const char *eq = strchr(pair, '=');
    if (eq == NULL || eq == pair)
        return vt_fail(err, VT_E_USAGE, "--set %s: write --set section.key=value", pair);
    snprintf(name, sizeof name, "%.*s", (int)(eq - pair), pair);
    return vt_config_set(cfg, VT_L_CMDLINE, name, eq + 1, "command line", err);
}

static int unknown_option(const char *arg, struct vt_err *err)
{
    const char *names[N_OPTION_KEYS + 7] = {"--set",       "--config",  "--ready-fd", "--foreground",
                                            "--unblessed", "--version", "--help"};
    char hint[160];
    for (size_t i = 0; i < N_OPTION_KEYS; i++)
        names[7 + i] = option_keys[i].option;
    return vt_fail(err, VT_E_USAGE, "unknown option %.64s%s", arg,
                   vt_suggest(arg, names, N_OPTION_KEYS + 7, hint, sizeof hint));
}

static int one_option(struct options *o, struct vt_config *cfg, const char *arg, const char *value,
                      struct vt_err *err)
{
    const char *key = NULL;
    for (size_t i = 0; i < N_OPTION_KEYS; i++) {
        if (strcmp(arg, option_keys[i].option) == 0)
            key = option_keys[i].key;
    }
    if (key == NULL && strcmp(arg, "--set") != 0 && strcmp(arg, "--config") != 0 &&
        strcmp(arg, "--ready-fd") != 0)
        return unknown_option(arg, err);
    if (value == NULL)
        return vt_fail(err, VT_E_USAGE, "%s needs a value", arg);
    if (key != NULL)
        return vt_config_set(cfg, VT_L_CMDLINE, key, value, arg, err);
    if (strcmp(arg, "--set") == 0)
        return set_pair(cfg, value, err);
    if (strcmp(arg, "--config") == 0) {
        o->file = value;
        return 0;
    }
    char *end;
    long n = strtol(value, &end, 10);
    if (*end != '\0' || end == value || n < 0 || n > 1048576 || fcntl((int)n, F_GETFD) < 0)
        return vt_fail(err, VT_E_USAGE, "--ready-fd %s: not an open descriptor", value);
    o->ready_fd = (int)n;
    return 0;
}

static int parse(struct options *o, struct vt_config *cfg, int argc, char **argv, struct vt_err *err)
{
    o->ready_fd = -1;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            o->help = true;
            return 0;
        }
        if (strcmp(argv[i], "--version") == 0) {
            o->version = true;
            return 0;
        }
        if (strcmp(argv[i], "--foreground") == 0)
            continue;
        if (strcmp(argv[i], "--unblessed") == 0) {
            o->unblessed = true;
            continue;
        }
        if (one_option(o, cfg, argv[i], argv[i + 1], err) < 0)
            return -1;
        i++;
    }
    return 0;
}

int options_read(struct options *o, int argc, char **argv, struct vt_err *err)
{
    *o = (struct options){.argc = argc, .argv = argv};
    struct vt_config *cfg = vt_config_new();
    if (cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    int rc = parse(o, cfg, argc, argv, err);
    vt_config_free(cfg);
    return rc;
}

int options_layers(const struct options *o, struct vt_config *cfg, struct vt_err *err)
{
    struct options ignored = *o;
    /* The user's file counts only for a user: a system unit has RUNTIME_DIRECTORY from its manager. */
    bool user = getenv("RUNTIME_DIRECTORY") == NULL && geteuid() != 0;
    if (parse(&ignored, cfg, o->argc, o->argv, err) < 0 ||
        vt_config_layers(cfg, VT_DIR_VENDOR, VT_DIR_ETC, user, err) < 0)
        return -1;
    if (o->file != NULL && vt_config_file(cfg, VT_L_USER, o->file, false, err) < 0)
        return vt_fail_prefix(err, "--config");
    return vt_config_env(cfg, environ, err);
}

int options_profile(struct vt_config *cfg, struct vt_err *err)
{
    if (vt_config_profile(cfg, VT_DIR_VENDOR, VT_DIR_ETC, err) < 0)
        return -1;
    return vt_config_check(cfg, err);
}
