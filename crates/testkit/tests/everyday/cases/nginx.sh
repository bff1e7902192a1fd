# Master and workers, a reload, a new binary's configuration test, under load.
# needs: nginx=nginx-light curl
cat >c <<C
daemon on; worker_processes 2; pid $PWD/pid; error_log $PWD/errors; user root;
events { worker_connections 64; accept_mutex on; }
http { access_log off; client_body_temp_path $PWD/t1; proxy_temp_path $PWD/t2; fastcgi_temp_path $PWD/t3; uwsgi_temp_path $PWD/t4; scgi_temp_path $PWD/t5;
  proxy_cache_path $PWD/cache keys_zone=z:1m;
  server { listen unix:$PWD/back; location / { return 200 "from behind\n"; } }
  server { listen unix:$PWD/s; root $PWD/w; location /p/ { proxy_pass http://unix:$PWD/back:/; proxy_cache z; } } }
C
mkdir w; seq 1000 >w/n; nginx -p "$PWD" -c "$PWD/c" -t 2>&1 | grep -c successful; nginx -p "$PWD" -c "$PWD/c"
g() { curl -s --unix-socket s "http://x$1"; }
g /n | md5sum; g /p/ ; seq 200 | xargs -P4 -I{} curl -s --unix-socket s http://x/n | wc -l; curl -s -o /dev/null -w '%{http_code}\n' --unix-socket s http://x/none
nginx -p "$PWD" -c "$PWD/c" -s reload 2>/dev/null; sleep 0.3; g /n | tail -1; nginx -p "$PWD" -c "$PWD/c" -s quit 2>/dev/null; for i in $(seq 200); do [ -e pid ] || break; sleep 0.05; done; [ -e pid ] || echo ended; grep -c -e emerg -e crit errors || true
