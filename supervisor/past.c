#include "past.h"

#include "programs.h"
#include "rundir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int find_state(const char *given, char *out, size_t size, struct vt_err *err)
{
    struct rundir d;
    struct vt_err ignored;
    if (given != NULL) {
        snprintf(out, size, "%s", given);
        return 0;
    }
    struct vt_config *cfg = vt_config_new();
    if (cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    /* As when vitriold is looked for: a configuration that it would refuse keeps nobody from asking. */
    vt_config_layers(cfg, VT_DIR_VENDOR, VT_DIR_ETC, geteuid() != 0, &ignored);
    vt_config_env(cfg, environ, &ignored);
    int rc = rundir_resolve(&d, cfg, err);
    snprintf(out, size, "%s", rc == 0 ? d.state : "");
    vt_config_free(cfg);
    return rc;
}

/* A word "name=value" of a fingerprint line. */
static void word(const char *line, const char *name, char *out, size_t size)
{
    char want[32];
    snprintf(want, sizeof want, " %s=", name);
    const char *at = strstr(line, want);
    at = at != NULL ? at + strlen(want) : "";
    snprintf(out, size, "%.*s", (int)strcspn(at, " "), at);
}

static void add(json_t *list, char *line)
{
    char *field[5], *at = line, gen[16];
    for (int i = 0; i < 5; i++) {
        field[i] = at != NULL ? strsep(&at, i < 4 ? "\t" : "\n") : NULL;
        if (field[i] == NULL)
            return;
    }
    word(field[4], "gen", gen, sizeof gen);
    json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:s, s:I, s:s}", "at_us",
                                          (json_int_t)atoll(field[0]), "child", field[1], "fp", field[2],
                                          "diff", field[3], "gen", (json_int_t)atoll(gen), "line", field[4]));
}

/* Its standard output is read here, its errors go where ours go. */
static pid_t start(const char *program, const char *state, int *out)
{
    int p[2];
    if (pipe2(p, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(p[1], STDOUT_FILENO);
        execl(program, program, "--launches", state, (char *)NULL);
        _exit(127);
    }
    close(p[1]);
    *out = p[0];
    if (pid < 0)
        close(p[0]);
    return pid;
}

json_t *past_launches(const char *state, struct vt_err *err)
{
    char dir[512], program[512], *line = NULL;
    size_t cap = 0;
    int fd, status = 0;
    if (find_state(state, dir, sizeof dir, err) < 0 ||
        program_find("vitriol-store", program, sizeof program, err) < 0)
        return NULL;
    pid_t pid = start(program, dir, &fd);
    FILE *f = pid > 0 ? fdopen(fd, "r") : NULL;
    json_t *list = json_array();
    while (f != NULL && getline(&line, &cap, f) > 0)
        add(list, line);
    free(line);
    if (f != NULL)
        fclose(f);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (f == NULL || status != 0) {
        json_decref(list);
        vt_fail(err, VT_E_NO_INPUT,
                "no vitriold runs, and the launches in the state directory %s cannot be read; "
                "--state-dir DIR names another one",
                dir);
        return NULL;
    }
    return json_pack("{s:[], s:o}", "current", "history", list);
}
