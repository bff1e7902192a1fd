/* A program on System V semaphores that knows nothing of Manyway. It carries out its arguments in order:
 *   mode MODE         the mode of sets that are made (octal after 0)
 *   get KEY N         make or find a set, print its id; the other commands use it
 *   set NUM VALUE     SETVAL
 *   op NUM OP [undo]  one operation; prints "done" afterwards
 *   say TEXT          print a line
 *   wait              until standard input ends
 *   map FILE          map a file, print "mapped"
 *   childless         fail if there is a child
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

static int id = -1;
static int mode = 0600;
static char **arg;

static const char *next(void)
{
	if (!*arg) {
		fprintf(stderr, "semtool: an argument is missing\n");
		exit(2);
	}
	return *arg++;
}

static int number(void)
{
	return (int)strtol(next(), NULL, 0);
}

static void check(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static void command(const char *name)
{
	if (!strcmp(name, "mode")) {
		mode = number();
	} else if (!strcmp(name, "get")) {
		key_t key = number();
		id = semget(key, number(), IPC_CREAT | mode);
		check(id < 0, "semget");
		printf("%d\n", id);
	} else if (!strcmp(name, "set")) {
		int num = number();
		union { int val; void *pad; } value = { .val = number() };
		check(semctl(id, num, SETVAL, value) < 0, "semctl");
	} else if (!strcmp(name, "op")) {
		struct sembuf op = { 0 };
		op.sem_num = number();
		op.sem_op = number();
		if (*arg && !strcmp(*arg, "undo")) {
			arg++;
			op.sem_flg = SEM_UNDO;
		}
		check(semop(id, &op, 1) < 0, "semop");
		puts("done");
	} else if (!strcmp(name, "say")) {
		puts(next());
	} else if (!strcmp(name, "wait")) {
		while (getchar() != EOF)
			;
	} else if (!strcmp(name, "map")) {
		int fd = open(next(), O_RDWR);
		check(fd < 0 || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, "map");
		puts("mapped");
	} else if (!strcmp(name, "childless")) {
		check(waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD, "a child");
	} else {
		fprintf(stderr, "semtool: %s?\n", name);
		exit(2);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	(void)argc;
	for (arg = argv + 1; *arg;)
		command(next());
	return 0;
}
