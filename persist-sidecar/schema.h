/* The database's schema text (application id, version and pragmas are set by db.c). */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#define STORE_APP_ID       1448362827 /* "VTCK" */
#define STORE_USER_VERSION 1
#define STORE_PAGE_SIZE    16384

/* Pragmas that forgetting changes for a while. FAST zeroes what is deleted inside of pages that are written anyway. */
#define STORE_SECURE_DELETE "FAST"
#define STORE_JOURNAL_LIMIT "16777216"

extern const char store_schema[];

#endif
