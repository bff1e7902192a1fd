/* A signal after each instruction of each call, and a handler that does each thing a handler may do. Prints what came of it, each outcome once:
 * on the kernel these are all the outcomes that there may be.
 *
 * signals SAMPLES [CALL ACTION]: at most so many instructions of each pair, 0: all. */
#include "test.h"
#include <sys/ptrace.h>
#include <sys/user.h>

enum call { PLAIN, UNDO, TWO, FIVE, SLEEP, BLOCK, GET, VALUE, VALUES, SET_VALUE, SET_VALUES, STAT, CHANGE, REMOVE, CALLS };
static const char *const call_names[] = { "semop", "semop, undo", "semop, two", "semop, five", "semtimedop that sleeps", "semop that sleeps",
    "semget", "GETVAL", "GETALL", "SETVAL", "SETALL", "IPC_STAT", "IPC_SET", "IPC_RMID" };
enum action { RETURN, NEST, RESET, JUMP, FORK, FORK_BACK, EXEC, EXIT, QUICK_EXIT, THREAD_EXIT, CANCEL, CANCEL_ASYNC, ACTIONS };
static const char *const action_names[] = { "returns", "nests", "once", "jumps", "forks", "forks and both return", "executes", "exits",
    "exits at once", "ends its thread", "cancelled", "cancelled at once" };

/* What a child has to say, in memory that it shares with its tracer. */
static struct report {
    volatile int calls, nested, ncnt, used, good, result, why, child_status, cleaned, after, mask, cancel, ready;
} *report;
static enum call which;
static enum action action;
static int id;
static sigjmp_buf back;
static char alternate[1 << 16];
static pid_t tracer, me, forked = -1;
static pthread_t stepped;
static const char *self;

/* What the handlers do with the semaphores that the call is about. */
static int use(void)
{
    if (op(id, 0, 1, SEM_UNDO | IPC_NOWAIT) != 0)
        return errno;
    return 0;
}
static int masked(void)
{
    sigset_t now;
    int n = 0;
    sigprocmask(SIG_BLOCK, NULL, &now);
    for (int s = 1; s < 65; s++)
        n = sigismember(&now, s) == 1 ? n * 3 + s : n;
    return n;
}
static void other(int sig)
{
    (void)sig;
    report->nested++;
    op(id, 1, 1, SEM_UNDO | IPC_NOWAIT);
}
static void ends(void)
{
    op(id, 1, 1, 0);
}
static void handler(int sig, siginfo_t *info, void *context)
{
    char here;
    (void)context;
    int saved = errno, status;
    report->calls++;
    report->ncnt = semctl(id, 2, GETNCNT);
    report->used = use();
    report->mask = masked();
    /* From whom, with what, and where it runs. */
    report->good = info->si_signo == sig && info->si_code == SI_QUEUE && info->si_pid == tracer && info->si_value.sival_int == 77 &&
                   (action != RETURN || (&here >= alternate && &here < alternate + sizeof alternate));
    switch (action) {
    case NEST:
        raise(SIGUSR2);
        raise(SIGUSR2);
        break;
    case JUMP:
        siglongjmp(back, 1);
    case FORK:
    case FORK_BACK:
        if ((forked = fork()) == 0) {
            if (action == FORK_BACK)
                return;
            _exit(op(id, 0, -2, SEM_UNDO | IPC_NOWAIT) == 0 && op(id, 1, 1, 0) == 0 ? 0 : errno);
        }
        if (action == FORK) {
            waitpid(forked, &status, 0);
            report->child_status = status;
        }
        break;
    case EXEC: {
        char set[16];
        snprintf(set, sizeof set, "%d", id);
        execl(self, self, "image", set, NULL);
        _exit(99);
    }
    case EXIT:
        exit(3);
    case QUICK_EXIT:
        _exit(4);
    case THREAD_EXIT:
        pthread_exit(NULL);
    default:
        break;
    }
    errno = saved;
}
/* Runs when the thread is cancelled: for it the interrupted call is over. */
static void cleanup(void *arg)
{
    struct timespec moment = { 0, 1000000 };
    struct sembuf too_much = { 2, -1, SEM_UNDO };
    (void)arg;
    report->ncnt = semctl(id, 2, GETNCNT);
    report->used = use();
    report->cleaned = semtimedop(id, &too_much, 1, &moment) == -1 ? errno : 0;
}
static void *canceller(void *arg)
{
    report->ready = 1;
    while (report->cancel == 0)
        usleep(100);
    pthread_cancel(stepped);
    report->cancel = 2;
    return arg;
}

