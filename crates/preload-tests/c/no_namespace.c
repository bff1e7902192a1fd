/* Started without a namespace. */
#include "test.h"

#define CALL(name, e) do { errno = 0; long r_ = (e); printf("%s: %s\n", name, r_ == -1 ? error_name(errno) : "worked"); } while (0)

int main(void)
{
    struct sembuf up = { 0, 1, 0 };
    struct timespec zero = { 0, 0 };
    CALL("semget", semget(0x6d776e6e, 1, IPC_CREAT | 0600));
    CALL("semop", semop(0, &up, 1));
    CALL("semtimedop", semtimedop(0, &up, 1, &zero));
    CALL("semctl", semctl(0, 0, GETVAL));
    CALL("syscall", syscall(SYS_semget, 0x6d776e6e, 1, IPC_CREAT | 0600));
    return 0;
}
