/* Payload: is the model's file the one that the configuration means? Size first, which costs nothing; then the SHA-256,
 * which is computed once for each state of the file (device, inode, size, times) on a thread of its own and remembered in a
 * record. The main thread calls everything here and never waits. */
#ifndef PAYLOAD_H
#define PAYLOAD_H

#include "sup.h"

enum payload_state {
    PAYLOAD_GOOD,
    PAYLOAD_WORKING, /* its bytes are being read: ask again */
    PAYLOAD_BAD      /* err: VT_E_PAYLOAD or VT_E_NO_INPUT */
};

struct payload;

/* The file at path against model.bytes and model.sha256 of cfg. */
enum payload_state payload_check(struct sup *s, const struct vt_config *cfg, const char *path,
                                 struct vt_err *err);
/* Identity of its bytes without reading them: 12 hex digits of the hash of its metadata and index. */
int payload_identity(const char *path, char out[13], uint64_t *bytes, struct vt_err *err);
/* Which file is at path now, and its state (gguf_key); "" when it cannot be opened. */
void payload_file(const char *path, char out[13]);
/* payload_identity of what runs; an external engine's is "external". */
int payload_of(const struct sup *s, char out[13], uint64_t *bytes, struct vt_err *err);
void payload_close(struct sup *s);

#endif
