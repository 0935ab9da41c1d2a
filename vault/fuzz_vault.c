/* A row of packets, each a length byte pair and its bytes: whatever an engine says, the vault holds at most VAULT_MAX descriptors, closes
 * each once, and answers with frames that a peer accepts. */
#include "vault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void one(struct vault *v, struct vt_enc *reply, const uint8_t *data, size_t len, unsigned n_fds)
{
    struct vt_frame f;
    struct vt_err err;
    int fds[2], out[VAULT_MAX];
    unsigned n_out;
    bool answer;
    uint8_t *copy = malloc(len + 1);
    memcpy(copy, data, len);
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (vt_frame_open(&f, copy, len, 8192, &err) == 0) {
        if (vault_take(v, &f, fds, n_fds, reply, out, &n_out, &answer, &err) == 0 && answer) {
            struct vt_frame back;
            if (vt_frame_open(&back, reply->buf, reply->len, 8192, &err) < 0 || n_out != v->n)
                abort();
            vt_frame_close(&back);
        }
        vt_frame_close(&f);
    }
    for (unsigned i = 0; i < n_fds; i++)
        if (fds[i] >= 0 && close(fds[i]) < 0)
            abort();
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct vault v = {0};
    struct vt_enc reply;
    vt_enc_init(&reply);
    while (size > 2) {
        size_t len = (size_t)(data[0] | (data[1] & 0x1f) << 8);
        unsigned n_fds = (data[1] >> 5) % 3;
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        one(&v, &reply, data, len, n_fds);
        data += len;
        size -= len;
    }
    for (unsigned i = 0; i < v.n; i++)
        if (fcntl(v.piece[i].fd, F_GETFD) < 0)
            abort();
    vault_drop_all(&v);
    vt_enc_fini(&reply);
    return 0;
}
