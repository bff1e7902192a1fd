/* Who may do what, after the program has become another user. */
#include "test.h"
#include <grp.h>
#include <sys/fsuid.h>

int main(void)
{
    int id = new_set(1);
    int open_to_group = semget(IPC_PRIVATE, 1, 0060);
    SHOW(op(id, 0, 1, 0));
    SHOW(setegid(65534));
    SHOW(seteuid(65534));
    SHOW(op(id, 0, 1, 0));
    SHOW(semctl(id, 0, GETVAL));
    SHOW(semctl(id, 0, IPC_RMID));
    SHOW(op(open_to_group, 0, 1, 0));
    SHOW(seteuid(getuid()));
    SHOW(op(id, 0, 1, 0));
    SHOW(op(open_to_group, 0, 1, 0));
    SHOW(setegid(getgid()));
    SHOW(syscall(SYS_setresuid, -1, 65534, -1));
    SHOW(op(id, 0, 1, 0));
    SHOW(op(open_to_group, 0, 1, 0));
    SHOW(syscall(SYS_setresuid, -1, 0, -1));
    SHOW(op(id, 0, 1, 0));
    semctl(id, 0, IPC_RMID);
    semctl(open_to_group, 0, IPC_RMID);
    return 0;
}
