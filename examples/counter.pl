#!/usr/bin/env perl
# Five processes add to one counter under one lock, a System V semaphore with SEM_UNDO. One of them dies holding it.
#
#   perl examples/counter.pl                                  on the kernel's semaphores
#   cargo run --release -- run -- perl examples/counter.pl    on Manyway's, unchanged
use strict;
use warnings;
use Fcntl qw(SEEK_SET);
use IPC::Semaphore;
use IPC::SysV qw(IPC_CREAT IPC_PRIVATE SEM_UNDO S_IRUSR S_IWUSR);
use Time::HiRes qw(time);

my ($workers, $rounds, $last_words) = (4, 20_000, 1_000);

my $lock = IPC::Semaphore->new(IPC_PRIVATE, 1, IPC_CREAT | S_IRUSR | S_IWUSR) or die "semget: $!\n";
$lock->setval(0, 1) or die "semctl: $!\n";
open my $file, '+>', undef or die "temporary file: $!\n";    # the counter, eight bytes that all processes share
put(0);

sub get { sysseek $file, 0, SEEK_SET; sysread $file, my $bytes, 8; unpack 'q', $bytes }
sub put { sysseek $file, 0, SEEK_SET; syswrite $file, pack 'q', shift }

sub take { $lock->op(0, -1, SEM_UNDO) or die "semop: $!\n" }
sub give { $lock->op(0, 1, SEM_UNDO) or die "semop: $!\n" }
sub add { take; put(get() + 1); give }

sub start {
    my $work = shift;
    my $pid = fork // die "fork: $!\n";
    return $pid if $pid;
    $work->();
    exit 0;
}

my $began = time;
my $doomed = start(sub { add for 1 .. $last_words; take; kill KILL => $$ });
my @working = map { start(sub { add for 1 .. $rounds }) } 1 .. $workers;

my %failed;
for my $pid ($doomed, @working) {
    waitpid $pid, 0;
    $failed{$pid} = $? if $?;
}
my $each = (time - $began) / ($workers * $rounds + $last_words) * 1e6;

my ($counted, $expected, $value) = (get(), $workers * $rounds + $last_words, $lock->getval(0));
$lock->remove or die "semctl: $!\n";

open my $maps, '<', '/proc/self/maps' or die "/proc/self/maps: $!\n";
my ($arena) = map { m{(/\S*arena-v\d+)$} } <$maps>;

print "semaphores:  ", $arena ? "Manyway ($arena)" : "the kernel's", "\n";
print "counted:     $counted of $expected\n";
printf "lock, count, unlock: %.2f us\n", $each;
print "process $doomed was killed holding the lock; the lock is ", $value == 1 ? "free" : "lost (value $value)", "\n";
my $as_it_should = $counted == $expected && $value == 1 && keys %failed == 1 && ($failed{$doomed} // 0) == 9;
exit($as_it_should ? 0 : 1);
