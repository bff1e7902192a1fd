# needs: zsh
exec zsh -f -c '
zmodload zsh/datetime zsh/zpty 2>/dev/null
a=(c a b); echo ${(o)a} ${#a} ${a[-1]}
echo =(echo x) | grep -c /
() { local x=$1; echo $((x ** 2)) } 12
print -l **/* | wc -l
{ sleep 0.05; echo late } & wait
TRAPUSR1() { echo usr1 }; kill -USR1 $$; sleep 0.05
echo ${(j:,:)$(seq 5)}'
