//! Locks, journal and steps on shared structures alone: the lines on which the orderings hang. The engine calls them, and so do the
//! model-checked tests, so that what is checked is what runs. docs/memory-model.md lists the edges by name.
//!
//! A death is to the order of stores what a signal handler is: the recoverer finds the dead thread's stores up to some instruction, in
//! program order (the mark of its end orders all of them before the recoverer's loads). The processor keeps that order for free, the
//! compiler by the fence in [`commit`].

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, AtomicU64, Ordering::*, compiler_fence};
use manyway_sync::clock;

use crate::journal::{Fin, Step};
use crate::node::{self, Outcome};
use crate::word;

/// A store that a death must find before what comes after it in the program: released for other threads, and fenced against the
/// compiler, since a death is to this thread what an interrupt is.
#[inline(always)]
pub fn commit(word: &AtomicU64, value: u64) {
    word.store(value, Release);
    compiler_fence(SeqCst);
}

/// The result of trying to lock a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CellLock {
    /// Locked; the word as it was.
    Got(u64),
    /// The set lock owns it.
    Complex,
    /// The set is gone, or another incarnation has its memory.
    Removed,
}

/// Tries once to lock a cell for slot `owner`. Err: the slot that has it, or that the word changed meanwhile. CELL-LOCK: the acquire pairs
/// with the release of the last unlock, or of the last fast CAS; the release puts the journal's head before the lock (HEAD-FIRST).
#[inline]
pub fn try_lock_cell(cell: &Cell, tag: u32, owner: u32) -> Result<CellLock, Option<u32>> {
    let w = cell.word.load(Relaxed);
    if w & word::LOCKED != 0 {
        return Err(Some(word::owner(w)));
    }
    if word::tag(w) != tag || w & word::REMOVED != 0 {
        return Ok(CellLock::Removed);
    }
    if w & word::COMPLEX != 0 {
        return Ok(CellLock::Complex);
    }
    match cell.word.compare_exchange_weak(w, word::lock(w, owner), AcqRel, Relaxed) {
        Ok(_) => Ok(CellLock::Got(w)),
        Err(_) => Err(None),
    }
}

/// Unlocks a cell, with the value and pid its word has now. CELL-LOCK: the release hands on what was done under the lock.
pub fn unlock_cell(cell: &Cell, tag: u32) {
    let waiters = cell.zero.head.load(Relaxed) != 0 || cell.alter.head.load(Relaxed) != 0;
    let w = word::flag(cell.word.load(Relaxed), word::WAITERS, waiters);
    cell.word.store(word::unlock(w, tag), Release);
}

/// Tries once to take a set's or the registry's lock, whose word is `free` when nobody has it. Err: the word. SET-LOCK, REGISTRY-LOCK: the
/// acquire pairs with the release of the last [`unlock`].
pub fn try_lock(lock: &AtomicU64, free: u64, owner: u32) -> Result<(), u64> {
    lock.compare_exchange_weak(free, word::locked_by(owner), AcqRel, Relaxed).map(drop)
}
/// Gives it back. SET-LOCK, REGISTRY-LOCK.
pub fn unlock(lock: &AtomicU64, free: u64) {
    lock.store(free, Release);
}

/// Writes down what is about to be locked, before the lock is tried. HEAD-FIRST: released before the lock's CAS, whose release orders it:
/// who finds the lock finds the head.
pub fn begin(ctl: &ThreadCtl, head: u64) {
    ctl.step.store(0, Relaxed);
    commit(&ctl.head, head);
}

/// Commits a step on one cell. STEP-COMMIT: the release puts the step's content before it; its recoverer reads it by acquire.
pub fn commit_one(ctl: &ThreadCtl, num: u16, fin: Fin, target: u32, sleeper: Option<(u32, u32)>) {
    ctl.fin.store(fin.bits(), Relaxed);
    ctl.target.store(target.wrapping_add(1), Relaxed);
    commit(&ctl.step, Step::One { num, sleeper }.bits());
}

