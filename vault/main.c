/* vitriol-vault: the child of vitriold that holds the memory of one GPU's engine, so that the next engine finds it. It opens no
 * GPU: an open descriptor keeps the memory that it names. Its engines talk to it at v.NAME beside the lifeline, one at a time: the
 * newest, since vitriold never runs two. */
#include "link.h"
#include "pass.h"
#include "sandbox.h"
#include "vault.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct app {
    sd_event *ev;
    struct vt_clock clock;
    struct vt_log *log;
    struct vt_config *cfg;
    struct vt_child_args args;
    struct vt_child *child;
    struct vault vault;
    struct vt_enc reply;
    int listener, engine; /* -1: none */
    sd_event_source *on_dial, *on_packet;
    uint64_t packets;
};

/* ---- the engine ---- */

static void hang_up(struct app *a, const char *why)
{
    if (a->engine < 0)
        return;
    a->on_packet = sd_event_source_disable_unref(a->on_packet);
    close(a->engine);
    a->engine = -1;
    vt_log(a->log, VT_LOG_INFO, "the engine is gone (%s); %u pieces of %.1f MiB are held", why, a->vault.n,
           (double)vault_bytes(&a->vault) / 1048576);
}

static int take_packet(struct app *a, const uint8_t *buf, size_t len, int *fds, unsigned n_fds,
                       struct vt_err *err)
{
    struct vt_frame f;
    int out[VAULT_MAX];
    unsigned n_out;
    bool answer;
    if (vt_frame_open(&f, buf, len, VT_PASS_BYTES, err) < 0)
        return -1;
    int rc = vault_take(&a->vault, &f, fds, n_fds, &a->reply, out, &n_out, &answer, err);
    if (rc == 0 && answer) {
        vt_log(a->log, VT_LOG_INFO, "an engine takes %u pieces of %.1f MiB over", n_out,
               (double)vault_bytes(&a->vault) / 1048576);
        rc = vt_pass_send(a->engine, a->reply.buf, a->reply.len, out, n_out, err);
    }
    vt_frame_close(&f);
    return rc;
}

static int on_packet(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct app *a = arg;
    uint8_t buf[VT_PASS_BYTES];
    size_t len;
    int fds[VT_PASS_FDS];
    unsigned n;
    struct vt_err err;
    int rc = vt_pass_recv(a->engine, 0, buf, &len, fds, &n);
    if (rc == 0)
        return 0;
    a->packets++;
    if (rc < 0) {
        hang_up(a, "closed");
        return 0;
    }
    rc = take_packet(a, buf, len, fds, n, &err);
    for (unsigned i = 0; i < n; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    if (rc < 0)
        hang_up(a, err.text);
    return 0;
}

static int on_dial(sd_event_source *src, int fd, uint32_t revents, void *arg)
{
    struct app *a = arg;
    int s = vt_pass_accept(a->listener);
    if (s < 0)
        return 0;
    hang_up(a, "another one has come");
    a->engine = s;
    if (sd_event_add_io(a->ev, &a->on_packet, s, EPOLLIN, on_packet, a) < 0)
        hang_up(a, "no event source");
    return 0;
}

static int start_listening(struct app *a, struct vt_err *err)
{
    char path[256];
    const char *slash = strrchr(a->args.lifeline, '/');
    snprintf(path, sizeof path, "%.*s/v.%s", slash ? (int)(slash - a->args.lifeline) : 0, a->args.lifeline,
             a->args.name);
    a->listener = vt_pass_listen(path, err);
    if (a->listener < 0)
        return -1;
    return sd_event_add_io(a->ev, &a->on_dial, a->listener, EPOLLIN, on_dial, a) < 0
               ? vt_fail(err, VT_E_OS, "event source for %s", path)
               : 0;
}

/* ---- the child's side ---- */

static void on_welcome(void *arg, const uint8_t instance[16])
{
    struct app *a = arg;
    struct vt_err err;
    if (start_listening(a, &err) < 0) {
        vt_child_fatal(a->child, &err);
        sd_event_exit(a->ev, vt_err_exit(&err));
        return;
    }
    vt_enc_map(vt_child_begin(a->child, VT_F_READY, 0), VT_READY_EFFECTIVE, 0);
    vt_child_send(a->child);
}

static void on_lifeline(void *arg, const struct vt_frame *f)
{
    struct app *a = arg;
    unsigned verb = (unsigned)vt_frame_u64(f, VT_ORDER_VERB, 0);
    if (f->type == VT_F_ORDER && (verb == VT_ORDER_DRAIN || verb == VT_ORDER_STOP))
        vt_child_leave(a->child, f->id, verb);
}

static void on_beat(void *arg, struct vt_enc *e)
{
    struct app *a = arg;
    vt_enc_u64(e, VT_BEAT_STEP, a->packets);
}

static const struct vt_child_ops child_ops = {
    .on_welcome = on_welcome, .on_lifeline = on_lifeline, .on_beat = on_beat};

static int start(struct app *a, int argc, char **argv, struct vt_err *err)
{
    a->cfg = vt_config_new();
    if (a->cfg == NULL)
        return vt_fail(err, VT_E_NOMEM, "no memory for the configuration");
    if (vt_child_args(&a->args, argc, argv, a->cfg, err) < 0 || vt_config_check(a->cfg, err) < 0)
        return -1;
    if (a->args.extra != NULL)
        return vt_fail(err, VT_E_USAGE, "%s: this program takes no argument beside its options",
                       a->args.extra);
    if (vt_sandbox_enter(err) < 0)
        return -1;
    vt_child_block_signals();
    a->log = vt_log_new(a->args.name, VT_SINK_STDERR, VT_LOG_INFO, 0);
    a->clock = vt_clock_real();
    vt_enc_init(&a->reply);
    if (a->log == NULL || sd_event_default(&a->ev) < 0)
        return vt_fail(err, VT_E_NOMEM, "no memory for the event loop");
    return vt_child_new(&a->child, a->ev, &a->args, "vault", 0, &child_ops, a, a->log, &a->clock, err);
}

int main(int argc, char **argv)
{
    struct app a = {.listener = -1, .engine = -1};
    struct vt_err err;
    if (vt_told_version(argc, argv, "vitriol-vault"))
        return VT_EX_OK;
    if (start(&a, argc, argv, &err) < 0) {
        fprintf(stderr, "%s: %s\n", argv[0], err.text);
        return vt_err_exit(&err);
    }
    int code = sd_event_loop(a.ev);
    hang_up(&a, "this vault ends");
    vault_drop_all(&a.vault);
    sd_event_source_disable_unref(a.on_dial);
    close(a.listener);
    vt_child_free(a.child);
    vt_log_free(a.log);
    vt_enc_fini(&a.reply);
    sd_event_unref(a.ev);
    vt_config_free(a.cfg);
    return code < 0 ? VT_EX_OS : code;
}
