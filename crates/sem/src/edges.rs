//! Locks, journal and steps on shared structures alone: the lines on which the orderings hang. The engine calls them, and so do the
//! model-checked tests, so that what is checked is what runs. docs/memory-model.md lists the edges by name.
//!
//! A death is to the order of stores what a signal handler is: the recoverer finds the dead thread's stores up to some instruction, in
//! program order (the mark of its end orders all of them before the recoverer's loads). The processor keeps that order for free, the
//! compiler by the fence in [`commit`].

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, AtomicU32, AtomicU64, Ordering::*, compiler_fence, fence};
use manyway_sync::clock;

use crate::journal::{self, Fin, Step};
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

/// Begins a step over several cells, in the name of a slot: the stamp for what is staged.
pub fn begin_many(ctl: &ThreadCtl, slot: u32, target: u32, pid: u32) -> u32 {
    // 1 to 65,535: 0 is what the fast path stages with.
    let n = ctl.stamp.load(Relaxed) % 0xffff + 1;
    ctl.stamp.store(n, Relaxed);
    ctl.fin.store(Fin { value: 0, adj: None, pid }.bits(), Relaxed);
    ctl.target.store(target.wrapping_add(1), Relaxed);
    stamp_of(slot, n)
}

fn stamp_of(slot: u32, n: u32) -> u32 {
    slot << 16 | n & 0xffff
}

/// Commits what is staged with the stamp. STEP-COMMIT.
pub fn commit_many(ctl: &ThreadCtl, sleeper: Option<(u32, u32)>) {
    commit(&ctl.step, Step::Many { sleeper }.bits());
}

/// True when a section in the name of the slot, which holds the set lock, owns the cell: LOCKED by it, or COMPLEX.
pub fn owned(cell: &Cell, slot: u32) -> bool {
    let w = cell.word.load(Relaxed);
    word::is_locked_by(w, slot) || w & (word::COMPLEX | word::LOCKED) == word::COMPLEX
}

/// Applies a committed step over several cells, and clears it: of each of `cells` that the section owns what is staged with the step's stamp;
/// the sleeper out of its queue; its mark last. `adj` finds an adjustment of the process whose step it is. Twice does no harm, as in
/// [`apply_one`]. True: the sleeper is to be woken.
pub fn apply_many<'a>(
    ctl: &ThreadCtl,
    (slot, tag): (u32, u32),
    cells: impl Iterator<Item = (u16, &'a Cell)> + Clone,
    adj: impl Fn(u32, u16) -> Option<&'a AtomicI16>,
    sleeper: Option<(&ThreadCtl, u32)>,
    unlink: impl FnOnce(),
) -> bool {
    let stamp = stamp_of(slot, ctl.stamp.load(Relaxed));
    let (target, pid) = (ctl.target.load(Relaxed).wrapping_sub(1), Fin::parse(ctl.fin.load(Relaxed)).pid);
    let mut parked = false;
    if sleeper.is_none_or(|(ctl, seq)| node::is_queued(ctl, seq)) {
        for (num, cell) in cells.clone().filter(|(_, cell)| owned(cell, slot)) {
            let (s, value, a) = journal::parse_staged(cell.staged.load(Acquire));
            if s == stamp {
                if let (Some(value), Some(adj)) = (a, a.and_then(|_| adj(target, num))) {
                    store_adjustment(cell, target, adj, value);
                }
                store_value(cell, tag, value, pid);
            }
        }
        if let Some((ctl, seq)) = sleeper {
            unlink();
            parked = node::finish(ctl, seq, Outcome::Done) == Some(true);
        }
    }
    commit(&ctl.step, 0);
    // A stamp comes again after 65,536 steps of this slot; what is staged must not outlive that.
    for (_, cell) in cells {
        if owned(cell, slot) && journal::parse_staged(cell.staged.load(Relaxed)).0 == stamp {
            cell.staged.store(0, Relaxed);
        }
    }
    parked
}

/// Commits a call on several cells that are all LOCKED by the slot, without the set lock: each cell's final value and adjustment are staged in
/// it, then `head` says so. STEP-COMMIT.
pub fn commit_few<'a>(ctl: &ThreadCtl, head: u64, pid: u32, cells: impl Iterator<Item = (&'a Cell, i32, Option<i16>)>) {
    ctl.fin.store(Fin { value: 0, adj: None, pid }.bits(), Relaxed);
    for (cell, value, adj) in cells {
        cell.staged.store(journal::staged(0, value, adj), Relaxed);
    }
    commit(&ctl.head, head);
}

/// Applies a cell's part of such a call and unlocks it: the word last. CELL-LOCK.
pub fn apply_few(cell: &Cell, tag: u32, value: i32, pid_bits: u64, adj: Option<(u32, &AtomicI16, i16)>) {
    if let Some((proc, adj, value)) = adj {
        store_adjustment(cell, proc, adj, value);
    }
    cell.otime.store(word::stamp(tag, clock::realtime_secs()), Relaxed);
    cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
    cell.word.store(word::tag_bits(tag) | pid_bits | value as u64, Release);
}

