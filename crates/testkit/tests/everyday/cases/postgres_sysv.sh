# PostgreSQL with System V semaphores: a set for each sixteen connections, clients in parallel, a back end that is killed, a restart.
# needs: postgres-sysv=postgres-sysv.sh setpriv=util-linux
# semaphores
# share
bin=$MANYWAY_POSTGRES/bin
. "$(dirname "$0")/../postgres-cluster.sh"
# A back end that dies at once has all others restarted, and the sets of before removed.
ipcs -s | awk '$5 == 17' | wc -l; as psql -h "$PWD" -U a -d postgres -At -c 'select pg_sleep(60)' >/dev/null 2>&1 & c=$!; for i in $(seq 200); do b=$(q -c "select pid from pg_stat_activity where query like 'select pg_sleep%' and pid <> pg_backend_pid()"); [ -n "$b" ] && break; sleep 0.05; done
kill -KILL "$b"; { wait $c || true; } 2>/dev/null; for i in $(seq 200); do q -c 'select 1' >/dev/null 2>&1 && break; sleep 0.05; done; q -c 'select sum(n) from t'; ipcs -s | awk '$5 == 17' | wc -l
as pg_ctl -D data -w -m fast restart -l slog >/dev/null; q -c 'select count(*) from t'; as pg_ctl -D data -w -m fast stop >/dev/null; ipcs -s | awk '$5 == 17' | wc -l; grep -c -e PANIC slog || true
