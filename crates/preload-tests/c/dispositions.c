/* What a program sees of its signal handlers: it must not see the library. */
#include "test.h"
#include <execinfo.h>
#include <ucontext.h>

/* Declared only for older standards. */
void (*bsd_signal(int, void (*)(int)))(int);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static volatile int calls, last_code, on_alternate_stack, nested, depth, raised;
static char alternate[1 << 16];
static volatile sigset_t seen;

static void plain(int sig)
{
    (void)sig;
    calls++;
}
static void other(int sig)
{
    (void)sig;
    calls += 100;
}
static void with_info(int sig, siginfo_t *info, void *context)
{
    char here;
    ucontext_t *c = context;
    last_code = info->si_code == SI_TKILL ? 1 : info->si_code == SI_QUEUE ? 2 + info->si_value.sival_int : info->si_code;
    on_alternate_stack = &here >= alternate && &here < alternate + sizeof alternate;
    sigprocmask(SIG_BLOCK, NULL, (sigset_t *)&seen);
    calls += info->si_signo == sig && sigismember(&c->uc_sigmask, SIGUSR2) == 0;
}
static void nesting(int sig)
{
    if (++depth < 4 && ++raised < 4)
        raise(sig);
    nested = depth > nested ? depth : nested;
    depth--;
}

static void show_action(int sig)
{
    struct sigaction a;
    memset(&a, 0xff, sizeof a);
    SHOW(sigaction(sig, NULL, &a));
    printf("  handler %s flags %x mask", a.sa_handler == plain ? "plain" : a.sa_handler == other ? "other" :
           a.sa_sigaction == with_info ? "with_info" : a.sa_handler == nesting ? "nesting" :
           a.sa_handler == SIG_DFL ? "default" : a.sa_handler == SIG_IGN ? "ignore" : "?", a.sa_flags);
    for (int s = 1; s < 65; s++)
        if (sigismember(&a.sa_mask, s) == 1)
            printf(" %d", s);
    printf("\n");
}

static void set(int sig, void (*h)(int), int flags, int masked)
{
    struct sigaction a = { .sa_flags = flags };
    a.sa_handler = h;
    sigemptyset(&a.sa_mask);
    if (masked)
        sigaddset(&a.sa_mask, masked);
    SHOW(sigaction(sig, &a, NULL));
}

static sigjmp_buf back;
static void jump(int sig)
{
    siglongjmp(back, sig);
}

static int frames;
static void *addresses[64];
static void trace(int sig)
{
    (void)sig;
    frames = backtrace(addresses, 64);
}

static void fault(int sig, siginfo_t *info, void *context)
{
    (void)context;
    printf("signal %d code %d address %p\n", sig, info->si_code, info->si_code > 0 ? info->si_addr : NULL);
    siglongjmp(back, 1);
}

static volatile int cleaned;
static void cleanup(void *arg)
{
    (void)arg;
    cleaned++;
}
static void leave(int sig)
{
    (void)sig;
    pthread_exit((void *)5);
}
static void *leaves_in_handler(void *arg)
{
    pthread_cleanup_push(cleanup, NULL);
    raise(SIGUSR1);
    pthread_cleanup_pop(0);
    return arg;
}

