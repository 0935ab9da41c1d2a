/* The command line. */
#ifndef OFF_OPTIONS_H
#define OFF_OPTIONS_H

#include "core/model.h"
#include "err.h"

struct options {
    const char *folder; /* NULL: the present one */
    const char *print;  /* -p; "-": standard input */
    enum { OUT_TEXT, OUT_JSON, OUT_STREAM } output;
    bool stream_input;
    enum mode mode;
    bool mode_given;
    const char **allow, **deny, **dirs; /* NULL-terminated */
    size_t n_allow, n_deny, n_dirs;
    const char *resume; /* id, title or "last" */
    bool fork;
    const char *coupling, *engine;
    int max_turns; /* 0: the default */
    const char *sandbox, *color;
    bool ascii, no_mouse, no_motion, print_on_exit;
    int dump_w, dump_h; /* --dump-frame; 0: not */
    const char *replay; /* an event log */
    const char *record; /* write one */
    bool help, version;
};

/* Fills o from argv; borrowed. -1: err names the option. */
int options_parse(struct options *o, int argc, char **argv, struct vt_err *err);
void options_free(struct options *o);
void options_usage(void);

#endif
