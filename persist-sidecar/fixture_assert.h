/* Steps of the store's tests that have to succeed. For test programs: included after cmocka.h. */
#ifndef STORE_FIXTURE_ASSERT_H
#define STORE_FIXTURE_ASSERT_H

#include "fixture.h"

static inline void opened(struct fix *f)
{
    struct vt_err err;
    if (fix_open(f, &err) < 0)
        fail_msg("%s", err.text);
}

static inline void saved(struct fix *f, const struct talk *t, struct save_result *r, uint32_t *sent)
{
    struct vt_err err;
    if (fix_save(f, t, r, sent, &err) < 0)
        fail_msg("save: %s", err.text);
}

static inline int refused(struct fix *f, const struct talk *t)
{
    struct vt_err err = {0};
    assert_int_equal(fix_save(f, t, NULL, NULL, &err), -1);
    return err.code;
}

static inline int64_t restored(struct fix *f, const struct talk *t, uint32_t *kv)
{
    struct vt_err err = {0};
    bool poisoned;
    int64_t n = fix_restore(f, t, kv, &poisoned, &err);
    if (n < 0)
        fail_msg("restore: %s", err.text);
    assert_false(poisoned);
    return n;
}

#endif
