//! What the model-checked tests share: bounds, crash points, a futex, and a little world of one cell and a few thread slots.
#![allow(dead_code, reason = "each test uses its part")]

use std::sync::atomic::AtomicBool;

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use manyway_sem::edges::One;
use manyway_sem::id::IdEntry;
use manyway_sem::journal::{Fin, Step};
use manyway_sem::slotword::{SlotState, ThreadWord, is_marked, live};
use manyway_sem::word::{self, holders};
use manyway_sem::{edges, journal};
use manyway_shm::layout::{Cell, ThreadCtl};
use manyway_sync::atomic::{AtomicI16, AtomicU32, AtomicU64, Ordering::*};
use manyway_sync::robust::OWNER_DIED;

/// The set's incarnation and page.
pub const TAG: u32 = 7;
pub const PAGE: u32 = 42;

/// Runs `f` in all interleavings of up to two preemptions, with all values that a load may return.
pub fn check(f: impl Fn() + Sync + Send + 'static) {
    let mut b = loom::model::Builder::new();
    b.preemption_bound = Some(2);
    b.check(f);
}

/// The same for a small model, with accesses to different words in all orders too.
pub fn check_thoroughly(f: impl Fn() + Sync + Send + 'static) {
    manyway_sync::model::thoroughly(|| check(f));
}

/// Runs `f` once for each point at which the operation in it may die: it is given the number of accesses that the operation still makes,
/// and says whether it died. Ends with the run in which no interleaving died. Returns how many points there are.
pub fn each_crash_point(f: impl Fn(usize) -> bool + Clone + Sync + Send + 'static) -> usize {
    for k in 0..500 {
        let died = std::sync::Arc::new(AtomicBool::new(false));
        let (f, d) = (f.clone(), died.clone());
        check(move || {
            if f(k) {
                d.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        });
        if !died.load(std::sync::atomic::Ordering::Relaxed) {
            return k;
        }
    }
    panic!("an operation of so many accesses never ends");
}

/// A thread slot.
pub struct Slot {
    pub word: AtomicU64,
    pub ctl: ThreadCtl,
}

impl Slot {
    /// In use by a thread of process slot `proc`.
    pub fn live(proc: u32) -> Slot {
        Slot { word: AtomicU64::new(ThreadWord(0).owned(proc, SlotState::Live).0), ctl: ThreadCtl::default() }
    }
    /// What the kernel does at the end of the slot's thread.
    pub fn mark(&self) {
        self.ctl.robust.fetch_or(OWNER_DIED, AcqRel);
    }
    pub fn word(&self) -> ThreadWord {
        ThreadWord(self.word.load(Relaxed))
    }
}

/// A number that is no atomic: loom fails when two accesses to it are not ordered by an edge.
#[derive(Default)]
pub struct Data(UnsafeCell<u32>);

impl Data {
    pub fn set(&self, v: u32) {
        // SAFETY: loom checks that nobody else is at it.
        self.0.with_mut(|d| unsafe { *d = v });
    }
    pub fn get(&self) -> u32 {
        // SAFETY: loom checks that nobody writes it.
        self.0.with(|d| unsafe { *d })
    }
}

/// FUTEX_WAIT and FUTEX_WAKE: the kernel compares and queues under a lock that the waker takes too.
pub struct Futex {
    lock: Mutex<()>,
    bell: Condvar,
}

impl Futex {
    pub fn new() -> Futex {
        Futex { lock: Mutex::new(()), bell: Condvar::new() }
    }
    pub fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(Relaxed) == expected {
            drop(self.bell.wait(guard).unwrap());
        }
    }
    pub fn wake(&self) {
        drop(self.lock.lock().unwrap());
        self.bell.notify_all();
    }
}

/// Two cells of a set, and the adjustment that process slot 3 has for the first one; the set's lock, its place in the id table, the
/// registry's lock.
pub struct World {
    pub cells: [Cell; 2],
    pub adj: AtomicI16,
    pub slots: [Slot; 3],
    pub lock: AtomicU64,
    pub id: AtomicU64,
    pub registry: AtomicU64,
}

