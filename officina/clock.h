/* The program's clock and ids. OFFICINA_CLOCK=fixed: time is counted from zero and moves only when the program would have
 * waited, ids are numbered; OFFICINA_CLOCK=file:PATH: microseconds are read from a file each time. Else the wall clock. */
#ifndef OFF_CLOCK_H
#define OFF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct off_clock {
    bool fixed;
    const char *file; /* borrowed; NULL: none */
    uint64_t now;     /* of the fixed clock */
};

void off_clock_init(struct off_clock *c, const char *setting); /* setting: OFFICINA_CLOCK or NULL */
uint64_t off_clock_now(struct off_clock *c);
/* The program waited for this time and nothing came: a fixed clock jumps there. */
void off_clock_reach(struct off_clock *c, uint64_t at);
/* A new conversation's id: n is how many there are. */
void off_clock_id(struct off_clock *c, uint64_t n, char out[24]);

#endif
