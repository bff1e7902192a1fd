/* System V semaphores of Manyway for C programs that are linked with its library:
 *
 *     cc program.c $(pkg-config --cflags --libs manyway)
 *
 * In such a program semget, semop, semtimedop and semctl of <sys/sem.h> are Manyway's, as in one that `manyway run` has
 * started: in the namespace that MANYWAY_DIR names, or else that manyway_open() opens. Without one they fail with ENOSYS.
 * docs/c.md tells the rest. */
#ifndef MANYWAY_H
#define MANYWAY_H 1

#include <stddef.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For manyway_open(): make the directory, with an empty namespace, when it is not there. */
#define MANYWAY_CREATE 1

/* Opens the namespace in a directory (an absolute path), for the life of the process. Call it once, at the start of main(), before
 * there are other threads: it puts MANYWAY_DIR and LD_PRELOAD into the environment, so that what the program executes is in the same
 * namespace. With NULL it only tells whether there is one.
 *
 * 0, or -1 with errno: EBUSY another namespace is open; EINVAL an unknown flag, a relative path, or the directory has no usable
 * arena; EACCES somebody else's, or others can write it; ENOENT, ENOSPC and others as from open(2); ENOSYS (NULL) there is none.
 * A line on standard error says more. */
int manyway_open(const char *dir, int flags);

/* The functions without the prefix, under names that no other library has. */
int manyway_semget(key_t key, int nsems, int semflg);
int manyway_semop(int semid, struct sembuf *sops, size_t nsops);
int manyway_semtimedop(int semid, struct sembuf *sops, size_t nsops, const struct timespec *timeout);
int manyway_semctl(int semid, int semnum, int cmd, ...);

#ifdef __cplusplus
}
#endif

#endif
