#include "proc.h"

#include "handshake.h"
#include "link.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void check(int rc, const struct vt_err *err)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "proc: %s\n", err->text);
    abort();
}

void proc_init(struct proc *x)
{
    memset(x, 0, sizeof *x);
    snprintf(x->run, sizeof x->run, "/tmp/vt-run-XXXXXX");
    snprintf(x->state, sizeof x->state, "/tmp/vt-state-XXXXXX");
    if (mkdtemp(x->run) == NULL || mkdtemp(x->state) == NULL)
        abort();
    vt_enc_init(&x->enc);
}

static void remove_dir(const char *dir)
{
    char cmd[128];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    if (system(cmd) != 0)
        fprintf(stderr, "proc: %s stays\n", dir);
}

static void close_life(struct proc *x)
{
    proc_unlink(x);
    vt_sock_close(x->life);
    x->life = NULL;
}

void proc_fini(struct proc *x)
{
    if (x->pid != 0)
        proc_kill(x);
    close_life(x);
    vt_enc_fini(&x->enc);
    free(x->frame);
    remove_dir(x->run);
    remove_dir(x->state);
}

/* A frame of a socket within ms, copied. */
static uint8_t *receive(struct vt_sock *s, size_t *len, int ms)
{
    for (uint64_t end = now_ms() + (uint64_t)ms;;) {
        struct pollfd p = {.fd = vt_sock_recv_fd(s), .events = POLLIN};
        uint8_t *buf, *copy;
        int rc = vt_sock_recv(s, &buf, len);
        if (rc == 1) {
            copy = malloc(*len);
            if (copy == NULL)
                abort();
            memcpy(copy, buf, *len);
            vt_sock_msg_free(buf, *len);
            return copy;
        }
        if (rc < 0 || now_ms() >= end)
            return NULL;
        poll(&p, 1, 10);
    }
}

bool proc_wait(struct proc *x, uint8_t type, struct vt_frame *f, int ms)
{
    struct vt_err err;
    uint64_t end = now_ms() + (uint64_t)ms;
    while (now_ms() < end) {
        free(x->frame);
        if ((x->frame = receive(x->life, &x->len, 50)) == NULL)
            continue;
        check(vt_frame_open(f, x->frame, x->len, 1 << 20, &err), &err);
        if (f->type == VT_F_NOTE && vt_frame_u64(f, VT_NOTE_EVENT, 0) == VT_NOTE_STORE)
            vt_obj_str(&vt_frame_map(f, VT_NOTE_FIELDS)->ptr[0].val, x->noted, sizeof x->noted);
        if (f->type == type)
            return true;
        vt_frame_close(f);
    }
    return false;
}

void proc_send(struct proc *x)
{
    struct vt_err err;
    check(vt_enc_end(&x->enc, &err), &err);
    check(vt_sock_send(x->life, x->enc.buf, x->enc.len, &err), &err);
}

static void spawn(struct proc *x, const char *path, const uint8_t nonce[16], const char *const *extra)
{
    const char *program = getenv("VITRIOL_STORE");
    char state[128];
    const char *argv[64] = {program, "--name", "store", "--gen", "1", "--lifeline", path, "--set", state};
    int n = 9, p[2];
    snprintf(state, sizeof state, "paths.state_dir=%s", x->state);
    for (; extra != NULL && *extra != NULL; extra++) {
        argv[n++] = "--set";
        argv[n++] = *extra;
    }
    if (program == NULL || pipe(p) != 0)
        abort();
    x->pid = fork();
    if (x->pid == 0) {
        if (p[0] != VT_NONCE_FD)
            dup2(p[0], VT_NONCE_FD);
        execv(program, (char *const *)argv);
        _exit(127);
    }
    if (write(p[1], nonce, 16) != 16)
        abort();
    close(p[0]);
    close(p[1]);
}

int proc_start(struct proc *x, const char *const *extra)
{
    static const uint8_t instance[16] = "instance-of-test";
    char path[108];
    uint8_t nonce[16];
    struct vt_err err;
    struct vt_frame f;
    vt_random(nonce, sizeof nonce);
    snprintf(path, sizeof path, "%s/l.store.%u", x->run, ++x->serial);
    struct vt_sock_opts o = {.max_frame = 1 << 20, .queue = 64, .peer_uid = geteuid()};
    check(vt_sock_listen(&x->life, path, &o, &err), &err);
    spawn(x, path, nonce, extra);
    if (!proc_wait(x, VT_F_HELLO, &f, 10000))
        return proc_exit(x, 1000);
    vt_frame_close(&f);
    check(vt_welcome_pack(&x->enc, instance, 200, 1 << 20, PROC_LIFE, &err), &err);
    check(vt_sock_send(x->life, x->enc.buf, x->enc.len, &err), &err);
    for (int i = 0; i < 200; i++) {
        if (proc_wait(x, VT_F_READY, &f, 100)) {
            vt_frame_close(&f);
            return 0;
        }
        int code = proc_exit(x, 0);
        if (code >= 0)
            return code;
    }
    return -1;
}

