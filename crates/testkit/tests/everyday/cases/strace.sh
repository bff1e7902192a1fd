# needs: strace
strace -f -o log -e trace=execve,exit_group sh -c '/bin/true; /bin/echo traced'; grep -c execve log; strace -o log2 -e trace=none -e signal=all sh -c 'kill -USR1 $$' || echo "status $?"; grep -o 'killed by SIGUSR1' log2
