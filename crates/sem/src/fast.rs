//! The fast paths: a call that can proceed at once and meets no flag. One CAS; with SEM_UNDO one CAS and a journal in the thread's own
//! lines; several semaphores: one CAS each, ascending, without the set lock.
//!
//! Each returns false when the call must take the slow path; nothing has been changed then.

#[cfg(not(loom))]
mod calls;

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, Ordering::*};
use manyway_sync::clock;

use crate::edges::commit;
use crate::journal::{self, Kind};
use crate::word;

/// True when the cell's last operation was in this second. Where it was not (once a second, and before the first operation of an
/// incarnation) the slow path stores the time, within a step: no stamp is lost to a death behind the operation (programs wait for a first
/// sem_otime), and the fast path stores none.
#[inline(always)]
pub fn is_current<const N: usize>(cells: [&Cell; N], tag: u32) -> bool {
    is_of(cells, tag, clock::realtime_secs())
}
/// The same for a time that was read before, where a call in the middle would cost.
#[inline(always)]
pub fn is_of<const N: usize>(cells: [&Cell; N], tag: u32, secs: u64) -> bool {
    let stamp = word::stamp(tag, secs);
    cells.iter().all(|c| c.otime.load(Relaxed) == stamp)
}

/// Counts an operation; racing ones may be lost, which is said where the count is shown.
#[inline]
fn count(cell: &Cell) {
    cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
}

/// One operation without SEM_UNDO on a cell that is free and [`is_current`]. FAST-CAS: acquire for what the last releaser did, release for the next one.
#[inline(always)]
pub fn plain(cell: &Cell, tag: u32, pid_bits: u64, op: i32) -> bool {
    let mut w = cell.word.load(Acquire);
    loop {
        let Some(value) = word::free_value(w, tag, op) else { return false };
        let new = word::tag_bits(tag) | pid_bits | value;
        if op == 0 && new == w {
            // A zero operation after another one of the same process writes nothing.
            return true;
        }
        match cell.word.compare_exchange_weak(w, new, AcqRel, Acquire) {
            Ok(_) => break,
            Err(now) => w = now,
        }
    }
    count(cell);
    true
}

/// Who carries an operation out, as its words need it.
#[derive(Clone, Copy)]
pub struct Doer<'a> {
    /// Its thread slot's control page.
    pub ctl: &'a ThreadCtl,
    /// Its thread slot, as a LOCKED word has it.
    lock: u64,
    /// Its process id, as a cell word has it.
    pid: u64,
    /// Its process slot.
    proc: u32,
}

impl<'a> Doer<'a> {
    /// The thread of slot `slot`, whose control page is `ctl`, of process `pid` in slot `proc`.
    pub const fn new(ctl: &'a ThreadCtl, slot: u32, pid: u32, proc: u32) -> Doer<'a> {
        Doer { ctl, lock: word::locked_by(slot), pid: word::pid_bits(pid), proc }
    }
    /// Its process slot.
    pub const fn proc(&self) -> u32 {
        self.proc
    }
    /// Locks a cell whose word `w` has the tag and no flag. CELL-LOCK.
    #[inline(always)]
    fn lock(&self, cell: &Cell, w: u64, tag: u32) -> bool {
        cell.word.compare_exchange(w, w ^ word::tag_bits(tag) | self.lock, AcqRel, Relaxed).is_ok()
    }
    /// Unlocks it with a final value.
    #[inline(always)]
    fn unlock(&self, cell: &Cell, tag: u32, value: u64) {
        count(cell);
        cell.word.store(word::tag_bits(tag) | self.pid | value, Release);
    }
}

/// What the journal says of an operation with SEM_UNDO.
#[inline(always)]
pub const fn undo_head(page: u32, num: u16) -> u64 {
    journal::head(Kind::Undo, page, num)
}

/// One operation with SEM_UNDO (not a wait for zero) on a cell that is free and [`is_current`]; `head` is its [`undo_head`]. UNDO-JOURNAL: the head before the lock, the final values as the
/// commit, the commit before they are stored, the word last. docs/crash-model.md says what a recoverer does in between.
#[inline(always)]
pub fn undo(cell: &Cell, adj: &AtomicI16, by: &Doer<'_>, head: u64, tag: u32, op: i16) -> bool {
    if op == 0 {
        return false;
    }
    let w = cell.word.load(Relaxed);
    let Some(value) = word::free_value(w, tag, op as i32) else { return false };
    let seq = journal::next_seq(by.ctl.fin.load(Relaxed));
    commit(&by.ctl.head, head | journal::head_seq(seq)); // HEAD-FIRST
    if !by.lock(cell, w, tag) {
        return false;
    }
    let was = adj.load(Relaxed);
    // The range of an adjustment is that of its type.
    let Some(new) = was.checked_sub(op) else {
        cell.word.store(w, Release);
        return false;
    };
    commit(&by.ctl.fin, journal::fin(by.pid, value, Some(new)) | seq);
    adj.store(new, Relaxed);
    let h = cell.holders.load(Relaxed);
    let now = word::holders::changed(h, by.proc, was as i32, new as i32);
    if now != h {
        cell.holders.store(now, Relaxed);
    }
    by.unlock(cell, tag, value);
    true
}

/// A free cell, locked by the doer; None when it is not free, or the operation cannot proceed: nothing is changed then.
#[inline(always)]
fn lock_free(cell: &Cell, by: &Doer<'_>, tag: u32, op: i16) -> Option<(u64, u64)> {
    let w = cell.word.load(Relaxed);
    let value = word::free_value(w, tag, op as i32)?;
    by.lock(cell, w, tag).then_some((w, value))
}

/// Two plain operations on two cells that are free and [`is_current`], all or nothing, under a journal of three words.
#[inline(always)]
pub fn pair(ca: &Cell, cb: &Cell, by: &Doer<'_>, page: u32, tag: u32, a: (u16, i16), b: (u16, i16)) -> bool {
    let seq = journal::next_seq(by.ctl.fin.load(Relaxed));
    commit(&by.ctl.head, journal::head(Kind::Pair, page, 0) | journal::head_seq(seq)); // HEAD-FIRST
    let Some((wa, va)) = lock_free(ca, by, tag, a.1) else { return false };
    let Some((_, vb)) = lock_free(cb, by, tag, b.1) else {
        ca.word.store(wa, Release);
        return false;
    };
    by.ctl.pair.store(journal::pair((a.0, va as i32), (b.0, vb as i32)), Relaxed);
    commit(&by.ctl.fin, journal::fin(by.pid, 0, None) | seq);
    by.unlock(ca, tag, va);
    by.unlock(cb, tag, vb);
    true
}
