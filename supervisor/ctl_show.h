/* Ctl show: what vitriolctl prints for people. */
#ifndef CTL_SHOW_H
#define CTL_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

void show_status(const json_t *status);
void show_events(const json_t *events);
void show_event(const json_t *event);
void show_fingerprint(const json_t *result, bool history, bool diff);
void show_config(const json_t *keys, bool origin);
void show_slots(const json_t *slots);
/* "3 s", "12 min", "5 h", "2 d" */
const char *show_age(unsigned long long seconds, char *out, size_t size);

#endif
