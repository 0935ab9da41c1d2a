/* Any bytes parse or are refused, and render within the limits. */
#include "jinja.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *vars;
    static const struct jinja_limits lim = {
        .steps = 20000, .output = 1 << 16, .memory = 1 << 20, .depth = 60};
    struct jinja *t;
    struct jinja_text r;
    struct vt_err err;
    if (!vars)
        vars = json_loads(
            "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
            "\" \\u00e9 <b> \"},"
            "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
            "\"arguments\": {\"a\": [1, 2.5, true]}}}]}], \"tools\": [{\"x\": {\"y\": [\"z\", 1]}}], \"s\": "
            "\"Hello World\","
            "\"l\": [3, 1, 2], \"n\": null, \"i\": 7, \"f\": 1.5, \"t\": true}",
            0, NULL);
    if (jinja_parse(&t, (const char *)data, size, &err))
        return 0;
    if (jinja_render_spans(t, vars, NULL, &lim, 0, &r, &err) == 0) {
        size_t at = 0;
        for (size_t i = 0; i < r.n_spans; i++) {
            if (r.spans[i].end <= at)
                abort();
            at = r.spans[i].end;
        }
        if (at != r.len)
            abort();
        jinja_text_fini(&r);
    }
    jinja_free(t);
    return 0;
}
