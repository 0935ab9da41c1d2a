#include "script.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum token_kind { T_END, T_WORD, T_STRING, T_OBJECT };

struct token {
    enum token_kind kind;
    char *text; /* of a string: decoded; of an object: as it stands */
};

struct reader {
    const char *text;
    size_t len, at;
    int line;
    struct token t;
    struct vt_err *err;
    struct script *s;
};

static int fault(struct reader *r, const char *what)
{
    return vt_fail(r->err, VT_E_CONFIG, "script line %d: %s, at '%.40s'", r->line, what,
                   r->t.text ? r->t.text : "the end");
}

static void *grow(void *list, size_t n, size_t size)
{
    void *p = reallocarray(list, n + 1, size);
    if (!p)
        abort();
    memset((char *)p + n * size, 0, size);
    return p;
}

static int take_json(struct reader *r)
{
    json_error_t e;
    json_t *v = json_loadb(r->text + r->at, r->len - r->at, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK, &e);
    if (!v)
        return vt_fail(r->err, VT_E_CONFIG, "script line %d: %s", r->line, e.text);
    r->t.kind = json_is_string(v) ? T_STRING : T_OBJECT;
    size_t used = (size_t)e.position;
    r->t.text = json_is_string(v) ? strdup(json_string_value(v)) : strndup(r->text + r->at, used);
    json_decref(v);
    for (size_t i = 0; i < used; i++)
        r->line += r->text[r->at + i] == '\n';
    r->at += used;
    return 0;
}

static int next(struct reader *r)
{
    free(r->t.text);
    r->t = (struct token){T_END, NULL};
    for (; r->at < r->len; r->at++) {
        char c = r->text[r->at];
        if (c == '#')
            while (r->at + 1 < r->len && r->text[r->at + 1] != '\n')
                r->at++;
        else if (c == '\n')
            r->line++;
        else if (c != ';' && !isspace((unsigned char)c))
            break;
    }
    if (r->at >= r->len)
        return 0;
    char c = r->text[r->at];
    if (c == '"' || c == '{')
        return take_json(r);
    size_t from = r->at;
    while (r->at < r->len && r->text[r->at] != ';' && !isspace((unsigned char)r->text[r->at]))
        r->at++;
    r->t = (struct token){T_WORD, strndup(r->text + from, r->at - from)};
    return 0;
}

static bool word(const struct reader *r, const char *w)
{
    return r->t.kind == T_WORD && strcmp(r->t.text, w) == 0;
}

static int take_text(struct reader *r, enum token_kind kind, char **out, const char *what)
{
    if (r->t.kind != kind)
        return fault(r, what);
    *out = r->t.text;
    r->t.text = NULL;
    return next(r);
}

static int take_number(struct reader *r, double *out)
{
    char *end;
    if (r->t.kind != T_WORD ||
        (*out = strtod(r->t.text, &end), end == r->t.text || (*end && strcmp(end, "s"))))
        return fault(r, "a number is missing");
    return next(r);
}

static int take_pairs(struct reader *r, struct pairs *p)
{
    while (r->t.kind == T_WORD && strchr(r->t.text, '=')) {
        char *eq = strchr(r->t.text, '=');
        if (p->n == sizeof p->name / sizeof *p->name)
            return fault(r, "too many pairs");
        p->name[p->n] = strndup(r->t.text, (size_t)(eq - r->t.text));
        p->value[p->n++] = strdup(eq + 1);
        if (next(r) < 0)
            return -1;
    }
    return 0;
}

