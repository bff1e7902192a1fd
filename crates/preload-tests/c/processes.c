/* fork, vfork, execve, wait and what they do to adjustments. */
#include "test.h"

extern char **environ;
static int id;

static int undo_is_done(void)
{
    return semctl(id, 0, GETVAL) == 1;
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        /* What this program executes itself as: takes or gives a unit of the set it is told. */
        id = atoi(argv[1]);
        return op(id, 0, atoi(argv[2]), SEM_UNDO | IPC_NOWAIT) == 0 ? 0 : 1;
    }
    id = new_set(1);
    semctl(id, 0, SETVAL, 1);
    char set[16];
    snprintf(set, sizeof set, "%d", id);
    int status, good = 0;

    /* The undo of a child is done when wait reports it, whoever of the family does. */
    for (int i = 0; i < 300; i++) {
        pid_t child = fork();
        if (child == 0) {
            op(id, 0, -1, SEM_UNDO);
            if (i % 3 == 0)
                kill(getpid(), SIGKILL);
            _exit(0);
        }
        siginfo_t info;
        switch (i % 5) {
        case 0: wait(&status); break;
        case 1: waitpid(child, NULL, 0); break;
        case 2: wait3(&status, 0, NULL); break;
        case 3: wait4(child, &status, 0, NULL); break;
        case 4: waitid(P_PID, child, i % 2 ? &info : NULL, WEXITED); break;
        }
        good += undo_is_done();
    }
    SHOW(good);

    /* The parent's adjustment is not the child's. */
    op(id, 0, -1, SEM_UNDO);
    pid_t child = fork();
    if (child == 0) {
        op(id, 0, 3, SEM_UNDO);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    SHOW(semctl(id, 0, GETVAL));
    op(id, 0, 1, SEM_UNDO);
    SHOW(semctl(id, 0, GETPID) == getpid());

    /* An adjustment survives execve: here the child of fork takes, its new image takes too. */
    semctl(id, 0, SETVAL, 2);
    child = fork();
    if (child == 0) {
        op(id, 0, -1, SEM_UNDO);
        execl("/proc/self/exe", argv[0], set, "-1", NULL);
        _exit(99);
    }
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    SHOW(semctl(id, 0, GETVAL));

    /* vfork: the child borrows its parent's memory, then exits or executes; the parent's calls are its own afterwards. */
    for (int i = 0; i < 20; i++) {
        op(id, 0, -1, SEM_UNDO);
        child = vfork();
        if (child == 0) {
            if (i % 2)
                _exit(0);
            execl("/proc/self/exe", argv[0], set, "-1", NULL);
            _exit(99);
        }
        waitpid(child, &status, 0);
        if (WEXITSTATUS(status) != 0 || semctl(id, 0, GETVAL) != 1)
            printf("%d: status %d value %d\n", i, WEXITSTATUS(status), semctl(id, 0, GETVAL));
        if (op(id, 0, 1, SEM_UNDO) != 0 || semctl(id, 0, GETVAL) != 2 || semctl(id, 0, GETPID) != getpid())
            printf("%d: value %d\n", i, semctl(id, 0, GETVAL));
    }
    SHOW(semctl(id, 0, GETVAL));

    /* A child that sleeps is woken by its parent, and its operation carries its pid. */
    semctl(id, 0, SETVAL, 0);
    child = fork();
    if (child == 0)
        _exit(op(id, 0, -1, 0) == 0 ? 0 : 1);
    until_sleepers(id, 1);
    SHOW(op(id, 0, 1, 0));
    waitpid(child, &status, 0);
    SHOW(WEXITSTATUS(status));
    SHOW(semctl(id, 0, GETPID) == child);

    /* Adjustments are applied when the process leaves the list of them. */
    op(id, 0, 5, SEM_UNDO);
    SHOW(semctl(id, 0, GETVAL));
    SHOW(unshare(CLONE_SYSVSEM));
    SHOW(semctl(id, 0, GETVAL));

    SHOW(waitpid(-1, NULL, 0));
    SHOW(wait(NULL));
    siginfo_t info;
    SHOW(waitid(P_ALL, 0, &info, WEXITED));
    SHOW(waitpid(getpid(), NULL, WNOHANG));
    semctl(id, 0, IPC_RMID);
    return 0;
}
