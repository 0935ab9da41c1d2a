#include "clock.h"

#include <stddef.h>
#include <time.h>

static uint64_t read_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static uint64_t real_mono(void *arg)
{
    return read_us(CLOCK_MONOTONIC);
}
static uint64_t real_boot(void *arg)
{
    return read_us(CLOCK_BOOTTIME);
}
static uint64_t real_wall(void *arg)
{
    return read_us(CLOCK_REALTIME);
}

struct vt_clock vt_clock_real(void)
{
    return (struct vt_clock){real_mono, real_boot, real_wall, NULL};
}

static uint64_t fake_mono(void *arg)
{
    return ((struct vt_fake_time *)arg)->mono;
}
static uint64_t fake_boot(void *arg)
{
    return ((struct vt_fake_time *)arg)->boot;
}
static uint64_t fake_wall(void *arg)
{
    return ((struct vt_fake_time *)arg)->wall;
}

struct vt_clock vt_clock_fake(struct vt_fake_time *t)
{
    return (struct vt_clock){fake_mono, fake_boot, fake_wall, t};
}
