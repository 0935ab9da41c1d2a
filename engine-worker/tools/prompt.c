#include "prompt.h"

#include "clock.h"
#include "jinja.h"

#include <stdlib.h>
#include <string.h>

static json_t *token_string(const struct tok *t, int32_t id)
{
    size_t n = 0;
    const char *s = id < 0 ? NULL : tok_text(t, (uint32_t)id, &n);
    json_t *j = s ? json_stringn(s, n) : NULL; /* NULL, too, when the text is not UTF-8 */
    return j ? j : json_string("");
}

static json_t *messages(const char *system, const char *user)
{
    json_t *list = json_array();
    if (system)
        json_array_append_new(list, json_pack("{s:s, s:s}", "role", "system", "content", system));
    if (json_array_append_new(list, json_pack("{s:s, s:s}", "role", "user", "content", user)) == 0)
        return list;
    json_decref(list);
    return NULL;
}

static int render(const struct tok *t, const char *system, const char *user, struct jinja_text *out,
                  struct vt_err *err)
{
    size_t len;
    const char *text = tok_chat_template(t, &len);
    struct jinja *tmpl;
    struct vt_clock clock = vt_clock_real();
    if (!text)
        return vt_fail(err, VT_E_PARAM,
                       "the file has no chat template; say --raw to continue the text as it is");
    json_t *list = messages(system, user);
    if (!list)
        return vt_fail(err, VT_E_PARAM, "the text is not valid UTF-8");
    int rc = jinja_parse(&tmpl, text, len, err);
    if (rc == 0) {
        json_t *vars = json_pack("{s:O, s:b}", "messages", list, "add_generation_prompt", 1);
        json_t *trusted = json_pack("{s:o, s:o}", "bos_token", token_string(t, tok_bos(t)), "eos_token",
                                    token_string(t, tok_eos(t)));
        rc = jinja_render_spans(tmpl, vars, trusted, NULL, vt_wall(&clock), out, err);
        json_decref(vars);
        json_decref(trusted);
        jinja_free(tmpl);
    }
    json_decref(list);
    return rc < 0 ? vt_fail_prefix(err, "chat template") : 0;
}

int prompt_chat(const struct tok *t, const char *system, const char *user, struct tok_ids *out,
                struct vt_err *err)
{
    struct jinja_text r;
    if (render(t, system, user, &r, err) < 0)
        return -1;
    struct tok_span *spans = malloc((r.n_spans + 1) * sizeof *spans);
    int rc = spans ? 0 : vt_fail(err, VT_E_NOMEM, "out of memory");
    for (size_t i = 0; spans && i < r.n_spans; i++)
        spans[i] = (struct tok_span){.end = r.spans[i].end, .trusted = !r.spans[i].input};
    /* A template that writes the first token itself does not get a second one. */
    size_t n = 0;
    const char *bos = tok_bos(t) < 0 ? NULL : tok_text(t, (uint32_t)tok_bos(t), &n);
    bool has_bos = bos && n > 0 && r.len >= n && memcmp(r.text, bos, n) == 0;
    if (rc == 0)
        rc = tok_encode_spans(t, r.text, r.len, spans, r.n_spans, has_bos ? 0 : TOK_ADD_SPECIAL, out, err);
    free(spans);
    jinja_text_fini(&r);
    return rc;
}
