/* A plug-in that is opened with RTLD_DEEPBIND must use the same semaphores as its program. */
#include "test.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    char *path = argv[1];
    void *plugin = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
    if (argc < 2 || !plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    int (*plugin_set)(int) = (int (*)(int))dlsym(plugin, "plugin_set");
    int key = 0x6d000000 | (getpid() & 0xffffff);
    int theirs = plugin_set(key), ours = semget(key, 0, 0);
    printf("the same set: %d\n", theirs >= 0 && theirs == ours);
    semctl(theirs, 0, IPC_RMID);
    semctl(ours, 0, IPC_RMID);
    SHOW(dlopen("/nonexistent/object.so", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    SHOW(dlopen("/dev/null", RTLD_NOW | RTLD_DEEPBIND) == NULL);
    SHOW(dlopen(NULL, RTLD_NOW) != NULL);
    SHOW(dlopen("libm.so.6", RTLD_NOW | RTLD_DEEPBIND) != NULL);
    return 0;
}
