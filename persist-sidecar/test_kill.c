/* kill -9 at any moment, on a real disk: the last acknowledged checkpoint of every slot restores, every time. First a child
 * that uses the store directly, three hundred times; then the whole process behind its sockets. */
#include "proc.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define KILLS      300
#define PROC_KILLS 25
#define SLOTS      3

struct note { /* what the child says before and after each save */
    uint32_t slot, seed, n_items, acked;
};

static uint64_t next(uint64_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x;
}

static struct talk talk_for(const struct note *n)
{
    struct talk t = talk_of(n->seed, n->n_items);
    t.slot = n->slot;
    t.kv_bytes = 256 << 10;
    t.rec_every = 2;
    t.reason = CKPT_RESET;
    if (n->slot == 2) { /* hybrid */
        t.rec_bytes = 100 << 10;
        t.fp[0] = 3;
    }
    return t;
}

/* The next save of a slot: growth, now and then another conversation. */
static void choose(struct note *n, uint64_t *x)
{
    uint32_t slot = (uint32_t)(next(x) % SLOTS);
    bool fresh = n[slot].n_items == 0 || n[slot].n_items > 64 * 10 || next(x) % 5 == 0;
    n[slot] = (struct note){.slot = slot,
                            .seed = fresh ? (uint32_t)next(x) : n[slot].seed,
                            .n_items = fresh ? 64 + (uint32_t)(next(x) % 128)
                                             : n[slot].n_items + (uint32_t)(next(x) % 256)};
    n[SLOTS] = n[slot];
}

static void say(int fd, struct note n, uint32_t acked)
{
    n.acked = acked;
    if (write(fd, &n, sizeof n) != (ssize_t)sizeof n)
        _exit(1);
}

/* Saves, collects, marks blocks bad, until it is killed. */
static void child(struct fix *f, int fd, uint64_t seed)
{
    struct note n[SLOTS + 1] = {0};
    struct vt_err err;
    uint64_t x = seed * 2654435761u + 1;
    if (fix_open(f, &err) < 0)
        _exit(2);
    for (;;) {
        choose(n, &x);
        struct talk t = talk_for(&n[SLOTS]);
        say(fd, n[SLOTS], 0);
        if (fix_save(f, &t, NULL, NULL, &err) < 0)
            _exit(3);
        say(fd, n[SLOTS], 1);
        f->time.wall += VT_SEC(4000);
        f->time.mono += VT_SEC(4000);
        if (next(&x) % 4 == 0 && store_collect(f->s, true, &err) < 0)
            _exit(4);
    }
}

struct memory { /* what the parent knows of each slot */
    struct note acked[SLOTS], tried[SLOTS];
    unsigned acks, in_doubt;
};

/* At most so many notes; a dead child's pipe ends. */
static void listen_to(int fd, struct memory *m, unsigned most)
{
    struct note n;
    for (unsigned i = 0; i < most && read(fd, &n, sizeof n) == (ssize_t)sizeof n; i++) {
        m->tried[n.slot] = n;
        if (n.acked) {
            m->acked[n.slot] = n;
            m->acks++;
        }
    }
}

static bool restores(struct fix *f, const struct note *n)
{
    struct talk t = talk_for(n);
    uint32_t kv;
    bool poisoned;
    struct vt_err err = {0};
    int64_t got = fix_restore(f, &t, &kv, &poisoned, &err);
    return got == n->n_items && !poisoned && kv == n->n_items / 64 * 64;
}

/* Each slot holds its last acknowledged save, or the one that was on its way when the child died: whole. */
static void verify(struct fix *f, struct memory *m, int kill_no)
{
    for (int i = 0; i < SLOTS; i++) {
        if (m->acked[i].n_items == 0 && m->tried[i].n_items == 0)
            continue;
        if (m->acked[i].n_items != 0 && restores(f, &m->acked[i]))
            continue;
        if (m->tried[i].n_items != 0 && !m->tried[i].acked && restores(f, &m->tried[i])) {
            m->acked[i] = m->tried[i];
            m->in_doubt++;
            continue;
        }
        if (m->acked[i].n_items != 0)
            fail_msg("kill %d: slot %d does not restore what was acknowledged", kill_no, i);
    }
}

