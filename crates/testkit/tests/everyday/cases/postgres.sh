# A cluster of one's own, clients in parallel, a restart. (Debian's uses POSIX semaphores.)
# needs: /usr/lib/postgresql=postgresql setpriv=util-linux
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
. "$(dirname "$0")/../postgres-cluster.sh"
as pg_ctl -D data -w -m fast restart -l slog >/dev/null; q -c 'select count(*) from t'; as pg_ctl -D data -w -m fast stop >/dev/null; grep -c -e FATAL -e PANIC slog || true
