#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int extra(const char *text, struct worker_faults *out, struct vt_err *err)
{
    struct stub_opts ignored;
    return stub_opts_read(text, &ignored, out, err);
}

/* vitriol-stub --ref SEED N [OPTIONS]: the N tokens that a stub with these options generates for that seed. */
static int print_reference(int argc, char **argv)
{
    struct stub_opts o;
    struct worker_faults ignored;
    struct vt_err err;
    if (argc < 4 || stub_opts_read(argc > 4 ? argv[4] : NULL, &o, &ignored, &err) < 0) {
        fprintf(stderr, "usage: vitriol-stub --ref SEED N [OPTIONS]\n");
        return VT_EX_USAGE;
    }
    uint64_t seed = strtoull(argv[2], NULL, 10), n = strtoull(argv[3], NULL, 10);
    for (uint64_t i = 0; i < n; i++)
        printf("%s%u", i > 0 ? " " : "", stub_token(&o, seed, i));
    printf("\n");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--ref") == 0)
        return print_reference(argc, argv);
    return worker_main(argc, argv, &eng_stub, false, extra);
}
