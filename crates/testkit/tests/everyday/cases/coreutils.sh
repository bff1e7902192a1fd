# sort with threads, find with parallel processes, split, join, diff and patch.
# needs: find=findutils patch
# sample
seq 20000 | shuf --random-source=/bin/sh >numbers
sort -n --parallel=4 -S 64K numbers | md5sum
seq 40 | xargs -P4 -n1 sh -c 'echo $(($1 * $1)) >sq$1' x; cat sq* | sort -n | tail -1
split -n l/4 numbers part; cat part* | cmp - numbers && echo whole
sort numbers >sorted; seq 3 | join - sorted | wc -l; comm -12 sorted sorted | wc -l
seq 10 >a; sed 's/^5$/five/' a >b; diff -u a b | sed 1,2d >d || true; printf -- '--- a\n+++ a\n' | cat - d | patch -s a && cmp a b && echo patched
tac a | tail -1; nl -ba a | sed -n 3p; dd if=/dev/zero bs=1k count=64 2>/dev/null | sha256sum; factor 1234567890; od -An -tx1 -N8 numbers
env -i PATH="$PATH" sh -c 'env | sort | grep -v -e LD_PRELOAD -e MANYWAY'; nice -n 5 nice; nohup sh -c 'echo nohup' 2>/dev/null; stdbuf -oL echo stdbuf; install -m 600 a c; stat -c %a c
