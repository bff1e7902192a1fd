/* A signal after each instruction of a call, by single-stepping: the handler uses the same semaphores, and returns or jumps out. */
#include "test.h"
#include <sys/ptrace.h>

enum { PLAIN, UNDO, TWO, SLEEP, CASES };
static const char *const names[] = { "plain", "undo", "two", "sleep" };
/* Long calls: only some of their instructions. */
static const int strides[] = { 2, 5, 41, 67 };

static int id;
static volatile int jumping, failed, calls;
static sigjmp_buf back;

static void handler(int sig)
{
    calls++;
    if (semctl(id, 1, GETNCNT) != 0)
        failed = 1;
    /* It leaves its mark, so that nobody can overwrite it unnoticed. */
    if (op(id, 0, 1, SEM_UNDO | IPC_NOWAIT) != 0)
        failed = 2;
    if (jumping)
        siglongjmp(back, sig);
}

static int call(int which)
{
    struct sembuf b[2] = { { 0, 1, which == UNDO || which == TWO ? SEM_UNDO : 0 }, { 1, 1, SEM_UNDO } };
    struct sembuf too_much = { 1, -100, SEM_UNDO };
    struct timespec moment = { 0, 300000 };
    if (which == SLEEP)
        return semtimedop(id, &too_much, 1, &moment) == -1 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
    return semop(id, b, which == TWO ? 2 : 1);
}

/* Exits with 0, or says which promise is broken. */
static void child(int which)
{
    struct sigaction a = { .sa_flags = 0 };
    a.sa_handler = handler;
    sigaction(SIGUSR1, &a, NULL);
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    /* Everything that a first call does is done. */
    op(id, 0, 1, SEM_UNDO);
    op(id, 0, -1, SEM_UNDO);
    struct sembuf two[2] = { { 0, 1, SEM_UNDO }, { 1, 1, SEM_UNDO } };
    semop(id, two, 2);
    two[0].sem_op = two[1].sem_op = -1;
    semop(id, two, 2);
    call(SLEEP);

    int value = semctl(id, 0, GETVAL), r = 0, adds = which != SLEEP;
    if (sigsetjmp(back, 1) == 0) {
        raise(SIGSTOP);
        r = call(which);
        raise(SIGSTOP);
        if (r != 0 || semctl(id, 0, GETVAL) != value + adds + 1)
            _exit(10);
    }
    op(id, 0, -1, SEM_UNDO);
    int now = semctl(id, 0, GETVAL);
    if (now != value && now != value + adds)
        _exit(11);
    if (failed)
        _exit(20 + failed);
    if (semctl(id, 1, GETNCNT) != 0)
        _exit(12);
    if (op(id, 0, 1, SEM_UNDO) != 0 || op(id, 0, -1, SEM_UNDO) != 0 || semctl(id, 0, GETVAL) != now)
        _exit(13);
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    for (int s = 1; s < 65; s++)
        if (sigismember(&mask, s) == 1)
            _exit(14);
    _exit(calls == 1 ? 0 : 15);
}

/* Runs a child, with the signal after `n` instructions; false when its call has fewer. */
static int run(int which, int n)
{
    int status;
    semctl(id, 0, SETVAL, 5);
    semctl(id, 1, SETVAL, 5);
    pid_t pid = fork();
    if (pid == 0)
        child(which);
    waitpid(pid, &status, 0);
    for (int i = 0; i < n; i++) {
        ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
        waitpid(pid, &status, 0);
        if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP) {
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 0;
        }
    }
    ptrace(PTRACE_CONT, pid, 0, SIGUSR1);
    while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
        ptrace(PTRACE_CONT, pid, 0, WSTOPSIG(status) == SIGSTOP ? 0 : WSTOPSIG(status));
    int left = semctl(id, 0, GETVAL), expected = which == PLAIN && !jumping ? 6 : 5;
    /* Who jumps out of a plain call cannot know whether it was carried out. */
    int good = left == expected || (which == PLAIN && jumping && left == 6);
    if (status != 0 || !good || semctl(id, 1, GETVAL) != 5)
        printf("%s, jumping %d, instruction %d: status %x, values %d %d\n", names[which], jumping, n, status, left, semctl(id, 1, GETVAL));
    return 1;
}

int main(void)
{
    setbuf(stdout, NULL);
    /* Tracer and traced take turns: faster on one processor. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    id = new_set(2);
    for (int which = 0; which < CASES; which++)
        for (int jump = 0; jump < 2; jump++) {
            jumping = jump;
            int n = 1;
            while (run(which, n))
                n += strides[which];
            printf("%s, jumping %d: done\n", names[which], jump);
        }
    semctl(id, 0, IPC_RMID);
    return 0;
}
