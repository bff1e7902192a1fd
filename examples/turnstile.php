<?php
// Six processes share two permits, through PHP's sem_get and sem_acquire: never more than two are inside.
//
//   php examples/turnstile.php                                  on the kernel's semaphores
//   cargo run --release -- run -- php examples/turnstile.php    on Manyway's, unchanged

const PROCESSES = 6;
const PERMITS = 2;
const ROUNDS = 5000;

$key = ftok(__FILE__, 'm') ^ getmypid();
$turnstile = sem_get($key, PERMITS, 0600) or exit("sem_get failed\n");
$tally = sem_get($key + 1, 1, 0600) or exit("sem_get failed\n");
$board = shmop_open($key, 'c', 0600, 8);        // two numbers: who is inside now, the most there ever were
shmop_write($board, pack('V2', 0, 0), 0);

/** Adds $change to the number of those inside; all that touches the board happens under $tally. */
function count_inside(int $change): void
{
    global $board, $tally;
    sem_acquire($tally);
    [, $inside, $most] = unpack('V2', shmop_read($board, 0, 8));
    $inside += $change;
    shmop_write($board, pack('V2', $inside, max($inside, $most)), 0);
    sem_release($tally);
}

$began = hrtime(true);
$children = [];
for ($i = 0; $i < PROCESSES; $i++) {
    $pid = pcntl_fork();
    if ($pid === 0) {
        for ($round = 0; $round < ROUNDS; $round++) {
            sem_acquire($turnstile) or exit(1);
            count_inside(1);
            count_inside(-1);
            sem_release($turnstile) or exit(1);
        }
        exit(0);
    }
    $children[] = $pid;
}
$failed = 0;
foreach ($children as $pid) {
    pcntl_waitpid($pid, $status);
    $failed += $status !== 0;
}
$each = (hrtime(true) - $began) / (PROCESSES * ROUNDS) / 1000;

// With every permit taken, the next one must be refused: so all that were handed out have come back.
$back = 0;
while ($back <= PERMITS && sem_acquire($turnstile, true)) {
    $back++;
}
[, $inside, $most] = unpack('V2', shmop_read($board, 0, 8));
shmop_delete($board);
sem_remove($turnstile);
sem_remove($tally);

$arena = preg_match('~/\S*arena-v\d+$~m', file_get_contents('/proc/self/maps'), $found) ? "Manyway ($found[0])" : "the kernel's";
printf("semaphores:  %s\n", $arena);
printf("%d processes went through %d times, %.2f us each; at most %d of %d were inside at a time\n", PROCESSES, ROUNDS, $each, $most, PERMITS);
printf("permits back at the end: %d\n", $back);
exit($failed === 0 && $inside === 0 && $most <= PERMITS && $back === PERMITS ? 0 : 1);
