# needs: ssh-keygen=openssh-client
ssh-keygen -q -t ed25519 -N '' -C c -f k; cut -d' ' -f1,3 k.pub; ssh-keygen -y -f k >p; cut -d' ' -f1,2 k.pub | cmp - <<X && echo derived
$(cut -d' ' -f1,2 p)
X
echo m >m; ssh-keygen -q -Y sign -f k -n file m 2>/dev/null; echo "u $(cat k.pub)" >allowed; ssh-keygen -Y verify -f allowed -I u -n file -s m.sig <m | cut -d' ' -f1-3
eval "$(ssh-agent -s)" >/dev/null; ssh-add -q k; ssh-add -l | cut -d' ' -f3,4; ssh-agent -k >/dev/null; echo ended
