/* vitriol-pull: fetches models into the models folder. `vitriol pull` runs it. */
#include "build_id.h"
#include "fetch.h"
#include "gguf.h"
#include "hash.h"
#include "hub.h"
#include "models_dir.h"
#include "source.h"
#include "token.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define LISTING_MAX (32u << 20)
#define INTERRUPTED 130 /* 128 + SIGINT, as shells have it */

struct pull {
    struct fetch fetch;
    struct source source;
    struct hub_list list;
    char dir[PATH_MAX], token[TOKEN_MAX], endpoint[512];
    char file[1024]; /* of the hub, the first of its set */
    const char *name, *sha256, *given_dir;
    bool only_list;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
    interrupted = 1;
}

static void usage(FILE *out)
{
    fputs("usage: vitriol pull [options] SOURCE\n"
          "  SOURCE         hf:OWNER/REPO/FILE.gguf   a file of huggingface.co\n"
          "                 hf:OWNER/REPO[:QUANT]     the file of a quantization, e.g. Q4_K_M or Q8_0\n"
          "                 https://.../FILE.gguf     any other server; sets (-00001-of-00003) come whole\n"
          "  --list         show the model files of a repository\n"
          "  --dir DIR      put it there (default: paths.models_dir)\n"
          "  --name NAME    give the file another name\n"
          "  --sha256 HEX   the sum that the file must have\n"
          "  --force        replace a file of that name which is another one\n"
          "  --retries N    tries without progress before giving up (default 8)\n"
          "  --quiet        no progress\n"
          "A transfer that was cut off goes on when the same command is given again.\n"
          "Gated models: a token in HF_TOKEN or ~/.cache/huggingface/token.\n",
          out);
}

/* ---- what was asked for ---- */

