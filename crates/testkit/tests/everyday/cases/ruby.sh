# needs: ruby
# sample
ruby -e 'puts (1..5).map { |n| fork { exit n } }.sum { |pid| Process.wait2(pid)[1].exitstatus }
puts `echo backticks`, IO.popen(["tr", "a-z", "A-Z"], "r+") { |io| io.write "up"; io.close_write; io.read }
t = 4.times.map { |i| Thread.new { i * i } }; puts t.map(&:value).inspect
trap("USR1") { puts "usr1" }; Process.kill("USR1", $$); sleep 0.05
puts Process.spawn("exit 3").then { |pid| Process.wait2(pid)[1].exitstatus }
r, w = IO.pipe; pid = Process.spawn({}, "env", unsetenv_others: true, out: w); w.close; Process.wait(pid); puts r.read.lines.grep_v(/LD_PRELOAD|MANYWAY/).size' 2>&1
