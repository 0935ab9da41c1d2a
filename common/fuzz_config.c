#include "config.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vt_config *c = vt_config_new();
    struct vt_err err = {0};
    if (c == NULL)
        abort();
    if (vt_config_parse(c, VT_L_SITE, (const char *)data, size, "fuzz.conf", &err) < 0) {
        if (err.code == 0 || err.text[0] == '\0')
            abort(); /* an error without a text */
    } else {
        vt_config_check(c, &err);
    }
    vt_config_free(c);
    return 0;
}
