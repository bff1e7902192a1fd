# needs: curl python-tests=python3
mkdir w; seq 1000 >w/n; "$PYTHON" -c '
import http.server, sys, os
os.chdir("w")
class H(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
open("../port", "w").write(str(s.server_port) + "\n")
s.serve_forever()' & server=$!
while ! grep -q . port 2>/dev/null; do sleep 0.02; done
u=http://127.0.0.1:$(cat port); curl -s "$u/n" | md5sum; curl -s -o /dev/null -w '%{http_code}\n' "$u/none"; curl -s --parallel --no-progress-meter "$u/n" "$u/n" "$u/n" -o a -o b -o c; cmp a c && echo alike
curl -s "file://$PWD/w/n" | tail -1; curl -s --max-time 2 http://127.0.0.1:1/ || echo "code $?"; curl -s --resolve x.test:80:127.0.0.1 http://nonexistent.invalid/ || echo "code $?"
kill $server; { wait $server || c=$?; } 2>/dev/null; echo "ended $c"
