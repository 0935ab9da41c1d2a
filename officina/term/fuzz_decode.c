/* The terminal's bytes may be anything: whole and byte by byte they give the same events, and every event is
 * well formed. */
#include "term/decode.h"
#include "term/gate.h"

#include <stdlib.h>
#include <string.h>

struct sum {
    uint64_t hash;
    size_t events;
};

static void mix(struct sum *s, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->hash = (s->hash ^ ((const uint8_t *)p)[i]) * 1099511628211u;
}

static void take(void *arg, const struct term_event *ev)
{
    struct sum *s = arg;
    s->events++;
    mix(s, &ev->kind, sizeof ev->kind);
    switch (ev->kind) {
    case TE_KEY:
        if (ev->u.key.key < TK_CHAR || ev->u.key.key > TK_F12 || ev->u.key.mods > 7 ||
            ev->u.key.cp > 0x10ffff)
            abort();
        mix(s, &ev->u.key, sizeof ev->u.key);
        break;
    case TE_PASTE:
        for (size_t i = 0; i < ev->u.paste.n; i++) {
            unsigned char c = (unsigned char)ev->u.paste.text[i];
            if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
                abort();
        }
        mix(s, ev->u.paste.text, ev->u.paste.n);
        break;
    case TE_MOUSE:
        if (ev->u.mouse.x < 0 || ev->u.mouse.y < 0 || ev->u.mouse.x > 10000 || ev->u.mouse.y > 10000)
            abort();
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sum whole = {14695981039346656037u, 0}, split = whole;
    struct decoder d;
    decode_init(&d, 30);
    decode_feed(&d, data, size, 0, take, &whole);
    decode_tick(&d, 100000, take, &whole);
    decode_fini(&d);
    decode_init(&d, 30);
    for (size_t i = 0; i < size; i++)
        decode_feed(&d, data + i, 1, 0, take, &split);
    decode_tick(&d, 100000, take, &split);
    decode_fini(&d);
    if (whole.hash != split.hash || whole.events != split.events)
        abort();
    for (int show = GATE_RUNNING; show <= GATE_EXACT; show++) {
        struct cluster c;
        for (size_t i = 0; i < size;) {
            size_t n = gate_next((const char *)data + i, size - i, (enum gate_show)show, &c);
            if (!n || n > size - i)
                abort();
            for (int k = 0; k < c.n; k++)
                if (c.piece[k].n < 1 || (unsigned char)c.piece[k].bytes[0] < 0x20 ||
                    c.piece[k].bytes[0] == 0x7f)
                    abort();
            i += n;
        }
    }
    return 0;
}
