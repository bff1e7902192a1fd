// What programs read in /proc about semaphores agrees with what the calls say.
#define _FORTIFY_SOURCE 2
#include "test.h"
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEY 0x6d777066
#define SETS "/proc/sysvipc/sem"
#define LIMITS "/proc/sys/kernel/sem"

static int id;

// The list of sets as far as it is this program's: the head, and the own set's line as it must be.
static void sets(const char *how, const char *text) {
    struct semid_ds ds;
    if (semctl(id, 0, IPC_STAT, &ds) < 0) perror("IPC_STAT");
    char line[200];
    snprintf(line, sizeof line, "%10d %10d  %4o %10lu %5u %5u %5u %5u %10lu %10lu\n", KEY, id, ds.sem_perm.mode, ds.sem_nsems,
        ds.sem_perm.uid, ds.sem_perm.gid, ds.sem_perm.cuid, ds.sem_perm.cgid, ds.sem_otime, ds.sem_ctime);
    const char *end = strchr(text, '\n');
    printf("%s: %.*s| %s\n", how, end ? (int)(end - text) : 0, text, strstr(text, line) ? "the set is there" : "the set is missing");
}

static char text[1 << 20];

static const char *from(int fd) {
    ssize_t n = 0, r;
    if (fd < 0) return strerror(errno);
    while ((r = read(fd, text + n, sizeof text - 1 - n)) > 0) n += r;
    text[n] = 0;
    close(fd);
    return text;
}

static const char *from_stream(FILE *f) {
    if (!f) return strerror(errno);
    text[fread(text, 1, sizeof text - 1, f)] = 0;
    fclose(f);
    return text;
}

static void limits(const char *how, const char *text) {
    struct seminfo i;
    semctl(0, 0, IPC_INFO, &i);
    char line[200];
    snprintf(line, sizeof line, "%d\t%d\t%d\t%d\n", i.semmsl, i.semmns, i.semopm, i.semmni);
    printf("%s: %s\n", how, strcmp(text, line) ? text : "as IPC_INFO");
}

int main(void) {
    id = semget(KEY, 3, IPC_CREAT | IPC_EXCL | 0640);
    if (id < 0) { perror("semget"); return 1; }
    struct sembuf up = {0, 1, 0};
    semop(id, &up, 1);
    // Many more than one buffer takes.
    int more[60];
    for (int i = 0; i < 60; i++) more[i] = semget(IPC_PRIVATE, 1, 0600);

    volatile int read_only = O_RDONLY;
    sets("open", from(open(SETS, O_RDONLY)));
    sets("open, fortified", from(open(SETS, read_only)));
    sets("open64", from(open64(SETS, O_RDONLY)));
    sets("openat", from(openat(AT_FDCWD, SETS, O_RDONLY)));
    sets("openat64", from(openat64(AT_FDCWD, SETS, O_RDONLY)));
    sets("fopen", from_stream(fopen(SETS, "r")));
    sets("fopen64", from_stream(fopen64(SETS, "re")));
    sets("syscall", from(syscall(SYS_openat, AT_FDCWD, SETS, O_RDONLY)));
    int dir = open("/proc/sysvipc", O_RDONLY | O_DIRECTORY);
    sets("openat, by its directory", from(openat(dir, "sem", O_RDONLY)));
    chdir("/proc/sysvipc");
    sets("open, from its directory", from(open("sem", O_RDONLY)));
    sets("open, by another spelling", from(open("/proc/./self/../sysvipc//sem", O_RDONLY)));
    limits("open", from(open(LIMITS, O_RDONLY)));
    limits("fopen", from_stream(fopen(LIMITS, "r")));
    limits("from its directory", from(openat(open("/proc/sys/kernel", O_PATH), "sem", O_RDONLY)));

    int fd = open(SETS, O_RDONLY), closed = open(SETS, O_RDONLY | O_CLOEXEC);
    printf("closed on exec: %d %d\n", fcntl(fd, F_GETFD), fcntl(closed, F_GETFD));
    char a[40] = "", b[40] = "";
    read(fd, a, 20), lseek(fd, 0, SEEK_SET), read(fd, b, 20);
    printf("read again: %d\n", !strcmp(a, b));
    printf("lowest descriptor: %d\n", open("/dev/null", O_RDONLY) == closed + 1);
    printf("another file: %d\n", open("/proc/sysvipc/sem2", O_RDONLY));
    printf("of that name elsewhere: %s", strerror((open("/tmp/none/proc/sysvipc/sem", O_RDONLY), errno)));
    printf(", bad pointer: %s\n", strerror((open((char *)1, O_RDONLY), errno)));
    int made = open("/tmp/manyway-test-sem", O_CREAT | O_RDWR | O_TRUNC, 0640);
    write(made, "mine", 4);
    printf("a file of the program's own: %.4s\n", from(open("/tmp/manyway-test-sem", O_RDONLY)));
    unlink("/tmp/manyway-test-sem");

    for (int i = 0; i < 60; i++) semctl(more[i], 0, IPC_RMID);
    semctl(id, 0, IPC_RMID);
    sets("removed", from(open(SETS, O_RDONLY)));
    return 0;
}
