/* vitriol serve: it keeps the port over the death of vitriold, starts it again, and knows when to stop trying. */
#include "fixture.h"

#include "err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The vitriold that answers now, 0 when none does. */
static pid_t vitriold_of(struct fx *f)
{
    json_t *st = fx_status(f);
    pid_t pid = (pid_t)client_num(st, "pid");
    json_decref(st);
    return pid;
}

/* Connects all the while: a refusal at any moment is what must not be. */
static pid_t next_vitriold(struct fx *f, pid_t last, double seconds)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->port)};
    double end = fx_now() + seconds * 5; /* a busy machine takes several times as long as a quiet one */
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
            fx_fail(f, "the port refused");
        close(fd);
        pid_t pid = vitriold_of(f);
        if (pid != 0 && pid != last)
            return pid;
        if (fx_now() > end)
            fx_fail(f, "no other vitriold came");
        fx_nap(10);
    }
}

static void test_port_outlives_vitriold(void **state)
{
    struct fx *f = *state;
    f->serve = true;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    pid_t pid = vitriold_of(f);
    fx_wait_log(f, "look at it: ", 2);
    kill(pid, SIGKILL);
    next_vitriold(f, pid, 5);
    fx_wait_overall(f, "ready", 12);
    fx_wait_log(f, "was killed by SIGKILL; starting it again in 0.2 s", 1);
    fx_wait_log(f, "ready again", 2);
    kill(f->pid, SIGTERM);
    assert_int_equal(fx_wait_end(f, 10), 0);
}

/* Ctrl-C at the moment in which it is ready: the launcher has looked for signals and not yet begun to wait. */
static void test_interrupted_when_ready(void **state)
{
    struct fx *f = *state;
    f->serve = true;
    fx_start(f);
    while (vitriold_of(f) == 0)
        fx_nap(1);
    kill(f->pid, SIGSTOP);
    fx_wait_overall(f, "ready", 10);
    pid_t pid = vitriold_of(f);
    kill(pid, SIGSTOP); /* so that the question after its state takes its time */
    kill(f->pid, SIGCONT);
    fx_nap(500);
    kill(f->pid, SIGTERM);
    fx_nap(50);
    kill(pid, SIGCONT);
    assert_int_equal(fx_wait_end(f, 10), 0);
}

static void test_gives_up(void **state)
{
    struct fx *f = *state;
    pid_t pid = 0;
    f->serve = true;
    fx_start(f);
    fx_wait_overall(f, "ready", 10);
    for (int i = 0; i < 5; i++) {
        pid = next_vitriold(f, pid, 8);
        kill(pid, SIGKILL);
    }
    assert_int_equal(fx_wait_end(f, 5), VT_EX_INTERNAL);
    assert_non_null(strstr(fx_log(f), "5 times within 30 s of its start: giving up"));
}

/* An end that says what to mend is not tried again. */
static void test_final(void **state)
{
    struct fx *f = *state;
    f->serve = true;
    f->inherit = fx_listen_any(&f->port);
    fx_set(f, "http.listen=127.0.0.1:1");
    fx_start(f);
    assert_int_equal(fx_wait_end(f, 5), VT_EX_CONFIG);
    assert_null(strstr(fx_log(f), "again"));
    close(f->inherit);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fx_setup, fx_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_port_outlives_vitriold),
        T(test_interrupted_when_ready),
        T(test_gives_up),
        T(test_final),
    };
    return cmocka_run_group_tests_name("serve", tests, NULL, NULL);
}
