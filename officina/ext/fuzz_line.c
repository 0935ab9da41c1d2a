/* Lines of servers: both readers, and the text of whatever they give as a result. */
#include "ext/line.h"

#include "tools/output.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int own = 0; own < 2; own++) {
        struct line l;
        struct text raw = {0}, clean = {0};
        bool failed;
        (own ? line_read_own : line_read_rpc)(&l, (const char *)data, size);
        if ((l.kind == LINE_FAULT) != (l.words != NULL) || (l.kind == LINE_RESULT && !l.body))
            abort();
        if (l.kind == LINE_RESULT) {
            line_result_text(l.body, &raw, &failed);
            output_clean(text_str(&raw), raw.len, &clean);
            if (clean.len && memchr(clean.s, 033, clean.len))
                abort();
        }
        text_free(&raw);
        text_free(&clean);
        line_free(&l);
    }
    return 0;
}
