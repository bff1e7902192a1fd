//! Sleeping, being completed, and being woken; and what a death in a section leaves.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_handoff`
#![cfg(loom)]

mod model;

use loom::sync::Arc;
use loom::thread;
use manyway_sem::edges::{self, CellLock, One};
use manyway_sem::fast;
use manyway_sem::journal::{Fin, Kind, Step, head};
use manyway_sem::node::{self, Call, Outcome, State};
use manyway_sem::word;
use manyway_shm::layout::ThreadCtl;
use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use manyway_sync::model::dies_before;
use model::*;

const DONE: State = State::Finished(Outcome::Done);

/// Sleeps as `Engine::sleep` does, without its timeouts.
fn sleep(ctl: &ThreadCtl, seq: u32, epoch: Option<&AtomicU32>, futex: &Futex) -> State {
    loop {
        if let Some(state) = node::ended(ctl, seq) {
            return state;
        }
        if let Some((word, expected)) = node::ready_to_wait(ctl, seq, epoch) {
            futex.wait(word, expected);
        }
    }
}

/// NODE-DONE: the sleeper sees what was done for it, and sleeps through no wake-up.
#[test]
fn completed_sleeper_wakes_and_sees_what_was_done() {
    check(|| {
        let (ctl, futex, data) = (Arc::new(ThreadCtl::default()), Arc::new(Futex::new()), Arc::new(Data::default()));
        let seq = node::publish(&ctl);
        let waker = {
            let (ctl, futex, data) = (ctl.clone(), futex.clone(), data.clone());
            thread::spawn(move || {
                data.set(1);
                if node::finish(&ctl, seq, Outcome::Done) == Some(true) {
                    futex.wake();
                }
            })
        };
        assert_eq!(sleep(&ctl, seq, None, &futex), DONE);
        assert_eq!(data.get(), 1);
        waker.join().unwrap();
    });
}

/// NODE-DONE: of a completion and a withdrawal (signal, timeout) one wins, and both sides know which.
#[test]
fn completion_and_withdrawal_agree() {
    check_thoroughly(|| {
        let ctl = Arc::new(ThreadCtl::default());
        let seq = node::publish(&ctl);
        let waker = {
            let ctl = ctl.clone();
            thread::spawn(move || node::finish(&ctl, seq, Outcome::Done).is_some())
        };
        node::park(&ctl, seq);
        let out = node::withdraw(&ctl, seq);
        assert_ne!(waker.join().unwrap(), out);
        assert_eq!(node::ended(&ctl, seq), Some(if out { State::Idle } else { DONE }));
    });
}

/// A nudge (barging) is no result, and is slept through by nobody.
#[test]
fn nudged_sleeper_looks_again() {
    check(|| {
        let (ctl, futex) = (Arc::new(ThreadCtl::default()), Arc::new(Futex::new()));
        let seq = node::publish(&ctl);
        let waker = {
            let (ctl, futex) = (ctl.clone(), futex.clone());
            thread::spawn(move || {
                if node::nudge(&ctl, seq) {
                    futex.wake();
                }
                if node::finish(&ctl, seq, Outcome::Again) == Some(true) {
                    futex.wake();
                }
            })
        };
        assert_eq!(sleep(&ctl, seq, None, &futex), State::Finished(Outcome::Again));
        waker.join().unwrap();
    });
}

/// ZERO-EPOCH: one bump and one wake for all zero-sleepers that have parked; who has not does not park.
#[test]
fn zero_sleepers_share_one_wake() {
    check(|| {
        let ctls = Arc::new([ThreadCtl::default(), ThreadCtl::default()]);
        let (epoch, futex) = (Arc::new(AtomicU32::new(0)), Arc::new(Futex::new()));
        let seqs = [node::publish(&ctls[0]), node::publish(&ctls[1])];
        let sleepers = [0, 1].map(|i| {
            let (ctls, epoch, futex) = (ctls.clone(), epoch.clone(), futex.clone());
            thread::spawn(move || assert_eq!(sleep(&ctls[i], seqs[i], Some(&epoch), &futex), DONE))
        });
        // Engine::grant_zero.
        let mut parked = false;
        for i in [0, 1] {
            parked |= node::finish(&ctls[i], seqs[i], Outcome::Done) == Some(true);
        }
        if parked {
            node::bump_epoch(&epoch);
            futex.wake();
        }
        for s in sleepers {
            s.join().unwrap();
        }
    });
}

