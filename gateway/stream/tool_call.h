/* One tool call, as models write it between <tool_call> and </tool_call>. */
#ifndef TOOL_CALL_H
#define TOOL_CALL_H

#include <stdbool.h>
#include <stddef.h>

/* 0: *name and *args (JSON text of an object) are malloc'd; -1: this is no call, or memory is out. */
int tool_call_parse(const char *text, size_t n, char **name, char **args);
/* The text breaks off inside JSON: more may follow. */
bool tool_call_unfinished(const char *text, size_t n);

#endif
