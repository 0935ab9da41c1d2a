/* Prints docs/CONFIG_REFERENCE.md. */
#include "config.h"

int main(void)
{
    vt_config_print_reference(stdout);
    return fflush(stdout) == 0 ? 0 : 1;
}