static int call(void)
{
    struct sembuf two[2] = { { 0, 1, SEM_UNDO }, { 1, -1, SEM_UNDO } };
    struct sembuf five[5] = { { 0, 1, 0 }, { 1, 1, SEM_UNDO }, { 0, -2, SEM_UNDO }, { 1, 1, 0 }, { 2, 0, 0 } };
    struct sembuf sleep = { 2, -1, SEM_UNDO };
    struct timespec moment = { 0, 12000000 };
    unsigned short values[3] = { 7, 8, 0 };
    union semun u;
    struct semid_ds ds;
    switch (which) {
    case PLAIN: return op(id, 0, 1, 0);
    case UNDO: return op(id, 0, 1, SEM_UNDO);
    case TWO: return semop(id, two, 2);
    case FIVE: return semop(id, five, 5);
    case SLEEP: return semtimedop(id, &sleep, 1, &moment);
    case BLOCK: return semop(id, &sleep, 1);
    case GET: return semget(0x51670, 2, IPC_CREAT | 0600) == -1 ? -1 : 0;
    case VALUE: return semctl(id, 1, GETVAL) == 5 ? 0 : -2;
    case VALUES: u.array = values; return semctl(id, 0, GETALL, u) == 0 && values[1] == 5 && values[2] == 0 ? 0 : -2;
    case SET_VALUE: u.val = 7; return semctl(id, 1, SETVAL, u);
    case SET_VALUES: u.array = values; return semctl(id, 0, SETALL, u);
    case STAT: u.buf = &ds; return semctl(id, 0, IPC_STAT, u) == 0 && ds.sem_nsems == 3 ? 0 : -2;
    case CHANGE: u.buf = &ds; semctl(id, 0, IPC_STAT, u); ds.sem_perm.mode = 0640; return semctl(id, 0, IPC_SET, u);
    case REMOVE: return semctl(semget(0x51671, 0, 0), 0, IPC_RMID);
    default: return -3;
    }
}

/* In the child, from the call's end on. */
static void conclude(int r)
{
    int e = r == 0 ? 0 : errno;
    if (action == FORK_BACK && forked == 0)
        _exit(0);
    if (action == FORK_BACK && report->calls > 0) {
        int status;
        /* It may have met the stop behind the call, which is for the traced one. */
        while (waitpid(forked, &status, WNOHANG) == 0) {
            kill(forked, SIGCONT);
            usleep(300);
        }
        report->child_status = status;
    }
    report->result = r;
    report->why = e;
    report->after = use();
    struct sigaction now;
    sigaction(SIGUSR1, NULL, &now);
    if (action == RESET)
        report->nested = now.sa_handler == SIG_DFL;
    else if (now.sa_sigaction != handler)
        report->nested = -1;
    report->mask = report->mask * 100 + masked();
}

static void child(void)
{
    struct sigaction a = { .sa_flags = SA_SIGINFO };
    stack_t alt = { .ss_sp = alternate, .ss_size = sizeof alternate };
    a.sa_sigaction = handler;
    if (action == RETURN) {
        sigaltstack(&alt, NULL);
        a.sa_flags |= SA_ONSTACK;
        sigaddset(&a.sa_mask, SIGUSR2);
    }
    if (action == NEST)
        a.sa_flags |= SA_RESTART | SA_NODEFER;
    if (action == RESET)
        a.sa_flags |= SA_RESETHAND;
    sigaction(SIGUSR1, &a, NULL);
    signal(SIGUSR2, other);
    if (action == EXIT)
        atexit(ends);
    if (action == CANCEL || action == CANCEL_ASYNC) {
        pthread_t t;
        stepped = pthread_self();
        pthread_create(&t, NULL, canceller, NULL);
        while (!report->ready)
            usleep(50);
        if (action == CANCEL_ASYNC)
            pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    }
    /* Everything that a first call does is done, and it holds something. */
    struct sembuf two[2] = { { 0, -1, SEM_UNDO }, { 1, 0, IPC_NOWAIT } };
    op(id, 0, 1, SEM_UNDO);
    semop(id, two, 2);
    op(id, 0, -1, SEM_UNDO);
    me = getpid();
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    pthread_cleanup_push(cleanup, NULL);
    if (sigsetjmp(back, 1) == 0) {
        raise(SIGSTOP);
        errno = 0;
        int r = call();
        if (getpid() == me)
            raise(SIGSTOP);
        conclude(r);
        if (action == CANCEL)
            pthread_testcancel();
    } else {
        errno = 0;
        conclude(-4);
    }
    pthread_cleanup_pop(0);
    _exit(0);
}

