#include "core/command.h"
#include "view/act.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Does the name begin with word (0), or hold its letters in order (1)? -1: neither. */
static int match(const char *name, const char *word)
{
    size_t n = strlen(word), at = 0;
    if (strncasecmp(name, word, n) == 0)
        return 0;
    for (; *name && at < n; name++)
        at += tolower((unsigned char)*name) == tolower((unsigned char)word[at]);
    return at == n ? 1 : -1;
}

static void commands(const struct model *m, struct menu *n, const char *word)
{
    size_t count;
    const struct command *c = command_list(&count);
    for (int rank = 0; rank < 2; rank++) {
        for (size_t i = 0; i < count; i++)
            if (match(c[i].name, word) == rank)
                menu_add(n, c[i].name, c[i].help);
        for (size_t i = 0; i < m->n_commands; i++)
            if (match(m->commands[i].name, word) == rank)
                menu_add(n, m->commands[i].name, m->commands[i].help);
    }
}

static void prompts(struct act *a, struct menu *n, const char *word)
{
    const char *list[EDIT_PROMPTS];
    size_t count = act_prompts(a, list, EDIT_PROMPTS);
    for (size_t i = 0; i < count; i++)
        if (!*word || strcasestr(list[i], word))
            menu_add(n, list[i], NULL);
}

/* Where the word with an @ begins that the caret stands in; SIZE_MAX: in none. */
static size_t at_word(const struct edit *e)
{
    const char *s = text_str(&e->text);
    size_t at = e->caret;
    while (at > 0 && !isspace((unsigned char)s[at - 1]))
        at--;
    return at < e->caret && s[at] == '@' ? at : SIZE_MAX;
}

static void show(struct menu *n)
{
    n->shown = n->n > 0;
    if (n->cursor >= n->n)
        n->cursor = 0;
}

void menu_update(struct act *a)
{
    struct ui *u = a->u;
    struct menu *n = &u->menu;
    const struct edit *e = &u->edit;
    const char *s = text_str(&e->text);
    menu_clear(n);
    if (u->overlay == OVER_PALETTE) {
        commands(a->m, n, text_str(&u->query));
    } else if (u->overlay == OVER_SEARCH) {
        prompts(a, n, text_str(&u->query));
    } else if (s[0] == '/' && !strpbrk(s, " \t\n") && e->caret == e->text.len) {
        n->from = 0;
        commands(a->m, n, s);
    } else if (a->paths && at_word(e) != SIZE_MAX) {
        n->from = at_word(e);
        char *word = mem_dupn(s + n->from + 1, e->caret - n->from - 1);
        a->paths(a->host_arg, word, n);
        free(word);
    }
    show(n);
}

void menu_open(struct act *a, enum overlay what)
{
    a->u->overlay = a->u->overlay == what ? OVER_NONE : what;
    text_clear(&a->u->query);
    menu_update(a);
}

/* Does the command need more than its name? */
static bool takes_more(const struct model *m, const char *name)
{
    size_t count;
    const struct command *c = command_list(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(c[i].name, name) == 0)
            return c[i].args[0] != '\0' && c[i].args[0] != '[';
    for (size_t i = 0; i < m->n_commands; i++)
        if (strcmp(m->commands[i].name, name) == 0)
            return m->commands[i].args != NULL && m->commands[i].args[0] != '[';
    return false;
}

void menu_accept(struct act *a, bool send)
{
    struct ui *u = a->u;
    struct edit *e = &u->edit;
    if (!u->menu.n)
        return;
    char *entry = mem_dup(u->menu.entry[u->menu.cursor]);
    size_t from = u->menu.from;
    enum overlay overlay = u->overlay;
    bool command = overlay == OVER_PALETTE || (overlay == OVER_NONE && entry[0] == '/' && from == 0);
    menu_clear(&u->menu);
    u->overlay = OVER_NONE;
    if (overlay != OVER_NONE || command) {
        edit_load(e, entry, strlen(entry), strlen(entry));
        if (command && takes_more(a->m, entry))
            edit_insert(e, " ", 1, EDIT_OTHER);
        else if (command && send)
            act_submit(a);
    } else { /* a path: the word behind @ */
        struct text t = {0};
        text_add(&t, text_str(&e->text), from + 1);
        text_puts(&t, entry);
        size_t caret = t.len;
        text_puts(&t, text_str(&e->text) + e->caret);
        edit_load(e, t.s, t.len, caret);
        text_free(&t);
        if (entry[0] && entry[strlen(entry) - 1] == '/')
            menu_update(a);
    }
    free(entry);
    act_compose(a);
}
