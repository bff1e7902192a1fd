/* Opened by deepbind.c. */
#include "test.h"

int plugin_set(int key)
{
    return semget(key, 1, IPC_CREAT | 0600);
}