static int parse(struct pull *p, int argc, char **argv, struct vt_err *err)
{
    static const struct option options[] = {
        {"list", no_argument, NULL, 'l'},       {"dir", required_argument, NULL, 'd'},
        {"name", required_argument, NULL, 'n'}, {"sha256", required_argument, NULL, 's'},
        {"force", no_argument, NULL, 'f'},      {"retries", required_argument, NULL, 'r'},
        {"quiet", no_argument, NULL, 'q'},      {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'v'},    {NULL, 0, NULL, 0}};
    uint8_t sum[VT_SHA256_LEN];
    char *end;
    for (int o; (o = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        switch (o) {
        case 'l': p->only_list = true; break;
        case 'd': p->given_dir = optarg; break;
        case 'n': p->name = optarg; break;
        case 's': p->sha256 = optarg; break;
        case 'f': p->fetch.force = true; break;
        case 'q': p->fetch.progress.quiet = true; break;
        case 'r':
            p->fetch.retries = (unsigned)strtoul(optarg, &end, 10);
            if (*end != '\0' || p->fetch.retries > 1000)
                return vt_fail(err, VT_E_USAGE, "--retries %.40s: a number up to 1000", optarg);
            break;
        case 'h': usage(stdout); exit(VT_EX_OK);
        case 'v': puts("vitriol-pull " VT_BUILD_ID); exit(VT_EX_OK);
        default: return vt_fail(err, VT_E_USAGE, "vitriol pull --help shows the options");
        }
    }
    if (optind + 1 != argc)
        return vt_fail(err, VT_E_USAGE, "one source at a time; vitriol pull --help shows how to write it");
    if (p->sha256 && vt_unhex(p->sha256, sum, sizeof sum) < 0)
        return vt_fail(err, VT_E_USAGE, "--sha256 needs 64 hex digits");
    if (p->name && source_check_name(p->name, err))
        return -1;
    if (source_parse(&p->source, argv[optind], err))
        return -1;
    return p->only_list && !p->source.hub ? vt_fail(err, VT_E_USAGE, "--list is for hf: sources") : 0;
}

static int find_dir(struct pull *p, struct vt_err *err)
{
    if (p->given_dir) {
        snprintf(p->dir, sizeof p->dir, "%s", p->given_dir);
        return p->dir[0] ? 0 : vt_fail(err, VT_E_USAGE, "--dir needs a folder");
    }
    struct vt_config *c = vt_config_new();
    int rc = c ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
    if (rc == 0)
        rc = vt_config_layers(c, VT_DIR_VENDOR, VT_DIR_ETC, geteuid() != 0, err) < 0 ||
                     vt_config_env(c, environ, err) < 0 || vt_models_dir(c, p->dir, sizeof p->dir, err) < 0
                 ? -1
                 : 0;
    vt_config_free(c);
    return rc;
}

/* The hub and its token; other servers get none. */
static int find_hub(struct pull *p, struct vt_err *err)
{
    const char *set = getenv("HF_ENDPOINT");
    snprintf(p->endpoint, sizeof p->endpoint, "%s", set && set[0] ? set : "https://huggingface.co");
    for (size_t n = strlen(p->endpoint); n > 0 && p->endpoint[n - 1] == '/'; n--)
        p->endpoint[n - 1] = '\0';
    if (strncmp(p->endpoint, "https://", 8) != 0 && strncmp(p->endpoint, "http://", 7) != 0)
        return vt_fail(err, VT_E_USAGE, "HF_ENDPOINT is no address that begins with https://");
    const size_t n = strlen(p->endpoint);
    if (!p->source.hub && (strncmp(p->source.url, p->endpoint, n) != 0 || p->source.url[n] != '/'))
        return 0;
    if (token_find(p->token, err))
        return -1;
    p->fetch.token = p->token[0] ? p->token : NULL;
    return 0;
}

/* ---- the listing of a repository ---- */

struct text {
    char *s;
    size_t n;
};

static int text_begin(void *ctx, const struct http_reply *r, struct vt_err *err)
{
    ((struct text *)ctx)->n = 0;
    return 0;
}

static int text_add(void *ctx, const uint8_t *s, size_t n, struct vt_err *err)
{
    struct text *t = ctx;
    if (t->n + n > LISTING_MAX)
        return vt_fail(err, VT_E_TOO_LARGE, "the hub's listing is larger than %u MiB", LISTING_MAX >> 20);
    char *more = realloc(t->s, t->n + n);
    if (!more)
        return vt_fail(err, VT_E_NOMEM, "no memory for the hub's listing");
    memcpy(more + t->n, s, n);
    t->s = more;
    t->n += n;
    return 0;
}

static enum http_outcome get_listing(struct pull *p, struct vt_err *err)
{
    char url[1200];
    struct text t = {NULL, 0};
    struct http_reply r;
    snprintf(url, sizeof url, "%s/api/models/%s/revision/%s?blobs=true", p->endpoint, p->source.repo,
             p->source.rev);
    const struct http_request q = {.url = url, .token = p->fetch.token};
    const struct http_sink sink = {text_begin, text_add, NULL, &t};
    enum http_outcome out = fetch_text(&p->fetch, &q, &sink, &r, err);
    if (out == HTTP_OK && hub_parse(&p->list, t.s ? t.s : "", t.n, err))
        out = HTTP_FATAL;
    free(t.s);
    if (out == HTTP_FATAL || out == HTTP_RETRY)
        vt_fail_prefix(err, "hf:%s", p->source.repo);
    return out;
}

static int choose(struct pull *p, struct vt_err *err)
{
    const struct hub_file *f;
    if (p->source.file[0] == '\0')
        f = hub_choose(&p->list, p->source.quant, err);
    else if (!(f = hub_find(&p->list, p->source.file)))
        vt_fail(err, VT_E_NO_INPUT, "the repository holds no %.200s; --list shows what it holds",
                p->source.file);
    if (!f)
        return vt_fail_prefix(err, "hf:%s", p->source.repo);
    source_part(f->path, 1, p->file, sizeof p->file);
    return 0;
}

/* ---- files ---- */

struct files {
    struct fetch_item *items;
    unsigned n;
};

static void files_free(struct files *l)
{
    for (unsigned i = 0; l->items && i < l->n; i++) {
        free((char *)(uintptr_t)l->items[i].url);
        free((char *)(uintptr_t)l->items[i].name);
    }
    free(l->items);
}

static int plan_one(struct pull *p, unsigned i, struct fetch_item *item, struct vt_err *err)
{
    char url[SOURCE_URL_MAX], path[1024], name[SOURCE_NAME_MAX + 60];
    const struct hub_file *f = NULL;
    if (p->source.hub) {
        source_part(p->file, i, path, sizeof path);
        f = hub_find(&p->list, path);
        if (!f)
            return vt_fail(err, VT_E_NO_INPUT, "hf:%s: %.200s is missing from the set", p->source.repo, path);
        if (source_hub_url(&p->source, p->endpoint, p->list.commit[0] ? p->list.commit : p->source.rev, path,
                           url, sizeof url, err))
            return -1;
    } else {
        source_part(p->source.url, i, url, sizeof url);
    }
    if (p->name)
        snprintf(name, sizeof name, "%s", p->name);
    else if (source_name(url, name, sizeof name, err))
        return -1;
    *item = (struct fetch_item){.url = strdup(url),
                                .name = strdup(name),
                                .size = f ? f->size : 0,
                                .sha256 = p->sha256 ? p->sha256
                                          : f       ? f->sha256
                                                    : ""};
    return item->url && item->name ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
}

static int plan(struct pull *p, struct files *l, struct vt_err *err)
{
    const unsigned n = source_parts(p->source.hub ? p->file : p->source.url);
    if (n > 1 && (p->name || p->sha256))
        return vt_fail(err, VT_E_USAGE, "this is a set of %u files: --name and --sha256 are for single ones",
                       n);
    l->items = calloc(n, sizeof *l->items);
    if (!l->items)
        return vt_fail(err, VT_E_NOMEM, "out of memory");
    l->n = n;
    for (unsigned i = 0; i < n; i++)
        if (plan_one(p, i + 1, &l->items[i], err))
            return -1;
    return 0;
}

/* Bytes of the files after number i that are not there yet, as far as their sizes are known. */
static uint64_t after(const struct pull *p, const struct files *l, unsigned i)
{
    uint64_t sum = 0;
    char path[PATH_MAX + 300];
    for (unsigned k = i + 1; k < l->n; k++) {
        snprintf(path, sizeof path, "%s/%s", p->dir, l->items[k].name);
        if (access(path, F_OK) != 0)
            sum += l->items[k].size;
    }
    return sum;
}

/* What came may be what the source has and still be no model that can be opened: a copy that was cut short before it was
 * uploaded has the right size and sum. The files stay, so that the same command does not fetch them again. */
static enum http_outcome inspect(const struct pull *p, const struct files *l, struct vt_err *err)
{
    char path[PATH_MAX + 300];
    struct gguf_file *f;
    snprintf(path, sizeof path, "%s/%s", p->dir, l->items[0].name);
    if (gguf_open(&f, path, false, err)) {
        vt_fail_prefix(err, "this is all that the source has, but it cannot be served");
        return HTTP_FATAL;
    }
    gguf_close(f);
    return HTTP_OK;
}

static enum http_outcome fetch_all(struct pull *p, const struct files *l, struct vt_err *err)
{
    for (unsigned i = 0; i < l->n; i++) {
        struct fetch_result r;
        char size[32];
        p->fetch.more = after(p, l, i);
        const enum http_outcome out = fetch_file(&p->fetch, &l->items[i], &r, err);
        if (out != HTTP_OK)
            return out;
        printf("%s/%s: %s%s%s%s%s\n", p->dir, l->items[i].name, progress_bytes(r.size, size),
               r.there ? ", was there" : "", r.sha256[0] ? ", sha256 " : "", r.sha256,
               r.checked ? ", as the source names it" : "");
        fflush(stdout);
    }
    if (inspect(p, l, err) != HTTP_OK)
        return HTTP_FATAL;
    if (!p->fetch.progress.quiet)
        fprintf(stderr, "serve it: vitriol serve --model %s%s%s\n", p->given_dir ? p->dir : "",
                p->given_dir ? "/" : "", l->items[0].name);
    return HTTP_OK;
}

static int prepare(struct pull *p, int argc, char **argv, struct vt_err *err)
{
    return parse(p, argc, argv, err) || find_dir(p, err) || find_hub(p, err) ||
                   http_init(&p->fetch.http, &interrupted, err)
               ? -1
               : 0;
}

static enum http_outcome run(struct pull *p, struct vt_err *err)
{
    struct files files = {NULL, 0};
    enum http_outcome out = HTTP_OK;
    if (p->source.hub)
        out = get_listing(p, err);
    if (out != HTTP_OK)
        return out;
    if (p->only_list) {
        hub_print(&p->list, stdout);
        return HTTP_OK;
    }
    if ((p->source.hub && choose(p, err)) || plan(p, &files, err))
        out = HTTP_FATAL;
    if (out == HTTP_OK)
        out = fetch_all(p, &files, err);
    files_free(&files);
    return out;
}

int main(int argc, char **argv)
{
    static struct pull p;
    struct vt_err err = {.code = 0};
    p.fetch.retries = 8;
    p.fetch.dir = p.dir;
    p.fetch.progress.clock = vt_clock_real();
    p.fetch.progress.terminal = isatty(STDERR_FILENO);
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of write */
    if (prepare(&p, argc, argv, &err)) {
        fprintf(stderr, "vitriol pull: %s\n", err.text);
        return vt_err_exit(&err);
    }
    const enum http_outcome out = run(&p, &err);
    hub_free(&p.list);
    http_fini(&p.fetch.http);
    if (out == HTTP_STOPPED) {
        fprintf(stderr,
                "vitriol pull: interrupted; what has come is kept, the same command goes on with it\n");
        return INTERRUPTED;
    }
    if (out == HTTP_OK)
        return VT_EX_OK;
    fprintf(stderr, "vitriol pull: %s\n", err.text);
    return vt_err_exit(&err);
}
