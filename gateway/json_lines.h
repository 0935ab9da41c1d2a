/* Test programs that are asked over a pipe: one JSON object a line in, one a line out. */
#ifndef JSON_LINES_H
#define JSON_LINES_H

#include <jansson.h>

/* Serves stdin to its end and returns the exit code; a line that is no object ends it with 65. answer: a new reference; NULL
 * says that the question lacks something, and ends it as well. */
int json_lines(const char *program, json_t *(*answer)(const json_t *question));

#endif
