# needs: rsync
mkdir -p a/b; seq 5000 >a/x; seq 10 >a/b/y; rsync -a --delete a/ c/; echo changed >>a/x; rm a/b/y
rsync -ai --delete a/ c/ | cut -c1-2,13- | grep -v "^\.d" ; diff -r a c && echo same
printf '#!/bin/sh\nshift\nexec "$@"\n' >rsh; chmod +x rsh; rsync -a --rsh="$PWD/rsh" a/ host:"$PWD/d/" && diff -r a d && echo by-shell
