/* scripted-gateway SCRIPT [--port N] [--record DIR]: plays an engine for tests of Officina (script.h says
 * how).
 *
 * Prints "listening on 127.0.0.1:PORT" when it does. DIR gets request-NNNN.json (each chat request, byte for
 * byte), `log` (a line for each request) and verdict.json ({"ok","requests","unplayed","problems"}), written
 * anew after each request. At SIGTERM or SIGINT the exit code is 0 when there was no problem and every block
 * was played, else 1. */
#include "gate.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

uint64_t gate_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

void gate_sleep(double ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)((long long)(ms * 1e6) % 1000000000)};
    nanosleep(&t, NULL);
}

void gate_log(struct gate *g, const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line - 1, fmt, ap);
    va_end(ap);
    n = n < (int)sizeof line - 2 ? n : (int)sizeof line - 2;
    line[n] = '\n';
    if (g->log >= 0 && write(g->log, line, (size_t)n + 1) < 0)
        fprintf(stderr, "%.*s\n", n, line);
}

static bool went_well(const struct gate *g, size_t *unplayed)
{
    *unplayed = 0;
    for (size_t i = g->block; i < g->script.n_blocks; i++)
        *unplayed += g->script.blocks[i].number != 0;
    return json_array_size(g->problems) == 0 && !*unplayed;
}

void gate_verdict(struct gate *g)
{
    char path[1024], tmp[1040];
    size_t unplayed;
    bool ok = went_well(g, &unplayed);
    if (!g->record)
        return;
    snprintf(path, sizeof path, "%s/verdict.json", g->record);
    snprintf(tmp, sizeof tmp, "%s.new", path);
    json_t *o = json_pack("{s:b, s:i, s:i, s:O}", "ok", ok, "requests", (int)g->requests, "unplayed",
                          (int)unplayed, "problems", g->problems);
    if (json_dump_file(o, tmp, JSON_INDENT(1)) < 0 || rename(tmp, path) < 0)
        fprintf(stderr, "scripted-gateway: %s cannot be written\n", path);
    json_decref(o);
}

void gate_problem(struct gate *g, const char *text)
{
    fprintf(stderr, "scripted-gateway: request %u: %s\n", g->requests, text);
    json_array_append_new(g->problems, json_sprintf("request %u: %s", g->requests, text));
    gate_verdict(g);
}

void gate_listen(struct gate *g, bool on)
{
    if (on == (g->listener >= 0))
        return;
    if (!on) {
        close(g->listener);
        g->listener = -1;
        return;
    }
    int one = 1;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->port)};
    socklen_t len = sizeof a;
    inet_pton(AF_INET, g->addr, &a.sin_addr);
    g->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(g->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(g->listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(g->listener, 64) < 0) {
        fprintf(stderr, "scripted-gateway: port %d: %s\n", g->port, strerror(errno));
        exit(1);
    }
    getsockname(g->listener, (struct sockaddr *)&a, &len);
    g->port = ntohs(a.sin_port);
}

struct start {
    struct gate *g;
    size_t at; /* in conns */
    int fd;
};

static void *serve(void *arg)
{
    struct start s = *(struct start *)arg;
    struct conn c = {.fd = s.fd, .budget = -1};
    struct request r;
    free(arg);
    if (conn_read(&c, &r) == 0) {
        route(s.g, &c, &r);
        free(r.body);
    }
    pthread_mutex_lock(&s.g->lock);
    s.g->conns[s.at] = -1;
    pthread_mutex_unlock(&s.g->lock);
    if (!c.broken)
        shutdown(s.fd, SHUT_WR);
    close(s.fd);
    return NULL;
}

static void accept_one(struct gate *g)
{
    int fd = accept4(g->listener, NULL, NULL, SOCK_CLOEXEC);
    size_t at = 0, max = sizeof g->conns / sizeof *g->conns;
    if (fd < 0)
        return;
    while (at < max && g->conns[at] >= 0)
        at++;
    struct start *s = malloc(sizeof *s);
    pthread_t id;
    if (at == max || !s) {
        close(fd);
        free(s);
        return;
    }
    *s = (struct start){g, at, fd};
    g->conns[at] = fd;
    if (pthread_create(&id, NULL, serve, s) == 0) {
        pthread_detach(id);
        return;
    }
    g->conns[at] = -1;
    close(fd);
    free(s);
}

static int run(struct gate *g)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int sig = signalfd(-1, &set, SFD_CLOEXEC);
    size_t due = 0;
    for (;;) {
        struct pollfd p[2] = {{sig, POLLIN, 0}, {g->listener, POLLIN, 0}};
        poll(p, 2, 20); /* the timeline's grain; a negative descriptor is passed over */
        pthread_mutex_lock(&g->lock);
        if (p[1].revents & POLLIN)
            accept_one(g);
        for (; due < g->script.n_timed && (double)(gate_now() - g->start) / 1e6 >= g->script.timed[due].at;
             due++)
            (g->script.timed[due].kind == STEP_HEALTH ? gate_health : gate_telemetry)(g,
                                                                                      &g->script.timed[due]);
        if (p[0].revents & POLLIN) {
            size_t unplayed;
            gate_verdict(g);
            return went_well(g, &unplayed) ? 0 : 1;
        }
        pthread_mutex_unlock(&g->lock);
    }
}

static int load(struct gate *g, const char *path)
{
    static char text[1 << 20];
    struct vt_err err;
    FILE *f = fopen(path, "re");
    if (!f) {
        fprintf(stderr, "scripted-gateway: %s: %s\n", path, strerror(errno));
        return -1;
    }
    size_t n = fread(text, 1, sizeof text, f);
    fclose(f);
    if (script_parse(&g->script, text, n, &err) < 0) {
        fprintf(stderr, "scripted-gateway: %s: %s\n", path, err.text);
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct gate g = {.lock = PTHREAD_MUTEX_INITIALIZER, .addr = "127.0.0.1", .listener = -1, .log = -1};
    const char *script = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--port") == 0 && i + 1 < argc)
            g.port = atoi(argv[++i]);
        else if (strcmp(argv[i], "--record") == 0 && i + 1 < argc)
            g.record = argv[++i];
        else
            script = argv[i];
    }
    if (!script) {
        fprintf(stderr, "usage: scripted-gateway SCRIPT [--port N] [--record DIR]\n");
        return 64;
    }
    if (load(&g, script) < 0)
        return 78;
    if (g.record) {
        char path[1024];
        mkdir(g.record, 0755);
        snprintf(path, sizeof path, "%s/log", g.record);
        g.log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    }
    g.boot = (unsigned)atoi(gate_option(&g, "boot", "1"));
    g.health = strdup("ok");
    g.problems = json_array();
    g.series = json_object();
    g.start = gate_now();
    for (size_t i = 0; i < sizeof g.conns / sizeof *g.conns; i++)
        g.conns[i] = -1;
    gate_listen(&g, true);
    printf("listening on %s:%d\n", g.addr, g.port);
    fflush(stdout);
    return run(&g);
}
