#include "sock_ctl.h"

#include "fixture_sock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char dir[64], path[96];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    strcpy(f->dir, "/tmp/vt-ctl-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/ctl", f->dir);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(rmdir(f->dir), 0);
    free(f);
    return 0;
}

struct asker {
    const char *path;
    int rc;
    char got[64];
    struct vt_err err;
};

static void *ask(void *arg)
{
    struct asker *a = arg;
    uint8_t *reply = NULL;
    size_t len = 0;
    a->rc = vt_req_call(a->path, "hello", 5, 20000, &reply, &len, &a->err);
    if (a->rc == 0) {
        snprintf(a->got, sizeof a->got, "%.*s", (int)len, (char *)reply);
        vt_req_free(reply, len);
    }
    return NULL;
}

/* Serves until n requests are answered or the time is over. */
static int serve(struct vt_rep *r, int n, int ms)
{
    int done = 0;
    while (done < n && ms > 0) {
        struct pollfd p = {.fd = vt_rep_fd(r), .events = POLLIN};
        struct vt_rep_call call;
        if (poll(&p, 1, 50) == 0)
            ms -= 50;
        while (vt_rep_next(r, &call) == 1) {
            char text[64];
            assert_int_equal(call.pid, getpid());
            assert_int_equal(call.uid, getuid());
            snprintf(text, sizeof text, "re: %.*s", (int)call.len, (const char *)call.buf);
            assert_int_equal(vt_rep_reply(r, call.ctx, text, strlen(text), NULL), 0);
            done++;
        }
    }
    return done;
}

static void test_call(void **state)
{
    struct fixture *f = *state;
    struct vt_rep *r = NULL;
    struct vt_err err = {0};
    struct stat st;
    assert_int_equal(vt_rep_listen(&r, f->path, 0660, &err), 0);
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    enum { N = 12 };
    pthread_t th[N];
    struct asker a[N];
    for (int i = 0; i < N; i++) {
        a[i] = (struct asker){.path = f->path};
        pthread_create(&th[i], NULL, ask, &a[i]);
    }
    assert_int_equal(serve(r, N, 20000), N);
    for (int i = 0; i < N; i++) {
        pthread_join(th[i], NULL);
        assert_int_equal(a[i].rc, 0);
        assert_string_equal(a[i].got, "re: hello");
    }
    struct vt_rep *second = NULL;
    assert_int_equal(vt_rep_listen(&second, f->path, 0660, &err), -1);
    assert_non_null(strstr(err.text, "exists already"));
    assert_int_equal(stat(f->path, &st), 0);
    vt_rep_close(r);
    assert_int_equal(stat(f->path, &st), -1);
}

static void wants_answer(struct vt_rep *r, const char *path)
{
    pthread_t th;
    struct asker a = {.path = path};
    pthread_create(&th, NULL, ask, &a);
    assert_int_equal(serve(r, 1, 20000), 1);
    pthread_join(th, NULL);
    assert_int_equal(a.rc, 0);
}

/* Peers that vanish at the wrong moment do not deafen the listener, and listening anew leaves nothing of the old one, nor of
 * them. */
static void test_relisten(void **state)
{
    struct fixture *f = *state;
    struct vt_rep *r = NULL;
    struct vt_err err = {0};
    unsigned before = 0;
    assert_int_equal(vt_rep_listen(&r, f->path, 0660, &err), 0);
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 20; k++)
            fixture_knock(f->path);
        wants_answer(r, f->path);
        assert_int_equal(vt_rep_relisten(r, &err), 0);
        wants_answer(r, f->path);
        if (i == 0)
            before = fixture_descriptors();
    }
    fixture_descriptors_back(before);
    vt_rep_close(r);
}

static void test_nobody(void **state)
{
    struct fixture *f = *state;
    struct asker a = {.path = f->path};
    ask(&a);
    assert_int_equal(a.rc, -1);
    assert_int_equal(a.err.code, VT_E_UNAVAILABLE);
    struct vt_rep *r = NULL;
    assert_int_equal(vt_rep_listen(&r, f->path, 0660, &a.err), 0);
    uint8_t *reply;
    size_t len;
    assert_int_equal(vt_req_call(f->path, "x", 1, 100, &reply, &len, &a.err), -1);
    assert_int_equal(a.err.code, VT_E_DEADLINE);
    vt_rep_close(r);
}

static void test_publish(void **state)
{
    struct fixture *f = *state;
    struct vt_pub *p = NULL;
    struct vt_sub *s = NULL;
    struct vt_err err = {0};
    uint8_t *buf;
    size_t len;
    assert_int_equal(vt_pub_listen(&p, f->path, 0660, &err), 0);
    assert_int_equal(vt_sub_dial(&s, f->path, "\x95\x01\x23", 3, &err), 0);
    int got = 0;
    for (int i = 0; i < 50 && got == 0; i++) {
        assert_int_equal(vt_pub_send(p, "\x95\x01\x20no", 5, &err), 0);
        assert_int_equal(vt_pub_send(p, "\x95\x01\x23yes", 6, &err), 0);
        got = vt_sub_recv(s, 100, &buf, &len, &err);
    }
    assert_int_equal(got, 1);
    assert_int_equal(len, 6);
    assert_memory_equal(buf + 3, "yes", 3);
    vt_req_free(buf, len);
    vt_sub_close(s);
    vt_pub_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_call, setup, teardown),
        cmocka_unit_test_setup_teardown(test_relisten, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_publish, setup, teardown),
    };
    return cmocka_run_group_tests_name("sock_ctl", tests, NULL, NULL);
}