/* wait4(2) itself: a library that looks at each process that waiting tells of would do so at each step. */
static pid_t wait_for(pid_t pid, int *status, int options)
{
    long r;
    register long four __asm__("r10") = 0;
    __asm__ volatile ("syscall" : "=a"(r) : "0"(SYS_wait4), "D"((long)pid), "S"(status), "d"((long)options), "r"(four) : "rcx", "r11", "memory");
    return r;
}
static long long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000LL + t.tv_nsec / 1000;
}
/* One instruction; 0: it did not come back from the kernel. */
static int step(pid_t pid, int *status)
{
    struct user_regs_struct regs;
    ptrace(PTRACE_GETREGS, pid, 0, &regs);
    int enters = (ptrace(PTRACE_PEEKTEXT, pid, regs.rip, 0) & 0xffff) == 0x050f;
    ptrace(PTRACE_SINGLESTEP, pid, 0, 0);
    if (!enters) {
        wait_for(pid, status, __WALL);
        return 1;
    }
    for (long long end = now_us() + 4000; now_us() < end; usleep(20))
        if (wait_for(pid, status, __WALL | WNOHANG) == pid)
            return 1;
    return 0;
}

static char seen[400][400];
static int outcomes, signals;

static void note(const char *text)
{
    for (int i = 0; i < outcomes; i++)
        if (strcmp(seen[i], text) == 0)
            return;
    if (outcomes < 400)
        strcpy(seen[outcomes++], text);
}

/* A child with the signal after `n` instructions; false when its call has fewer. */
static int run(int n)
{
    unsigned short start[3] = { 5, 5, 0 };
    union semun u = { .array = start };
    int status, more = 1;
    semctl(id, 0, SETALL, u);
    int key = semget(0x51670, 0, 0);
    if (key != -1)
        semctl(key, 0, IPC_RMID);
    int doomed = which == REMOVE ? semget(0x51671, 1, IPC_CREAT | 0600) : -1;
    memset(report, 0, sizeof *report);
    pid_t pid = fork();
    if (pid == 0)
        child();
    wait_for(pid, &status, __WALL);
    if (!WIFSTOPPED(status)) {
        printf("%s, %s: no start: %x\n", call_names[which], action_names[action], status);
        exit(1);
    }
    for (int i = 0; i < n && more == 1; i++) {
        if (!step(pid, &status)) {
            more = 2; /* asleep: that is the last place */
        } else if (!WIFSTOPPED(status) || WSTOPSIG(status) == SIGSTOP) {
            more = 0;
        }
    }
    if (more == 0) {
        kill(pid, SIGKILL);
        wait_for(pid, &status, __WALL);
        return 0;
    }
    signals++;
    if (action == CANCEL || action == CANCEL_ASYNC) {
        report->cancel = 1;
        while (report->cancel != 2)
            usleep(50);
    } else {
        sigqueue(pid, SIGUSR1, (union sigval){ .sival_int = 77 });
    }
    if (more == 1)
        ptrace(PTRACE_CONT, pid, 0, 0);
    /* Lets it go on to its end; gives it what it sleeps for, once the handler has been there. A cancellation that waits for a cancellation point
     * tells nobody. */
    long long end = now_us() + 20000000, give = now_us() + 30000;
    int given = 0;
    for (;;) {
        pid_t r = wait_for(pid, &status, __WALL | WNOHANG);
        if (r == pid && !WIFSTOPPED(status))
            break;
        if (r == pid) {
            int sig = WSTOPSIG(status);
            ptrace(PTRACE_CONT, pid, 0, sig == SIGSTOP || sig == SIGTRAP ? 0 : sig);
            continue;
        }
        if (which == BLOCK && (report->calls > 0 || (action == CANCEL && now_us() > give)) && semctl(id, 2, GETNCNT) > 0) {
            /* All who sleep (a forked child sleeps, too). */
            op(id, 2, 1, 0);
            given++;
        }
        if (now_us() > end) {
            kill(pid, SIGKILL);
            wait_for(pid, &status, __WALL);
            note("hangs");
            return more == 1;
        }
        usleep(50);
    }
    /* Who waits tells of the death. */
    waitpid(-1, NULL, WNOHANG);
    char text[400];
    struct semid_ds ds;
    u.buf = &ds;
    semctl(id, 0, IPC_STAT, u);
    int made = semget(0x51670, 0, 0), gone = doomed != -1 && semget(0x51671, 0, 0) == -1;
    /* A unit that was given and not taken: whether it was in time is chance. */
    int left = semctl(id, 2, GETVAL);
    snprintf(text, sizeof text, "status %x; handler: %d calls, use %s, sleepers %d, signal %d, nested %d, mask %d; child %x; cleaned %s; "
             "result %d %s, then %s; values %d %d %d, sleepers %d; mode %o, made %d, removed %d%s",
             status, report->calls, error_name(report->used), report->ncnt, report->good, report->nested, report->mask, report->child_status,
             error_name(report->cleaned), report->result, error_name(report->why), error_name(report->after), semctl(id, 0, GETVAL),
             semctl(id, 1, GETVAL), left, semctl(id, 2, GETNCNT), ds.sem_perm.mode & 0777, made != -1, gone, given > 0 ? ", given" : "");
    note(text);
    if (doomed != -1 && !gone)
        semctl(doomed, 0, IPC_RMID);
    ds.sem_perm.mode = 0600;
    semctl(id, 0, IPC_SET, u);
    return more == 1;
}

