/* What changed around the conversation since the model was told: the day, the project's instructions, servers that came
 * late. The opening note is frozen, so it is said at the head of the next message. What the model was told is read from
 * the opening note and from the notes that it still sees: after a rewind or a summary, what they took away is told again. */
#include "core/core_priv.h"

#include <stdlib.h>
#include <string.h>

#define DAY "the date is "

/* The newest text that the model sees or will see with `key` in it; NULL: none. */
static const char *told(const struct model *m, const char *key)
{
    const struct core *c = m->core;
    const char *at = NULL;
    for (const char *p = strstr(text_str(&c->notes), key); p != NULL; p = strstr(p + 1, key))
        at = p;
    for (size_t i = m->n_items; i-- > 0 && at == NULL;) {
        const struct item *it = &m->items[i];
        if (!it->live || it->kind != ITEM_NOTE)
            continue;
        for (const char *p = strstr(text_str(&it->body), key); p != NULL; p = strstr(p + 1, key))
            at = p;
    }
    return at != NULL ? at : c->opening != NULL ? strstr(c->opening, key) : NULL;
}

static void say(struct model *m, const char *before, const char *words, const char *behind)
{
    struct text *t = &m->core->notes;
    text_printf(t, "%s%s%s%s", t->len != 0 ? "\n" : "", before, words, behind);
}

static void day(struct model *m, const char *date)
{
    if (date == NULL)
        return;
    const char *at = told(m, DAY), *first = m->core->opening;
    if (at != NULL ? strncmp(at + strlen(DAY), date, strlen(date)) == 0
                   : first == NULL || strncmp(first, "Date: ", 6) != 0 ||
                         strncmp(first + 6, date, strlen(date)) == 0)
        return;
    say(m, "A new day: ", DAY, date);
}

static void file(struct model *m, const char *name, const char *section)
{
    struct text key = {0};
    text_printf(&key, "Instructions of the project (%s):", name);
    const char *at = told(m, text_str(&key));
    bool gone = at == NULL || strncmp(at + key.len, AROUND_GONE, strlen(AROUND_GONE)) == 0;
    if (section[0] == '\0' && !gone)
        say(m, text_str(&key), AROUND_GONE, "");
    else if (section[0] != '\0' && (at == NULL || strncmp(at, section, strlen(section)) != 0))
        say(m, gone ? "There is something new. " : "They changed; these are in force now. ", section, "");
    text_free(&key);
}

void around_told(struct model *m, const char *text)
{
    if (!m->core->open)
        return;
    json_t *o = js_parse(text, strlen(text), NULL, 0), *v;
    const char *name;
    size_t i;
    day(m, js_str(o, "date"));
    json_object_foreach(json_object_get(o, "files"), name, v)
    {
        if (json_is_string(v))
            file(m, name, json_string_value(v));
    }
    json_array_foreach(json_object_get(o, "lines"), i, v)
    {
        if (json_is_string(v) && told(m, json_string_value(v)) == NULL)
            say(m, "There is now: ", json_string_value(v), "");
    }
    json_decref(o);
}
