#include "hub.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FILES_MAX 10000

static bool is_model(const char *path)
{
    const size_t n = strlen(path);
    for (const char *p = path; *p; p++)
        if ((unsigned char)*p < 32)
            return false;
    return n > 5 && n < 1000 && strcasecmp(path + n - 5, ".gguf") == 0;
}

static int add(struct hub_list *l, const json_t *entry, struct vt_err *err)
{
    const char *path = json_string_value(json_object_get(entry, "rfilename"));
    if (!path || !is_model(path))
        return 0;
    const json_t *lfs = json_object_get(entry, "lfs");
    const char *sha = json_string_value(json_object_get(lfs, "sha256"));
    const json_int_t size = json_integer_value(json_object_get(entry, "size"));
    struct hub_file *f = &l->files[l->n];
    *f = (struct hub_file){.path = strdup(path), .size = size > 0 ? (uint64_t)size : 0};
    if (!f->path)
        return vt_fail(err, VT_E_NOMEM, "no memory for the list of files");
    if (sha && strlen(sha) == 64)
        memcpy(f->sha256, sha, 65);
    l->n++;
    return 0;
}

int hub_parse(struct hub_list *l, const char *json, size_t len, struct vt_err *err)
{
    *l = (struct hub_list){.n = 0};
    json_error_t bad;
    json_t *root = json_loadb(json, len, JSON_REJECT_DUPLICATES, &bad);
    const json_t *list = json_object_get(root, "siblings");
    if (!json_is_array(list)) {
        json_decref(root);
        return vt_fail(err, VT_E_PAYLOAD, "the hub's answer is no list of files");
    }
    const char *commit = json_string_value(json_object_get(root, "sha"));
    if (commit && strlen(commit) < sizeof l->commit && strspn(commit, "0123456789abcdef") == strlen(commit))
        memcpy(l->commit, commit, strlen(commit) + 1);
    const size_t n = json_array_size(list) < FILES_MAX ? json_array_size(list) : FILES_MAX;
    l->files = calloc(n + 1, sizeof *l->files);
    int rc = l->files ? 0 : vt_fail(err, VT_E_NOMEM, "no memory for the list of files");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add(l, json_array_get(list, i), err);
    json_decref(root);
    if (rc)
        hub_free(l);
    return rc;
}

void hub_free(struct hub_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->files[i].path);
    free(l->files);
    *l = (struct hub_list){.n = 0};
}

/* Whether a name holds the word, not as a part of a longer one: Q4_K is not in Q4_K_M. */
static bool has_word(const char *name, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = name; *p; p++) {
        const bool begins = p == name || (!isalnum((unsigned char)p[-1]) && p[-1] != '_');
        if (begins && strncasecmp(p, word, n) == 0 && !isalnum((unsigned char)p[n]) && p[n] != '_')
            return true;
    }
    return false;
}

static const char *base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_first_part(const char *path)
{
    char first[1024];
    source_part(path, 1, first, sizeof first);
    return strcmp(first, path) == 0;
}

static bool may_be_chosen(const struct hub_file *f)
{
    return is_first_part(f->path) && strncasecmp(base(f->path), "mmproj", 6) != 0 &&
           strcasestr(base(f->path), "imatrix") == NULL;
}

static const struct hub_file *with_quant(const struct hub_list *l, const char *quant)
{
    const struct hub_file *best = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const struct hub_file *f = &l->files[i];
        /* of x-Q4_K_M and x-UD-Q4_K_M the plain one */
        if (may_be_chosen(f) && has_word(base(f->path), quant) &&
            (!best || strlen(f->path) < strlen(best->path)))
            best = f;
    }
    return best;
}

const struct hub_file *hub_choose(const struct hub_list *l, const char *quant, struct vt_err *err)
{
    const struct hub_file *f = NULL;
    char names[300] = "";
    size_t n = 0;
    if (quant[0])
        f = with_quant(l, quant);
    else if (!(f = with_quant(l, "Q4_K_M")))
        f = with_quant(l, "Q8_0");
    for (size_t i = 0; i < l->n && !f; i++) {
        if (!may_be_chosen(&l->files[i]))
            continue;
        const size_t at = strlen(names);
        snprintf(names + at, sizeof names - at, "%s%s", n++ ? ", " : "", base(l->files[i].path));
    }
    if (!f && n == 1 && !quant[0])
        for (size_t i = 0; i < l->n; i++)
            f = may_be_chosen(&l->files[i]) ? &l->files[i] : f;
    if (!f && n == 0)
        vt_fail(err, VT_E_NO_INPUT, "the repository holds no model file (.gguf)");
    else if (!f)
        vt_fail(err, VT_E_NO_INPUT, "the repository holds no file of %s; there are: %s",
                quant[0] ? quant : "a usual quantization", names);
    return f;
}

const struct hub_file *hub_find(const struct hub_list *l, const char *path)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].path, path) == 0)
            return &l->files[i];
    return NULL;
}

void hub_print(const struct hub_list *l, FILE *out)
{
    for (size_t i = 0; i < l->n; i++)
        fprintf(out, "%12llu  %s\n", (unsigned long long)l->files[i].size, l->files[i].path);
}
