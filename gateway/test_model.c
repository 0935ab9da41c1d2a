/* A model file without weights: what the gateway needs of one. */
#include "test_boss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T_U32 = 4, T_I32 = 5, T_STR = 8, T_ARR = 9, N_TOKENS = 267 };

static void u32(FILE *f, uint32_t v)
{
    fwrite(&v, 4, 1, f);
}

static void u64(FILE *f, uint64_t v)
{
    fwrite(&v, 8, 1, f);
}

static void str(FILE *f, const char *s)
{
    u64(f, strlen(s));
    fputs(s, f);
}

static void kv_str(FILE *f, const char *k, const char *v)
{
    str(f, k);
    u32(f, T_STR);
    str(f, v);
}

static void kv_u32(FILE *f, const char *k, uint32_t v)
{
    str(f, k);
    u32(f, T_U32);
    u32(f, v);
}

/* How byte-level vocabularies write a byte: printable ones as themselves, the rest from U+0100 on. */
static void byte_name(unsigned byte, char out[5])
{
    unsigned cp = byte, shift = 0;
    for (unsigned b = 0; b < byte; b++)
        shift += !((b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174);
    if (!((byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174))
        cp = 256 + shift;
    if (cp < 0x80) {
        snprintf(out, 5, "%c", cp);
    } else {
        snprintf(out, 5, "%c%c", (char)(0xc0 | cp >> 6), (char)(0x80 | (cp & 0x3f)));
    }
}

static const char template[] = "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content + "
                               "'<|im_end|>\\n' }}{%- endfor %}"
                               "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

static const char harmony[] =
    "{%- for m in messages %}{{- '<|start|>' + m.role + '<|message|>' + m.content + (m.thinking or '') + "
    "'<|end|>' }}"
    "{%- endfor %}{%- for t in tools or [] %}{{- t.function.name }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}{#- <|channel|> -#}";

static void write_model(const char *path, const char *chat)
{
    static const char *const extra[] = {"<|im_start|>",   "<|im_end|>",    "<think>",        "</think>",
                                        "<tool_call>",    "</tool_call>",  "<|fim_prefix|>", "<|fim_suffix|>",
                                        "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"};
    FILE *f = fopen(path, "w");
    if (!f)
        abort();
    fputs("GGUF", f);
    u32(f, 3);
    u64(f, 0);  /* tensors */
    u64(f, 11); /* keys */
    kv_str(f, "general.architecture", "qwen3");
    kv_str(f, "general.name", "tiny");
    kv_u32(f, "qwen3.context_length", 2048);
    kv_u32(f, "qwen3.embedding_length", 64);
    kv_str(f, "tokenizer.ggml.model", "gpt2");
    kv_str(f, "tokenizer.ggml.pre", "qwen2");
    str(f, "tokenizer.ggml.tokens");
    u32(f, T_ARR);
    u32(f, T_STR);
    u64(f, N_TOKENS);
    for (unsigned i = 0; i < 256; i++) {
        char name[5];
        byte_name(i, name);
        str(f, name);
    }
    for (int i = 0; i < N_TOKENS - 256; i++)
        str(f, extra[i]);
    str(f, "tokenizer.ggml.token_type");
    u32(f, T_ARR);
    u32(f, T_I32);
    u64(f, N_TOKENS);
    for (unsigned i = 0; i < N_TOKENS; i++)
        u32(f, i < 256 ? 1 : i < 258 || i >= 262 ? 3 : 4);
    str(f, "tokenizer.ggml.merges");
    u32(f, T_ARR);
    u32(f, T_STR);
    u64(f, 0);
    kv_u32(f, "tokenizer.ggml.eos_token_id", 257);
    kv_str(f, "tokenizer.chat_template", chat);
    fclose(f);
}

const char *test_model(const char *dir)
{
    static char path[128];
    if (!path[0]) {
        snprintf(path, sizeof path, "%s/tiny.gguf", dir);
        write_model(path, template);
    }
    return path;
}

void test_model_harmony(const char *path)
{
    write_model(path, harmony);
}