/// The slot of the thread that sleeps, where one does.
pub const SLEEPER: u32 = 2;

/// The process slot whose adjustment it is, and whose threads the slots are.
pub const PROC: u32 = 3;
/// Its pid.
pub const PID: u32 = 1234;

/// A cell with a value, stamped, free.
pub fn cell(value: u64) -> Cell {
    let c = Cell::default();
    c.word.store(word::tag_bits(TAG) | value, Relaxed);
    c.otime.store(word::stamp(TAG, 1), Relaxed);
    c
}

impl World {
    pub fn new(values: [u64; 2]) -> Arc<World> {
        Arc::new(World {
            cells: values.map(cell),
            adj: AtomicI16::new(0),
            slots: [(); 3].map(|()| Slot::live(PROC)),
            lock: AtomicU64::new(word::tag_bits(TAG)),
            id: AtomicU64::new(IdEntry::new(1, PAGE as u64 * 4096, TAG).0),
            registry: AtomicU64::new(0),
        })
    }
    pub fn value(&self, num: usize) -> i32 {
        word::value(self.cells[num].word.load(Relaxed))
    }
    /// The adjustment, after a look that the holders' count agrees with it and that the cell is free.
    pub fn settled_adjustment(&self) -> i32 {
        let adj = self.adj.load(Relaxed) as i32;
        assert_eq!(self.cells[0].holders.load(Relaxed), holders::changed(0, PROC, 0, adj), "holders");
        for c in &self.cells {
            assert!(word::is_free(c.word.load(Relaxed), TAG), "left locked");
        }
        adj
    }
    pub fn recount(&self) {
        self.cells[0].holders.store(holders::changed(0, PROC, 0, self.adj.load(Relaxed) as i32), Relaxed);
    }

