/* Four processes under one lock, and one that is killed while it holds it. Linked with Manyway's library instead of started by it:
 *
 *     cc -o counter examples/counter.c $(pkg-config --cflags --libs manyway)
 *     ./counter /dev/shm/counter          # a namespace of its own
 *     manyway ls --dir /dev/shm/counter   # what is in it
 *     manyway run -- ./counter            # or the one that it is given
 */
#include <errno.h>
#include <manyway.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 4, ROUNDS = 10000 };

static int lock;

static void change(short by)
{
    struct sembuf op = { 0, by, SEM_UNDO };
    while (semop(lock, &op, 1) == -1)
        if (errno != EINTR) {
            perror("semop");
            exit(1);
        }
}

int main(int argc, char **argv)
{
    if (manyway_open(argc > 1 ? argv[1] : NULL, MANYWAY_CREATE) == -1) {
        perror("manyway_open");
        return 1;
    }
    volatile long *counter = mmap(NULL, sizeof *counter, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    lock = semget(IPC_PRIVATE, 1, 0600);
    if (lock == -1 || counter == MAP_FAILED || semctl(lock, 0, SETVAL, 1) == -1) {
        perror("semget");
        return 1;
    }
    /* Whoever is killed with the lock in hand gives it back. */
    pid_t killed = fork();
    if (killed == 0) {
        change(-1);
        raise(SIGKILL);
    }
    waitpid(killed, NULL, 0);
    for (int i = 0; i < WORKERS; i++)
        if (fork() == 0) {
            for (int n = 0; n < ROUNDS; n++) {
                change(-1);
                ++*counter;
                change(1);
            }
            _exit(0);
        }
    while (wait(NULL) > 0)
        continue;
    printf("%ld of %d, lock %d\n", *counter, WORKERS * ROUNDS, semctl(lock, 0, GETVAL));
    int whole = *counter == WORKERS * ROUNDS;
    semctl(lock, 0, IPC_RMID);
    return whole ? 0 : 1;
}
