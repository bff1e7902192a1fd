/* Signals that meet semop. */
#include "test.h"

static int id, other, by_number;
static volatile int calls, result, number, count;
static sigjmp_buf back;

static void plain(int sig)
{
    (void)sig;
    calls++;
}
/* For the handler, the call that it interrupts is over: not in the queue. */
static void looks(int sig)
{
    (void)sig;
    calls++;
    count = semctl(id, 0, GETNCNT);
}
static void operates(int sig)
{
    (void)sig;
    calls++;
    result = op(other, 0, 1, 0);
    number = errno;
}
/* Makes the interrupted call possible, which fails all the same. */
static void gives(int sig)
{
    (void)sig;
    calls++;
    result = op(id, 0, 1, 0);
}
static void sleeps(int sig)
{
    struct timespec t = { 0, 20000000 };
    struct sembuf b = { 0, -1, 0 };
    (void)sig;
    calls++;
    result = semtimedop(other, &b, 1, &t);
    number = errno;
}
static void jumps(int sig)
{
    calls++;
    siglongjmp(back, sig);
}
static void exits(int sig)
{
    (void)sig;
    _exit(semctl(id, 0, GETNCNT) == 0 ? 7 : 8);
}

static void handle(int sig, void (*h)(int), int flags)
{
    struct sigaction a = { .sa_flags = flags };
    a.sa_handler = h;
    calls = 0;
    result = number = count = -99;
    sigaction(sig, &a, NULL);
    if (by_number) {
        /* As the C library would have it, by syscall(2). */
        struct { void (*handler)(int); unsigned long flags; void *restorer; unsigned long mask; } now;
        syscall(SYS_rt_sigaction, sig, NULL, &now, 8);
        now.handler = h;
        syscall(SYS_rt_sigaction, sig, &now, NULL, 8);
    }
}

/* Interrupts the thread once it sleeps on semaphore 0. */
static pthread_t sleeper;
static void *interrupts(void *arg)
{
    until_sleepers(id, 1);
    pthread_kill(sleeper, (int)(intptr_t)arg);
    return NULL;
}
static void sleep_interrupted(const char *what, int flags, int n, int timed)
{
    pthread_t t;
    struct sembuf b[2] = { { 0, -1, flags }, { 1, -1, flags } };
    struct timespec long_time = { 100, 5 };
    pthread_create(&t, NULL, interrupts, (void *)(intptr_t)SIGUSR1);
    errno = 0;
    int r = timed ? semtimedop(id, b, n, &long_time) : semop(id, b, n);
    int e = errno;
    pthread_join(t, NULL);
    printf("%s: %d %s, calls %d result %d %s count %d; after: value %d sleepers %d timeout %d\n", what, r, error_name(e), calls, result,
           number == -99 ? "-" : error_name(number), count, semctl(id, 0, GETVAL), semctl(id, 0, GETNCNT),
           long_time.tv_sec == 100 && long_time.tv_nsec == 5);
}

int main(void)
{
    id = new_set(2);
    other = new_set(1);
    sleeper = pthread_self();
    semctl(id, 1, SETVAL, 1);

    for (int round = 0; round < 3; round++)
        for (int n = 1; n <= 2; n++)
            for (int timed = 0; timed < 2; timed++) {
                /* The third time with handlers that are set by number. */
                int undo = round > 0 ? SEM_UNDO : 0;
                by_number = round == 2;
                printf("undo %d operations %d timed %d by number %d\n", undo != 0, n, timed, by_number);
                handle(SIGUSR1, plain, 0);
                sleep_interrupted("a handler", undo, n, timed);
                handle(SIGUSR1, plain, SA_RESTART);
                sleep_interrupted("with SA_RESTART", undo, n, timed);
                handle(SIGUSR1, looks, 0);
                sleep_interrupted("looks", undo, n, timed);
                handle(SIGUSR1, operates, 0);
                sleep_interrupted("operates on another", undo, n, timed);
                semctl(other, 0, SETVAL, 0);
                handle(SIGUSR1, gives, 0);
                sleep_interrupted("gives the unit", undo, n, timed);
                semctl(id, 0, SETVAL, 0);
                handle(SIGUSR1, sleeps, 0);
                sleep_interrupted("sleeps itself", undo, n, timed);
                handle(SIGUSR1, plain, SA_RESETHAND);
                sleep_interrupted("with SA_RESETHAND", undo, n, timed);
            }

    by_number = 0;

    /* Jumping out of a sleep: the next calls work, and nobody sleeps any more. */
    handle(SIGUSR1, jumps, 0);
    for (int i = 0; i < 50; i++) {
        pthread_t t;
        pthread_create(&t, NULL, interrupts, (void *)(intptr_t)SIGUSR1);
        if (sigsetjmp(back, 1) == 0)
            op(id, 0, -1, SEM_UNDO);
        pthread_join(t, NULL);
        if (semctl(id, 0, GETNCNT) != 0 || op(id, 0, 1, SEM_UNDO) != 0 || op(id, 0, -1, SEM_UNDO) != 0) {
            printf("after a jump: sleepers %d\n", semctl(id, 0, GETNCNT));
            break;
        }
    }
    printf("jumped %d times, value %d\n", calls, semctl(id, 0, GETVAL));

    /* alarm, and a process that ends in its handler. */
    handle(SIGALRM, plain, SA_RESTART);
    struct itimerval soon = { { 0, 0 }, { 0, 30000 } };
    setitimer(ITIMER_REAL, &soon, NULL);
    SHOW(op(id, 0, -1, 0));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGUSR1, exits);
        op(id, 0, -1, SEM_UNDO);
        _exit(9);
    }
    until_sleepers(id, 1);
    kill(child, SIGUSR1);
    int status;
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    SHOW(semctl(id, 0, GETNCNT));

    /* Stopped and continued. */
    child = fork();
    if (child == 0)
        _exit(op(id, 0, -1, 0) == -1 && errno == EINTR ? 1 : 2);
    until_sleepers(id, 1);
    kill(child, SIGSTOP);
    waitpid(child, &status, WUNTRACED);
    SHOW(WIFSTOPPED(status));
    kill(child, SIGCONT);
    op(id, 0, 1, 0);
    waitpid(child, &status, 0);
    SHOW(WIFEXITED(status));

    semctl(id, 0, IPC_RMID);
    semctl(other, 0, IPC_RMID);
    return 0;
}
