//! The fast paths, and what a death in them leaves. `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_fast`
#![cfg(loom)]

mod model;

use loom::sync::Arc;
use loom::thread;
use manyway_sem::edges::{self, CellLock};
use manyway_sem::fast::{self, Doer};
use manyway_sem::word;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::model::dies_before;
use model::*;

const PID_BITS: u64 = word::pid_bits(99);

fn doer(w: &World, slot: u32) -> Doer<'_> {
    Doer::new(&w.slots[slot as usize].ctl, slot, PID, PROC)
}

/// Takes a unit from a cell as a newcomer does: fast if it can; an owner that is gone is recovered in the name of slot `by`.
fn take(w: &World, num: usize, by: u32) {
    while !fast::plain(&w.cells[num], TAG, PID_BITS, -1) {
        let word = w.cells[num].word.load(Relaxed);
        if word & word::LOCKED == 0 || !w.release_locks(word::owner(word), by, || ()) {
            thread::yield_now();
        }
    }
}

/// FAST-CAS: who takes the unit sees what was written before it was given.
#[test]
fn fast_cas_hands_on_what_was_done() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        let data = Arc::new(Data::default());
        let giver = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                data.set(1);
                assert!(fast::plain(&w.cells[0], TAG, PID_BITS, 1));
            })
        };
        if fast::plain(&w.cells[0], TAG, PID_BITS, -1) {
            assert_eq!(data.get(), 1);
        }
        giver.join().unwrap();
    });
}

/// FAST-CAS: who has found a set that is gone leaves the one in its place alone, also when that one comes between its look and its CAS.
#[test]
fn fast_cas_leaves_another_incarnation_alone() {
    check_thoroughly(|| {
        let w = World::new([3, 0]);
        let next = word::tag_bits(TAG + 1) | 5;
        let maker = {
            let w = w.clone();
            thread::spawn(move || {
                while !matches!(edges::try_lock_cell(&w.cells[0], TAG, 1), Ok(CellLock::Got(_))) {
                    thread::yield_now();
                }
                edges::close_set(&w.lock, w.cells[..1].iter());
                w.cells[0].word.store(next, Release);
            })
        };
        fast::plain(&w.cells[0], TAG, PID_BITS, 1);
        maker.join().unwrap();
        assert_eq!(w.cells[0].word.load(Relaxed), next);
        assert!(!fast::plain(&w.cells[0], TAG, PID_BITS, 1), "it is gone");
        assert_eq!(w.cells[0].word.load(Relaxed), next);
    });
}

/// FAST-CAS: an operation that dies anywhere has happened or not.
#[test]
fn plain_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = World::new([1, 0]);
        let giver = {
            let w = w.clone();
            thread::spawn(move || {
                dies_before(k, || {
                    fast::plain(&w.cells[0], TAG, PID_BITS, 1);
                })
            })
        };
        assert!(fast::plain(&w.cells[0], TAG, PID_BITS, -1));
        let died = giver.join().unwrap();
        assert!(w.value(0) == 1 || died && w.value(0) == 0);
        w.settled_adjustment();
        died
    });
    assert!(points > 3, "{points} crash points");
}

/// FAST-CAS against CELL-LOCK: a section and fast operations lose nothing of each other, and each sees what was done before.
#[test]
fn cell_lock_excludes_and_hands_on() {
    check(|| {
        let w = World::new([5, 0]);
        let data = Arc::new(Data::default());
        let section = |w: &World, data: &Data, slot| {
            let was = loop {
                match edges::try_lock_cell(&w.cells[0], TAG, slot) {
                    Ok(CellLock::Got(was)) => break was,
                    Ok(r) => panic!("{r:?}"),
                    Err(_) => thread::yield_now(),
                }
            };
            data.set(data.get() + 1);
            edges::store_value(&w.cells[0], TAG, word::value(was) - 1, PID);
            edges::unlock_cell(&w.cells[0], TAG);
        };
        let other = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || section(&w, &data, 1))
        };
        let newcomer = {
            let w = w.clone();
            thread::spawn(move || fast::plain(&w.cells[0], TAG, PID_BITS, -1))
        };
        section(&w, &data, 0);
        other.join().unwrap();
        let fast = newcomer.join().unwrap() as i32;
        assert_eq!(w.value(0), 3 - fast);
        assert_eq!(data.get(), 2);
    });
}

