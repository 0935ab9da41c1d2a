/* Sources: what a person may write after `vitriol pull`, and the names of files in sets.
 *
 *   https://host/path/FILE.gguf        also http:; a page of the hub (/blob/) means the file it shows
 *   hf:OWNER/REPO[@REV]/PATH.gguf      one file of a repository
 *   hf:OWNER/REPO[@REV][:QUANT]        the file of that quantization, by its name
 *
 * Pure functions; any thread. */
#ifndef PULL_SOURCE_H
#define PULL_SOURCE_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>

#define SOURCE_URL_MAX  4096
#define SOURCE_NAME_MAX 200 /* a file name with room for ".part.state" */

struct source {
    bool hub;
    char url[SOURCE_URL_MAX]; /* !hub */
    char repo[256];           /* hub: OWNER/REPO */
    char rev[128];            /* hub: "main" when not given */
    char file[1024];          /* hub: path in the repository; "" = to be chosen */
    char quant[64];           /* hub, no file: as given, "" = any */
};

int source_parse(struct source *s, const char *text, struct vt_err *err);

/* Address of a file of the hub; endpoint without a slash at its end. */
int source_hub_url(const struct source *s, const char *endpoint, const char *rev, const char *file, char *out,
                   size_t size, struct vt_err *err);

/* The file name that a URL ends with, decoded; fails unless it is a plain name. */
int source_name(const char *url, char *out, size_t size, struct vt_err *err);
/* A name that may be given to a file of the models folder. */
int source_check_name(const char *name, struct vt_err *err);

/* How many parts the set of a name like x-00002-of-00005.gguf has; 1 when it is no set. */
unsigned source_parts(const char *name);
/* The same text (name or URL) for part i, counted from 1; text itself when it is no set. Both fit size. */
void source_part(const char *text, unsigned i, char *out, size_t size);

/* A URL without what may be secret: user, password, query and fragment. */
const char *source_shown(const char *url, char *out, size_t size);

#endif
