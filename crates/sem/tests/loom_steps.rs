//! Steps over several cells, and what changes whole sets: a call on several semaphores without the set lock, grants to a call of several,
//! SETVAL, SETALL and removal; and what a death in them leaves.
//! `RUSTFLAGS="--cfg loom" cargo test --release -p manyway-sem --test loom_steps`
#![cfg(loom)]

mod model;

use loom::sync::Arc;
use loom::thread;
use manyway_sem::edges::{self, CellLock};
use manyway_sem::fast;
use manyway_sem::id::IdEntry;
use manyway_sem::journal::{Fin, Kind, Step, head, staged};
use manyway_sem::node::{self, Outcome, State};
use manyway_sem::word::{self, holders};
use manyway_sync::atomic::Ordering::*;
use manyway_sync::model::dies_before;
use model::*;

const PID_BITS: u64 = word::pid_bits(99);

/// Who lives while another one dies: locks a cell as slot 1 (or gives up where the set lock owns it), and recovers whom it finds dead.
fn lock_cell(w: &World, num: usize, scan: impl Fn()) -> CellLock {
    loop {
        match edges::try_lock_cell(&w.cells[num], TAG, 1) {
            Ok(r) => return r,
            Err(Some(owner)) if w.release_locks(owner, 1, &scan) => {}
            Err(_) => thread::yield_now(),
        }
    }
}

/// Takes a unit from a cell.
fn take(w: &World, num: usize, scan: impl Fn()) {
    while !fast::plain(&w.cells[num], TAG, PID_BITS, -1) {
        let now = w.cells[num].word.load(Relaxed);
        if now & word::LOCKED == 0 || !w.release_locks(word::owner(now), 1, &scan) {
            thread::yield_now();
        }
    }
}

/// Runs `f` as slot 0, which dies before its access number `k`.
fn dying(w: &Arc<World>, k: usize, f: impl FnOnce(&World) + Send + 'static) -> thread::JoinHandle<bool> {
    let w = w.clone();
    thread::spawn(move || {
        let died = dies_before(k, || f(&w));
        if died {
            w.slots[0].mark();
        }
        died
    })
}

/// `Engine::fast_few`: takes one of cell 0 with SEM_UNDO, gives one to cell 1.
fn few(w: &World) {
    let ctl = &w.slots[0].ctl;
    edges::begin(ctl, head(Kind::MultiIntent, PAGE, 0));
    let Ok(CellLock::Got(a)) = edges::try_lock_cell(&w.cells[0], TAG, 0) else { return };
    let Ok(CellLock::Got(b)) = edges::try_lock_cell(&w.cells[1], TAG, 0) else {
        return w.cells[0].word.store(a, Release);
    };
    let (va, vb) = (word::value(a) - 1, word::value(b) + 1);
    edges::commit_few(ctl, head(Kind::MultiCommit, PAGE, 0), PID, [(&w.cells[0], va, Some(1)), (&w.cells[1], vb, None)].into_iter());
    edges::apply_few(&w.cells[0], TAG, va, word::pid_bits(PID), Some((PROC, &w.adj, 1)));
    edges::apply_few(&w.cells[1], TAG, vb, word::pid_bits(PID), None);
}

/// STEP-COMMIT of a call on several semaphores without the set lock: all or nothing, while a newcomer works on one of them.
#[test]
fn few_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = World::new([5, 1]);
        let doer = dying(&w, k, few);
        take(&w, 1, || ());
        let died = doer.join().unwrap();
        if died {
            w.release_locks(0, 1, || ());
        }
        let seen = (w.value(0), w.settled_adjustment(), w.value(1));
        // (Without a death the doer may have found a cell locked.)
        assert!(matches!(seen, (5, 0, 0) | (4, 1, 1)), "torn: {seen:?}");
        died
    });
    assert!(points > 15, "{points} crash points");
}

