#include "term/paths.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH 10

struct search {
    const char *word;
    struct menu *out;
    size_t seen;
    int rank; /* 0: names that begin so, 1: letters in order */
    bool deep;
    bool folders; /* a listing names folders, too */
};

static bool skipped(const char *name, const char *word)
{
    static const char *const heavy[] = {"node_modules", "target", "build", "__pycache__", "dist"};
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (name[0] == '.')
        return word[0] != '.';
    for (size_t i = 0; i < sizeof heavy / sizeof heavy[0]; i++)
        if (strcmp(name, heavy[i]) == 0)
            return strncmp(word, name, strlen(word)) != 0 || !*word;
    return false;
}

static int rank_of(const char *path, const char *word)
{
    const char *base = strrchr(path, '/');
    size_t n = strlen(word), at = 0;
    base = base ? base + 1 : path;
    if (strncasecmp(base, word, n) == 0 || strncasecmp(path, word, n) == 0)
        return 0;
    for (; *path && at < n; path++)
        at += tolower((unsigned char)*path) == tolower((unsigned char)word[at]);
    return at == n ? 1 : -1;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void walk(struct search *s, const char *root, const char *under, int depth)
{
    struct dirent **list = NULL;
    struct text dir = {0};
    text_printf(&dir, "%s/%s", root, under);
    int n = scandir(dir.s, &list, NULL, by_name);
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        struct text path = {0};
        struct stat st;
        if (s->seen < PATHS_SEEN && s->out->n < MENU_MAX && !skipped(name, s->word)) {
            s->seen++;
            text_printf(&path, "%s%s", under, name);
            text_clear(&dir);
            text_printf(&dir, "%s/%s", root, path.s);
            bool folder = lstat(dir.s, &st) == 0 && S_ISDIR(st.st_mode);
            if (folder)
                text_puts(&path, "/");
            if ((!folder || s->folders) && rank_of(s->folders ? name : path.s, s->word) == s->rank)
                menu_add(s->out, path.s, NULL);
            if (folder && s->deep && depth < DEPTH)
                walk(s, root, path.s, depth + 1);
        }
        text_free(&path);
        free(list[i]);
    }
    free(list);
    text_free(&dir);
}

void paths_complete(const char *root, const char *word, struct menu *out)
{
    const char *slash = strrchr(word, '/');
    if (!root || strstr(word, "..") || word[0] == '/')
        return;
    if (slash || !*word) { /* a folder's listing */
        char *under = mem_dupn(word, slash ? (size_t)(slash + 1 - word) : 0);
        struct search s = {.word = slash ? slash + 1 : "", .out = out, .folders = true};
        for (; s.rank < 2; s.rank++)
            walk(&s, root, under, DEPTH);
        free(under);
        if (out->n)
            return;
    }
    struct search s = {.word = word, .out = out, .deep = true};
    for (; s.rank < 2; s.rank++) {
        s.seen = 0;
        walk(&s, root, "", 0);
    }
}
