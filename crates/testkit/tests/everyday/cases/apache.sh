# The server with its mutexes as System V semaphores, started, asked, ended.
# needs: apache2=apache2-bin curl
# semaphores
m=/usr/lib/apache2/modules; mkdir w; seq 100 >w/n; chmod -R a+rX "$PWD" "$PWD/.."
cat >c <<C
LoadModule mpm_prefork_module $m/mod_mpm_prefork.so
LoadModule authz_core_module $m/mod_authz_core.so
Listen 127.0.0.1:18431
Listen 127.0.0.1:18432
ServerName x
ServerRoot $PWD
DefaultRuntimeDir $PWD
PidFile $PWD/pid
ErrorLog $PWD/errors
Mutex sysvsem default
User www-data
Group www-data
DocumentRoot $PWD/w
C
# It ends its whole process group.
setsid apache2 -f "$PWD/c" -DFOREGROUND & s=$!; for i in $(seq 200); do curl -s -o /dev/null http://127.0.0.1:18431/n && break; sleep 0.05; done
seq 40 | xargs -P4 -I{} curl -s http://127.0.0.1:18432/n | wc -l; kill -TERM $s; wait $s && echo ended; grep -c -e emerg -e crit errors || true