/// NODE-PUBLISH, NODE-CALL: who walks the nodes without their locks reads one sleep's call or none.
#[test]
fn stranger_reads_one_call() {
    const FIRST: Call = Call { set: (1, 1), op: 1, nops: 1 };
    const SECOND: Call = Call { set: (2, 2), op: 2, nops: 2 };
    check_thoroughly(|| {
        let ctl = Arc::new(ThreadCtl::default());
        node::write(&ctl, FIRST);
        let first = node::publish(&ctl);
        let owner = {
            let ctl = ctl.clone();
            thread::spawn(move || {
                assert!(node::withdraw(&ctl, first));
                node::write(&ctl, SECOND);
                node::publish(&ctl)
            })
        };
        if let Some((call, seq)) = node::read(&ctl) {
            assert_eq!(call, if seq == first { FIRST } else { SECOND });
        }
        let second = owner.join().unwrap();
        assert_eq!(node::read(&ctl), Some((SECOND, second)));
    });
}

/// SET-LOCK, REGISTRY-LOCK: they exclude, and hand on what was done under them.
#[test]
fn locks_exclude_and_hand_on() {
    for free in [0, word::tag_bits(TAG)] {
        check_thoroughly(move || {
            let (lock, data) = (Arc::new(AtomicU64::new(free)), Arc::new(Data::default()));
            let section = move |lock: &AtomicU64, data: &Data, slot| {
                while edges::try_lock(lock, free, slot).is_err() {
                    thread::yield_now();
                }
                data.set(data.get() + 1);
                edges::unlock(lock, free);
            };
            let other = {
                let (lock, data) = (lock.clone(), data.clone());
                thread::spawn(move || section(&lock, &data, 1))
            };
            section(&lock, &data, 0);
            other.join().unwrap();
            assert_eq!(data.get(), 2);
        });
    }
}

/// A set's lock of another incarnation is not taken.
#[test]
fn lock_of_a_removed_set_is_not_taken() {
    let w = word::tag_bits(TAG + 1);
    check_thoroughly(move || assert_eq!(edges::try_lock(&AtomicU64::new(w), word::tag_bits(TAG), 0), Err(w)));
}

/// The sleeper of the grants below: slot 2 of the world wants one unit of cell 0, with SEM_UNDO.
const SLEEPER: u32 = 2;

/// Grants the sleeper its unit, if it still sleeps and there is one: `Engine::grant_alter` in the name of slot `by`.
fn grant(w: &World, by: u32, seq: u32) {
    let sleeper = &w.slots[SLEEPER as usize].ctl;
    let value = w.value(0);
    if value > 0 && node::is_queued(sleeper, seq) {
        let adj = w.adj.load(Relaxed) + 1;
        let fin = Fin { value: value - 1, adj: Some(adj), pid: PID };
        edges::commit_one(&w.slots[by as usize].ctl, 0, fin, PROC, Some((SLEEPER, seq)));
        apply(w, by);
    }
    w.cells[0].alter.head.store(if node::is_queued(sleeper, seq) { SLEEPER + 1 } else { 0 }, Relaxed);
}

/// Applies what slot `by` has committed, and clears it: `Engine::apply_step`.
fn apply(w: &World, by: u32) {
    let ctl = &w.slots[by as usize].ctl;
    if let Step::One { num: 0, sleeper } = edges::committed(ctl) {
        let sleeper = sleeper.map(|(slot, seq)| (&w.slots[slot as usize].ctl, seq));
        let fin = Fin::parse(ctl.fin.load(Relaxed));
        let one = One { cell: &w.cells[0], tag: TAG, fin, adj: Some((PROC, &w.adj)), sleeper };
        edges::apply_one(&one, || w.cells[0].alter.head.store(0, Relaxed));
        edges::commit(&ctl.step, 0);
    }
}

/// What a recoverer does for a cell section (`Engine::release_cell`), in the dead slot's name.
fn redo(w: &World, dead: u32, seq: u32) {
    apply(w, dead);
    w.recount();
    grant(w, dead, seq);
    edges::unlock_cell(&w.cells[0], TAG);
}