/// The committed step. STEP-COMMIT.
pub fn committed(ctl: &ThreadCtl) -> Step {
    Step::parse(ctl.step.load(Acquire))
}

/// A step on one cell, as far as it concerns shared structures.
#[derive(Clone, Copy, Debug)]
pub struct One<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// The set's incarnation.
    pub tag: u32,
    /// What is to be stored.
    pub fin: Fin,
    /// Whose adjustment, and where it is.
    pub adj: Option<(u32, &'a AtomicI16)>,
    /// The sleeper that it completes, with its sequence number.
    pub sleeper: Option<(&'a ThreadCtl, u32)>,
}

/// Applies a committed step on one cell, under the lock that owns it: adjustment, word, the sleeper out of its queue (`unlink`), and its mark
/// last (NODE-DONE: behind it the node is its thread's again). Twice does no harm: final values are stored, and a sleeper that is marked
/// says that all was applied. True: the sleeper is to be woken.
pub fn apply_one(one: &One<'_>, unlink: impl FnOnce()) -> bool {
    if !one.sleeper.is_none_or(|(ctl, seq)| node::is_queued(ctl, seq)) {
        return false;
    }
    if let (Some(value), Some((proc, adj))) = (one.fin.adj, one.adj) {
        store_adjustment(one.cell, proc, adj, value);
    }
    store_value(one.cell, one.tag, one.fin.value, one.fin.pid);
    one.sleeper.is_some_and(|(ctl, seq)| {
        unlink();
        node::finish(ctl, seq, Outcome::Done) == Some(true)
    })
}

/// Stores value, pid and time of an operation under the lock that owns the cell.
pub fn store_value(cell: &Cell, tag: u32, value: i32, pid: u32) {
    cell.otime.store(word::stamp(tag, clock::realtime_secs()), Relaxed);
    cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
    cell.word.store(word::with(cell.word.load(Relaxed), value, pid), Release);
}

/// Stores an adjustment and keeps the cell's `holders` in step, under the lock that owns the cell.
pub fn store_adjustment(cell: &Cell, proc: u32, adj: &AtomicI16, value: i16) {
    let was = adj.load(Relaxed);
    adj.store(value, Relaxed);
    let h = cell.holders.load(Relaxed);
    let now = word::holders::changed(h, proc, was as i32, value as i32);
    if now != h {
        cell.holders.store(now, Relaxed);
    }
}

/// Lets go of a cell that a dead slot may have LOCKED in a fast path: unchanged, or with what was committed for it. UNDO-JOURNAL. `recount`
/// counts the cell's holders anew: they may have been changed or not.
pub fn settle(cell: &Cell, tag: u32, slot: u32, committed: Option<Fin>, adj: Option<&AtomicI16>, recount: impl FnOnce()) {
    let w = cell.word.load(Acquire);
    if !word::is_locked_by(w, slot) {
        return;
    }
    let Some(fin) = committed else {
        cell.word.store(word::unlock(w, tag), Release);
        return;
    };
    if let (Some(value), Some(adj)) = (fin.adj, adj) {
        adj.store(value, Relaxed);
        recount();
    }
    cell.otime.store(word::stamp(tag, clock::realtime_secs()), Relaxed);
    cell.word.store(word::unlock(word::with(w, fin.value, fin.pid), tag), Release);
}

/// Begins to fill an undo record: nobody finds it by an older tag.
pub fn open_record(record: &UndoHead, nsems: u32) {
    record.tag.store(0, Release);
    record.nsems.store(nsems, Relaxed);
}
/// RECORD-PUBLISH: the release puts the zeroed adjustments before the tag.
pub fn publish_record(record: &UndoHead, tag: u32) {
    record.tag.store(tag, Release);
}
/// RECORD-PUBLISH: the acquire pairs with the release of [`publish_record`]: who finds the tag finds the adjustments.
#[inline]
pub fn is_record_of(record: &UndoHead, tag: u32) -> bool {
    record.tag.load(Acquire) == tag
}
