/* vitriol-tool: the engine without the appliance. */
#include "tool.h"

#include "build_id.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *what;
    int (*run)(int argc, char **argv, struct vt_err *err);
} commands[] = {
    {"inspect", "header, metadata and tensors of a GGUF file", tool_inspect},
    {"plan", "what an engine would take of a device, and whether it fits", tool_plan},
    {"eval", "perplexity of a text, or logits of given tokens", tool_eval},
    {"bench", "prefill and decode speed at stated depths", tool_bench},
    {"run", "one answer to the terminal", tool_run},
};

static void usage(FILE *out)
{
    fprintf(out, "usage: vitriol-tool COMMAND …\n\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    fprintf(out, "\n`vitriol-tool COMMAND --help` tells the options.\n");
}

int main(int argc, char **argv)
{
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage(stdout);
        return VT_EX_OK;
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("vitriol-tool %s\n", VT_BUILD_ID);
        return VT_EX_OK;
    }
    for (size_t i = 0; argc > 1 && i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        struct vt_err err = {0};
        if (commands[i].run(argc - 1, argv + 1, &err) == 0)
            return fflush(stdout) == 0 ? VT_EX_OK : VT_EX_IO;
        fprintf(stderr, "vitriol-tool %s: %s\n", argv[1], err.text);
        return vt_err_exit(&err);
    }
    if (argc > 1)
        fprintf(stderr, "vitriol-tool: there is no command \"%s\"\n", argv[1]);
    usage(stderr);
    return VT_EX_USAGE;
}
