#include "handshake.h"

#include "build_id.h"
#include "hash.h"

#include <string.h>

#define NONCE_LEN 16

int vt_hello_pack(struct vt_enc *e, const struct vt_hello *h, uint32_t link, struct vt_err *err)
{
    vt_enc_begin(e, VT_F_HELLO, 0, link);
    vt_enc_str(e, VT_HELLO_ROLE, h->role);
    vt_enc_str(e, VT_HELLO_NAME, h->name);
    vt_enc_u64(e, VT_HELLO_GEN, h->gen);
    vt_enc_u64(e, VT_HELLO_PID, h->pid);
    vt_enc_str(e, VT_HELLO_BUILD, VT_BUILD_ID);
    vt_enc_u64(e, VT_HELLO_VMIN, VT_WIRE_VERSION);
    vt_enc_u64(e, VT_HELLO_VMAX, VT_WIRE_VERSION);
    vt_enc_bin(e, VT_HELLO_NONCE, h->nonce, NONCE_LEN);
    vt_enc_u64(e, VT_HELLO_CAPS, h->caps);
    return vt_enc_end(e, err);
}

int vt_welcome_pack(struct vt_enc *e, const uint8_t instance[16], uint32_t beat_ms, uint32_t max_frame,
                    uint32_t link, struct vt_err *err)
{
    vt_enc_begin(e, VT_F_WELCOME, 0, link);
    vt_enc_u64(e, VT_WELCOME_V, VT_WIRE_VERSION);
    if (instance != NULL)
        vt_enc_bin(e, VT_WELCOME_INSTANCE, instance, 16);
    vt_enc_u64(e, VT_WELCOME_BEAT_MS, beat_ms);
    vt_enc_u64(e, VT_WELCOME_MAX_FRAME, max_frame);
    vt_enc_u64(e, VT_WELCOME_LINK, link);
    return vt_enc_end(e, err);
}

int vt_reject_pack(struct vt_enc *e, const struct vt_err *why, uint32_t link, struct vt_err *err)
{
    vt_enc_begin(e, VT_F_REJECT, 0, link);
    vt_enc_err(e, why);
    return vt_enc_end(e, err);
}

int vt_hello_check(const struct vt_frame *f, const struct vt_hello *want, struct vt_err *err)
{
    char role[32], name[72], build[128];
    uint64_t vmin = vt_frame_u64(f, VT_HELLO_VMIN, 0), vmax = vt_frame_u64(f, VT_HELLO_VMAX, 0);
    uint64_t gen = vt_frame_u64(f, VT_HELLO_GEN, 0), pid = vt_frame_u64(f, VT_HELLO_PID, 0);
    const uint8_t *nonce = vt_frame_bin_n(f, VT_HELLO_NONCE, NONCE_LEN);
    if (nonce == NULL || !vt_equal_ct(nonce, want->nonce, NONCE_LEN))
        return vt_fail(err, VT_E_NONCE, "HELLO with a wrong nonce from pid %llu", (unsigned long long)pid);
    if (vmin > VT_WIRE_VERSION || vmax < VT_WIRE_VERSION || vmin > vmax)
        return vt_fail(err, VT_E_VERSION, "HELLO for wire versions %llu..%llu, this side speaks %d",
                       (unsigned long long)vmin, (unsigned long long)vmax, VT_WIRE_VERSION);
    vt_frame_str(f, VT_HELLO_BUILD, build, sizeof build);
    if (strcmp(build, VT_BUILD_ID) != 0)
        return vt_fail(err, VT_E_VERSION, "HELLO of build %s, this is %s: restart vitriold after an upgrade",
                       build, VT_BUILD_ID);
    vt_frame_str(f, VT_HELLO_ROLE, role, sizeof role);
    vt_frame_str(f, VT_HELLO_NAME, name, sizeof name);
    if ((want->role != NULL && strcmp(role, want->role) != 0) ||
        (want->name != NULL && strcmp(name, want->name) != 0) || (want->gen != 0 && gen != want->gen) ||
        pid != want->pid)
        return vt_fail(err, VT_E_CREDENTIALS,
                       "HELLO from %s %s generation %llu pid %llu, another one is due here", role, name,
                       (unsigned long long)gen, (unsigned long long)pid);
    return 0;
}
