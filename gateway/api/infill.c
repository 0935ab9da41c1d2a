/* The layout that models with fill-in-the-middle are trained on. */
#include "infill.h"

#include <stdlib.h>
#include <string.h>

static int32_t mark(const struct draft *d, enum tok_purpose purpose)
{
    return tok_for(d->model->tok, purpose);
}

bool infill_possible(const struct model *m)
{
    return tok_for(m->tok, TOK_FOR_FIM_PRE) >= 0 && tok_for(m->tok, TOK_FOR_FIM_SUF) >= 0 &&
           tok_for(m->tok, TOK_FOR_FIM_MID) >= 0;
}

static int add_mark(const struct draft *d, enum tok_purpose purpose, struct tok_ids *out, struct api_err *e)
{
    int32_t id = mark(d, purpose);
    return id >= 0 && tok_ids_push(out, (uint32_t)id, NULL) ? api_fail(e, 500, NULL, "out of memory") : 0;
}

static int add_text(const struct draft *d, const char *text, size_t n, const char *param, struct tok_ids *out,
                    struct api_err *e)
{
    struct vt_err err;
    if (draft_too_long(d, n, param, e))
        return -1;
    if (n > 0 && tok_encode(d->model->tok, text, n, 0, out, &err)) {
        api_from_err(e, &err, 0);
        return -1;
    }
    return 0;
}

static int add_string(const struct draft *d, const json_t *v, const char *param, struct tok_ids *out,
                      struct api_err *e)
{
    return add_text(d, json_string_value(v), json_string_length(v), param, out, e);
}

/* Where the model has no marks for files, a line tells them apart. */
static int add_file(const struct draft *d, const json_t *one, size_t i, struct tok_ids *out,
                    struct api_err *e)
{
    static const char snippet[] = "\n\n--- snippet ---\n\n";
    const json_t *text = field(one, "text"), *name = field(one, "filename");
    char line[512];
    if (!json_is_string(text) || (name && !json_is_string(name)))
        return api_fail(e, 400, "input_extra",
                        "Field 'input_extra[%zu]': must be {\"text\": …, \"filename\": …}", i);
    if (mark(d, TOK_FOR_FIM_SEP) < 0)
        return add_text(d, snippet, strlen(snippet), "input_extra", out, e) ||
                       add_string(d, text, "input_extra", out, e)
                   ? -1
                   : 0;
    snprintf(line, sizeof line, "%.500s\n", name ? json_string_value(name) : "tmp");
    return add_mark(d, TOK_FOR_FIM_SEP, out, e) || add_text(d, line, strlen(line), "input_extra", out, e) ||
                   add_string(d, text, "input_extra", out, e)
               ? -1
               : 0;
}

static int add_files(const struct draft *d, const json_t *extra, struct tok_ids *out, struct api_err *e)
{
    static const char repo[] = "repository\n", file[] = "current\n";
    size_t i;
    json_t *one;
    if (extra && !json_is_array(extra))
        return api_fail(e, 400, "input_extra", "Field 'input_extra': must be an array");
    if (json_array_size(extra) == 0)
        return 0;
    if (mark(d, TOK_FOR_FIM_REP) >= 0 &&
        (add_mark(d, TOK_FOR_FIM_REP, out, e) || add_text(d, repo, strlen(repo), "input_extra", out, e)))
        return -1;
    json_array_foreach(extra, i, one)
    {
        if (add_file(d, one, i, out, e))
            return -1;
    }
    if (mark(d, TOK_FOR_FIM_SEP) < 0)
        return 0;
    return add_mark(d, TOK_FOR_FIM_SEP, out, e) || add_text(d, file, strlen(file), "input_extra", out, e) ? -1
                                                                                                          : 0;
}

static int add_gap(const struct draft *d, const struct infill *f, struct tok_ids *out, struct api_err *e)
{
    return add_mark(d, TOK_FOR_FIM_PRE, out, e) || add_string(d, f->prefix, f->param, out, e) ||
                   add_mark(d, TOK_FOR_FIM_SUF, out, e) || add_string(d, f->suffix, f->param, out, e) ||
                   add_mark(d, TOK_FOR_FIM_MID, out, e) ||
                   (f->begun && add_string(d, f->begun, f->param, out, e))
               ? -1
               : 0;
}

/* What is left for other files beside the gap and the answer. */
static size_t room_for_files(const struct draft *d, size_t gap)
{
    size_t window = d->window, answer = window / 4;
    if (d->p.n_predict >= 0 && (size_t)d->p.n_predict < answer)
        answer = (size_t)d->p.n_predict;
    return window > gap + answer + 1 ? window - gap - answer - 1 : 0;
}

static int join(struct draft *d, const struct tok_ids *files, const struct tok_ids *gap, struct api_err *e)
{
    struct buf text = {0};
    const struct tok *tok = d->model->tok;
    size_t bos = tok_adds_bos(tok) && tok_bos(tok) >= 0, room = room_for_files(d, gap->n + bos);
    size_t kept = files->n < room ? files->n : room;
    uint32_t *ids = malloc((bos + kept + gap->n) * sizeof *ids);
    d->prompts = calloc(1, sizeof *d->prompts);
    if (!ids || !d->prompts) {
        free(ids);
        return api_fail(e, 500, NULL, "out of memory");
    }
    if (bos)
        ids[0] = (uint32_t)tok_bos(tok);
    if (kept > 0)
        memcpy(ids + bos, files->ids + files->n - kept, kept * sizeof *ids);
    memcpy(ids + bos + kept, gap->ids, gap->n * sizeof *ids);
    struct answer_prompt *p = &d->prompts[d->n_prompts++];
    *p = (struct answer_prompt){.ids = ids, .n = bos + kept + gap->n};
    model_text(d->model, p->ids, p->n, &text);
    p->text = buf_take(&text, &p->text_n);
    return p->text ? 0 : api_fail(e, 500, NULL, "out of memory");
}

int infill_prompt(struct draft *d, const struct infill *f, struct api_err *e)
{
    struct tok_ids files = {0}, gap = {0};
    if (!infill_possible(d->model))
        return api_fail(e, 501, f->param,
                        "this model does not know fill-in-the-middle: its vocabulary has no marks for it");
    int r = add_files(d, f->extra, &files, e) || add_gap(d, f, &gap, e) || join(d, &files, &gap, e) ? -1 : 0;
    tok_ids_fini(&files);
    tok_ids_fini(&gap);
    return r;
}
