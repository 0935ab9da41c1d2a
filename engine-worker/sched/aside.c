#include "aside.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct aside {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    void (*fn)(void *arg); /* NULL: nothing to do */
    void *arg;
    bool end;
};

static void *run(void *arg)
{
    struct aside *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->end) {
        if (!a->fn) {
            pthread_cond_wait(&a->change, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        a->fn(a->arg);
        pthread_mutex_lock(&a->lock);
        a->fn = NULL;
        pthread_cond_broadcast(&a->change);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

int aside_new(struct aside **out, struct vt_err *err)
{
    struct aside *a = calloc(1, sizeof *a);
    *out = NULL;
    if (!a)
        return vt_fail(err, VT_E_NOMEM, "out of memory for a thread");
    sigset_t all, old;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->change, NULL);
    sigfillset(&all); /* signals belong to the thread that has the main loop */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&a->thread, NULL, run, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        pthread_cond_destroy(&a->change);
        pthread_mutex_destroy(&a->lock);
        free(a);
        return vt_fail(err, VT_E_OS, "cannot start a thread: %s", strerror(rc));
    }
    *out = a;
    return 0;
}

void aside_free(struct aside *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->end = true;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
    pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->change);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

void aside_start(struct aside *a, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&a->lock);
    a->arg = arg;
    a->fn = fn;
    pthread_cond_broadcast(&a->change);
    pthread_mutex_unlock(&a->lock);
}

void aside_wait(struct aside *a)
{
    pthread_mutex_lock(&a->lock);
    while (a->fn)
        pthread_cond_wait(&a->change, &a->lock);
    pthread_mutex_unlock(&a->lock);
}
