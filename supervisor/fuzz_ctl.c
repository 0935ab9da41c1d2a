/* Any bytes as a request on ctl: always one well-formed reply, never a crash. */
#include "ctl.h"
#include "duties.h"
#include "events.h"
#include "links.h"
#include "ops.h"
#include "routes.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct sup *make(struct vt_fake_time *t)
{
    struct vt_err err;
    struct sup *s = calloc(1, sizeof *s);
    s->cfg = vt_config_new();
    s->clock = vt_clock_fake(t);
    s->events = events_new();
    if (sd_event_new(&s->ev) < 0 || ctl_new(s, &err) < 0 || ops_open(s, &err) < 0 ||
        links_open(s, &err) < 0 || routes_open(s, &err) < 0 || duties_open(s, &err) < 0)
        abort();
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sup *s; /* made once: requests are independent of each other */
    static struct vt_fake_time t;
    static struct vt_enc e;
    struct ctl_caller who = {.uid = size > 0 && (data[size - 1] & 1) ? 0 : 65534};
    if (s == NULL) {
        s = make(&t);
        vt_enc_init(&e);
    }
    t.mono += 1000000;
    ctl_answer(s, data, size, &who, &e);
    if (vt_enc_end(&e, NULL) < 0)
        abort();
    return 0;
}
