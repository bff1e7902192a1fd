# A static program is started by a shell on Manyway: it works, on its own.
# needs: busybox=busybox-static
busybox sh -c 'echo $((2 + 3)); busybox seq 3 | busybox sort -r'; busybox awk 'BEGIN { print 7 * 6 }'; busybox ls -d /bin/sh
