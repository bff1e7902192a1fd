# Arrays, associative arrays, process substitution, coprocesses, arithmetic, command lists in the background.
# needs: bash
# sample
exec bash -c '
a=(one "two three" four); declare -A m=([x]=1 [y]=2)
echo "${#a[@]} ${a[1]} $((m[x] + m[y]))"
diff <(seq 5) <(seq 1 5) && echo same
coproc CAT { cat; }; echo through >&"${CAT[1]}"; read -r -u "${CAT[0]}" line; echo "$line"; exec {CAT[1]}>&-
set -o pipefail; false | true; echo "$?"
for i in 1 2 3 4; do (sleep 0.0$i; exit $i) & p[$i]=$!; done
for i in 1 2 3 4; do wait "${p[$i]}"; echo "$i $?"; done
printf -v v "%05.1f" 3.14159; echo "$v"; [[ abc =~ ^a(.)c$ ]] && echo "${BASH_REMATCH[1]}"
timeout 0.1 sleep 5; echo "$?"; trap "echo usr1" USR1; kill -USR1 $$; (ulimit -n 64; ulimit -n)'
