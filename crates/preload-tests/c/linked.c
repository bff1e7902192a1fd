/* Linked with the library, not started by it. The first argument says what to do. */
#include "test.h"

#include <manyway.h>
#include <spawn.h>

extern char **environ;

/* How often the list that the C library's functions open names the key: the namespace's, or the kernel's. */
static int listed(const char *command)
{
    int n = -1;
    FILE *list = popen(command, "r");
    if (list == NULL || fscanf(list, "%d", &n) != 1)
        n = -1;
    if (list != NULL)
        pclose(list);
    return n;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const char *dir = argc > 2 ? argv[2] : NULL;
    if (strcmp(what, "without") == 0) {
        /* No namespace: every name of each call says so. */
        TRY(semget(IPC_PRIVATE, 1, 0600));
        TRY(manyway_semget(IPC_PRIVATE, 1, 0600));
        TRY(manyway_open(NULL, 0));
        return 0;
    }
    if (strcmp(what, "refused") == 0) {
        TRY(manyway_open("relative/path", MANYWAY_CREATE));
        TRY(manyway_open("/dev/shm", 64));
        TRY(manyway_open("/nonexistent/namespace", 0));
        return 0;
    }
    if (dir != NULL)
        TRY(manyway_open(dir, MANYWAY_CREATE));
    TRY(manyway_open(NULL, 0));
    if (dir != NULL) {
        TRY(manyway_open(dir, 0));
        TRY(manyway_open("/dev/shm", 0));
    }
    int id = semget(0x6d776c6b, 2, IPC_CREAT | 0600);
    struct sembuf down = { 0, -1, SEM_UNDO }, zero = { 1, 0, 0 };
    struct timespec soon = { 0, 1000000 };
    SHOW(manyway_semctl(id, 0, SETVAL, 3));
    SHOW(manyway_semop(id, &down, 1));
    SHOW(semop(id, &zero, 1));
    SHOW(semctl(id, 0, GETVAL));
    down.sem_op = -9;
    SHOW(manyway_semtimedop(id, &down, 1, &soon));
    SHOW(manyway_semget(0x6d776c6b, 0, 0) == id);
    /* A holder that dies gives back. */
    if (fork() == 0) {
        down.sem_op = -2;
        semop(id, &down, 1);
        raise(SIGKILL);
    }
    wait(NULL);
    SHOW(semctl(id, 0, GETVAL));
    /* What it executes, by the C library's own means, by exec and in an empty environment, is in the same namespace. */
    SHOW(listed("grep -c 1836543083 /proc/sysvipc/sem"));
    SHOW(listed("exec env -i grep -c 1836543083 /proc/sysvipc/sem"));
    char *args[] = { "grep", "-c", "1836543083", "/proc/sysvipc/sem", NULL }, *none[] = { NULL };
    fflush(stdout);
    pid_t child;
    if (posix_spawnp(&child, "grep", NULL, NULL, args, none) == 0)
        waitpid(child, NULL, 0);
    return 0;
}
