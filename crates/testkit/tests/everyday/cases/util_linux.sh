# Pseudo-terminals, locks, sessions, namespaces.
# needs: script=bsdutils flock=util-linux setsid=util-linux unshare=util-linux setpriv=util-linux taskset=util-linux
# sample
script -qec 'tty >/dev/null && echo on a terminal' /dev/null | tr -d '\r'
(flock 9; echo one) 9>l & (flock 9; echo one) 9>l; wait; flock -n l true && echo free; flock l flock -n l true || echo "busy $?"
setsid --wait sh -c 'exit 4' || echo $?; taskset -c 0 sh -c 'nproc'; chrt -b 0 echo batch; prlimit --nofile=32 sh -c 'ulimit -n'
if [ "$(id -u)" = 0 ]; then unshare --mount --pid --fork --mount-proc sh -c 'echo $$; ls -d /proc/1'; setpriv --reuid=65534 --clear-groups id -u; setpriv --no-new-privs grep NoNewPrivs /proc/self/status; fi
getopt -o ab: -- -a -b c d; rev <<X
abc
X
