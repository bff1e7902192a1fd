# needs: openssl
openssl version | cut -d' ' -f1
openssl genrsa 2048 >key 2>/dev/null; openssl req -new -x509 -key key -subj /CN=x -days 9 -out cert 2>/dev/null; openssl x509 -in cert -noout -subject
seq 100 >m; openssl dgst -sha256 -sign key -out sig m; openssl rsa -in key -pubout -out pub 2>/dev/null; openssl dgst -sha256 -verify pub -signature sig m
openssl enc -aes-256-cbc -pbkdf2 -k p -in m | openssl enc -d -aes-256-cbc -pbkdf2 -k p | cmp - m && echo round
openssl speed -seconds 1 -multi 2 -bytes 64 sha256 2>/dev/null | grep -c '^sha256'
openssl s_server -accept 127.0.0.1:0 -key key -cert cert -naccept 1 -quiet >served 2>log & for i in $(seq 100); do port=$(ss -ltnp 2>/dev/null | sed -n "s/.*127.0.0.1:\([0-9]*\) .*openssl.*/\1/p" | head -1); [ -n "$port" ] && break; sleep 0.05; done
[ -z "${port:-}" ] || { (echo hello; sleep 0.2) | openssl s_client -connect 127.0.0.1:"$port" -quiet >/dev/null 2>&1 || true; }
kill $! 2>/dev/null || true; wait 2>/dev/null || true; echo done
