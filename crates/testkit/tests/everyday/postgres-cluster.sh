# For cases of PostgreSQL, whose programs are in $bin: a cluster of one's own in ./d, which becomes the working directory; `as` runs a program as its
# user, `q` asks it; clients in parallel.
chmod 755 "$PWD" "$PWD/.."; mkdir d; chown nobody d
as() { setpriv --reuid=65534 --regid=65534 --clear-groups env HOME="$PWD/d" TMPDIR="$PWD/d" PATH="$bin:$PATH" "$@"; }
cd d; as initdb -D data -A trust -U a --no-sync >log 2>&1 || { cat log; exit 1; }
as pg_ctl -D data -w -l slog -o "-k $PWD -h '' -c shared_buffers=8MB -c fsync=off" start >/dev/null; q() { as psql -h "$PWD" -U a -d postgres -At "$@"; }
q -c 'create table t (n int); insert into t select generate_series(1, 1000); select sum(n) from t'
for i in 1 2 3 4; do (for j in 1 2 3 4 5; do q -c 'begin; lock table t; update t set n = n + 1; commit' >/dev/null; done) & done; wait; q -c 'select sum(n) from t'
as pgbench -h "$PWD" -U a -i -q postgres >/dev/null 2>&1; as pgbench -h "$PWD" -U a -c 4 -j 2 -t 20 -n postgres 2>/dev/null | grep 'actually processed'
