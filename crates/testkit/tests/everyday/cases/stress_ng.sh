# needs: stress-ng
# semaphores
stress-ng --sem-sysv 2 --sem-sysv-procs 2 --sem-sysv-ops 4000 --verify -q && echo passed; stress-ng --fork 2 --fork-ops 200 --vfork 1 --vfork-ops 100 --sigsegv 1 --sigsegv-ops 200 --sigfpe 1 --sigfpe-ops 200 -q && echo passed; stress-ng --dup 1 --dup-ops 50 --mmap 1 --mmap-ops 3 --mmap-bytes 1m --poll 1 --poll-ops 200 --futex 1 --futex-ops 500 --pthread 1 --pthread-ops 50 -q && echo passed
