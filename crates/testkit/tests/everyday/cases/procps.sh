# needs: ps=procps pgrep=procps top=procps
sh -c 'exec -a x sleep 30' 2>/dev/null & sleep 30 & p=$!; ps -o comm=,stat= -p $p | cut -c1-7; pgrep -x sleep -P $$ | wc -l; kill $p; { wait $p || c=$?; } 2>/dev/null; echo "ended $c"; top -b -n1 | grep -c 'load average'; free | wc -l; uptime | grep -c load; kill %1 2>/dev/null || true
