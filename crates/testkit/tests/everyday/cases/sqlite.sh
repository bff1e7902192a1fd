# Several writers of one database.
# needs: sqlite3
# sample
sqlite3 d 'pragma journal_mode=wal; create table t (n integer);'
for i in 1 2 3 4; do (for j in $(seq 10); do sqlite3 -cmd '.timeout 20000' d "insert into t values ($i * 100 + $j);"; done) & done; wait
sqlite3 d 'select count(*), sum(n), count(distinct n) from t; pragma integrity_check;'
sqlite3 :memory: "with recursive c(x) as (select 1 union all select x + 1 from c where x < 1000) select sum(x), group_concat(x, '-') from c where x % 250 = 0;"
