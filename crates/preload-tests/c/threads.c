/* Threads: mutual exclusion, adjustments in common, cancellation. */
#include "test.h"

enum { THREADS = 4, ROUNDS = 3000 };
static int id;
static volatile int inside, collisions, total;

static void *excludes(void *arg)
{
    int flags = arg ? SEM_UNDO : 0;
    for (int i = 0; i < ROUNDS; i++) {
        while (op(id, 0, -1, flags) != 0)
            ;
        if (__atomic_fetch_add(&inside, 1, __ATOMIC_RELAXED) != 0)
            collisions++;
        total++;
        __atomic_fetch_sub(&inside, 1, __ATOMIC_RELAXED);
        op(id, 0, 1, flags);
    }
    return NULL;
}
static void *takes(void *arg)
{
    op(id, 0, -1, SEM_UNDO);
    return arg;
}
static void *comes_and_goes(void *arg)
{
    op(id, 0, 1, SEM_UNDO);
    op(id, 0, -1, SEM_UNDO);
    return arg;
}
static int mappings(void)
{
    FILE *f = fopen("/proc/self/maps", "r");
    int n = 0;
    for (int c; (c = getc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}
static void *waits(void *arg)
{
    waitpid((pid_t)(intptr_t)arg, NULL, 0);
    return NULL;
}

int main(void)
{
    pthread_t t[THREADS];
    id = new_set(1);
    for (int undo = 0; undo < 2; undo++) {
        semctl(id, 0, SETVAL, 1);
        total = 0;
        for (int i = 0; i < THREADS; i++)
            pthread_create(&t[i], NULL, excludes, undo && i % 2 ? (void *)1 : NULL);
        for (int i = 0; i < THREADS; i++)
            pthread_join(t[i], NULL);
        printf("total %d collisions %d value %d\n", total, collisions, semctl(id, 0, GETVAL));
    }

    /* The end of a thread undoes nothing, that of the process does. */
    semctl(id, 0, SETVAL, 3);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        pthread_create(&t[0], NULL, takes, NULL);
        pthread_join(t[0], NULL);
        _exit(semctl(id, 0, GETVAL));
    }
    int status;
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    SHOW(semctl(id, 0, GETVAL));

    /* Threads that come and go leave nothing behind. */
    int before = mappings();
    for (int i = 0; i < 500; i++) {
        pthread_create(&t[0], NULL, comes_and_goes, NULL);
        pthread_join(t[0], NULL);
    }
    int after = mappings();
    SHOW(after < before + 20);

    /* A thread that is cancelled in the real waitpid. */
    child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    void *result;
    pthread_create(&t[0], NULL, waits, (void *)(intptr_t)child);
    usleep(20000);
    pthread_cancel(t[0]);
    pthread_join(t[0], &result);
    SHOW(result == PTHREAD_CANCELED);
    kill(child, SIGKILL);
    SHOW(waitpid(child, NULL, 0) == child);
    semctl(id, 0, IPC_RMID);
    return 0;
}
