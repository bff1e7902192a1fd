/* Handlers that use semaphores, run by each call that waits with a mask of its own or for signals; in the main thread and in another; set by
 * sigaction(2), and by syscall(2). */
#include "test.h"
#include <poll.h>
#include <sys/select.h>

enum wait { PPOLL, PSELECT, SIGSUSPEND, SIGTIMEDWAIT, SIGWAITINFO, SIGWAIT, NANOSLEEP, WAITS };
static const char *const wait_names[] = { "ppoll", "pselect", "sigsuspend", "sigtimedwait", "sigwaitinfo", "sigwait", "nanosleep" };
static const long numbers[] = { SYS_ppoll, SYS_pselect6, SYS_rt_sigsuspend, SYS_rt_sigtimedwait, SYS_rt_sigtimedwait, SYS_rt_sigtimedwait,
    SYS_clock_nanosleep };
enum action { OPERATES, TIMES_OUT, IS_SERVED, NESTS, FORKS, JUMPS, ACTIONS };
static const char *const action_names[] = { "operates", "times out", "is served", "nests", "forks", "jumps" };

static int id;
static enum wait which;
static enum action action;
static volatile int calls, nested, result, number, done, waiter, child_status;
static sigjmp_buf back;

static void second(int sig)
{
    (void)sig;
    nested++;
    op(id, 1, 1, SEM_UNDO);
}
static void handler(int sig)
{
    struct timespec t = { 0, 5000000 };
    struct sembuf take = { 0, -1, SEM_UNDO };
    int saved = errno, status = 0;
    (void)sig;
    calls++;
    switch (action) {
    case TIMES_OUT:
        result = semtimedop(id, &take, 1, &t);
        break;
    case IS_SERVED:
        result = semop(id, &take, 1);
        break;
    case FORKS: {
        pid_t child = fork();
        if (child == 0)
            _exit(op(id, 1, 1, SEM_UNDO) == 0 && op(id, 2, 1, 0) == 0 ? 0 : 1);
        waitpid(child, &status, 0);
        child_status = status;
        result = op(id, 1, 1, SEM_UNDO);
        break;
    }
    case NESTS:
        result = op(id, 1, 1, 0);
        pthread_kill(pthread_self(), SIGUSR2);
        break;
    default:
        result = op(id, 1, 1, SEM_UNDO) + op(id, 1, 0, IPC_NOWAIT);
    }
    number = errno;
    done = 1;
    if (action == JUMPS)
        siglongjmp(back, 1);
    errno = saved;
}

/* True when the waiting thread is in the call. */
static int waits(void)
{
    char path[64], text[32] = "";
    if (waiter == 0)
        return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return 0;
    char *line = fgets(text, sizeof text, f);
    fclose(f);
    return line != NULL && strtol(text, NULL, 10) == numbers[which] && text[0] != 'r';
}

static void *sends(void *to)
{
    while (!waits())
        usleep(200);
    pthread_kill(*(pthread_t *)to, SIGUSR1);
    if (action == IS_SERVED) {
        until_sleepers(id, 1);
        op(id, 0, 1, 0);
    }
    while (!done)
        usleep(200);
    /* sigwait does not end by another signal's handler. */
    if (which == SIGWAIT && action != JUMPS)
        pthread_kill(*(pthread_t *)to, SIGRTMIN);
    return NULL;
}

static int wait_now(void)
{
    struct timespec t = { 50, 0 };
    sigset_t open, awaited;
    int sig = 0, r;
    sigemptyset(&open);
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGRTMIN);
    waiter = syscall(SYS_gettid);
    switch (which) {
    case PPOLL: return ppoll(NULL, 0, &t, &open);
    case PSELECT: return pselect(0, NULL, NULL, NULL, &t, &open);
    case SIGSUSPEND: return sigsuspend(&open);
    case SIGTIMEDWAIT: return sigtimedwait(&awaited, NULL, &t);
    case SIGWAITINFO: return sigwaitinfo(&awaited, NULL);
    case SIGWAIT: r = sigwait(&awaited, &sig); return r == 0 ? sig == SIGRTMIN : -2;
    default: return nanosleep(&t, NULL);
    }
}

