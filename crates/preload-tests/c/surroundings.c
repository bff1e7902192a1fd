/* Programs that change what surrounds them after they have started, as servers do, and go on with semaphores. */
#include "test.h"
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static int set;

/* An operation on the set made at the start, and a whole life of another one; all in one line. */
static void use(const char *where)
{
    struct sembuf up = { 0, 1, 0 }, both[] = { { 0, -1, SEM_UNDO }, { 1, 1, 0 } }, never = { 1, -9, IPC_NOWAIT };
    struct timespec soon = { 0, 1000000 };
    int up_r = semop(set, &up, 1), both_r = semop(set, both, 2);
    errno = 0;
    int never_r = semop(set, &never, 1), never_e = errno;
    errno = 0;
    never.sem_flg = 0;
    int timed_r = semtimedop(set, &never, 1, &soon), timed_e = errno;
    errno = 0;
    int other = semget(IPC_PRIVATE, 3, 0600), other_e = errno;
    int removed = other < 0 ? -2 : semctl(other, 0, IPC_RMID);
    printf("%s: %d %d, %d %s, %d %s, new set %s, removed %d\n", where, up_r, both_r, never_r, error_name(never_e), timed_r, error_name(timed_e),
        other >= 0 ? "made" : error_name(other_e), removed);
    fflush(stdout);
}

/* Runs in a child, so that each begins alike; the adjustment of a child is undone at its end. */
static void in_child(void (*body)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        body();
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("ended %s %d, values %d %d\n", WIFSIGNALED(status) ? "by signal" : "with", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
        semctl(set, 0, GETVAL), semctl(set, 1, GETVAL));
}

static void closes_all(void)
{
    int out = dup2(1, 900);
    for (int fd = 0; fd < 900; fd++) close(fd);
    for (int fd = 0; fd < 20; fd++) open("/dev/null", O_RDWR);
    use("before writing anywhere");
    dup2(out, 1);
    use("all descriptors closed, and their numbers used again");
    struct rlimit none = { 0, 0 };
    setrlimit(RLIMIT_NOFILE, &none);
    use("none allowed any more");
}

static void daemonises(void)
{
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            chdir("/");
            umask(0);
            use("daemon");
            _exit(0);
        }
        wait(NULL);
        _exit(0);
    }
    wait(NULL);
}

static void changes_root(void)
{
    if (chroot("/var/empty") && chroot("/proc")) perror("chroot");
    chdir("/");
    use("another root");
    if (fork() == 0) {
        use("a child in another root");
        _exit(0);
    }
    wait(NULL);
}

static void drops_privileges(void)
{
    semctl(set, 0, IPC_STAT, &(struct semid_ds){ 0 });
    struct semid_ds ds;
    semctl(set, 0, IPC_STAT, &ds);
    setgroups(0, NULL);
    setresgid(4242, 4242, 4242);
    setresuid(4242, 4242, 4242);
    use("another user, without rights to the set");
}

static void drops_privileges_shared(void)
{
    struct semid_ds ds;
    semctl(set, 0, IPC_STAT, &ds);
    ds.sem_perm.mode = 0666;
    semctl(set, 0, IPC_SET, &ds);
    setgroups(0, NULL);
    setresgid(4242, 4242, 4242);
    setresuid(4242, 4242, 4242);
    use("another user, with rights to the set");
}

static void gives_up_memory(void)
{
    struct rlimit small = { 200 << 20, 200 << 20 };
    setrlimit(RLIMIT_AS, &small);
    use("little address space");
    struct rlimit locked = { 0, 0 };
    setrlimit(RLIMIT_MEMLOCK, &locked);
    use("no locked memory");
}

/* Nothing but these; all else is EPERM. */
static void filter(const int *allowed, int n)
{
    struct sock_filter program[64];
    int at = 0;
    program[at++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (int i = 0; i < n; i++) {
        program[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    program[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    struct sock_fprog whole = { at, program };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &whole)) perror("seccomp");
}

static const int usual[] = {
    SYS_semop, SYS_semtimedop, SYS_semget, SYS_semctl, SYS_write, SYS_exit_group, SYS_exit, SYS_futex, SYS_rt_sigreturn, SYS_rt_sigprocmask,
    SYS_clock_gettime, SYS_clock_nanosleep, SYS_gettimeofday, SYS_brk, SYS_mmap, SYS_munmap, SYS_madvise, SYS_mremap, SYS_getpid, SYS_gettid,
    SYS_fstat, SYS_newfstatat, SYS_lseek,
};

static void sandboxed(void)
{
    use("before the sandbox");
    filter(usual, sizeof usual / sizeof *usual);
    use("in a sandbox");
}

static void sandboxed_at_once(void)
{
    filter(usual, sizeof usual / sizeof *usual);
    use("in a sandbox from the start");
}

static void many_threads_leave(void)
{
    for (int i = 0; i < 200; i++) {
        pthread_t t;
        struct sembuf up = { 0, 1, 0 };
        void *body(void *arg) { return (void *)(intptr_t)semop(set, arg, 1); }
        if (pthread_create(&t, NULL, body, &up)) perror("pthread_create");
        void *r;
        pthread_join(t, &r);
        if (r) printf("thread %d: %ld\n", i, (long)(intptr_t)r);
    }
    use("after two hundred threads");
}

int main(void)
{
    mkdir("/var/empty", 0755);
    set = semget(IPC_PRIVATE, 2, 0600);
    use("as it was");
    in_child(closes_all);
    in_child(daemonises);
    in_child(changes_root);
    in_child(gives_up_memory);
    in_child(sandboxed);
    in_child(sandboxed_at_once);
    in_child(many_threads_leave);
    if (geteuid() == 0) {
        in_child(drops_privileges);
        in_child(drops_privileges_shared);
    }
    semctl(set, 0, IPC_RMID);
    return 0;
}
