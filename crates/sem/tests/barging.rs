//! A barging namespace: newcomers may overtake, but no sleeper starves, and no unit is lost.
#![cfg(feature = "std")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use manyway_sem::{Fairness, Namespace};

fn namespace(dir: &tempfile::TempDir) -> Namespace {
    Namespace::options().create(true).fairness(Fairness::Barging).open(dir.path()).unwrap()
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

#[test]
fn a_newcomer_may_take_what_a_sleeper_was_woken_for() {
    let dir = dir();
    let sem = namespace(&dir).private_set(&[0]).unwrap().sem(0).unwrap();
    // In a strict namespace the unit is the sleeper's as soon as it is added, and a newcomer never gets it. Here it is a race, which the
    // newcomer wins when the sleeper has slept for less than a millisecond and is not awake yet.
    let won = (0..1000).any(|_| {
        let sleeper = std::thread::spawn(move || sem.take_timeout(1, Duration::from_secs(10)));
        while sem.takers().unwrap() == 0 {
            std::hint::spin_loop();
        }
        sem.add(1).unwrap();
        let won = sem.try_take(1).is_ok();
        if won {
            sem.add(1).unwrap();
        }
        sleeper.join().unwrap().unwrap();
        assert_eq!(sem.value().unwrap(), 0, "one unit, and the sleeper has it");
        won
    });
    assert!(won);
}

#[test]
fn the_millisecond_begins_with_a_sleepers_first_unit() {
    const TIMES: usize = 3;
    let dir = dir();
    let sem = namespace(&dir).private_set(&[0]).unwrap().sem(0).unwrap();
    let stop = AtomicBool::new(false);
    // A sleeper that has waited longer while there was no unit can be overtaken all the same, each time it sleeps.
    let won = std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                sem.take(1).unwrap();
            }
        });
        let mut won = 0;
        for _ in 0..3000 {
            while sem.takers().unwrap() == 0 {
                std::hint::spin_loop();
            }
            std::thread::sleep(Duration::from_millis(2));
            sem.add(1).unwrap();
            if sem.try_take(1).is_ok() {
                won += 1;
                sem.add(1).unwrap();
            }
            if won == TIMES {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        sem.add(1).unwrap();
        won
    });
    assert_eq!(won, TIMES);
}

#[test]
fn nobody_starves_and_no_unit_is_lost() {
    const THREADS: usize = 6;
    let dir = dir();
    let sem = namespace(&dir).private_set(&[1]).unwrap().sem(0).unwrap();
    let stop = AtomicBool::new(false);
    let inside = AtomicBool::new(false);
    let counts: Vec<(u64, Duration)> = std::thread::scope(|s| {
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                s.spawn(|| {
                    let (mut n, mut longest) = (0, Duration::ZERO);
                    while !stop.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        sem.take(1).unwrap();
                        longest = longest.max(began.elapsed());
                        assert!(!inside.swap(true, Ordering::Acquire), "two hold the one unit");
                        inside.store(false, Ordering::Release);
                        sem.add(1).unwrap();
                        n += 1;
                    }
                    (n, longest)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(800));
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|w| w.join().unwrap()).collect()
    });
    assert_eq!(sem.value().unwrap(), 1);
    assert_eq!((sem.takers().unwrap(), sem.zero_waiters().unwrap()), (0, 0));
    // Every worker had its turns, and waited far less than a sleeper's own look about (50 ms) times the number of those before it would
    // come to if hand-offs were lost.
    for (n, longest) in &counts {
        assert!(*n > 0 && *longest < Duration::from_secs(2), "{counts:?}");
    }
}

#[test]
fn the_rule_is_the_namespaces() {
    let dir = dir();
    assert_eq!(namespace(&dir).fairness(), Fairness::Barging);
    let strict = Namespace::options().fairness(Fairness::Strict).open(dir.path());
    assert!(strict.is_err());
    assert!(Namespace::open(dir.path()).is_ok_and(|n| n.fairness() == Fairness::Barging));
}
