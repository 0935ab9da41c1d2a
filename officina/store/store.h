/* The store: conversations in one SQLite file of the state folder. What core_step() changed is written in one
 * transaction by store_sync(), before effects are done; so the history is valid after any death. One thread. Nothing but
 * the SQLite library opens the database file. */
#ifndef OFF_STORE_H
#define OFF_STORE_H

#include "core/event.h"
#include "err.h"
#include "util/json.h"

struct store;

/* home: the state folder, which exists. Migrates an older file after a copy. */
struct store *store_open(const char *home, struct vt_err *err);
void store_close(struct store *s);

/* The project of a root, made when new. now: microseconds. Negative with err on failure. */
int64_t store_project(struct store *s, const char *root, uint64_t now, struct vt_err *err);
/* Hash of the configuration that was trusted, in hex; "" when never. Caller frees. */
char *store_trust(struct store *s, int64_t project);
int store_set_trust(struct store *s, int64_t project, const char *hash, struct vt_err *err);

/* A new conversation. id: chosen by the caller. */
int store_new(struct store *s, int64_t project, const char *id, const char *coupling, const char *opening,
              uint64_t now, struct vt_err *err);
int64_t store_count(struct store *s); /* conversations ever made, for numbered ids */
/* A copy of `from` under the new id. */
int store_fork(struct store *s, const char *from, const char *id, uint64_t now, struct vt_err *err);
/* The newest conversation of the project that has a turn, or whose id or title is `name`. Caller frees; NULL: none. */
char *store_find(struct store *s, int64_t project, const char *name);
/* Takes the conversation for writing: 1, or 0 when another process holds it. Released by another call or by close. */
int store_hold(struct store *s, const char *session, struct vt_err *err);
/* A sign of life for the held conversation, at most one a second; while a turn runs. */
void store_beat(struct store *s);
/* When the process that held it before gave its last one: wall clock, microseconds; 0: not known. */
uint64_t store_died(const struct store *s);
/* Fields for EV_OPENED: title, mode, coupling's name, opening, draft, caret. NULL with err. */
json_t *store_session(struct store *s, const char *session, struct vt_err *err);
/* EV_STORED for each turn, item, unit, task and queued line; `at` stamps them. */
int store_load(struct store *s, const char *session, uint64_t at, event_sink sink, void *arg,
               struct vt_err *err);

/* Lines of a file that were shown to the model in the held conversation, as tools/seen.h has them; sink gets them back. */
int store_seen(struct store *s, const char *path, const uint64_t *lines, size_t n, struct vt_err *err);
void store_each_seen(struct store *s, const char *session,
                     void (*sink)(void *arg, const char *path, const uint64_t *lines, size_t n), void *arg);

/* Writes what is dirty of the held conversation. hard: with a full sync. */
int store_sync(struct store *s, struct model *m, bool hard, struct vt_err *err);
/* One request, for the account: outcome, counts and cost. */
int store_request(struct store *s, const char *session, const char *coupling, uint64_t now, int64_t prompt,
                  int64_t cached, int64_t completion, int64_t micro_euro, struct vt_err *err);
/* Micro-euro spent since the time, over all conversations. */
int64_t store_spent(struct store *s, const char *coupling, uint64_t since);

int store_title(struct store *s, const char *session, const char *title, struct vt_err *err);
/* Rows of SHEET_RESUME as the text of EV_SHEET; words: searched in titles and texts, or NULL. Caller frees. */
char *store_list(struct store *s, int64_t project, const char *words, struct vt_err *err);
/* Remembered facts of the project, one a line with its number. Caller frees. */
char *store_facts(struct store *s, int64_t project);
int64_t store_remember(struct store *s, int64_t project, const char *fact, uint64_t now, struct vt_err *err);
int store_forget(struct store *s, int64_t project, int64_t id, struct vt_err *err);
/* Prompts for the composer's history. store_history fills out with borrowed strings, newest first. */
int store_prompt(struct store *s, int64_t project, const char *text, uint64_t now, struct vt_err *err);
size_t store_history(struct store *s, int64_t project, const char **out, size_t max);

/* The tool `recall`: args is its JSON object. Appends the result for the model; 0, or -1 when the call is wrong (out says
 * how). outputs: folder of stored outputs. */
int store_recall(struct store *s, int64_t project, const char *session, const char *args, const char *outputs,
                 struct text *out);

#endif
