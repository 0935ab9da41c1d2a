#include "internal.h"

#include <stdio.h>

/* Every number of the format that is in use, so that any file can be listed and its sizes checked. */
static const struct ggml_type_info types[] = {
    [0] = {"F32", 1, 4},         [1] = {"F16", 1, 2},         [2] = {"Q4_0", 32, 18},
    [3] = {"Q4_1", 32, 20},      [6] = {"Q5_0", 32, 22},      [7] = {"Q5_1", 32, 24},
    [8] = {"Q8_0", 32, 34},      [9] = {"Q8_1", 32, 36},      [10] = {"Q2_K", 256, 84},
    [11] = {"Q3_K", 256, 110},   [12] = {"Q4_K", 256, 144},   [13] = {"Q5_K", 256, 176},
    [14] = {"Q6_K", 256, 210},   [15] = {"Q8_K", 256, 292},   [16] = {"IQ2_XXS", 256, 66},
    [17] = {"IQ2_XS", 256, 74},  [18] = {"IQ3_XXS", 256, 98}, [19] = {"IQ1_S", 256, 50},
    [20] = {"IQ4_NL", 32, 18},   [21] = {"IQ3_S", 256, 110},  [22] = {"IQ2_S", 256, 82},
    [23] = {"IQ4_XS", 256, 136}, [24] = {"I8", 1, 1},         [25] = {"I16", 1, 2},
    [26] = {"I32", 1, 4},        [27] = {"I64", 1, 8},        [28] = {"F64", 1, 8},
    [29] = {"IQ1_M", 256, 56},   [30] = {"BF16", 1, 2},       [34] = {"TQ1_0", 256, 54},
    [35] = {"TQ2_0", 256, 66},   [39] = {"MXFP4", 32, 17},    [40] = {"NVFP4", 64, 36},
    [41] = {"Q1_0", 128, 18},    [42] = {"Q2_0", 64, 18},
};

const struct ggml_type_info *ggml_type_info(uint32_t type)
{
    if (type >= sizeof types / sizeof types[0] || types[type].name == NULL)
        return NULL;
    return &types[type];
}

uint64_t ggml_row_bytes(uint32_t type, uint64_t n)
{
    const struct ggml_type_info *t = ggml_type_info(type);
    uint64_t bytes;
    if (t == NULL || n % t->block != 0 || __builtin_mul_overflow(n / t->block, (uint64_t)t->bytes, &bytes))
        return 0;
    return bytes;
}

bool ggml_block(uint32_t type, int64_t *values, int64_t *bytes)
{
    const struct ggml_type_info *t = ggml_type_info(type);
    *values = t != NULL ? t->block : 0;
    *bytes = t != NULL ? t->bytes : 0;
    return t != NULL;
}

const char *ggml_type_name(uint32_t type)
{
    const struct ggml_type_info *t = ggml_type_info(type);
    return t != NULL ? t->name : "unknown type";
}

uint32_t gguf_value_size(uint32_t type)
{
    static const uint8_t size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof size ? size[type] : 0;
}

const char *gguf_value_name(uint32_t type)
{
    static const char *const name[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                       "bool", "string", "array", "u64", "i64", "f64"};
    return type < sizeof name / sizeof name[0] ? name[type] : "unknown";
}
