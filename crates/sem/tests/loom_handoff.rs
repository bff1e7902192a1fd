//! Sleeping, being completed, and being woken; and what a death in a section leaves.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_handoff`
#![cfg(loom)]

mod model;

use loom::sync::Arc;
use loom::thread;
use manyway_sem::edges::{self, CellLock, One};
use manyway_sem::fast;
use manyway_sem::journal::{Fin, Kind, head};
use manyway_sem::node::{self, Call, Outcome, State};
use manyway_sem::{slotword, word};
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

/// BARGE-NUDGE: who parks finds the value, or who stored it finds it parked.
#[test]
fn unit_or_nudge_is_seen() {
    check_thoroughly(|| {
        let w = World::new([0, 0]);
        let seq = node::publish(&w.slots[SLEEPER as usize].ctl);
        let giver = {
            let w = w.clone();
            thread::spawn(move || {
                edges::store_value(&w.cells[0], TAG, 1, PID);
                edges::nudge(&w.slots[SLEEPER as usize].ctl)
            })
        };
        assert!(node::park(&w.slots[SLEEPER as usize].ctl, seq));
        let fits = edges::fits(&w.cells[0], -1);
        assert!(giver.join().unwrap() || fits, "a unit that nobody comes for");
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

/// NODE-DONE: from the mark on the node is its thread's: who ends the sleep does not touch it any more.
#[test]
fn node_is_its_threads_behind_the_mark() {
    check_thoroughly(|| {
        let (w, links) = (World::new([1, 0]), Arc::new(Data::default()));
        let seq = node::publish(&w.slots[SLEEPER as usize].ctl);
        let waker = {
            let (w, links) = (w.clone(), links.clone());
            thread::spawn(move || {
                let sleeper = Some((&w.slots[SLEEPER as usize].ctl, seq));
                let fin = Fin { value: 0, adj: None, pid: PID };
                // `unlink` reads and writes the links.
                edges::apply_one(&One { cell: &w.cells[0], tag: TAG, fin, adj: None, sleeper }, || links.set(0));
            })
        };
        // It looks before it is woken, and is in its next sleep at once.
        if node::ended(&w.slots[SLEEPER as usize].ctl, seq).is_some() {
            links.set(1);
        }
        waker.join().unwrap();
    });
}

/// NODE-PUBLISH, HEAD-FIRST: who dies anywhere on its way to sleep leaves a cell that others can use: `Engine::queue_up`, and the queue made anew
/// without the dead.
#[test]
fn sleeper_that_dies_anywhere_leaves_the_cell() {
    let points = each_crash_point(|k| {
        let w = World::new([0, 0]);
        let redo = |w: &World| {
            let dead = &w.slots[0].ctl;
            // `Engine::rebuild`: the dead are left out.
            w.cells[0].alter.head.store(0, Relaxed);
            if let Some((call, _)) = node::read(dead) {
                assert_eq!(call.nops, 1, "a call that is not written");
                assert!(slotword::is_marked(dead));
            }
            edges::unlock_cell(&w.cells[0], TAG);
        };
        let sleeper = {
            let w = w.clone();
            thread::spawn(move || {
                let died = dies_before(k, || {
                    let ctl = &w.slots[0].ctl;
                    edges::begin(ctl, head(Kind::Cell, PAGE, 0));
                    while !matches!(edges::try_lock_cell(&w.cells[0], TAG, 0), Ok(CellLock::Got(_))) {
                        thread::yield_now();
                    }
                    node::write(ctl, Call { set: (PAGE, TAG), op: 1, nops: 1 });
                    node::publish(ctl);
                    w.cells[0].alter.head.store(1, Relaxed);
                    edges::unlock_cell(&w.cells[0], TAG);
                });
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        let mut given = fast::plain(&w.cells[0], TAG, word::pid_bits(99), 1);
        w.release_locks(0, 1, || redo(&w));
        let died = sleeper.join().unwrap();
        if died {
            w.release_locks(0, 1, || redo(&w));
            // It is recovered whole: out of the queue (`Engine::withdraw_node`).
            let ctl = &w.slots[0].ctl;
            if node::withdraw(ctl, node::seq(ctl.state.load(Relaxed))) {
                w.cells[0].alter.head.store(0, Relaxed);
                w.cells[0].word.store(w.cells[0].word.load(Relaxed) & !word::WAITERS, Relaxed);
            }
            given |= fast::plain(&w.cells[0], TAG, word::pid_bits(99), 1);
            assert!(given, "the cell is lost");
            w.settled_adjustment();
        }
        assert_eq!(w.value(0) > 0, given);
        died
    });
    assert!(points > 12, "{points} crash points");
}

/// ZERO-EPOCH: who dies anywhere while it completes zero-sleepers leaves each asleep or completed; the recoverer completes all and lets them
/// look.
#[test]
fn zero_grant_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let (w, epoch) = (World::new([0, 0]), Arc::new(AtomicU32::new(0)));
        let seqs = [1, 2].map(|s: usize| node::publish(&w.slots[s].ctl));
        let grant = move |w: &World, epoch: &AtomicU32| {
            for (s, seq) in [1, 2].into_iter().zip(seqs) {
                if node::is_queued(&w.slots[s].ctl, seq) {
                    edges::store_value(&w.cells[0], TAG, 0, PID);
                    node::finish(&w.slots[s].ctl, seq, Outcome::Done);
                }
            }
            node::bump_epoch(epoch);
            edges::unlock_cell(&w.cells[0], TAG);
        };
        let granter = {
            let (w, epoch) = (w.clone(), epoch.clone());
            thread::spawn(move || {
                let died = dies_before(k, || {
                    edges::begin(&w.slots[0].ctl, head(Kind::Cell, PAGE, 0));
                    while !matches!(edges::try_lock_cell(&w.cells[0], TAG, 0), Ok(CellLock::Got(_))) {
                        thread::yield_now();
                    }
                    grant(&w, &epoch);
                });
                if died {
                    w.slots[0].mark();
                }
                died
            })
        };
        // One of the sleepers looks about.
        let waits = node::ready_to_wait(&w.slots[1].ctl, seqs[0], Some(&epoch)).map(|(_, expected)| expected);
        w.release_locks(0, 1, || grant(&w, &epoch));
        let died = granter.join().unwrap();
        if died {
            w.release_locks(0, 1, || grant(&w, &epoch));
        }
        let done = [1, 2].map(|s: usize| node::ended(&w.slots[s].ctl, seqs[s - 1]) == Some(DONE));
        // Before its lock is taken it has done nothing.
        assert!(done[0] == done[1] && (done[0] || died), "{done:?}");
        assert!(!done[0] || waits.is_none_or(|e| epoch.load(Relaxed) != e), "it waits for an epoch that stays");
        w.settled_adjustment();
        died
    });
    assert!(points > 15, "{points} crash points");
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

/// Grants the sleeper of cell 0 (it wants one unit, with SEM_UNDO) its unit, if it still sleeps and there is one: `Engine::grant_alter` in the name of slot `by`.
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

/// Applies what slot `by` has committed.
fn apply(w: &World, by: u32) {
    w.apply(by, || w.cells[0].alter.head.store(0, Relaxed));
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