int main(void)
{
    /* sigaction: errors, old actions, flags, masks. */
    show_action(SIGUSR1);
    set(SIGUSR1, plain, 0, 0);
    show_action(SIGUSR1);
    set(SIGUSR1, other, SA_RESTART | SA_NODEFER, SIGHUP);
    show_action(SIGUSR1);
    set(SIGUSR1, SIG_IGN, SA_RESTART, SIGINT);
    show_action(SIGUSR1);
    raise(SIGUSR1);
    SHOW(calls);
    set(SIGUSR1, plain, 0, 0);
    raise(SIGUSR1);
    SHOW(calls);
    set(SIGKILL, plain, 0, 0);
    set(SIGSTOP, SIG_IGN, 0, 0);
    show_action(SIGKILL);
    set(0, plain, 0, 0);
    set(65, plain, 0, 0);
    set(-1, plain, 0, 0);
    set(32, plain, 0, 0);

    /* SA_SIGINFO, SA_ONSTACK, the context's mask. */
    stack_t alt = { .ss_sp = alternate, .ss_size = sizeof alternate };
    sigaltstack(&alt, NULL);
    set(SIGUSR1, (void (*)(int))with_info, SA_SIGINFO | SA_ONSTACK, SIGTERM);
    show_action(SIGUSR1);
    calls = 0;
    raise(SIGUSR1);
    printf("calls %d code %d alternate %d masked", calls, last_code, on_alternate_stack);
    for (int s = 1; s < 65; s++)
        if (sigismember((sigset_t *)&seen, s) == 1)
            printf(" %d", s);
    printf("\n");
    sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 40 });
    SHOW(last_code);

    /* SA_RESETHAND. */
    set(SIGUSR1, plain, SA_RESETHAND | SA_NODEFER, 0);
    show_action(SIGUSR1);
    calls = 0;
    raise(SIGUSR1);
    SHOW(calls);
    show_action(SIGUSR1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    SHOW(WIFSIGNALED(status) ? WTERMSIG(status) : 0);

    /* SA_NODEFER nests; without it the second waits. */
    set(SIGUSR1, nesting, SA_NODEFER, 0);
    raise(SIGUSR1);
    SHOW(nested);
    nested = depth = raised = 0;
    set(SIGUSR1, nesting, 0, 0);
    raise(SIGUSR1);
    SHOW(nested);

    /* The older functions. */
    SHOW(signal(SIGUSR2, plain) == SIG_DFL);
    show_action(SIGUSR2);
    SHOW(bsd_signal(SIGUSR2, other) == plain);
    SHOW(ssignal(SIGUSR2, plain) == other);
    SHOW(sysv_signal(SIGUSR2, other) == plain);
    show_action(SIGUSR2);
    raise(SIGUSR2);
    show_action(SIGUSR2);
    SHOW(signal(SIGUSR2, SIG_IGN) == SIG_DFL);
    SHOW(signal(SIGUSR2, plain) == SIG_IGN);
    SHOW(signal(SIGKILL, plain) == SIG_ERR);
    SHOW(signal(0, plain) == SIG_ERR);
    SHOW(signal(SIGUSR2, SIG_ERR) == SIG_ERR);
    SHOW(siginterrupt(SIGUSR2, 1));
    show_action(SIGUSR2);
    SHOW(signal(SIGUSR2, other) == plain);
    show_action(SIGUSR2);
    SHOW(siginterrupt(SIGUSR2, 0));
    show_action(SIGUSR2);
    SHOW(siginterrupt(99, 0));
    SHOW(sigset(SIGUSR2, plain) == other);
    show_action(SIGUSR2);
    SHOW(sigset(SIGUSR2, SIG_HOLD) == plain);
    SHOW(sigset(SIGUSR2, other) == SIG_HOLD);
    SHOW(sigset(SIGUSR2, plain) == other);
    SHOW(sigset(SIGKILL, plain) == SIG_ERR);
    SHOW(sigignore(SIGUSR2));
    show_action(SIGUSR2);

    /* Jumping out, faults, unwinding. */
    set(SIGUSR1, jump, 0, 0);
    int from = sigsetjmp(back, 1);
    if (from == 0)
        raise(SIGUSR1);
    SHOW(from == SIGUSR1);
    set(SIGSEGV, (void (*)(int))fault, SA_SIGINFO, 0);
    if (sigsetjmp(back, 1) == 0)
        *(volatile int *)0x10 = 1;
    set(SIGFPE, (void (*)(int))fault, SA_SIGINFO, 0);
    if (sigsetjmp(back, 1) == 0)
        kill(getpid(), SIGFPE) == 0 ? siglongjmp(back, 2) : (void)0;
    set(SIGUSR1, trace, 0, 0);
    raise(SIGUSR1);
    int found = 0;
    for (int i = 0; i < frames; i++) {
        char **name = backtrace_symbols(&addresses[i], 1);
        found |= strstr(name[0], "(main+") ? 1 : strstr(name[0], "(raise+") || strstr(name[0], "gsignal") ? 2 : 0;
        free(name);
    }
    printf("a backtrace from the handler reaches main: %d\n", found & 1);
    set(SIGUSR1, leave, 0, 0);
    pthread_t t;
    void *result;
    pthread_create(&t, NULL, leaves_in_handler, NULL);
    pthread_join(t, &result);
    printf("a thread left in a handler with %ld, cleaned up %d\n", (long)result, cleaned);
    return 0;
}
