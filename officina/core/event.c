#include "core/event.h"

const char *event_name(enum event_kind kind)
{
    static const char *const names[] = {
#define EVENT(name) #name,
        EVENTS(EVENT)
#undef EVENT
    };
    return (unsigned)kind < EV_COUNT ? names[kind] : "?";
}