/// The sleeper's call: one of each cell, of the first with SEM_UNDO. It sleeps, the cells are COMPLEX; there is none in the first.
fn complex_sleeper() -> (Arc<World>, u32) {
    let w = World::new([0, 1]);
    let seq = node::publish(&w.slots[SLEEPER as usize].ctl);
    for c in &w.cells {
        c.word.store(c.word.load(Relaxed) | word::COMPLEX, Relaxed);
    }
    (w, seq)
}

/// `Engine::complete_many` in the name of slot `by`.
fn grant_many(w: &World, by: u32, seq: u32) {
    if node::is_queued(&w.slots[SLEEPER as usize].ctl, seq) && w.value(0) > 0 && w.value(1) > 0 {
        let ctl = &w.slots[by as usize].ctl;
        let stamp = edges::begin_many(ctl, by, PROC, PID);
        w.cells[0].staged.store(staged(stamp, w.value(0) - 1, Some(1)), Relaxed);
        w.cells[1].staged.store(staged(stamp, w.value(1) - 1, None), Relaxed);
        edges::commit_many(ctl, Some((SLEEPER, seq)));
        w.apply(by, || ());
    }
}

fn end_section(w: &World, by: u32, seq: u32) {
    grant_many(w, by, seq);
    w.unlock_all(by, node::is_queued(&w.slots[SLEEPER as usize].ctl, seq));
}

/// What a recoverer does for a set section (`Engine::release_set`), in the dead slot's name.
fn redo_many(w: &World, dead: u32, seq: u32) {
    w.apply(dead, || ());
    w.recount();
    end_section(w, dead, seq);
}

/// `Engine::try_set`: gives one to cell 0 under the set lock, and serves the sleeper.
fn give_under_set_lock(w: &World, by: u32, seq: u32) {
    let ctl = &w.slots[by as usize].ctl;
    edges::begin(ctl, head(Kind::Set, PAGE, 0));
    while edges::try_lock(&w.lock, word::tag_bits(TAG), by).is_err() {
        thread::yield_now();
    }
    edges::commit_one(ctl, 0, Fin { value: w.value(0) + 1, adj: None, pid: PID }, PROC, None);
    w.apply(by, || ());
    end_section(w, by, seq);
}

/// Nothing was given and it sleeps; or it was, and the sleeper has its units, of both cells.
fn settled_many(w: &World, seq: u32) {
    let words = [0, 1].map(|n: usize| w.cells[n].word.load(Relaxed));
    assert_eq!(w.lock.load(Relaxed), word::tag_bits(TAG), "the set is locked");
    let adj = w.adj.load(Relaxed);
    assert_eq!(w.cells[0].holders.load(Relaxed), holders::changed(0, PROC, 0, adj as i32), "holders");
    let complex = words.map(|w| w & word::COMPLEX != 0);
    match node::ended(&w.slots[SLEEPER as usize].ctl, seq) {
        None => assert_eq!((w.value(0), w.value(1), adj, complex), (0, 1, 0, [true; 2])),
        Some(state) => {
            assert_eq!(state, State::Finished(Outcome::Done));
            assert_eq!((w.value(0), w.value(1), adj, complex), (0, 0, 1, [false; 2]));
        }
    }
}

/// STEP-COMMIT, SET-LOCK: a giver under the set lock that dies anywhere has given its unit or not; if so the sleeping call of two semaphores has
/// it and the other one, once; while somebody else wants the set lock and recovers the dead.
#[test]
fn many_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let (w, seq) = complex_sleeper();
        let giver = dying(&w, k, move |w| give_under_set_lock(w, 0, seq));
        for _ in 0..2 {
            assert!(!fast::plain(&w.cells[1], TAG, PID_BITS, -1) || node::ended(&w.slots[SLEEPER as usize].ctl, seq).is_some());
            w.release_locks(0, 1, || redo_many(&w, 0, seq));
        }
        let died = giver.join().unwrap();
        if died {
            w.release_locks(0, 1, || redo_many(&w, 0, seq));
        }
        settled_many(&w, seq);
        died
    });
    assert!(points > 40, "{points} crash points");
}

