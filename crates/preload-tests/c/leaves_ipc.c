/* A program leaves its IPC namespace after it has started. */
#include "test.h"

int main(void)
{
    int id = semget(0x6d776c76, 1, IPC_CREAT | 0600);
    struct sembuf up = { 0, 2, 0 }, down = { 0, -1, SEM_UNDO };
    semop(id, &up, 1);
    semop(id, &down, 1);
    int left = unshare(CLONE_NEWIPC);
    int value = semctl(id, 0, GETVAL), e = errno;
    printf("%d: ", left);
    if (value < 0) printf("%s\n", error_name(e));
    else printf("%d\n", value);
    semctl(id, 0, IPC_RMID);
    return 0;
}