static bool hot_journal(const struct fix *f)
{
    char path[256];
    static const uint8_t magic[8] = {0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7};
    uint8_t head[8] = {0};
    snprintf(path, sizeof path, "%s/store.db-journal", f->dir);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    size_t n = fread(head, 1, sizeof head, file);
    fclose(file);
    return n == sizeof head && memcmp(head, magic, sizeof head) == 0;
}

static void pause_us(uint64_t us)
{
    struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

static void three_hundred_kills(void **state)
{
    struct fix f;
    struct memory m = {0};
    struct vt_err err;
    unsigned hot = 0;
    uint64_t x = 20240229;
    fix_init(&f, false);
    for (int i = 0; i < KILLS; i++) {
        int p[2];
        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        if (pid == 0) {
            close(p[0]);
            child(&f, p[1], (uint64_t)i + 1);
        }
        close(p[1]);
        /* Counted in saves, since disks differ; then anywhere inside the next ones. */
        listen_to(p[0], &m, 1 + (unsigned)(next(&x) % 6));
        pause_us(next(&x) % 25000);
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        if (!WIFSIGNALED(status))
            fail_msg("the child ended by itself with %d", WEXITSTATUS(status));
        listen_to(p[0], &m, UINT32_MAX);
        close(p[0]);
        hot += hot_journal(&f);
        if (fix_open(&f, &err) < 0)
            fail_msg("kill %d: %s", i, err.text);
        verify(&f, &m, i);
        if (i % 10 == 0)
            assert_int_equal(fix_check(&f, false), 0);
        /* The next child's clock must not run behind. */
        f.time.wall += VT_SEC(400000);
        fix_close(&f, i % 3 == 0);
    }
    assert_int_equal(f.events[STORE_EV_REBUILT], 0);
    print_message(
        "%d kills: %u acknowledged saves, all present; %u saves became the head without an acknowledgement;"
        " %u hot journals rolled back\n",
        KILLS, m.acks, m.in_doubt, hot);
    assert_true(m.acks > KILLS / 2);
    assert_true(hot > 10);
    fix_fini(&f);
}

static bool process_restores(struct proc *x, const struct note *n)
{
    struct puppet_restored got;
    struct talk t = talk_for(n);
    return puppet_restore(&x->p, &t, &got) == 0 && !got.poisoned && got.ended_ok && got.ntok == n->n_items &&
           got.blocks == n->n_items / 64;
}

/* The same through sockets and the ring: a killer process ends the store while this one saves. */
static void process_kills(void **state)
{
    struct proc x;
    uint64_t r = 7;
    unsigned acks = 0, broken = 0;
    struct note last = {.slot = 0, .seed = 1, .n_items = 0}, tried = last;
    proc_init(&x);
    for (int i = 0; i < PROC_KILLS; i++) {
        int code = proc_start(&x, NULL);
        if (code != 0)
            fail_msg("kill %d: the store ended with %d", i, code);
        assert_int_equal(proc_link(&x), 0);
        if (last.n_items > 0 && !process_restores(&x, &last) && !process_restores(&x, &tried))
            fail_msg("kill %d: what was acknowledged does not restore", i);
        pid_t target = x.pid, killer = fork();
        if (killer == 0) {
            pause_us(2000 + next(&r) % 80000);
            kill(target, SIGKILL);
            _exit(0);
        }
        next(&r);
        for (;;) {
            struct note n = last;
            n.n_items = n.n_items > 64 * 40 ? 64 : n.n_items + 100;
            n.seed = n.n_items < 164 ? n.seed + 1 : n.seed;
            struct talk t = talk_for(&n);
            tried = n;
            if (puppet_save(&x.p, &t, NULL) != 0) {
                broken++;
                break;
            }
            last = n;
            acks++;
        }
        waitpid(killer, NULL, 0);
        proc_kill(&x);
    }
    print_message("%d kills of the process: %u acknowledged saves, the last one restored each time\n",
                  PROC_KILLS, acks);
    assert_int_equal(broken, PROC_KILLS);
    assert_true(acks > 0);
    proc_fini(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_hundred_kills),
        cmocka_unit_test(process_kills),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