/// A world where the sleeper sleeps on cell 0, whose value is 0.
fn asleep() -> (Arc<World>, u32) {
    let w = World::new([0, 0]);
    let seq = node::publish(&w.slots[SLEEPER as usize].ctl);
    w.cells[0].alter.head.store(SLEEPER + 1, Relaxed);
    w.cells[0].word.store(w.cells[0].word.load(Relaxed) | word::WAITERS, Relaxed);
    (w, seq)
}

/// Gives one unit to cell 0 in a section of slot `by`, and grants it: a step of its own, then the sleeper's.
fn give(w: &World, by: u32, seq: u32) {
    let ctl = &w.slots[by as usize].ctl;
    edges::begin(ctl, head(Kind::Cell, PAGE, 0));
    while !matches!(edges::try_lock_cell(&w.cells[0], TAG, by), Ok(CellLock::Got(_))) {
        thread::yield_now();
    }
    edges::commit_one(ctl, 0, Fin { value: w.value(0) + 1, adj: None, pid: PID }, PROC, None);
    apply(w, by);
    grant(w, by, seq);
    edges::unlock_cell(&w.cells[0], TAG);
}

/// Strict hand-off, no death: the unit is the sleeper's, whatever a newcomer tries.
#[test]
fn unit_is_the_sleepers_at_once() {
    check(|| {
        let (w, seq) = asleep();
        let giver = {
            let w = w.clone();
            thread::spawn(move || give(&w, 0, seq))
        };
        assert!(!fast::plain(&w.cells[0], TAG, word::pid_bits(99), -1));
        giver.join().unwrap();
        assert_eq!(node::ended(&w.slots[SLEEPER as usize].ctl, seq), Some(DONE));
        assert_eq!((w.value(0), w.settled_adjustment()), (0, 1));
    });
}

/// STEP-COMMIT, HEAD-FIRST: a giver that dies anywhere has given its unit or not; if so it is the sleeper's, once, with its adjustment; while a
/// newcomer tries to take it and recovers the dead.
#[test]
fn grant_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let (w, seq) = asleep();
        let giver = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || give(&w, 0, seq));
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        for _ in 0..2 {
            assert!(!fast::plain(&w.cells[0], TAG, word::pid_bits(99), -1), "a newcomer took the sleeper's unit");
            w.release_locks(0, 1, || redo(&w, 0, seq));
        }
        let died = giver.join().unwrap();
        if died {
            w.release_locks(0, 1, || redo(&w, 0, seq));
        }
        settled(&w, seq);
        died
    });
    assert!(points > 25, "{points} crash points");
}

/// The same, and its recoverer dies too, while another one takes over.
#[test]
fn grant_is_whole_though_its_recoverer_dies() {
    for first in 0..40 {
        each_crash_point(move |k| {
            let (w, seq) = asleep();
            if dies_before(first, || give(&w, 0, seq)) {
                w.slots[0].mark();
            }
            let recoverer = {
                let w = w.clone();
                thread::spawn(move || {
                    let died = dies_before(k, || {
                        w.release_locks(0, 1, || redo(&w, 0, seq));
                    });
                    if died {
                        w.slots[1].mark();
                    }
                    died
                })
            };
            // In the name of the sleeper's own thread, that looks about.
            w.release_locks(0, SLEEPER, || redo(&w, 0, seq));
            let died = recoverer.join().unwrap();
            w.release_locks(0, SLEEPER, || redo(&w, 0, seq));
            settled(&w, seq);
            died
        });
    }
}

/// Nothing was given and it sleeps, or one unit was given and it has it.
fn settled(w: &World, seq: u32) {
    let waiters = w.cells[0].word.load(Relaxed) & word::WAITERS != 0;
    match node::ended(&w.slots[SLEEPER as usize].ctl, seq) {
        None => {
            assert!(waiters);
            w.cells[0].word.store(w.cells[0].word.load(Relaxed) & !word::WAITERS, Relaxed);
            assert_eq!((w.value(0), w.settled_adjustment()), (0, 0));
        }
        Some(state) => {
            assert_eq!(state, DONE);
            assert!(!waiters);
            assert_eq!((w.value(0), w.settled_adjustment()), (0, 1));
        }
    }
}
