# needs: jq bc m4 bison flex file
echo '{"a":[1,2,{"b":null}]}' | jq -c '[.a[0,1] * 2, (.a[2].b // "none")]'; echo 'scale=20; 4*a(1)' | bc -l; printf 'define(f, [$1-$2])f(a, b) esyscmd(echo shell)\n' | sed '1s/^/changequote([,])/' | m4
printf '%%token N\n%%%%\ns: N | s N;\n%%%%\n' >g.y && bison -o g.c g.y && grep -c yyparse g.c; printf '%%%%\n[0-9]+ return 1;\n%%%%\n' >l.l && flex -o l.c l.l && grep -c 'yylex' l.c; file -b --mime-type g.c /bin/sh