/* Operands: s string, w word, a object or string, o word if one follows, n number, p pairs */
static const struct {
    const char *name, *operands;
} STEPS[STEP_KINDS] = {
    [STEP_SAY] = {"say", "s"},
    [STEP_THINK] = {"think", "s"},
    [STEP_CALL] = {"call", "wa"},
    [STEP_CALL_ID] = {"call_id", "s"},
    [STEP_PAUSE] = {"pause", "n"},
    [STEP_PING] = {"ping", ""},
    [STEP_PROGRESS] = {"progress", "nnn"},
    [STEP_USAGE] = {"usage", "nnn"},
    [STEP_RAW] = {"raw", "s"},
    [STEP_FAULT] = {"fault", "ns"},
    [STEP_STATUS] = {"status", "no"},
    [STEP_END] = {"end", "o"},
    [STEP_DROP] = {"drop", ""},
    [STEP_CUT] = {"cut", "n"},
    [STEP_HANG] = {"hang", ""},
    [STEP_HEALTH] = {"health", "wp"},
    [STEP_TELEMETRY] = {"telemetry", "p"},
};

static bool is_keyword(const struct reader *r)
{
    static const char *const other[] = {"ON", "ELSE", "TELEMETRY", "HEALTH", "engine", "expect", "again"};
    if (r->t.kind != T_WORD)
        return false;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (strcmp(r->t.text, other[i]) == 0)
            return true;
    for (size_t i = 0; i < STEP_KINDS; i++)
        if (strcmp(r->t.text, STEPS[i].name) == 0)
            return true;
    return false;
}

