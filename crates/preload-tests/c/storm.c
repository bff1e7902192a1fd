/* Handlers that use semaphores, all the time, everywhere in the program's own calls, while another process competes: the units stay. */
#include "test.h"

static int id;
static volatile int calls, jumping;
static sigjmp_buf back;

static void handler(int sig)
{
    int e = errno;
    calls++;
    /* Never sleeps: it may have interrupted the one who holds what it wants. */
    if (op(id, 0, -1, IPC_NOWAIT | (calls % 2 ? SEM_UNDO : 0)) == 0)
        op(id, 0, 1, calls % 2 ? SEM_UNDO : 0);
    errno = e;
    if (jumping && calls % 7 == 0)
        siglongjmp(back, sig);
}

static void work(int seconds)
{
    struct sembuf take[2] = { { 0, -1, SEM_UNDO }, { 1, -1, SEM_UNDO } };
    struct sembuf give[2] = { { 0, 1, SEM_UNDO }, { 1, 1, SEM_UNDO } };
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end)
        for (int i = 0; i < 200; i++) {
            int n = 1 + i % 2;
            while (semop(id, take, n) != 0)
                if (errno != EINTR)
                    exit(2);
            while (semop(id, give, n) != 0)
                if (errno != EINTR)
                    exit(3);
        }
}

/* Interrupted by jumps: only calls that cannot sleep or change the sum for good. */
static void look(int seconds)
{
    time_t end = time(NULL) + seconds;
    while (time(NULL) < end) {
        if (sigsetjmp(back, 1) == 0) {
            jumping = 1;
            for (int i = 0; i < 200; i++) {
                struct timespec t = { 0, 50000 };
                struct sembuf b = { 2, -1, 0 };
                semtimedop(id, &b, 1, &t);
            }
        }
        jumping = 0;
    }
}

int main(void)
{
    id = new_set(3);
    unsigned short start[3] = { 1, 1, 0 };
    semctl(id, 0, SETALL, start);
    pid_t child[2];
    for (int i = 0; i < 2; i++)
        if ((child[i] = fork()) == 0) {
            signal(SIGALRM, handler);
            struct itimerval often = { { 0, 211 }, { 0, 211 } };
            setitimer(ITIMER_REAL, &often, NULL);
            work(2);
            look(1);
            struct itimerval never = { { 0, 0 }, { 0, 0 } };
            setitimer(ITIMER_REAL, &never, NULL);
            _exit(calls > 100 ? 0 : 1);
        }
    for (int i = 0; i < 2; i++) {
        int status;
        waitpid(child[i], &status, 0);
        printf("child: %s %d\n", WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    printf("values %d %d %d sleepers %d\n", semctl(id, 0, GETVAL), semctl(id, 1, GETVAL), semctl(id, 2, GETVAL), semctl(id, 2, GETNCNT));
    semctl(id, 0, IPC_RMID);
    return 0;
}
