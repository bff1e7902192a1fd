# needs: lua5.4
lua5.4 -e 'local p = io.popen("echo popen; exit 3"); print(p:read("a")); print(p:close()); print(os.execute("exit 5")); local t = {}; for i = 1, 10 do t[i] = i * i end; print(table.concat(t, " ")); local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(i) end end); print(co(), co(), co())'
