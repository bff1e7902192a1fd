# It traces a program, and starts it through a shell.
# needs: gdb gcc
printf '#include <stdio.h>\nint f(int n) { return n * 2; }\nint main(void) { int r = f(21); printf("%%d\\n", r); return 3; }\n' >p.c; gcc -g -O0 -o p p.c
gdb -q -nx -batch -ex 'set disable-randomization on' -ex 'break f' -ex run -ex bt -ex 'print n' -ex finish -ex continue ./p 2>&1 | grep -E '^(#|\$|Value|42|Breakpoint 1,|\[Inferior)' | sed 's/process [0-9]*/process/; s/0x[0-9a-f]*/ADDRESS/g'
