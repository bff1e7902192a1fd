# PostgreSQL with System V semaphores: a set for each sixteen connections, clients in parallel, a back end that is killed, a restart.
# needs: postgres-sysv=postgres-sysv.sh setpriv=util-linux
# semaphores
# share
bin=$MANYWAY_POSTGRES/bin; chmod 755 "$PWD" "$PWD/.."; mkdir d; chown nobody d
as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$PWD/d" TMPDIR="$PWD/d" PATH="$bin:$PATH" "$@"; }
cd d; as initdb -D data -A trust -U a --no-sync >log 2>&1 || { cat log; exit 1; }
as pg_ctl -D data -w -l slog -o "-k $PWD -h '' -c shared_buffers=8MB -c fsync=off" start >/dev/null; q() { as psql -h "$PWD" -U a -d postgres -At "$@"; }
q -c 'create table t (n int); insert into t select generate_series(1, 1000); select sum(n) from t'
for i in 1 2 3 4; do (for j in 1 2 3 4 5; do q -c 'begin; lock table t; update t set n = n + 1; commit' >/dev/null; done) & done; wait; q -c 'select sum(n) from t'
as pgbench -h "$PWD" -U a -i -q postgres >/dev/null 2>&1; as pgbench -h "$PWD" -U a -c 4 -j 2 -t 20 -n postgres 2>/dev/null | grep 'actually processed'
# A back end that dies at once has all others restarted, and the sets of before removed.
ipcs -s | awk '$5 == 17' | wc -l; as psql -h "$PWD" -U a -d postgres -At -c 'select pg_sleep(60)' >/dev/null 2>&1 & c=$!; for i in $(seq 200); do b=$(q -c "select pid from pg_stat_activity where query like 'select pg_sleep%' and pid <> pg_backend_pid()"); [ -n "$b" ] && break; sleep 0.05; done
kill -KILL "$b"; { wait $c || true; } 2>/dev/null; for i in $(seq 200); do q -c 'select 1' >/dev/null 2>&1 && break; sleep 0.05; done; q -c 'select sum(n) from t'; ipcs -s | awk '$5 == 17' | wc -l
as pg_ctl -D data -w -m fast restart -l slog >/dev/null; q -c 'select count(*) from t'; as pg_ctl -D data -w -m fast stop >/dev/null; ipcs -s | awk '$5 == 17' | wc -l; grep -c -e PANIC slog || true
