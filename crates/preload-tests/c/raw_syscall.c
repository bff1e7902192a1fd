/* syscall(2): semaphore calls by number, and that all others are what they were. */
#include "test.h"

int main(void)
{
    struct sembuf up = { 0, 1, 0 };
    struct timespec zero = { 0, 0 };
    struct semid_ds ds;
    long id = syscall(SYS_semget, IPC_PRIVATE, 2, 0600);
    TRY(id);
    /* The same set as the functions see. */
    SHOW(semctl((int)id, 0, GETVAL));
    SHOW(syscall(SYS_semop, id, &up, 1));
    SHOW(syscall(SYS_semtimedop, id, &up, 1, &zero));
    SHOW(semctl((int)id, 0, GETVAL));
    SHOW(syscall(SYS_semctl, id, 0, GETVAL));
    SHOW(syscall(SYS_semctl, id, 1, SETVAL, 7));
    SHOW(syscall(SYS_semctl, id, 1, GETVAL, 0));
    SHOW(syscall(SYS_semctl, id, 0, IPC_STAT, &ds));
    SHOW(ds.sem_nsems);
    SHOW(syscall(SYS_semop, -1L, &up, 1));
    SHOW(syscall(SYS_semop, id, &up, 0));
    SHOW(syscall(SYS_semctl, id, 0, IPC_RMID));
    SHOW(syscall(SYS_semctl, id, 0, IPC_RMID));

    SHOW(syscall(SYS_getpid) == getpid());
    SHOW(syscall(SYS_close, 999));
    SHOW(syscall(100000L));
    SHOW(syscall(511L));
    SHOW(syscall(512L));
    SHOW(syscall(-1L));
    /* Six arguments, a negative 32-bit one among them. */
    char *p = (char *)syscall(SYS_mmap, NULL, 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
    SHOW(p != MAP_FAILED && (*p = 5) == 5);
    SHOW(syscall(SYS_mmap, NULL, 4096L, PROT_READ, MAP_PRIVATE, 0, 1L));
    errno = 77;
    syscall(SYS_getppid);
    SHOW(errno); /* SHOW sets it to 0 first */
    errno = 77;
    long r = syscall(SYS_getppid);
    printf("errno stays %d, %d\n", errno, r == getppid());
    pid_t child = fork();
    if (child == 0)
        _exit(3);
    int status = 0;
    SHOW(syscall(SYS_wait4, child, &status, 0, NULL) == child);
    SHOW(WEXITSTATUS(status));
    SHOW(syscall(SYS_wait4, child, &status, 0, NULL));
    SHOW(syscall(SYS_setreuid, -1, -1));
    SHOW(syscall(SYS_unshare, 0));
    SHOW(syscall(SYS_unshare, 1));
    return 0;
}
