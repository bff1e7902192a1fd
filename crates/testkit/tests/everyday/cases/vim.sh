# needs: vim
printf 'c\na\nb\n' >f; vim -u NONE -N -es -c '%sort' -c '%!tr a-z A-Z' -c 'wq' f </dev/null; cat f
vim -u NONE -N -es -c 'redir! > out' -c 'echo system("echo sys")' -c 'echo v:shell_error' -c 'redir END' -c 'q' </dev/null; cat out
