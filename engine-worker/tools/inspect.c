#include "gguf.h"
#include "opts.h"
#include "tool.h"

#include <stdio.h>

int tool_inspect(int argc, char **argv, struct vt_err *err)
{
    bool all = false;
    const char *path = NULL;
    const struct opt table[] = {
        {"-a", "--all", OPT_FLAG, &all, 0, 0, "every value of every array"},
        {0},
    };
    int rc = opts_parse(table, "inspect FILE [--all]", argc, argv, &path, err);
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (!path)
        return vt_fail(err, VT_E_USAGE, "which file? usage: vitriol-tool inspect FILE");
    struct gguf_file *f;
    if (gguf_open(&f, path, true, err) < 0)
        return -1;
    gguf_print(f, stdout, all);
    gguf_close(f);
    /* What the header says is shown of a file that is cut short too, but such a file is no success. */
    if (gguf_open(&f, path, false, err) < 0)
        return -1;
    gguf_close(f);
    return 0;
}
