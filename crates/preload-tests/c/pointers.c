/* Pointers that lead nowhere, only halfway, or to memory that cannot be written. */
#include "test.h"

static int id;
static struct sembuf in_data = { 0, 1, 0 };
static const struct sembuf in_constants = { 0, 1, 0 };

static void *on_small_stack(void *arg)
{
    struct sembuf b[4] = { { 0, 1, 0 }, { 1, 1, 0 }, { 0, 1, 0 }, { 1, 1, 0 } };
    (void)arg;
    SHOW(semop(id, b, 1));
    SHOW(semop(id, b, 4));
    /* Near the stack pointer, but beyond the stack or its mapping. */
    char *top = (char *)pthread_self();
    for (char *p = top; p < top + (1 << 22); p += 4096)
        if (msync((void *)((uintptr_t)p & ~4095ul), 1, MS_ASYNC) != 0) {
            SHOW(semop(id, (struct sembuf *)((uintptr_t)p & ~4095ul), 1));
            break;
        }
    return NULL;
}

static int deep(int n)
{
    struct sembuf b = { 0, 1, 0 };
    volatile char room[1024];
    room[n % 1024] = n;
    int r = semop(id, &b, 1);
    return n == 0 ? r : r + deep(n - 1) + 0 * room[n % 1024];
}

int main(void)
{
    id = new_set(64);
    char *m = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(m + 2 * 4096, 4096);
    char *end = m + 2 * 4096, *read_only = m + 3 * 4096;
    struct sembuf up = { 0, 1, 0 };
    struct semid_ds ds;

    memcpy(end - 6, &up, 6);
    memcpy(read_only, &up, 6);
    mprotect(read_only, 4096, PROT_READ);
    SHOW(semop(id, (void *)(end - 6), 1));
    SHOW(semop(id, (void *)(end - 5), 1));
    SHOW(semop(id, (void *)(end - 12), 3));
    SHOW(semop(id, (void *)end, 1));
    SHOW(semop(id, (void *)(read_only - 2), 1));
    SHOW(semop(id, (void *)read_only, 1));
    SHOW(semop(id, (void *)0xffff800000000000, 1));
    SHOW(semop(id, (void *)0x8000000000000000, 1));
    SHOW(semop(id, (void *)-1, 1));
    SHOW(semop(id, (void *)-6, 1));
    SHOW(semop(id, (void *)(uintptr_t)(4096 - 6), 1));
    SHOW(semop(id, &in_data, 1));
    SHOW(semop(id, (struct sembuf *)&in_constants, 1));
    SHOW(semop(id, &up, 1));
    SHOW(deep(50));
    SHOW(semctl(id, 0, GETVAL));

    SHOW(semctl(id, 0, IPC_STAT, end - 50));
    SHOW(semctl(id, 0, IPC_STAT, end - 120));
    SHOW(semctl(id, 0, IPC_STAT, read_only));
    SHOW(semctl(id, 0, IPC_STAT, read_only - 4));
    SHOW(semctl(id, 0, IPC_STAT, &ds));
    memcpy(end - sizeof ds + 1, &ds, sizeof ds - 1);
    SHOW(semctl(id, 0, IPC_SET, end - sizeof ds + 1));
    SHOW(semctl(id, 0, GETALL, end - 126));
    memset(end - 160, 0x55, 160);
    SHOW(semctl(id, 0, GETALL, end - 129)); /* odd address */
    for (int i = 0; i < 160; i++)
        printf("%02x", (unsigned char)end[i - 160]);
    printf("\n");
    SHOW(semctl(id, 0, GETALL, read_only));
    SHOW(semctl(id, 0, SETALL, read_only));
    SHOW(semctl(id, 0, SETALL, end - 126));
    SHOW(semctl(id, 0, SETALL, end - 129));
    SHOW(semctl(id, 0, IPC_INFO, read_only));
    SHOW(semtimedop(id, &up, 1, (struct timespec *)(end - 8)));
    SHOW(semtimedop(id, &up, 1, (struct timespec *)read_only));

    /* Memory that was good, and is no longer. */
    memcpy(m, &up, 6);
    SHOW(semop(id, (void *)m, 1));
    munmap(m, 4096);
    SHOW(semop(id, (void *)m, 1));

    pthread_t t;
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, 64 << 10);
    pthread_create(&t, &a, on_small_stack, NULL);
    pthread_join(t, NULL);
    SHOW(semctl(id, 0, IPC_RMID));
    return 0;
}