/// CELL-LOCK against FAST-CAS: a section sees what was done before a unit came by the fast path.
#[test]
fn cell_lock_takes_over_from_fast_cas() {
    check_thoroughly(|| {
        let (w, data) = (World::new([0, 0]), Arc::new(Data::default()));
        let giver = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                data.set(1);
                fast::plain(&w.cells[0], TAG, PID_BITS, 1);
            })
        };
        if let Ok(CellLock::Got(was)) = edges::try_lock_cell(&w.cells[0], TAG, 0)
            && word::value(was) == 1
        {
            assert_eq!(data.get(), 1);
        }
        giver.join().unwrap();
    });
}

/// FAST-CAS against CELL-LOCK: who takes a unit by the fast path sees what the section did that gave it.
#[test]
fn fast_cas_takes_over_from_cell_lock() {
    check_thoroughly(|| {
        let (w, data) = (World::new([0, 0]), Arc::new(Data::default()));
        let giver = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                assert!(matches!(edges::try_lock_cell(&w.cells[0], TAG, 0), Ok(CellLock::Got(_))));
                edges::store_value(&w.cells[0], TAG, 1, PID);
                data.set(1);
                edges::unlock_cell(&w.cells[0], TAG);
            })
        };
        if fast::plain(&w.cells[0], TAG, PID_BITS, -1) {
            assert_eq!(data.get(), 1);
        }
        giver.join().unwrap();
    });
}

/// A cell with sleepers is left to the slow path: an unlock says so in the word.
#[test]
fn unlock_keeps_newcomers_from_overtaking_sleepers() {
    check_thoroughly(|| {
        let w = World::new([1, 0]);
        assert!(matches!(edges::try_lock_cell(&w.cells[0], TAG, 0), Ok(CellLock::Got(_))));
        let newcomer = {
            let w = w.clone();
            thread::spawn(move || fast::plain(&w.cells[0], TAG, PID_BITS, -1))
        };
        w.cells[0].alter.head.store(2, Relaxed);
        edges::unlock_cell(&w.cells[0], TAG);
        assert!(!newcomer.join().unwrap());
        assert_eq!(w.value(0), 1);
    });
}

/// UNDO-JOURNAL, HEAD-FIRST: an operation with SEM_UNDO that dies anywhere has happened whole or not at all, while a newcomer works on the
/// same cell and recovers it.
#[test]
fn undo_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = World::new([5, 0]);
        let doer_thread = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || {
                    fast::undo(&w.cells[0], &w.adj, &doer(&w, 0), fast::undo_head(PAGE, 0), TAG, -1);
                });
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        take(&w, 0, 1);
        let died = doer_thread.join().unwrap();
        if died {
            w.release_locks(0, 1, || ());
        }
        assert_eq!(w.value(0) + w.settled_adjustment(), 4);
        died
    });
    assert!(points > 7, "{points} crash points");
}

/// SLOT-RECOVER: a recoverer that dies anywhere is followed by another one, who ends what is left, once.
#[test]
fn undo_is_whole_though_its_recoverer_dies() {
    // The first death has no interleavings of its own; its points are few.
    for first in 0..24 {
        each_crash_point(move |k| {
            let w = World::new([5, 0]);
            if dies_before(first, || {
                fast::undo(&w.cells[0], &w.adj, &doer(&w, 0), fast::undo_head(PAGE, 0), TAG, -1);
            }) {
                w.slots[0].mark();
            }
            let recoverer = {
                let w = w.clone();
                thread::spawn(move || {
                    let died = dies_before(k, || {
                        w.release_locks(0, 1, || ());
                    });
                    if died {
                        w.slots[1].mark();
                    }
                    died
                })
            };
            take(&w, 0, 2);
            let died = recoverer.join().unwrap();
            w.release_locks(0, 2, || ());
            assert_eq!(w.value(0) + w.settled_adjustment(), 4);
            died
        });
    }
}

/// UNDO-JOURNAL for two semaphores: both change or none, while newcomers work on both.
#[test]
fn pair_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = World::new([5, 1]);
        let mover = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || {
                    fast::pair(&w.cells[0], &w.cells[1], &doer(&w, 0), PAGE, TAG, (0, -1), (1, 1));
                });
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        take(&w, 1, 1);
        let died = mover.join().unwrap();
        if died {
            w.release_locks(0, 1, || ());
        }
        w.settled_adjustment();
        assert!(matches!((w.value(0), w.value(1)), (5, 0) | (4, 1)), "torn: {} {}", w.value(0), w.value(1));
        died
    });
    assert!(points > 9, "{points} crash points");
}
