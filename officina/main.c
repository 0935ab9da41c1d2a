/* officina: the coding workshop of VITRIOL. */
#include "app.h"

#include "build_id.h"
#include "core/event_log.h"
#include "term/keeper.h"
#include "util/file.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define EXIT_FAULT 1
#define EXIT_WRONG 2
#define PROMPT_MAX (8u * 1024u * 1024u)

static int wrong(const struct vt_err *err)
{
    fprintf(stderr, "officina: %s\n", err->text);
    return err->code == VT_E_USAGE || err->code == VT_E_CONFIG || err->code == VT_E_NO_INPUT ||
                   err->code == VT_E_PAYLOAD
               ? EXIT_WRONG
               : EXIT_FAULT;
}

static int read_prompt(struct text *t, struct vt_err *err)
{
    char buf[16384];
    ssize_t n;
    while ((n = read(STDIN_FILENO, buf, sizeof buf)) > 0) {
        text_add(t, buf, (size_t)n);
        if (t->len > PROMPT_MAX)
            return vt_fail(err, VT_E_USAGE, "-p -: standard input is larger than %u bytes", PROMPT_MAX);
    }
    return n < 0 ? vt_fail_errno(err, VT_E_USAGE, "-p -: standard input") : 0;
}

static int put_prompt(struct app *a, struct vt_err *err)
{
    struct text t = {0};
    int rc = 0;
    if (strcmp(a->o.print, "-") == 0)
        rc = read_prompt(&t, err);
    else
        text_puts(&t, a->o.print);
    bool blank = text_str(&t)[strspn(text_str(&t), " \t\r\n")] == '\0';
    if (rc == 0 && blank)
        rc = vt_fail(err, VT_E_USAGE, "-p: the prompt is empty");
    if (rc == 0) {
        const struct event e = {.kind = EV_SUBMIT, .n = 1, .text = text_str(&t)};
        app_put(a, &e);
    }
    text_free(&t);
    return rc;
}

/* ---- drawing without a terminal ---- */

static void replay_step(void *arg, const struct event *e)
{
    struct effects fx = {0};
    core_step(arg, e, &fx);
    effects_clear(&fx); /* what was done then is in the log */
}

static int dump(const struct model *m, const struct options *o)
{
    struct text t = {0};
    screen_dump(m, o->dump_w, o->dump_h, o->ascii, &t);
    fwrite(text_str(&t), 1, t.len, stdout);
    text_free(&t);
    return fflush(stdout) == 0 ? 0 : EXIT_FAULT;
}

static int replay(const struct options *o, struct vt_err *err)
{
    FILE *f = fopen(o->replay, "re");
    if (f == NULL) {
        vt_fail_errno(err, VT_E_NO_INPUT, "--replay %s", o->replay);
        return wrong(err);
    }
    struct model *m = model_new();
    int rc = event_log_read(f, o->replay, replay_step, m, err);
    fclose(f);
    rc = rc < 0 ? wrong(err) : dump(m, o);
    model_free(m);
    return rc;
}

/* The queue only: the core sees what was stored, and nothing is asked of anybody. */
static int dump_stored(struct app *a)
{
    for (size_t i = 0; i < a->n_queue; i++) {
        struct effects fx = {0};
        struct event e = a->queue[i];
        e.at = e.at != 0 ? e.at : off_clock_now(&a->clock);
        core_step(a->m, &e, &fx);
        effects_clear(&fx);
    }
    return dump(a->m, &a->o);
}

static int live(struct app *a, struct vt_err *err)
{
    if (app_open(a, err) < 0) {
        if (a->screen != NULL)
            screen_close(a->screen); /* the words are for the terminal that was there before */
        a->screen = NULL;
        return wrong(err);
    }
    if (a->o.dump_w != 0)
        return dump_stored(a);
    if (a->o.print != NULL && put_prompt(a, err) < 0)
        return wrong(err);
    int rc = app_run(a);
    if (a->screen != NULL) {
        screen_close(a->screen);
        a->screen = NULL;
        if (a->o.print_on_exit)
            app_print_text(a, stdout);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct app a = {.signal_pipe = {-1, -1}};
    struct vt_err err = {0};
    setlocale(LC_CTYPE, "");
    if (options_parse(&a.o, argc, argv, &err) < 0) {
        options_free(&a.o);
        return wrong(&err);
    }
    if (a.o.help || a.o.version) {
        if (a.o.help)
            options_usage();
        else
            puts("officina " VT_BUILD_ID);
        options_free(&a.o);
        return 0;
    }
    /* Keys are in memory: no core files, no other process of this user may look. */
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (a.o.replay != NULL) {
        int rc = replay(&a.o, &err);
        options_free(&a.o);
        return rc;
    }
    bool screen = a.o.print == NULL && !a.o.stream_input && a.o.dump_w == 0;
    if (screen && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
        fputs("officina: the screen needs a terminal; without one use -p TEXT (see --help)\n", stderr);
        options_free(&a.o);
        return EXIT_WRONG;
    }
    /* The keeper outlives every death of the workshop and gives the terminal back. */
    if (screen)
        a.keeper = keeper_start(STDIN_FILENO, &err);
    int rc = live(&a, &err);
    app_close(&a);
    return rc;
}
