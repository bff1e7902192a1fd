# The shell of Debian's scripts: functions, pipelines, here-documents, background jobs, traps.
# needs: dash
# sample
exec dash -c '
f() { echo "$1 $#"; return 3; }
f a b || echo "status $?"
printf "b\na\n" | sort | while read -r x; do echo "<$x>"; done
cat <<END
here $((6 * 7)) ${0##*/}
END
(sleep 0.05; echo late) & wait; echo waited
trap "echo at exit" EXIT
(exit 7) || echo $?
kill -TERM $$ 2>/dev/null & trap "echo term" TERM; wait; sleep 0.1; exit 0'
