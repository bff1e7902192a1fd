# needs: gawk mawk
seq 1000 >n
for a in gawk mawk; do $a '{ s += $1; k[$1 % 7]++ } END { print s; for (i = 0; i < 7; i++) print i, k[i] }' n; done
gawk 'BEGIN { "date -u -d @0 +%Y" | getline y; print y; print "b\na" | "sort"; close("sort"); print strftime("%Y", 0, 1); system("exit 3") }'
gawk 'BEGIN { cmd = "cat"; print "co" |& cmd; close(cmd, "to"); cmd |& getline x; print x }'
grep -c 7 n; grep -P '^(\d)\1$' n; sed -n '/^99/{s/9/n/g;p}' n; sed 10q n | sed 'N;s/\n/ /'