/// The same, and its recoverer dies too, while another one takes over.
#[test]
fn many_is_whole_though_its_recoverer_dies() {
    for first in 0..60 {
        each_crash_point(move |k| {
            let (w, seq) = complex_sleeper();
            if dies_before(first, || give_under_set_lock(&w, 0, seq)) {
                w.slots[0].mark();
            }
            let recoverer = {
                let w = w.clone();
                thread::spawn(move || {
                    let died = dies_before(k, || {
                        w.release_locks(0, 1, || redo_many(&w, 0, seq));
                    });
                    if died {
                        w.slots[1].mark();
                    }
                    died
                })
            };
            w.release_locks(0, SLEEPER, || redo_many(&w, 0, seq));
            let died = recoverer.join().unwrap();
            w.release_locks(0, SLEEPER, || redo_many(&w, 0, seq));
            settled_many(&w, seq);
            died
        });
    }
}

/// A world where the process holds one unit of cell 0.
fn held() -> Arc<World> {
    let w = World::new([5, 1]);
    w.adj.store(1, Relaxed);
    w.recount();
    w
}

/// Locks the set and the cells as slot 0.
fn lock_all(w: &World) {
    edges::begin(&w.slots[0].ctl, head(Kind::Set, PAGE, 0));
    while edges::try_lock(&w.lock, word::tag_bits(TAG), 0).is_err() {
        thread::yield_now();
    }
    for cell in &w.cells {
        while !matches!(edges::try_lock_cell(cell, TAG, 0), Ok(CellLock::Got(_))) {
            thread::yield_now();
        }
    }
}

fn redo_plain(w: &World, dead: u32) {
    w.apply(dead, || ());
    w.recount();
    w.unlock_all(dead, false);
}

/// STEP-COMMIT of SETALL: all values and no adjustment, or nothing; while a newcomer works on one of the semaphores.
#[test]
fn setall_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = held();
        let setter = dying(&w, k, |w| {
            lock_all(w);
            let ctl = &w.slots[0].ctl;
            edges::commit_setall(ctl, head(Kind::SetAllCommit, PAGE, 0), PID, w.cells.iter().zip([2, 2]));
            edges::apply_setall(ctl, 0, head(Kind::Set, PAGE, 0), w.numbered(), |num, _| w.clear(num));
            w.unlock_all(0, false);
        });
        take(&w, 1, || redo_plain(&w, 0));
        let died = setter.join().unwrap();
        if died {
            w.release_locks(0, 1, || redo_plain(&w, 0));
        }
        let seen = (w.value(0), w.settled_adjustment(), w.value(1));
        // The unit was taken before, or after.
        assert!(matches!(seen, (5, 1, 0) | (2, 0, 1 | 2)), "torn: {seen:?}");
        died
    });
    assert!(points > 30, "{points} crash points");
}

/// STEP-COMMIT of SETVAL: the value and no adjustment, or nothing.
#[test]
fn setval_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let w = held();
        let setter = dying(&w, k, |w| {
            lock_all(w);
            let ctl = &w.slots[0].ctl;
            ctl.fin.store(Fin { value: 2, adj: None, pid: PID }.bits(), Relaxed);
            edges::commit(&ctl.step, Step::SetVal { num: 0 }.bits());
            w.apply(0, || ());
            w.unlock_all(0, false);
        });
        take(&w, 0, || redo_plain(&w, 0));
        let died = setter.join().unwrap();
        if died {
            w.release_locks(0, 1, || redo_plain(&w, 0));
        }
        let seen = (w.value(0), w.settled_adjustment());
        assert!(matches!(seen, (4, 1) | (1 | 2, 0)), "torn: {seen:?}");
        died
    });
    assert!(points > 20, "{points} crash points");
}

/// `Engine::carry_removal` in the name of slot `by`, under all locks; then the registry is given back.
fn carry_removal(w: &World, by: u32, seq: u32) {
    IdEntry::withdraw(&w.id);
    let sleeper = &w.slots[SLEEPER as usize].ctl;
    if node::is_queued(sleeper, seq) {
        w.cells[0].alter.head.store(0, Relaxed);
        node::finish(sleeper, seq, Outcome::Removed);
    }
    edges::close_set(&w.lock, w.cells.iter());
    edges::commit(&w.slots[by as usize].ctl.head, head(Kind::Registry, 0, 0));
    edges::unlock(&w.registry, 0);
}

