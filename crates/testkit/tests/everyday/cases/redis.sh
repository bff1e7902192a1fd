# The server, in the background with its threads, a snapshot by a forked child, and its benchmark.
# needs: redis-server redis-cli=redis-tools redis-benchmark=redis-tools
redis-server --port 0 --unixsocket "$PWD/s" --dir "$PWD" --save '' --daemonize yes --pidfile "$PWD/pid" --logfile "$PWD/log" --io-threads 2 >/dev/null
c() { redis-cli -s s "$@"; }
for i in $(seq 200); do c ping >/dev/null 2>&1 && break; sleep 0.05; done
c set a 1; c incr a; c rpush l x y z; c lrange l 0 -1; c eval 'return redis.call("get", "a") + 1' 0; c debug sleep 0 2>/dev/null | wc -l
redis-benchmark -s s -n 2000 -c 10 -q -t set,get,lpush 2>/dev/null | tr '\r' '\n' | grep -c 'requests per second'
c bgsave >/dev/null; for i in $(seq 200); do c info persistence | grep -q 'rdb_bgsave_in_progress:0' && break; sleep 0.05; done; c info persistence | grep -o 'rdb_last_bgsave_status:[a-z]*'
c bgrewriteaof >/dev/null; c dbsize | wc -l; c shutdown nosave; for i in $(seq 100); do [ -S s ] || break; sleep 0.05; done; grep -c 'bye bye' log
