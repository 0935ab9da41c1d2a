#include "view/ui.h"
#include "view/look.h"

#include <stdlib.h>
#include <string.h>

void ui_init(struct ui *u)
{
    memset(u, 0, sizeof *u);
    edit_init(&u->edit);
    u->follow = true;
    u->selected = SIZE_MAX;
}

void ui_fini(struct ui *u)
{
    edit_fini(&u->edit);
    menu_clear(&u->menu);
    text_free(&u->query);
    free(u->flash);
    free(u->cleared);
    text_free(&u->sent);
    for (size_t i = 0; i < UI_CACHE; i++)
        rows_free(&u->cache[i].rows);
}

void ui_flash(struct ui *u, uint64_t now, const char *words)
{
    free(u->flash);
    u->flash = mem_dup(words);
    u->flash_until = now + 4000000;
}

bool ui_is_open(const struct ui *u, const struct model *m, const struct item *it, uint64_t now)
{
    for (size_t i = u->n_fold; i-- > 0;)
        if (u->fold[i].id == it->id)
            return u->fold[i].open;
    if (u->all_open && (it->kind == ITEM_CALL || it->kind == ITEM_REASONING))
        return true;
    return block_open_itself(m, it, now);
}

void ui_fold(struct ui *u, const struct item *it, bool open)
{
    for (size_t i = 0; i < u->n_fold; i++) {
        if (u->fold[i].id == it->id) {
            u->fold[i].open = open;
            return;
        }
    }
    if (u->n_fold == UI_FOLDS)
        memmove(&u->fold[0], &u->fold[1], (--u->n_fold) * sizeof u->fold[0]);
    u->fold[u->n_fold++] = (struct ui_fold){it->id, open};
}

void menu_clear(struct menu *n)
{
    for (size_t i = 0; i < n->n; i++) {
        free(n->entry[i]);
        free(n->about[i]);
    }
    n->n = n->cursor = 0;
    n->shown = false;
}

void menu_add(struct menu *n, const char *entry, const char *about)
{
    if (n->n == MENU_MAX)
        return;
    n->entry[n->n] = mem_dup(entry);
    n->about[n->n++] = mem_dup(about);
}
