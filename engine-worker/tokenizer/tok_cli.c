/* Test program: reads one JSON string a line, writes its ids as a JSON array a line. Options: -s reads control tokens,
 * -n leaves out normalization, -a adds bos/eos, -t prints what the file says and the load time, -d checks that decoding gives the
 * input back, -x reads hex digits instead of JSON, -p NAME prints the pieces of a pre-tokenizer instead (no file), -r N encodes the whole input (as raw bytes) N times and reports the speed. */
#include "clock.h"
#include "hash.h"
#include "pretok.h"
#include "tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Ids of one text to stdout; 1 when check is asked for and their bytes are not the text. */
static int encode_text(const struct tok *t, unsigned flags, bool check, const char *text, size_t n,
                       struct tok_ids *ids)
{
    struct vt_err err;
    ids->n = 0;
    if (tok_encode(t, text, n, flags, ids, &err)) {
        fprintf(stderr, "tok_cli: %s\n", err.text);
        return 70;
    }
    putchar('[');
    for (size_t i = 0; i < ids->n; i++)
        printf(i ? ", %u" : "%u", ids->ids[i]);
    puts("]");
    size_t at = 0;
    for (size_t i = 0; check && i < ids->n; i++) {
        size_t len;
        const uint8_t *b = tok_bytes(t, ids->ids[i], &len);
        if (len > n - at || memcmp(b, text + at, len) != 0)
            return 1;
        at += len;
    }
    return check && at != n;
}

/* Texts as lines of JSON strings, or of hex digits. */
static int encode_lines(const struct tok *t, unsigned flags, bool check, bool hex)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    struct tok_ids ids = {0};
    while (rc == 0 && (n = getline(&line, &cap, stdin)) > 0) {
        if (hex) {
            const size_t half = (size_t)n / 2;
            line[2 * half] = 0;
            rc = vt_unhex(line, (uint8_t *)line, half) ? 65 : encode_text(t, flags, check, line, half, &ids);
            continue;
        }
        json_t *v = json_loadb(line, (size_t)n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (json_is_string(v)) {
            rc = encode_text(t, flags, check, json_string_value(v), json_string_length(v), &ids);
        } else {
            fprintf(stderr, "tok_cli: a line is not a JSON string\n");
            rc = 65;
        }
        json_decref(v);
    }
    free(line);
    tok_ids_fini(&ids);
    return rc;
}

static int add_piece(void *ctx, const uint8_t *s, size_t n)
{
    return json_array_append_new(ctx, json_stringn((const char *)s, n));
}

static int split_lines(const char *name)
{
    const struct pretok *pre = pretok_find(name, strlen(name));
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    if (!pre) {
        fprintf(stderr, "tok_cli: no pre-tokenizer '%s'\n", name);
        return 64;
    }
    while ((n = getline(&line, &cap, stdin)) > 0) {
        json_t *v = json_loadb(line, (size_t)n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL),
               *pieces = json_array();
        pretok_split(pre, (const uint8_t *)json_string_value(v), json_string_length(v), add_piece, pieces);
        json_dumpf(pieces, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(pieces);
        json_decref(v);
    }
    free(line);
    return 0;
}

static int measure(const struct tok *t, unsigned flags, int times)
{
    size_t n = 0, cap = 1 << 20;
    char *text = malloc(cap);
    for (size_t k; text && (k = fread(text + n, 1, cap - n, stdin)) > 0;)
        if ((n += k) == cap)
            text = realloc(text, cap *= 2);
    if (!text)
        return 70;
    struct tok_ids ids = {0};
    struct vt_err err;
    const struct vt_clock clock = vt_clock_real();
    for (int i = 0; i < times; i++) {
        ids.n = 0;
        const uint64_t t0 = vt_mono(&clock);
        if (tok_encode(t, text, n, flags, &ids, &err)) {
            fprintf(stderr, "tok_cli: %s\n", err.text);
            return 70;
        }
        const double us = (double)(vt_mono(&clock) - t0);
        printf("%zu bytes, %zu ids, %.1f ms, %.2f MB/s\n", n, ids.n, us / 1e3, (double)n / us);
    }
    tok_ids_fini(&ids);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    unsigned flags = 0;
    int opt, times = 0, check = 0, tell = 0, hex = 0;
    while ((opt = getopt(argc, argv, "snatdxr:p:")) != -1) {
        switch (opt) {
        case 's': flags |= TOK_PARSE_SPECIAL; break;
        case 'n': flags |= TOK_AS_IS; break;
        case 'a': flags |= TOK_ADD_SPECIAL; break;
        case 't': tell = 1; break;
        case 'd': check = 1; break;
        case 'x': hex = 1; break;
        case 'p': return split_lines(optarg);
        case 'r': times = atoi(optarg); break;
        default: return 64;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "usage: tok_cli [-snatdx] [-r N] FILE.gguf < lines\n");
        return 64;
    }
    const struct vt_clock clock = vt_clock_real();
    struct gguf_file *g;
    struct tok *t;
    struct vt_err err;
    const uint64_t t0 = vt_mono(&clock);
    if (gguf_open(&g, argv[optind], true, &err) || tok_load(&t, g, &err)) {
        fprintf(stderr, "tok_cli: %s\n", err.text);
        return vt_err_exit(&err);
    }
    gguf_close(g);
    int rc = 0;
    if (tell)
        printf("%u tokens, bos %d, eos %d, loaded in %.1f ms\n", tok_n_vocab(t), tok_bos(t), tok_eos(t),
               (double)(vt_mono(&clock) - t0) / 1e3);
    else
        rc = times ? measure(t, flags, times) : encode_lines(t, flags, check, hex);
    tok_free(t);
    return rc;
}
