# Processes, pipes, signals, sockets, and its semaphores.
# needs: perl
# sample
# semaphores
perl -e 'use POSIX; $SIG{CHLD} = sub { }; my @p = map { my $n = $_; fork || exit $n } 1 .. 5; my $s = 0; for (@p) { waitpid $_, 0; $s += $? >> 8 } print "$s\n"'
perl -e 'open my $h, "-|", "sh", "-c", "echo from child; exit 4" or die; print <$h>; close $h; print $? >> 8, "\n"; local $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; sleep 5'
perl -MIPC::Semaphore -MIPC::SysV=:all -e 'my $s = IPC::Semaphore->new(IPC_PRIVATE, 2, S_IRUSR | S_IWUSR) or die; $s->setall(1, 2); if (!fork) { $s->op(0, -1, SEM_UNDO); exit } wait; print join(",", $s->getall), "\n"; $s->remove; print `echo backticks`; system "exit 3"; print $? >> 8, "\n"' 2>&1
perl -Mthreads -e 'my @t = map { threads->create(sub { $_[0] ** 2 }, $_) } 1 .. 4; print join(" ", map { $_->join } @t), "\n"'
