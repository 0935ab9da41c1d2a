#include "source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SET_TAIL 20 /* strlen("-00001-of-00005.gguf") */

static const char help[] = "write a URL, hf:OWNER/REPO/FILE.gguf or hf:OWNER/REPO:QUANT";

static bool put(char *out, size_t size, const char *s, size_t n)
{
    if (n >= size)
        return false;
    memcpy(out, s, n);
    out[n] = '\0';
    return true;
}

static bool is_word(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("-._", s[i]))
            return false;
    return n > 0 && s[0] != '.' && s[0] != '-';
}

/* OWNER/REPO[@REV] of n bytes. */
static bool parse_repo(struct source *s, const char *text, size_t n)
{
    const char *at = memchr(text, '@', n), *slash = memchr(text, '/', n);
    const size_t repo_n = at ? (size_t)(at - text) : n;
    if (!slash || (size_t)(slash - text) >= repo_n || !is_word(text, (size_t)(slash - text)) ||
        !is_word(slash + 1, repo_n - (size_t)(slash - text) - 1) ||
        !put(s->repo, sizeof s->repo, text, repo_n))
        return false;
    if (!at)
        return put(s->rev, sizeof s->rev, "main", 4);
    return is_word(at + 1, n - repo_n - 1) && put(s->rev, sizeof s->rev, at + 1, n - repo_n - 1);
}

/* A path inside a repository: no empty, "." or ".." part, nothing unprintable. */
static bool is_inner_path(const char *s)
{
    for (const char *p = s; *p;) {
        const size_t n = strcspn(p, "/");
        if (n == 0 || (p[0] == '.' && (n == 1 || (n == 2 && p[1] == '.'))))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)p[i] < 32 || p[i] == 127)
                return false;
        p += n;
        if (*p == '/' && *++p == '\0')
            return false;
    }
    return s[0] != '\0';
}

static int parse_hub(struct source *s, const char *text, struct vt_err *err)
{
    const char *slash = strchr(text, '/');
    const char *next = slash ? strchr(slash + 1, '/') : NULL, *colon = slash ? strchr(slash + 1, ':') : NULL;
    s->hub = true;
    bool ok = slash != NULL;
    if (next && (!colon || next < colon)) {
        ok = ok && parse_repo(s, text, (size_t)(next - text)) && is_inner_path(next + 1) &&
             put(s->file, sizeof s->file, next + 1, strlen(next + 1));
    } else if (colon) {
        ok = ok && parse_repo(s, text, (size_t)(colon - text)) && is_word(colon + 1, strlen(colon + 1)) &&
             put(s->quant, sizeof s->quant, colon + 1, strlen(colon + 1));
    } else {
        ok = ok && parse_repo(s, text, strlen(text));
    }
    return ok ? 0 : vt_fail(err, VT_E_USAGE, "hf:%.200s is no file of the hub; %s", text, help);
}

/* A page that shows a file has "blob" where the file itself has "resolve". */
static void page_to_file(char *url)
{
    static const char hub[] = "https://huggingface.co/";
    char *blob = strncmp(url, hub, sizeof hub - 1) == 0 ? strstr(url, "/blob/") : NULL;
    if (!blob || strlen(url) + 3 >= SOURCE_URL_MAX)
        return;
    memmove(blob + 9, blob + 6, strlen(blob + 6) + 1);
    memcpy(blob, "/resolve/", 9);
}

int source_parse(struct source *s, const char *text, struct vt_err *err)
{
    *s = (struct source){.hub = false};
    if (strncmp(text, "hf:", 3) == 0)
        return parse_hub(s, text + 3, err);
    if (strncmp(text, "https://", 8) != 0 && strncmp(text, "http://", 7) != 0)
        return vt_fail(err, VT_E_USAGE, "%.200s: %s", text, help);
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= 32 || *p == 127)
            return vt_fail(err, VT_E_USAGE, "the URL holds a blank or a control character; encode it");
    if (!put(s->url, sizeof s->url, text, strlen(text)))
        return vt_fail(err, VT_E_USAGE, "the URL is longer than %d bytes", SOURCE_URL_MAX - 1);
    page_to_file(s->url);
    return 0;
}

