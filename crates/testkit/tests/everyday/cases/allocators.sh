# Other allocators preloaded, before and after: jemalloc and tcmalloc.
# needs: /usr/lib/x86_64-linux-gnu/libjemalloc.so=libjemalloc2 /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so=libtcmalloc-minimal4 perl
# semaphores
cat >p.pl <<'P'
use IPC::SysV qw(:all); use IPC::Semaphore;
my $s = IPC::Semaphore->new(IPC_PRIVATE, 2, 0600) or die "semget: $!"; my @p;
for my $n (1 .. 4) { my $p = fork; if (!$p) { $s->op(0, 1, SEM_UNDO); $s->op(1, 1, 0); my @a = map { "x" x $_ } 1 .. 2000; exit } push @p, $p }
waitpid $_, 0 for @p; print join(",", $s->getall), "\n"; $s->remove; print `echo child`;
P
for lib in /usr/lib/x86_64-linux-gnu/libjemalloc.so.2 /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4; do
    LD_PRELOAD="$lib${LD_PRELOAD:+:$LD_PRELOAD}" perl p.pl; LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$lib" perl p.pl
    LD_PRELOAD="$lib" perl -e 'open my $m, "/proc/self/maps"; print "loaded\n" if grep { m{jemalloc|tcmalloc} } <$m>'
done