static int operands(struct reader *r, struct step *st, const char *how)
{
    size_t n = 0;
    for (; *how; how++) {
        char **text = st->text ? &st->more : &st->text;
        int rc = 0;
        if (*how == 'n')
            rc = take_number(r, &st->n[n++]);
        else if (*how == 's')
            rc = take_text(r, T_STRING, text, "a string is missing");
        else if (*how == 'a')
            rc = take_text(r, r->t.kind == T_OBJECT ? T_OBJECT : T_STRING, text, "arguments are missing");
        else if (*how == 'w' || (r->t.kind == T_WORD && *how == 'o' && !is_keyword(r)))
            rc = take_text(r, T_WORD, text, "a name is missing");
        else if (*how == 'p')
            rc = take_pairs(r, &st->pairs);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int take_expect(struct reader *r, struct expect *e)
{
    if (word(r, "last"))
        e->kind = EXPECT_LAST;
    else if (word(r, "any"))
        e->kind = EXPECT_ANY;
    else if (word(r, "none"))
        e->kind = EXPECT_NONE;
    else if (word(r, "tool"))
        e->kind = EXPECT_TOOL;
    else if (word(r, "messages"))
        e->kind = EXPECT_MESSAGES;
    else if (word(r, "extends"))
        e->kind = EXPECT_EXTENDS;
    else if (word(r, "cut"))
        e->kind = EXPECT_CUT;
    else if (word(r, "result"))
        e->kind = EXPECT_CONTAINS;
    else
        return fault(r, "no such expectation");
    if (next(r) < 0)
        return -1;
    double n;
    switch (e->kind) {
    case EXPECT_EXTENDS:
    case EXPECT_CUT: return 0;
    case EXPECT_TOOL: return take_text(r, T_WORD, &e->text, "a tool's name is missing");
    case EXPECT_MESSAGES:
        if (take_number(r, &n) < 0)
            return -1;
        e->n = (long)n;
        return 0;
    case EXPECT_CONTAINS:
        if (take_text(r, T_WORD, &e->id, "a call's id is missing") < 0)
            return -1;
        if (word(r, "lacks"))
            e->kind = EXPECT_LACKS;
        else if (!word(r, "contains"))
            return fault(r, "contains or lacks is missing");
        if (next(r) < 0)
            return -1;
        break;
    default: break;
    }
    return take_text(r, T_STRING, &e->text, "a string is missing");
}

static int take_block(struct reader *r, struct block *b)
{
    for (;;) {
        if (word(r, "expect")) {
            b->expects = grow(b->expects, b->n_expects, sizeof *b->expects);
            if (next(r) < 0 || take_expect(r, &b->expects[b->n_expects++]) < 0)
                return -1;
            continue;
        }
        if (word(r, "again")) {
            b->again = true;
            if (next(r) < 0)
                return -1;
            continue;
        }
        size_t k = 0;
        while (k < STEP_KINDS && !word(r, STEPS[k].name))
            k++;
        if (k == STEP_KINDS)
            return r->t.kind == T_END || is_keyword(r) ? 0 : fault(r, "no such step");
        b->steps = grow(b->steps, b->n_steps, sizeof *b->steps);
        b->steps[b->n_steps].kind = (enum step_kind)k;
        if (next(r) < 0 || operands(r, &b->steps[b->n_steps++], STEPS[k].operands) < 0)
            return -1;
    }
}

static int take_on(struct reader *r)
{
    struct script *s = r->s;
    bool rest = word(r, "ELSE");
    double n = 0;
    int line = r->line;
    if (s->n_blocks && !s->blocks[s->n_blocks - 1].number)
        return fault(r, "nothing can follow ELSE");
    if (next(r) < 0 || (!rest && take_number(r, &n) < 0))
        return -1;
    if (!rest && (n < 1 || (s->n_blocks && n <= s->blocks[s->n_blocks - 1].number)))
        return fault(r, "the numbers of blocks must grow from 1");
    s->blocks = grow(s->blocks, s->n_blocks, sizeof *s->blocks);
    struct block *b = &s->blocks[s->n_blocks++];
    b->number = (int)n;
    b->line = line;
    return take_block(r, b);
}

static int take_timed(struct reader *r, enum step_kind kind)
{
    struct script *s = r->s;
    if (next(r) < 0)
        return -1;
    do {
        s->timed = grow(s->timed, s->n_timed, sizeof *s->timed);
        struct step *st = &s->timed[s->n_timed++];
        st->kind = kind;
        if (take_number(r, &st->at) < 0 || operands(r, st, STEPS[kind].operands) < 0)
            return -1;
    } while (r->t.kind == T_WORD && isdigit((unsigned char)r->t.text[0]));
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct step *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static int parse(struct reader *r)
{
    if (next(r) < 0)
        return -1;
    while (r->t.kind != T_END) {
        int rc;
        if (word(r, "engine"))
            rc = next(r) < 0 ? -1 : take_pairs(r, &r->s->engine);
        else if (word(r, "ON") || word(r, "ELSE"))
            rc = take_on(r);
        else if (word(r, "TELEMETRY"))
            rc = take_timed(r, STEP_TELEMETRY);
        else if (word(r, "HEALTH"))
            rc = take_timed(r, STEP_HEALTH);
        else
            rc = fault(r, "engine, ON, ELSE, TELEMETRY or HEALTH is missing");
        if (rc < 0)
            return -1;
    }
    if (r->s->n_timed)
        qsort(r->s->timed, r->s->n_timed, sizeof *r->s->timed, by_time);
    return 0;
}

int script_parse(struct script *s, const char *text, size_t len, struct vt_err *err)
{
    struct reader r = {.text = text, .len = len, .line = 1, .err = err, .s = s};
    memset(s, 0, sizeof *s);
    int rc = parse(&r);
    free(r.t.text);
    return rc;
}

static void pairs_free(struct pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->name[i]);
        free(p->value[i]);
    }
}

static void steps_free(struct step *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(s[i].text);
        free(s[i].more);
        pairs_free(&s[i].pairs);
    }
    free(s);
}

void script_free(struct script *s)
{
    for (size_t i = 0; i < s->n_blocks; i++) {
        for (size_t k = 0; k < s->blocks[i].n_expects; k++) {
            free(s->blocks[i].expects[k].id);
            free(s->blocks[i].expects[k].text);
        }
        free(s->blocks[i].expects);
        steps_free(s->blocks[i].steps, s->blocks[i].n_steps);
    }
    free(s->blocks);
    steps_free(s->timed, s->n_timed);
    pairs_free(&s->engine);
    memset(s, 0, sizeof *s);
}

const char *pairs_get(const struct pairs *p, const char *name, const char *dflt)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->name[i], name) == 0)
            return p->value[i];
    return dflt;
}