static void *round_of(void *arg)
{
    pthread_t sender, self = pthread_self();
    sigset_t mask, after;
    int blocks = which == PPOLL || which == PSELECT || which == SIGSUSPEND;
    (void)arg;
    calls = nested = number = done = waiter = child_status = 0;
    result = -9;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN);
    if (blocks)
        sigaddset(&mask, SIGUSR1);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_create(&sender, NULL, sends, &self);
    int r = -4, e = 0;
    if (sigsetjmp(back, 1) == 0) {
        errno = 0;
        r = wait_now();
        e = errno;
    }
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    pthread_join(sender, NULL);
    printf("  %s, %s: %d %s; handler: %d calls, %d nested, result %d %s, child %x; blocked %d; values %d %d %d, sleepers %d\n", wait_names[which],
           action_names[action], r, r == -1 ? error_name(e) : "-", calls, nested, result, result == -1 ? error_name(number) : "-", child_status,
           sigismember(&after, SIGUSR1), semctl(id, 0, GETVAL), semctl(id, 1, GETVAL), semctl(id, 2, GETVAL), semctl(id, 0, GETNCNT));
    /* The thread's next calls are what they are without signals. */
    if (op(id, 2, 1, SEM_UNDO) != 0 || op(id, 2, -1, SEM_UNDO) != 0)
        printf("  and then %s\n", error_name(errno));
    return NULL;
}

static void rounds(const char *where, int threads)
{
    printf("%s\n", where);
    for (which = 0; which < WAITS; which++)
        for (action = 0; action < ACTIONS; action++) {
            if (threads) {
                pthread_t t;
                pthread_create(&t, NULL, round_of, NULL);
                pthread_join(t, NULL);
            } else {
                round_of(NULL);
            }
            semctl(id, 1, SETVAL, 0);
        }
}

struct kernel_action {
    void (*handler)(int);
    unsigned long flags;
    void *restorer;
    unsigned long mask;
};

int main(void)
{
    struct kernel_action now, is, none;
    sigset_t mask;
    id = new_set(3);
    setbuf(stdout, NULL);
    signal(SIGUSR1, handler);
    signal(SIGUSR2, second);
    rounds("main thread", 0);
    rounds("another thread", 1);

    /* By number. The C library's action shows how: with its restorer. */
    signal(SIGUSR1, SIG_DFL);
    sigemptyset(&mask);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    struct sigaction quiet = { .sa_flags = SA_NODEFER };
    quiet.sa_handler = second;
    sigaction(SIGUSR1, &quiet, NULL);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &now, 8));
    SHOW(now.handler == second);
    SHOW(now.flags & (SA_NODEFER | SA_RESTART | SA_SIGINFO));
    SHOW(now.mask);
    now.handler = handler;
    now.flags &= ~(unsigned long)SA_NODEFER;
    now.mask = 1UL << (SIGWINCH - 1);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, &now, &is, 8));
    SHOW(is.handler == second);
    rounds("set by number, main thread", 0);
    rounds("set by number, another thread", 1);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &is, 8));
    SHOW(is.handler == handler && is.flags == now.flags && is.mask == now.mask && is.restorer == now.restorer);
    memset(&none, 0, sizeof none);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, &none, &is, 8));
    SHOW(is.handler == handler);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &is, 8));
    SHOW(is.handler == SIG_DFL);
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, &is, 16));
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8));
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, (void *)8, 8));
    SHOW(syscall(SYS_rt_sigaction, SIGKILL, &none, NULL, 8));
    SHOW(syscall(SYS_rt_sigaction, SIGKILL, NULL, &is, 8));
    SHOW(syscall(SYS_rt_sigaction, 65, NULL, &is, 8));
    SHOW(syscall(SYS_rt_sigaction, 0, &none, NULL, 8));
    SHOW(syscall(SYS_rt_sigaction, 33, NULL, &is, 8));
    semctl(id, 0, IPC_RMID);
    return 0;
}
