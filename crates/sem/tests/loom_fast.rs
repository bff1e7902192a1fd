//! The fast paths, and what a death in them leaves. `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_fast`
#![cfg(loom)]

mod model;

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use manyway_sem::abi::{SEM_UNDO, SemBuf};
use manyway_sem::edges::{self, CellLock};
use manyway_sem::fast::{self, Doer};
use manyway_sem::journal::{Fin, Kind, head};
use manyway_sem::word;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::model::dies_before;
use model::*;

const PID_BITS: u64 = word::pid_bits(99);

fn op(num: u16, op: i16, flg: i32) -> SemBuf {
    SemBuf { num, op, flg: flg as i16 }
}

fn doer(w: &World, slot: u32) -> Doer<'_> {
    Doer { ctl: &w.slots[slot as usize].ctl, slot, pid: PID, proc: PROC }
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
    check(|| {
        let w = World::new([0, 0]);
        let data = Arc::new(UnsafeCell::new(0));
        let giver = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                data.with_mut(|d| unsafe { *d = 1 });
                assert!(fast::plain(&w.cells[0], TAG, PID_BITS, 1));
            })
        };
        if fast::plain(&w.cells[0], TAG, PID_BITS, -1) {
            data.with(|d| assert_eq!(unsafe { *d }, 1));
        }
        giver.join().unwrap();
    });
}

/// FAST-CAS against CELL-LOCK: a section and fast operations lose nothing of each other, and each sees what was done before.
#[test]
fn cell_lock_excludes_and_hands_on() {
    check(|| {
        let w = World::new([5, 0]);
        let data = Arc::new(UnsafeCell::new(0));
        let section = |w: &World, data: &UnsafeCell<i32>, slot| {
            let was = loop {
                match edges::try_lock_cell(&w.cells[0], TAG, slot) {
                    Ok(CellLock::Got(was)) => break was,
                    Ok(r) => panic!("{r:?}"),
                    Err(_) => thread::yield_now(),
                }
            };
            data.with_mut(|d| unsafe { *d += 1 });
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
        data.with(|d| assert_eq!(unsafe { *d }, 2));
    });
}

/// CELL-LOCK hands on what a fast operation's giver did, and an unlock what the section did to who comes by the fast path.
#[test]
fn lock_and_fast_cas_hand_on_to_each_other() {
    check(|| {
        let w = World::new([0, 0]);
        let data = Arc::new(UnsafeCell::new(0));
        let other = {
            let (w, data) = (w.clone(), data.clone());
            thread::spawn(move || {
                data.with_mut(|d| unsafe { *d = 1 });
                while !fast::plain(&w.cells[0], TAG, PID_BITS, 1) {
                    thread::yield_now();
                }
                // Its unit comes back to cell 1 by a section.
                if fast::plain(&w.cells[1], TAG, PID_BITS, -1) {
                    data.with(|d| assert_eq!(unsafe { *d }, 2));
                }
            })
        };
        if let Ok(CellLock::Got(was)) = edges::try_lock_cell(&w.cells[0], TAG, 0)
            && word::value(was) == 1
        {
            data.with_mut(|d| unsafe { *d = 2 });
            assert!(matches!(edges::try_lock_cell(&w.cells[1], TAG, 0), Ok(CellLock::Got(_)) | Err(None)));
            if word::is_locked_by(w.cells[1].word.load(Relaxed), 0) {
                edges::store_value(&w.cells[1], TAG, 1, PID);
                edges::unlock_cell(&w.cells[1], TAG);
            }
            edges::unlock_cell(&w.cells[0], TAG);
        }
        other.join().unwrap();
    });
}

/// A cell with sleepers is left to the slow path: an unlock says so in the word.
#[test]
fn unlock_keeps_newcomers_from_overtaking_sleepers() {
    check(|| {
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
                    fast::undo(&w.cells[0], &w.adj, &doer(&w, 0), PAGE, TAG, op(0, -1, SEM_UNDO));
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
    assert!(points > 8, "{points} crash points");
}

/// SLOT-RECOVER: a recoverer that dies anywhere is followed by another one, who ends what is left, once.
#[test]
fn undo_is_whole_though_its_recoverer_dies() {
    // The first death has no interleavings of its own; its points are few.
    for first in 0..24 {
        each_crash_point(move |k| {
            let w = World::new([5, 0]);
            if dies_before(first, || {
                fast::undo(&w.cells[0], &w.adj, &doer(&w, 0), PAGE, TAG, op(0, -1, SEM_UNDO));
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
                    let by = doer(&w, 0);
                    by.ctl.tag.store(TAG, Relaxed);
                    by.ctl.fin.store(Fin { value: 0, adj: None, pid: PID }.bits(), Relaxed);
                    edges::commit(&by.ctl.head, head(Kind::MultiIntent, PAGE, 0));
                    fast::pair(&w.cells[0], &w.cells[1], &by, PAGE, TAG, op(0, -1, 0), op(1, 1, 0));
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
    assert!(points > 12, "{points} crash points");
}