int source_hub_url(const struct source *s, const char *endpoint, const char *rev, const char *file, char *out,
                   size_t size, struct vt_err *err)
{
    const int n = snprintf(out, size, "%s/%s/resolve/%s/", endpoint, s->repo, rev);
    size_t k = n > 0 ? (size_t)n : size;
    for (const char *p = file; *p && k + 4 < size; p++) {
        if (isalnum((unsigned char)*p) || strchr("-._~/", *p))
            out[k++] = *p;
        else
            k += (size_t)snprintf(out + k, 4, "%%%02X", (unsigned char)*p);
    }
    if (k + 4 >= size)
        return vt_fail(err, VT_E_USAGE, "%.200s: the name is too long", file);
    out[k] = '\0';
    return 0;
}

int source_check_name(const char *name, struct vt_err *err)
{
    const size_t n = strlen(name);
    bool ok = n > 5 && n <= SOURCE_NAME_MAX && name[0] != '.' && strcasecmp(name + n - 5, ".gguf") == 0;
    for (size_t i = 0; ok && i < n; i++)
        ok = name[i] != '/' && (unsigned char)name[i] >= 32 && name[i] != 127;
    return ok ? 0
              : vt_fail(
                    err, VT_E_USAGE,
                    "%.200s is no name of a model file: at most %d bytes, ending with .gguf; choose one with "
                    "--name",
                    n ? name : "(nothing)", SOURCE_NAME_MAX);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

int source_name(const char *url, char *out, size_t size, struct vt_err *err)
{
    const char *path = strstr(url, "://");
    path = path ? path + 3 + strcspn(path + 3, "/?#") : url;
    const size_t end = strcspn(path, "?#");
    size_t from = end, k = 0;
    while (from > 0 && path[from - 1] != '/')
        from--;
    for (size_t i = from; i < end && k + 1 < size; i++) {
        if (path[i] == '%' && i + 2 < end && hex(path[i + 1]) >= 0 && hex(path[i + 2]) >= 0) {
            out[k++] = (char)(hex(path[i + 1]) << 4 | hex(path[i + 2]));
            i += 2;
        } else {
            out[k++] = path[i];
        }
    }
    out[k] = '\0';
    return strlen(out) == k ? source_check_name(out, err)
                            : vt_fail(err, VT_E_USAGE, "the URL's file name holds a zero byte");
}

/* Where "-00001-of-00005.gguf" begins in a text that ends with it (before any query); NULL when it does not. */
static const char *set_tail(const char *text)
{
    const size_t n = strcspn(text, "?#");
    if (n < SET_TAIL + 1)
        return NULL;
    const char *t = text + n - SET_TAIL;
    for (int i = 0; i < 5; i++)
        if (!isdigit((unsigned char)t[1 + i]) || !isdigit((unsigned char)t[10 + i]))
            return NULL;
    return t[0] == '-' && strncmp(t + 6, "-of-", 4) == 0 && strncasecmp(t + 15, ".gguf", 5) == 0 ? t : NULL;
}

unsigned source_parts(const char *name)
{
    const char *t = set_tail(name);
    if (!t)
        return 1;
    const unsigned long i = strtoul(t + 1, NULL, 10), n = strtoul(t + 10, NULL, 10);
    return i >= 1 && i <= n ? (unsigned)n : 1;
}

void source_part(const char *text, unsigned i, char *out, size_t size)
{
    const char *t = set_tail(text);
    if (t)
        snprintf(out, size, "%.*s-%05u%s", (int)(t - text), text, i % 100000, t + 6);
    else
        snprintf(out, size, "%s", text);
}

const char *source_shown(const char *url, char *out, size_t size)
{
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    const size_t whole = strcspn(url, "?#"), host_n = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', host_n);
    snprintf(out, size, "%.*s%.*s", (int)(host - url), url, (int)(url + whole - (at ? at + 1 : host)),
             at ? at + 1 : host);
    return out;
}
