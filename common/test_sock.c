#include "sock.h"

#include "fixture_sock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pair {
    char folder[32], path[48];
    struct vt_sock *a, *b;
};

static const struct vt_sock_opts opts = {.max_frame = 1 << 16, .queue = 64, .peer_uid = (uid_t)-1};

static void open_both(struct pair *p)
{
    struct vt_err err;
    strcpy(p->folder, "/tmp/vtsock-XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->path, sizeof p->path, "%s/s", p->folder);
    assert_int_equal(vt_sock_listen(&p->a, p->path, &opts, &err), 0);
    assert_int_equal(vt_sock_dial(&p->b, p->path, &opts, &err), 0);
}

static void close_both(struct pair *p)
{
    vt_sock_close(p->a);
    vt_sock_close(p->b);
    rmdir(p->folder);
}

static bool readable(struct vt_sock *s, int ms)
{
    struct pollfd p = {.fd = vt_sock_recv_fd(s), .events = POLLIN};
    return poll(&p, 1, ms) == 1;
}

static void send_number(struct vt_sock *s, uint32_t n)
{
    struct vt_err err;
    assert_int_equal(vt_sock_send(s, &n, sizeof n, &err), 0);
}

static void wants_number(struct vt_sock *s, uint32_t n)
{
    uint8_t *buf;
    size_t len;
    int rc;
    while ((rc = vt_sock_recv(s, &buf, &len)) == 0)
        assert_true(readable(s, 20000));
    assert_int_equal(rc, 1);
    assert_int_equal(len, sizeof n);
    assert_memory_equal(buf, &n, sizeof n);
    vt_sock_msg_free(buf, len);
}

/* Frames come in order, and what is left behind keeps the descriptor readable. */
static void test_level(void **state)
{
    struct pair p;
    uint8_t *buf;
    size_t len;
    open_both(&p);
    assert_int_equal(vt_sock_recv(p.a, &buf, &len), 0);
    assert_false(readable(p.a, 0));
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < 10; i++)
            send_number(p.b, i);
        assert_true(readable(p.a, 20000));
        for (uint32_t i = 0; i < 10; i++)
            wants_number(p.a, i);
        send_number(p.b, 77); /* while the descriptor still tells of those before */
        assert_true(readable(p.a, 20000));
        wants_number(p.a, 77);
        assert_int_equal(vt_sock_recv(p.a, &buf, &len), 0);
        assert_false(readable(p.a, 0));
    }
    close_both(&p);
}

/* A process that lives for months opens a socket for every generation of its children. */
static void test_leaves_nothing(void **state)
{
    struct pair p;
    struct vt_err err;
    unsigned before = 0;
    open_both(&p);       /* the library keeps what the first ones need */
    send_number(p.b, 1); /* and loses memory when a listener is closed while a peer is being greeted */
    wants_number(p.a, 1);
    close_both(&p);
    strcpy(p.folder, "/tmp/vtsock-XXXXXX");
    assert_non_null(mkdtemp(p.folder));
    snprintf(p.path, sizeof p.path, "%s/s", p.folder);
    for (int i = 0; i < 20; i++) {
        if (i == 1)
            before = fixture_descriptors();
        assert_int_equal(vt_sock_listen(&p.a, p.path, &opts, &err), 0);
        assert_false(readable(p.a, 0));
        vt_sock_close(p.a);
    }
    fixture_descriptors_back(before);
    rmdir(p.folder);
}

/* Who connects and leaves takes nothing from the one that is waited for, and nothing stays of either. */
static void test_knocks(void **state)
{
    struct pair p;
    struct vt_err err;
    unsigned before = 0;
    strcpy(p.folder, "/tmp/vtsock-XXXXXX");
    assert_non_null(mkdtemp(p.folder));
    snprintf(p.path, sizeof p.path, "%s/s", p.folder);
    for (int i = 0; i < 10; i++) {
        if (i == 1)
            before = fixture_descriptors();
        assert_int_equal(vt_sock_listen(&p.a, p.path, &opts, &err), 0);
        for (int k = 0; k < 20; k++)
            fixture_knock(p.path);
        assert_int_equal(vt_sock_dial(&p.b, p.path, &opts, &err), 0);
        send_number(p.b, 7);
        wants_number(p.a, 7);
        vt_sock_close(p.a);
        vt_sock_close(p.b);
    }
    fixture_descriptors_back(before);
    rmdir(p.folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level),
        cmocka_unit_test(test_leaves_nothing),
        cmocka_unit_test(test_knocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
