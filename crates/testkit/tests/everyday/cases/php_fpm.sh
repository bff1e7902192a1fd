# The process manager, workers as another user, a page that counts under a semaphore, asked by several clients at once.
# needs: /usr/sbin/php-fpm=php-fpm cgi-fcgi=libfcgi-bin
# semaphores
chmod 755 "$PWD" "$PWD/.."; mkdir -m 777 w; echo 0 >w/n; chmod 666 w/n
cat >w/p.php <<'P'
<?php
$s = sem_get(0x4d570001, 1, 0600, true);
sem_acquire($s);
$n = (int) file_get_contents(__DIR__ . '/n'); usleep(1000); file_put_contents(__DIR__ . '/n', $n + 1);
sem_release($s);
echo "counted\n";
P
cat >fpm.conf <<C
[global]
daemonize = no
pid = $PWD/pid
error_log = $PWD/log
[www]
user = www-data
group = www-data
listen = $PWD/s
pm = dynamic
pm.max_children = 6
pm.start_servers = 3
pm.min_spare_servers = 1
pm.max_spare_servers = 4
pm.max_requests = 7
C
"$(ls /usr/sbin/php-fpm* | tail -1)" -y fpm.conf >/dev/null 2>&1 & f=$!
for i in $(seq 200); do [ -S s ] && break; sleep 0.05; done
ask() { SCRIPT_FILENAME=$PWD/w/p.php REQUEST_METHOD=GET cgi-fcgi -bind -connect "$PWD/s" | tail -1; }
for c in 1 2 3 4; do (for i in 1 2 3 4 5 6 7 8 9 10; do ask; done) & p="${p:-} $!"; done | sort | uniq -c
for i in $(seq 200); do [ "$(cat w/n)" = 40 ] && break; sleep 0.05; done
cat w/n; kill -QUIT $f; wait $f && echo ended
