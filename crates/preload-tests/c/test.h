/* What the programs share. They print what they see; the same program must print the same on both kinds of semaphores. */
#ifndef TEST_H
#define TEST_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

union semun {
    int val;
    struct semid_ds *buf;
    unsigned short *array;
    struct seminfo *info;
};

static inline const char *error_name(int e)
{
    static char other[16];
    switch (e) {
    case 0: return "0";
    case E2BIG: return "E2BIG";
    case EACCES: return "EACCES";
    case EAGAIN: return "EAGAIN";
    case EBADF: return "EBADF";
    case ECHILD: return "ECHILD";
    case EEXIST: return "EEXIST";
    case EFAULT: return "EFAULT";
    case EFBIG: return "EFBIG";
    case EIDRM: return "EIDRM";
    case EINTR: return "EINTR";
    case EINVAL: return "EINVAL";
    case ENOENT: return "ENOENT";
    case ENOSYS: return "ENOSYS";
    case EPERM: return "EPERM";
    case ERANGE: return "ERANGE";
    }
    snprintf(other, sizeof other, "errno %d", e);
    return other;
}

/* Prints an expression and its value, or the error. */
#define SHOW(e) do { errno = 0; long r_ = (long)(e); int e_ = errno; \
    if (r_ == -1) printf("%s: %s\n", #e, error_name(e_)); else printf("%s = %ld\n", #e, r_); } while (0)

/* The same for what is an id or differs from run to run: only whether it worked. */
#define TRY(e) do { errno = 0; long r_ = (long)(e); int e_ = errno; \
    printf("%s: %s\n", #e, r_ == -1 ? error_name(e_) : "ok"); } while (0)

static inline int new_set(int n)
{
    int id = semget(IPC_PRIVATE, n, 0600);
    if (id < 0) {
        perror("semget");
        exit(1);
    }
    return id;
}

static inline int op(int id, int num, int by, int flags)
{
    struct sembuf b = { num, by, flags };
    return semop(id, &b, 1);
}

/* Waits, without sleeping for longer than needed, until `n` sleep on semaphore 0. */
static inline void until_sleepers(int id, int n)
{
    for (int i = 0; i < 50000 && semctl(id, 0, GETNCNT) != n; i++)
        usleep(200);
}

#endif