    /// The cells with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (u16, &Cell)> + Clone {
        (0..2).zip(&self.cells)
    }
    /// The adjustment for a cell, if it is the one that there is one for.
    pub fn adj_of(&self, proc: u32, num: u16) -> Option<&AtomicI16> {
        (proc == PROC && num == 0).then_some(&self.adj)
    }
    /// Drops the adjustments for a cell: `Engine::clear_adjustments`.
    pub fn clear(&self, num: u16) {
        if num == 0 && self.cells[0].holders.load(Relaxed) != 0 {
            self.adj.store(0, Relaxed);
            self.cells[0].holders.store(0, Relaxed);
        }
    }
    /// Applies what slot `by` has committed, and clears it: `Engine::apply_step`, `Engine::apply_many`. `unlink` takes the sleeper out of its
    /// queue.
    pub fn apply(&self, by: u32, unlink: impl FnOnce()) {
        let ctl = &self.slots[by as usize].ctl;
        let fin = Fin::parse(ctl.fin.load(Relaxed));
        let find = |s: Option<(u32, u32)>| s.map(|(slot, seq)| (&self.slots[slot as usize].ctl, seq));
        match edges::committed(ctl) {
            Step::None => return,
            Step::One { num, sleeper } => {
                let adj = self.adj_of(PROC, num).map(|a| (PROC, a));
                edges::apply_one(&One { cell: &self.cells[num as usize], tag: TAG, fin, adj, sleeper: find(sleeper) }, unlink);
            }
            Step::SetVal { num } => edges::apply_setval(&self.cells[num as usize], fin, || self.clear(num)),
            Step::Many { sleeper } => {
                edges::apply_many(ctl, (by, TAG), self.numbered(), |proc, num| self.adj_of(proc, num), find(sleeper), unlink);
                return;
            }
        }
        edges::commit(&ctl.step, 0);
    }
    /// Ends a section that holds the set lock, in the name of slot `by`: `Engine::unlock_cells`, `unlock_set`. `complex`: a call on several
    /// cells sleeps on.
    pub fn unlock_all(&self, by: u32, complex: bool) {
        for cell in &self.cells {
            let w = cell.word.load(Relaxed);
            if word::is_locked_by(w, by) {
                edges::unlock_cell(cell, TAG);
            } else if w & word::COMPLEX != 0 && !complex {
                cell.word.store(word::flag(w, word::COMPLEX, false), Release);
            }
        }
        edges::unlock(&self.lock, word::tag_bits(TAG));
    }

    /// Recovers what slot `dead` holds by its journal, in the name of slot `by`: `Engine::release_locks`; `scan` is what follows in a cell or
    /// set section once the committed step is applied (the queues, the scan, the end of the section), or carries a removal through.
    /// False: it lives, or somebody else is on it.
    pub fn release_locks(&self, dead: u32, by: u32, scan: impl FnOnce()) -> bool {
        let slot = &self.slots[dead as usize];
        let Some(w) = live(&slot.word).filter(|_| is_marked(&slot.ctl)) else { return false };
        let by_ctl = &self.slots[by as usize].ctl;
        let Some(mine) = w.recover(&slot.word, by, by_ctl, |r| is_marked(&self.slots[r as usize].ctl)) else { return false };
        let head = slot.ctl.head.load(Acquire);
        let (kind, page, num) = journal::parse_head(head);
        let fin_word = slot.ctl.fin.load(Acquire);
        let (fin, committed) = (Fin::parse(fin_word), journal::is_committed(head, fin_word));
        let none = matches!(kind, journal::Kind::Idle | journal::Kind::Registry) && page == 0;
        assert!(none || page == PAGE, "the head names another set");
        let settle = |num: usize, fin: Option<Fin>| edges::settle(&self.cells[num], TAG, dead, fin, Some(&self.adj), || self.recount());
        match kind {
            journal::Kind::Undo => settle(num as usize, committed.then_some(fin)),
            journal::Kind::Pair if committed => {
                for (num, value) in journal::parse_pair(slot.ctl.pair.load(Relaxed)) {
                    settle(num as usize, Some(Fin { value, adj: None, pid: fin.pid }));
                }
            }
            journal::Kind::Pair => (0..2).for_each(|num| settle(num, None)),
            journal::Kind::MultiIntent | journal::Kind::MultiCommit => {
                let commit = (kind == journal::Kind::MultiCommit).then_some(fin.pid);
                for (num, cell) in self.numbered() {
                    if word::is_locked_by(cell.word.load(Acquire), dead) {
                        edges::settle_few(cell, TAG, dead, commit, self.adj_of(PROC, num), || self.recount());
                    }
                }
            }
            journal::Kind::Cell if word::is_locked_by(self.cells[num as usize].word.load(Acquire), dead) => scan(),
            journal::Kind::Set | journal::Kind::SetAllCommit if word::is_locked_by(self.lock.load(Acquire), dead) => {
                if kind == journal::Kind::SetAllCommit {
                    let plain = journal::head(journal::Kind::Set, PAGE, 0);
                    edges::apply_setall(&slot.ctl, dead, plain, self.numbered(), |num, _| self.clear(num));
                }
                scan();
            }
            journal::Kind::Registry if word::is_locked_by(self.registry.load(Acquire), dead) => {
                for cell in &self.cells {
                    if word::is_locked_by(cell.word.load(Relaxed), dead) {
                        edges::unlock_cell(cell, TAG);
                    }
                }
                if word::is_locked_by(self.lock.load(Acquire), dead) {
                    edges::unlock(&self.lock, word::tag_bits(TAG));
                }
                edges::unlock(&self.registry, 0);
            }
            journal::Kind::Remove if word::is_locked_by(self.registry.load(Acquire), dead) => scan(),
            _ => {}
        }
        slot.ctl.step.store(0, Relaxed);
        slot.ctl.head.store(0, Release);
        mine.give_back(&slot.word);
        true
    }
}