/* How many instructions the call has, up to where it sleeps. */
static int length(void)
{
    unsigned short start[3] = { 5, 5, 0 };
    union semun u = { .array = start };
    int status, n = 0;
    semctl(id, 0, SETALL, u);
    memset(report, 0, sizeof *report);
    if (which == REMOVE)
        semget(0x51671, 1, IPC_CREAT | 0600);
    pid_t pid = fork();
    if (pid == 0)
        child();
    wait_for(pid, &status, __WALL);
    while (n < 200000 && step(pid, &status) && WIFSTOPPED(status) && WSTOPSIG(status) != SIGSTOP)
        n++;
    kill(pid, SIGKILL);
    while (wait_for(pid, &status, __WALL) == pid && WIFSTOPPED(status))
        ;
    int key = semget(0x51670, 0, 0);
    if (key != -1)
        semctl(key, 0, IPC_RMID);
    return n;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "image") == 0) {
        /* What a handler executed: only the signal whose handler it was is blocked. */
        id = atoi(argv[2]);
        _exit(op(id, 0, -1, SEM_UNDO | IPC_NOWAIT) == 0 ? 50 + masked() : errno);
    }
    static char path[4096];
    path[readlink("/proc/self/exe", path, sizeof path - 1)] = 0;
    self = path;
    tracer = getpid();
    int samples = argc > 1 ? atoi(argv[1]) : 10;
    setbuf(stdout, NULL);
    /* Tracer and traced take turns: faster on one processor. */
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    /* … and before others, where that is allowed: else each turn may cost a slice of theirs. */
    struct sched_param first = { .sched_priority = 1 };
    sched_setscheduler(0, SCHED_RR, &first);
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    id = new_set(3);
    for (which = 0; which < CALLS; which++)
        for (action = 0; action < ACTIONS; action++) {
            if (argc > 3 && (strcmp(argv[2], call_names[which]) != 0 || strcmp(argv[3], action_names[action]) != 0))
                continue;
            outcomes = 0;
            int all = length(), stride = samples == 0 || all < samples ? 1 : all / samples;
            /* Another offset for each, so that together they meet different places. */
            for (int n = 1 + (int)(which * ACTIONS + action) * 7 % stride; run(n); n += stride)
                ;
            for (int i = 0; i < outcomes; i++)
                printf("%s, %s: %s\n", call_names[which], action_names[action], seen[i]);
        }
    printf("signals %d\n", signals);
    semctl(id, 0, IPC_RMID);
    return 0;
}
