/* The commands of vitriol-tool. argv[0] is the command's name. Return 0, or -1 with an error. */
#ifndef TOOL_H
#define TOOL_H

#include "err.h"

int tool_plan(int argc, char **argv, struct vt_err *err);
int tool_inspect(int argc, char **argv, struct vt_err *err);
int tool_eval(int argc, char **argv, struct vt_err *err);
int tool_bench(int argc, char **argv, struct vt_err *err);
int tool_run(int argc, char **argv, struct vt_err *err);

#endif
