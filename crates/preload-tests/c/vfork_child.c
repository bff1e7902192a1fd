/* A child of vfork makes semaphore calls itself, before it exits or executes. */
#include "test.h"

int main(void)
{
    int id = semget(IPC_PRIVATE, 1, 0600);
    struct sembuf up = { 0, 1, 0 };
    semop(id, &up, 1);
    /* The child's results, in the memory that it shares with its parent. */
    static volatile int errors[5];
    pid_t child = vfork();
    if (child == 0) {
        struct timespec soon = { 0, 1000 };
        errors[0] = semop(id, &up, 1) ? errno : 0;
        errors[1] = semtimedop(id, &up, 1, &soon) ? errno : 0;
        errors[2] = semctl(id, 0, GETVAL) < 0 ? errno : 0;
        errors[3] = semget(0x6d777666, 1, 0) < 0 ? errno : 0;
        errors[4] = semctl(id, 0, SETVAL, 5) < 0 ? errno : 0;
        _exit(0);
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 5; i++) printf("%s\n", error_name(errors[i]));
    /* The parent's calls are its own afterwards. */
    int own = semop(id, &up, 1), last = semctl(id, 0, GETPID) == getpid();
    printf("%d %d %d\n", own, last, semctl(id, 0, IPC_RMID));
    return 0;
}
