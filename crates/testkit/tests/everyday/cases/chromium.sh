# A browser: many processes, each in a sandbox of its own making.
# needs: chromium
echo '<html><body><script>document.body.append(6 * 7 + " " + [3, 1, 2].sort())</script></body></html>' >p.html
timeout 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$PWD/u" --dump-dom "file://$PWD/p.html" 2>/dev/null
