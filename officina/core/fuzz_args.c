/* Arguments of tool calls: whatever a model writes is an object that fits, or a fault in words; what was
 * mended reads again unmended. */
#include "core/args.h"

#include "tools/tool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t n;
    const struct tool_spec *list = tool_list(&n);
    if (!size)
        return 0;
    const char *schema = list[data[0] % n].schema;
    struct args a, b;
    args_read(&a, (const char *)data + 1, size - 1, schema);
    if ((a.value != NULL) == (a.fault != NULL))
        abort();
    if (a.value) {
        char *again = js_dump(json_incref(a.value));
        args_read(&b, again, strlen(again), schema);
        if (!b.value || b.repair || !json_equal(a.value, b.value))
            abort();
        args_free(&b);
        free(again);
    }
    args_free(&a);
    return 0;
}
