/* Rules: who may do what without being asked.
 *
 * A rule is a verdict and `tool:pattern` ("bash:make *", "edit:src/...", "net:make *", "mcp:server/tool"; a
 * bare tool is "tool:*"). Deny beats ask beats allow, whatever the order and source. Sources: the command
 * line, the session, the user's file for this project, the project's own file (.officina/rules, only after
 * trust), the user's file. A rule of one mode does not count in the other. The user's rules are kept in
 * `rules` of the state folder:
 *
 *   [user]                    [project /home/a/b]
 *   allow = bash:git fetch    deny plan = bash:make *
 *
 * One thread. */
#ifndef OFF_RULES_H
#define OFF_RULES_H

#include "core/model.h"
#include "err.h"

enum rule_verdict { RULE_NONE, RULE_ALLOW, RULE_ASK, RULE_DENY };
enum rule_scope { RULE_CMDLINE, RULE_SESSION, RULE_PROJECT, RULE_FOLDER, RULE_USER };

struct rules;

/* root and home are copied. Reads the files; a fault in them is an error. */
struct rules *rules_open(const char *root, const char *home, bool trusted, struct vt_err *err);
void rules_free(struct rules *r);
void rules_trust(struct rules *r, bool trusted);
/* mode UNKNOWN: both. Session and command line live in memory; project and user are written to the file. */
int rules_add(struct rules *r, enum rule_scope scope, int mode, enum rule_verdict v, const char *pattern,
              struct vt_err *err);
void rules_clear(struct rules *r, enum rule_scope scope);
/* What the rules say of a tool and its subject (a command's words, a path). by: set to the rule in words
 * ("allowed for this session"), static or owned by r, until the next call that adds a rule. */
enum rule_verdict rules_judge(struct rules *r, const char *tool, const char *subject, enum mode mode,
                              const char **by);
/* Lines for /rules; caller frees each and the array. */
char **rules_page(const struct rules *r, size_t *n);

#endif
