# needs: git
# sample
export GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' GIT_CONFIG_NOSYSTEM=1
git config --global user.name A; git config --global user.email a@example.org; git config --global init.defaultBranch main
git init -q one; cd one
for i in 1 2 3 4 5; do echo $i >f$i; git add f$i; git commit -q -m "c$i"; done
git checkout -q -b side HEAD~2; echo side >g; git add g; git commit -q -m side; git checkout -q main
git merge -q -m merged side; git log --oneline --graph; git gc -q; git fsck 2>&1
printf '#!/bin/sh\necho hook ran\n' >.git/hooks/post-commit; chmod +x .git/hooks/post-commit
git commit -q --allow-empty -m with-hook
cd ..; git clone -q one two; git -C two log --format='%h %s' | sort; git -C two rev-parse HEAD; git -C one stash list; git -C one grep -n side
