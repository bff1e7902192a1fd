// Programs started with an environment that their parent made are on the same semaphores as it.
#include "test.h"
#include <fcntl.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define KEY 0x6d77656e

static char *self = "/proc/self/exe";
static char *const empty[] = {NULL};
static char *const some[] = {"LANG=C", "LD_PRELOAD_=x", "MANYWAY=y", NULL};
static char *const other_library[] = {"LD_PRELOAD=libc.so.6", NULL};
static char **many;

// Runs in the child: what the new program has to find.
static int look(const char *how) {
    int id = semget(KEY, 1, 0);
    printf("%s: %s\n", how, id < 0 ? strerror(errno) : semctl(id, 0, GETVAL) == 7 ? "the same set" : "another set");
    return 0;
}

#define IN_CHILD(what) do { \
        fflush(stdout); \
        pid_t pid = fork(); \
        if (pid == 0) { what; printf("%s: %s\n", #what, strerror(errno)); exit(1); } \
        waitpid(pid, NULL, 0); \
    } while (0)

#define SPAWNED(call) do { \
        fflush(stdout); \
        pid_t pid; \
        int r = call; \
        if (r) printf("%s: %s\n", #call, strerror(r)); else waitpid(pid, NULL, 0); \
    } while (0)

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "look")) return look(argv[2]);
    char path[4096] = {0};
    readlink("/proc/self/exe", path, sizeof path - 1);
    self = path;
    char *slash = strrchr(path, '/');
    char directory[4096];
    snprintf(directory, sizeof directory, "PATH=%.*s", (int)(slash - path), path);

    int id = semget(KEY, 1, IPC_CREAT | IPC_EXCL | 0600);
    if (id < 0) { perror("semget"); return 1; }
    semctl(id, 0, SETVAL, 7);
    many = calloc(2002, sizeof *many);
    for (int i = 0; i < 2000; i++) asprintf(&many[i], "VARIABLE_%d=%d", i, i);

    char *a[] = {"x", "look", "execve, nothing", NULL};
    IN_CHILD(execve(self, a, empty));
    a[2] = "execve, null";
    IN_CHILD(execve(self, a, NULL));
    a[2] = "execve, some";
    IN_CHILD(execve(self, a, some));
    a[2] = "execve, another library";
    IN_CHILD(execve(self, a, other_library));
    a[2] = "execve, many";
    IN_CHILD(execve(self, a, many));
    a[2] = "execvpe";
    IN_CHILD(execvpe(self, a, empty));
    a[2] = "fexecve";
    IN_CHILD(fexecve(open(self, O_RDONLY), a, empty));
    a[2] = "execveat";
    IN_CHILD(execveat(open(self, O_PATH), "", a, empty, AT_EMPTY_PATH));
    IN_CHILD(execle(self, "x", "look", "execle, few", NULL, empty));
    IN_CHILD(execle(self, "x", "look", "execle, more", "3", "4", "5", "6", "7", "8", "9", NULL, some));
    a[2] = "syscall(SYS_execve)";
    IN_CHILD(syscall(SYS_execve, self, a, empty));
    a[2] = "vfork and execve";
    fflush(stdout);
    pid_t pid = vfork();
    if (pid == 0) { execve(self, a, empty); _exit(1); }
    waitpid(pid, NULL, 0);
    a[2] = "posix_spawn";
    SPAWNED(posix_spawn(&pid, self, NULL, NULL, a, empty));
    a[2] = "posix_spawn, null";
    SPAWNED(posix_spawn(&pid, self, NULL, NULL, a, NULL));
    a[2] = "posix_spawnp";
    SPAWNED(posix_spawnp(&pid, self, NULL, NULL, a, many));
    printf("posix_spawn of nothing: %s\n", strerror(posix_spawn(&pid, "/nonexistent", NULL, NULL, a, empty)));
    printf("execve of nothing: %d", execve("/nonexistent", a, empty));
    printf(", %s\n", strerror(errno));

    // The program's own environment, cleared.
    a[2] = "execv";
    IN_CHILD(clearenv(); execv(self, a));
    a[2] = "execvp";
    IN_CHILD(clearenv(); execvp(self, a));
    IN_CHILD(clearenv(); execl(self, "x", "look", "execl", NULL));
    IN_CHILD(clearenv(); putenv(directory); execlp(slash + 1, "x", "look", "execlp", "3", "4", "5", "6", NULL));
    IN_CHILD(clearenv(); execlp("no-such-program", "x", NULL));
    // What a handler of an environment sees of its own is as it made it.
    clearenv();
    printf("own environment: %s\n", getenv("MANYWAY_DIR") ? "not empty" : "empty");
    semctl(id, 0, IPC_RMID);
    return 0;
}
