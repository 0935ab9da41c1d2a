/* Handshake: HELLO, WELCOME and REJECT, alike on lifelines and data links. The listener knows beforehand who must come; the
 * kernel has already vouched for uid and pid (sock.h) when these bytes are read. */
#ifndef VT_HANDSHAKE_H
#define VT_HANDSHAKE_H

#include "frame.h"

#define VT_HELLO_EVERY_MS 250
#define VT_HELLO_MAX_MS   5000

struct vt_hello {
    const char *role, *name; /* NULL in what is wanted: any */
    uint32_t gen;            /* 0 in what is wanted: any */
    uint32_t pid;
    uint64_t caps;
    const uint8_t *nonce; /* 16 bytes */
};

/* Fill and end the frame; -1 as vt_enc_end. link: of the sender, 0 while it has none. */
int vt_hello_pack(struct vt_enc *e, const struct vt_hello *h, uint32_t link, struct vt_err *err);
int vt_welcome_pack(struct vt_enc *e, const uint8_t instance[16], uint32_t beat_ms, uint32_t max_frame,
                    uint32_t link, struct vt_err *err);
int vt_reject_pack(struct vt_enc *e, const struct vt_err *why, uint32_t link, struct vt_err *err);

/* 0, or -1 with its own code for each fault: 103 no common version or another build, 105 role, name, generation or pid,
 * 108 nonce. */
int vt_hello_check(const struct vt_frame *f, const struct vt_hello *want, struct vt_err *err);

#endif