/* ---- the engine's end ---- */

static void engine_send(void *arg, const uint8_t *frame, size_t len)
{
    struct proc *x = arg;
    struct vt_err err;
    for (int i = 0; i < 500; i++) {
        if (vt_sock_send(x->data, frame, len, &err) == 0 || err.code != VT_E_BUSY)
            return; /* a dead store shows in what does not come back */
        usleep(1000);
    }
}

static int engine_pump(void *arg, struct puppet *p)
{
    struct proc *x = arg;
    for (int i = 0; i < 100; i++) {
        size_t len;
        uint8_t *frame = receive(x->data, &len, 50);
        if (frame != NULL) {
            puppet_came(p, frame, len);
            free(frame);
            return 1;
        }
        pid_t pid;
        uid_t uid;
        if (vt_sock_events(x->data, &pid, &uid) & VT_SOCK_DOWN)
            return 0;
    }
    return 0;
}

static void say_hello(struct proc *x, const uint8_t nonce[16], uint32_t link)
{
    struct vt_err err;
    struct vt_hello h = {
        .role = "engine", .name = "engine0", .gen = 1, .pid = (uint32_t)getpid(), .nonce = nonce};
    check(vt_hello_pack(&x->enc, &h, link, &err), &err);
    vt_sock_send(x->data, x->enc.buf, x->enc.len, &err);
}

static int shake_hands(struct proc *x, const uint8_t nonce[16], uint32_t link)
{
    for (int i = 0; i < 50; i++) {
        struct vt_frame f;
        struct vt_err err;
        size_t len;
        say_hello(x, nonce, link);
        uint8_t *frame = receive(x->data, &len, 100);
        if (frame == NULL)
            continue;
        check(vt_frame_open(&f, frame, len, 8u << 20, &err), &err);
        bool welcome = f.type == VT_F_WELCOME;
        vt_frame_close(&f);
        free(frame);
        if (welcome)
            return 0;
    }
    return -1;
}

static void mint(struct proc *x, const char *path, const uint8_t nonce[16], uint32_t link)
{
    struct vt_enc *e = &x->enc;
    vt_enc_begin(e, VT_F_LINK_OPEN, 0, PROC_LIFE);
    vt_enc_u64(e, VT_LINK_OPEN_LINK, link);
    vt_enc_str(e, VT_LINK_OPEN_PATH, path);
    vt_enc_u64(e, VT_LINK_OPEN_SIDE, 0);
    vt_enc_str(e, VT_LINK_OPEN_PEER_ROLE, "engine");
    vt_enc_u64(e, VT_LINK_OPEN_PEER_PID, (uint64_t)getpid());
    vt_enc_bin(e, VT_LINK_OPEN_NONCE, nonce, 16);
    vt_enc_str(e, VT_LINK_OPEN_BULK_PATH, x->p.ring_path);
    vt_enc_u64(e, VT_LINK_OPEN_BULK_BYTES, x->p.ring.bytes);
    proc_send(x);
}

int proc_link(struct proc *x)
{
    char path[108];
    uint8_t nonce[16];
    struct vt_err err;
    struct vt_frame f;
    uint32_t link = PROC_LIFE + ++x->serial;
    vt_random(nonce, sizeof nonce);
    puppet_init(&x->p, link, x->run);
    x->linked = true;
    x->p.send = engine_send;
    x->p.pump = engine_pump;
    x->p.arg = x;
    snprintf(path, sizeof path, "%s/k.%08x", x->run, link);
    mint(x, path, nonce, link);
    if (!proc_wait(x, VT_F_LINK_STATE, &f, 5000))
        return -1;
    bool listening = vt_frame_u64(&f, VT_LINK_STATE_STATE, 0) == 1;
    vt_frame_close(&f);
    struct vt_sock_opts o = {.max_frame = 8u << 20, .queue = 64, .peer_uid = geteuid(), .peer_pid = x->pid};
    if (!listening || vt_sock_dial(&x->data, path, &o, &err) < 0)
        return -1;
    return shake_hands(x, nonce, link);
}

void proc_unlink(struct proc *x)
{
    vt_sock_close(x->data);
    x->data = NULL;
    if (x->linked)
        puppet_fini(&x->p);
    x->linked = false;
}

void proc_order(struct proc *x, unsigned verb)
{
    vt_enc_begin(&x->enc, VT_F_ORDER, 0, PROC_LIFE);
    vt_enc_u64(&x->enc, VT_ORDER_VERB, verb);
    proc_send(x);
}

void proc_kill(struct proc *x)
{
    kill(x->pid, SIGKILL);
    waitpid(x->pid, NULL, 0);
    x->pid = 0;
    close_life(x);
}

int proc_exit(struct proc *x, int ms)
{
    for (uint64_t end = now_ms() + (uint64_t)ms;; usleep(2000)) {
        int status;
        if (waitpid(x->pid, &status, WNOHANG) == x->pid) {
            x->pid = 0;
            close_life(x);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (now_ms() >= end)
            return -1;
    }
}