/// Of a dead slot's call on several cells: one that it still has LOCKED, with what is staged in it when the call was committed. All were staged
/// before the commit, and are unlocked only when applied.
pub fn settle_few(cell: &Cell, tag: u32, slot: u32, committed: Option<u32>, adj: Option<&AtomicI16>, recount: impl FnOnce()) {
    let (_, value, staged) = journal::parse_staged(cell.staged.load(Relaxed));
    settle(cell, tag, slot, committed.map(|pid| Fin { value, adj: staged, pid }), adj, recount);
}

/// Commits a SETALL, whose values are staged in all cells of the set. STEP-COMMIT.
pub fn commit_setall<'a>(ctl: &ThreadCtl, head: u64, pid: u32, cells: impl Iterator<Item = (&'a Cell, u16)>) {
    for (cell, value) in cells {
        cell.staged.store(journal::staged(0, value as i32, None), Relaxed);
    }
    ctl.fin.store(Fin { value: 0, adj: None, pid }.bits(), Relaxed);
    commit(&ctl.head, head);
}

/// Applies a committed SETALL; `clear` drops a cell's adjustments. `head` is a plain section's, and is put back before anything else is done, so
/// that a second application does not overwrite the scan's grants.
pub fn apply_setall<'a>(
    ctl: &ThreadCtl,
    slot: u32,
    head: u64,
    cells: impl Iterator<Item = (u16, &'a Cell)> + Clone,
    clear: impl Fn(u16, &Cell),
) {
    let pid = Fin::parse(ctl.fin.load(Relaxed)).pid;
    for (num, cell) in cells.clone().filter(|(_, cell)| owned(cell, slot)) {
        clear(num, cell);
        let (_, value, _) = journal::parse_staged(cell.staged.load(Relaxed));
        cell.word.store(word::with(cell.word.load(Relaxed), value, pid), Release);
    }
    commit(&ctl.head, head);
    for (_, cell) in cells {
        cell.staged.store(0, Relaxed);
    }
}

/// Applies a committed SETVAL: no adjustment, then the value.
pub fn apply_setval(cell: &Cell, fin: Fin, clear: impl FnOnce()) {
    clear();
    cell.word.store(word::with(cell.word.load(Relaxed), fin.value, fin.pid), Release);
}

/// Ends a removal: no lock of this incarnation is taken any more.
pub fn close_set<'a>(lock: &AtomicU64, cells: impl Iterator<Item = &'a Cell>) {
    for cell in cells {
        cell.word.store(word::REMOVED, Release);
    }
    lock.store(word::REMOVED, Release);
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

/// A process's place in the namespace, in the page that a fork wipes.
#[derive(Clone, Copy, Debug)]
pub struct Attachment<'a> {
    /// The pid in its place in a cell word.
    pub pid_bits: &'a AtomicU64,
    /// Epoch; 0: not attached.
    pub epoch: &'a AtomicU64,
    /// Process slot.
    pub proc: &'a AtomicU64,
    /// Pid.
    pub pid: &'a AtomicU64,
}

impl Attachment<'_> {
    /// ATTACHED: the release puts pid and slot before the epoch.
    pub fn publish(&self, proc: u32, pid: u32, epoch: u64) {
        self.proc.store(proc as u64, Relaxed);
        self.pid.store(pid as u64, Relaxed);
        self.epoch.store(epoch, Release);
        self.pid_bits.store(word::pid_bits(pid), Release);
    }
    /// The pid, once attached. ATTACHED: the acquire pairs with the release of [`Attachment::publish`]: pid and slot can be read.
    pub fn pid(&self) -> Option<u32> {
        (self.epoch.load(Acquire) != 0).then(|| self.pid.load(Relaxed) as u32)
    }
}

/// Behind a process's taking of a slot, before its first look at the id table; and behind the registry's lock, before a look at who has slots, for
/// one who gives pages of removed sets back. KEPT-PAGES: the slot is seen, or the id table is seen as it is without the set.
pub fn kept_pages() {
    fence(SeqCst);
}

/// Tells that there is a watcher. WATCHER: the mark, then a look at the slots; who takes a slot rings, then looks for the mark. The fences let
/// one of the two see the other.
pub fn watch(watcher: &AtomicU32, pid: u32) {
    watcher.swap(pid, SeqCst);
    fence(SeqCst);
}
/// Rings the doorbell, after a slot was taken. WATCHER. True: somebody listens.
pub fn ring(doorbell: &AtomicU32, watcher: &AtomicU32) -> bool {
    doorbell.fetch_add(1, Release);
    fence(SeqCst);
    watcher.load(Relaxed) != 0
}

/// True when a taker in a barging namespace, which has parked, would fit the value as it is now. BARGE-NUDGE: parked, then a look at the value;
/// the releaser stores the value, then looks who has parked. One of the two sees the other.
pub fn fits(cell: &Cell, op: i16) -> bool {
    fence(SeqCst);
    word::value(cell.word.load(Relaxed)) + op as i32 >= 0
}
/// Lets a sleeper of a barging namespace try for itself, behind the value that was stored. BARGE-NUDGE. True: it had parked and must be woken.
pub fn nudge(sleeper: &ThreadCtl) -> bool {
    fence(SeqCst);
    node::nudge(sleeper, node::seq(sleeper.state.load(Relaxed)))
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
