# needs: screen
export SCREENDIR=$PWD/sock; mkdir -m 700 sock; screen -dmS x sh -c 'echo in screen >o; sleep 0.2; exit 0'; for i in $(seq 100); do [ -s o ] && break; sleep 0.05; done; cat o; for i in $(seq 100); do screen -ls | grep -q 'No Sockets' && break; sleep 0.05; done; screen -ls | grep -o 'No Sockets'