fn remove(w: &World, seq: u32) {
    let ctl = &w.slots[0].ctl;
    edges::begin(ctl, head(Kind::Registry, PAGE, 0));
    while edges::try_lock(&w.registry, 0, 0).is_err() {
        thread::yield_now();
    }
    while edges::try_lock(&w.lock, word::tag_bits(TAG), 0).is_err() {
        thread::yield_now();
    }
    for cell in &w.cells {
        while !matches!(edges::try_lock_cell(cell, TAG, 0), Ok(CellLock::Got(_))) {
            thread::yield_now();
        }
    }
    edges::commit(&ctl.head, head(Kind::Remove, PAGE, 0));
    carry_removal(w, 0, seq);
}

/// A world with a sleeper on cell 0.
fn with_sleeper() -> (Arc<World>, u32) {
    let w = World::new([0, 1]);
    let seq = node::publish(&w.slots[SLEEPER as usize].ctl);
    w.cells[0].alter.head.store(SLEEPER + 1, Relaxed);
    w.cells[0].word.store(w.cells[0].word.load(Relaxed) | word::WAITERS, Relaxed);
    (w, seq)
}

/// The set is as it was, and its sleeper sleeps; or it is gone for everybody.
fn settled_removal(w: &World, seq: u32, given: bool) {
    assert_eq!(w.registry.load(Relaxed), 0, "the registry is locked");
    let words = [0, 1].map(|n: usize| w.cells[n].word.load(Relaxed));
    let end = node::ended(&w.slots[SLEEPER as usize].ctl, seq);
    if w.id.load(Relaxed) == 0 {
        assert_eq!((words, w.lock.load(Relaxed)), ([word::REMOVED; 2], word::REMOVED));
        assert_eq!(end, Some(State::Finished(Outcome::Removed)));
    } else {
        assert_eq!((w.lock.load(Relaxed), end), (word::tag_bits(TAG), None));
        assert_eq!(words[0] & (word::WAITERS | word::LOCKED), word::WAITERS);
        assert!(word::is_free(words[1], TAG));
        assert_eq!(w.value(1), 1 + given as i32);
    }
}

/// REGISTRY-LOCK, SET-LOCK: a removal that dies anywhere has removed the set for everybody, or not at all; while a call works on one of its
/// semaphores.
#[test]
fn removal_that_dies_anywhere_is_whole() {
    let points = each_crash_point(|k| {
        let (w, seq) = with_sleeper();
        let remover = dying(&w, k, move |w| remove(w, seq));
        let given = match lock_cell(&w, 1, || carry_removal(&w, 0, seq)) {
            CellLock::Got(was) => {
                edges::store_value(&w.cells[1], TAG, word::value(was) + 1, PID);
                edges::unlock_cell(&w.cells[1], TAG);
                true
            }
            _ => false,
        };
        let died = remover.join().unwrap();
        if died {
            w.release_locks(0, 1, || carry_removal(&w, 0, seq));
        }
        settled_removal(&w, seq, given);
        died
    });
    assert!(points > 15, "{points} crash points");
}

/// The same, and its recoverer dies too.
#[test]
fn removal_is_whole_though_its_recoverer_dies() {
    for first in 0..40 {
        each_crash_point(move |k| {
            let (w, seq) = with_sleeper();
            if dies_before(first, || remove(&w, seq)) {
                w.slots[0].mark();
            }
            let recoverer = {
                let w = w.clone();
                thread::spawn(move || {
                    let died = dies_before(k, || {
                        w.release_locks(0, 1, || carry_removal(&w, 0, seq));
                    });
                    if died {
                        w.slots[1].mark();
                    }
                    died
                })
            };
            w.release_locks(0, SLEEPER, || carry_removal(&w, 0, seq));
            let died = recoverer.join().unwrap();
            w.release_locks(0, SLEEPER, || carry_removal(&w, 0, seq));
            settled_removal(&w, seq, false);
            died
        });
    }
}
