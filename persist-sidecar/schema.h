/* The database's schema text (application id, version and pragmas are set by db.c). */
#ifndef STORE_SCHEMA_H
#define STORE_SCHEMA_H

#define STORE_APP_ID       1448362827 /* "VTCK" */
#define STORE_USER_VERSION 1
#define STORE_PAGE_SIZE    16384

extern const char store_schema[];

#endif
