/* What stands in files with names: skills/NAME/SKILL.md and commands/NAME.md of the state folder and, after trust, of the
 * project's .officina. Used by ext.c and hook.c. One thread. */
#ifndef OFF_EXT_NAMED_H
#define OFF_EXT_NAMED_H

#include "ext/server.h"

/* `skill NAME: description`, a line each, appended. */
void named_skills(struct ext *x, struct text *out);
/* Appends {"name","args","help"} for each command, and for each skill, which is called by its name, too. */
void named_commands(struct ext *x, json_t *list);
void named_add(json_t *list, const char *name, const char *args,
               const char *help); /* unless it stands there */
/* The command filled in: {"mode","parts":[{"text"} or {"tool","arguments"}]}; -1 with err: VT_E_NOT_FOUND when there is
 * none of that name. */
int named_command(struct ext *x, const char *name, const char *arguments, json_t **out, struct vt_err *err);

#endif
