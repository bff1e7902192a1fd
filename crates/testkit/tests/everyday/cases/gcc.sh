# The compiler, the assembler and the linker, each a program that the one before starts; what they make runs.
# needs: gcc
# sample
cat >p.c <<'C'
#include <stdio.h>
#include <stdlib.h>
static int by(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) { int a[] = { 3, 1, 2 }; qsort(a, 3, sizeof *a, by); printf("%d%d%d\n", a[0], a[1], a[2]); return 0; }
C
gcc -O2 -g -Wall -pipe -o p p.c && ./p
gcc -c -O1 p.c && size p.o | tail -1 && nm p.o
gcc -shared -fPIC -o libp.so p.c && objdump -T libp.so | grep -c qsort
echo 'int main(void) { return x; }' | gcc -x c - 2>&1 | grep -c "undeclared" || true
