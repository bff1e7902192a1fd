/* Arguments: which error comes first, and what the structures hold. */
#include "test.h"

static void *const BAD = (void *)1;

static void perm(const struct semid_ds *d, int id)
{
    printf("uid %d gid %d cuid %d cgid %d mode %o nsems %lu otime %d ctime %d key %d seq %d\n",
           d->sem_perm.uid == geteuid(), d->sem_perm.gid == getegid(), d->sem_perm.cuid == geteuid(), d->sem_perm.cgid == getegid(),
           d->sem_perm.mode, (unsigned long)d->sem_nsems, d->sem_otime != 0, labs(d->sem_ctime - time(NULL)) < 5,
           d->sem_perm.__key, d->sem_perm.__seq == id >> 15);
}

int main(void)
{
    int id = new_set(2);
    struct semid_ds ds;
    struct seminfo si;
    struct sembuf b[600] = { { 0, 1, 0 } };
    struct timespec negative = { -1, 0 }, large = { 0, 1000000000 }, zero = { 0, 0 };
    unsigned short values[2] = { 5, 6 };

    TRY(semget(IPC_PRIVATE, 0, 0600));
    TRY(semget(IPC_PRIVATE, -1, 0600));
    TRY(semget(IPC_PRIVATE, 32001, 0600));
    TRY(semget(0x6d777401, 1, 0600));
    int keyed = semget(0x6d777402, 3, IPC_CREAT | 0640);
    TRY(keyed);
    SHOW(semget(0x6d777402, 0, 0) == keyed);
    SHOW(semget(0x6d777402, 3, IPC_EXCL) == keyed);
    TRY(semget(0x6d777402, 4, 0));
    TRY(semget(0x6d777402, 4, IPC_CREAT | IPC_EXCL | 0600));
    TRY(semget(0x6d777402, -1, 0));
    memset(&ds, 0xff, sizeof ds);
    SHOW(semctl(keyed, 0, IPC_STAT, &ds));
    perm(&ds, keyed);
    SHOW(semctl(keyed, 0, IPC_RMID));

    TRY(semctl(-1, 0, 99));
    TRY(semctl(id, 0, 99));
    TRY(semctl(id, 0, IPC_STAT | 0x100, &ds));
    TRY(semctl(-1, 0, IPC_INFO, &si));
    TRY(semctl(-1, 0, SETVAL, 70000));
    TRY(semctl(0x12345678, 0, SETVAL, 70000));
    TRY(semctl(id, 2, SETVAL, -1));
    TRY(semctl(id, 2, SETVAL, 1));
    TRY(semctl(0x12345678, 0, IPC_STAT, BAD));
    TRY(semctl(0x12345678, 0, IPC_SET, BAD));
    TRY(semctl(0x12345678, 0, GETALL, BAD));
    TRY(semctl(0x12345678, 0, SETALL, BAD));
    TRY(semctl(id, 0, IPC_SET, BAD));
    TRY(semctl(id, 0, IPC_STAT, BAD));
    TRY(semctl(id, 0, IPC_STAT, NULL));
    TRY(semctl(id, 0, GETALL, BAD));
    TRY(semctl(id, 0, SETALL, BAD));
    TRY(semctl(0, 0, IPC_INFO, BAD));
    TRY(semctl(0, 0, SEM_INFO, NULL));
    TRY(semctl(32767, 0, SEM_STAT, &ds));
    TRY(semctl(id, 7, GETVAL));
    TRY(semctl(id, -1, GETPID));
    TRY(semctl(id, 65536, GETNCNT));
    TRY(semctl(id, 2, GETZCNT));

    SHOW(semctl(id, 0, SETALL, values));
    SHOW(semctl(id, 0, GETVAL));
    SHOW(semctl(id, 1, GETVAL));
    values[1] = 40000;
    TRY(semctl(id, 0, SETALL, values));
    SHOW(semctl(id, 0, SETVAL, 9));
    memset(values, 0xff, sizeof values);
    SHOW(semctl(id, 0, GETALL, values));
    printf("%d %d\n", values[0], values[1]);
    SHOW(semctl(id, 0, GETPID) == getpid());

    TRY(semop(id, b, 501));
    TRY(semop(-1, BAD, 501));
    TRY(semop(-1, b, 0));
    TRY(semop(-1, BAD, 1));
    TRY(semop(-1, NULL, 2));
    TRY(semop(-1, b, 1));
    TRY(semop(0x12345678, b, 1));
    TRY(semop(id, b, 0x100000000));
    TRY(semop(id, b, 0x100000001));
    TRY(semtimedop(id, b, 600, BAD));
    TRY(semtimedop(id, b, 600, &negative));
    TRY(semtimedop(id, b, 0, &negative));
    TRY(semtimedop(id, BAD, 1, &negative));
    TRY(semtimedop(id, b, 1, &negative));
    TRY(semtimedop(id, b, 1, &large));
    TRY(semtimedop(0x12345678, b, 1, &zero));
    TRY(semtimedop(id, b, 1, &zero));
    b[0] = (struct sembuf){ 2, 1, 0 };
    TRY(semop(id, b, 1));
    b[0] = (struct sembuf){ 0, -100, IPC_NOWAIT };
    TRY(semop(id, b, 1));
    b[0] = (struct sembuf){ 0, -100, 0 };
    TRY(semtimedop(id, b, 1, &zero));
    b[0] = (struct sembuf){ 0, 32767, 0 };
    TRY(semop(id, b, 1));
    for (int i = 0; i < 500; i++)
        b[i] = (struct sembuf){ i % 2, 1, 0 };
    SHOW(semop(id, b, 500));
    SHOW(semctl(id, 0, GETVAL));
    SHOW(semctl(id, 1, GETVAL));

    memset(&ds, 0xff, sizeof ds);
    SHOW(semctl(id, 0, IPC_STAT, &ds));
    perm(&ds, id);
    ds.sem_perm.mode = 0177444;
    SHOW(semctl(id, 0, IPC_SET, &ds));
    memset(&ds, 0, sizeof ds);
    SHOW(semctl(id, 0, SEM_STAT_ANY, &ds) == -1 || errno == 0);
    SHOW(semctl(id & 0x7fff, 0, SEM_STAT, &ds) == id);
    perm(&ds, id);
    ds.sem_perm.uid = -1;
    TRY(semctl(id, 0, IPC_SET, &ds));
    memset(&si, 0xff, sizeof si);
    TRY(semctl(0, 0, IPC_INFO, &si));
    printf("%d %d %d %d %d %d %d %d %d %d\n", si.semmap, si.semmni, si.semmns, si.semmnu, si.semmsl, si.semopm, si.semume, si.semusz,
           si.semvmx, si.semaem);
    TRY(semctl(id, 0, IPC_RMID));
    TRY(semctl(id, 0, IPC_RMID));
    TRY(semctl(-1, 0, IPC_RMID));
    return 0;
}
