/* Time. Every deadline reads the monotonic clock through this struct, so that tests run policy in milliseconds.
 *
 * mono: CLOCK_MONOTONIC, stands still during suspend; boot: CLOCK_BOOTTIME, does not; wall: for logs and `created` only.
 * All in microseconds. A clock is read from any thread; a fake clock is advanced from one thread. */
#ifndef VT_CLOCK_H
#define VT_CLOCK_H

#include <stdint.h>

struct vt_clock {
    uint64_t (*mono)(void *arg);
    uint64_t (*boot)(void *arg);
    uint64_t (*wall)(void *arg);
    void *arg;
};

/* The kernel's clocks. */
struct vt_clock vt_clock_real(void);

/* A clock that moves only when told to. */
struct vt_fake_time {
    uint64_t mono, boot, wall;
};
struct vt_clock vt_clock_fake(struct vt_fake_time *t);

static inline uint64_t vt_mono(const struct vt_clock *c)
{
    return c->mono(c->arg);
}
static inline uint64_t vt_boot(const struct vt_clock *c)
{
    return c->boot(c->arg);
}
static inline uint64_t vt_wall(const struct vt_clock *c)
{
    return c->wall(c->arg);
}

#define VT_MS(n)  ((uint64_t)(n)*1000u)
#define VT_SEC(n) ((uint64_t)(n)*1000000u)

#endif
