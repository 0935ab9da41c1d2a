#include "core/core_priv.h"
#include "tools/tool.h"

#include <stdlib.h>
#include <string.h>

void emit(struct model *m, struct effects *fx, const char *type, json_t *o)
{
    if (!m->core->emit) {
        json_decref(o);
        return;
    }
    json_t *out = json_object();
    js_set_str(out, "type", type);
    json_object_update(out, o);
    json_decref(o);
    char *s = js_dump(out);
    effect_add(fx, FX_EMIT, 0, NULL, s);
    free(s);
}

void emit_text(struct model *m, struct effects *fx, const char *type, const char *s, size_t n)
{
    if (!m->core->emit)
        return;
    json_t *o = json_object();
    js_set_strn(o, "text", s, n);
    emit(m, fx, type, o);
}

void tell(struct model *m, struct effects *fx, enum ext_event event, json_t *o)
{
    if ((m->core->hooks & 1u << event) == 0) {
        json_decref(o);
        return;
    }
    char *s = js_dump(o);
    effect_add(fx, FX_TELL, 0, ext_event_name(event), s);
    free(s);
}

void emit_call(struct model *m, struct effects *fx, const struct item *it)
{
    if (!m->core->emit)
        return;
    json_t *o = json_object();
    js_set_str(o, "id", it->call->id);
    js_set_str(o, "name", it->call->name);
    json_object_set_new(o, "arguments", js_parse(it->call->args, strlen(it->call->args), NULL, 0));
    emit(m, fx, "tool_call", o);
}

void emit_result(struct model *m, struct effects *fx, const struct item *it)
{
    static const char *const words[] = {[CALL_OK] = "ok",
                                        [CALL_FAILED] = "failed",
                                        [CALL_DENIED] = "denied",
                                        [CALL_REFUSED] = "refused",
                                        [CALL_CLOSED] = "closed"};
    const struct call *c = it->call;
    if (!m->core->emit)
        return;
    json_t *o = json_object();
    js_set_str(o, "id", c->id);
    js_set_str(o, "name", c->name);
    js_set_str(o, "state", c->state >= CALL_OK ? words[c->state] : "open");
    js_set_strn(o, "text", text_str(&c->result), c->result.len);
    js_set_str(o, "reason", c->reason);
    emit(m, fx, "tool_result", o);
}

void emit_turn_end(struct model *m, struct effects *fx)
{
    static const char *const words[] = {"open", "done", "interrupted", "failed", "rewound"};
    const struct turn *t = &m->turns[m->n_turns - 1];
    json_t *o = json_object();
    js_set_str(o, "turn", t->key);
    js_set_str(o, "state", words[t->state]);
    const struct {
        const char *key;
        int64_t v;
    } counts[] = {{"used", m->gauges.used}, {"live", m->gauges.live}, {"offloaded", m->gauges.offload}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].v >= 0) /* what is not known is left away */
            js_set_int(o, counts[i].key, counts[i].v);
    tell(m, fx, TELL_TURN_END, json_incref(o));
    emit(m, fx, "turn_end", o);
}
