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
use crate::journal::{self, Fin, Kind};
use crate::word;

/// True when the cell's last operation was in this second. Where it was not (once a second, and before the first operation of an
/// incarnation) the slow path stores the time, within a step: no stamp is lost to a death behind the operation (programs wait for a first
/// sem_otime), and the fast path stores none.
#[inline(always)]
fn is_current<const N: usize>(cells: [&Cell; N], tag: u32) -> bool {
    let now = word::stamp(tag, clock::realtime_secs());
    cells.iter().all(|c| c.otime.load(Relaxed) == now)
}

/// Counts an operation; racing ones may be lost, which is said where the count is shown.
#[inline]
fn count(cell: &Cell) {
    cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
}

/// One operation without SEM_UNDO on a cell that is free. FAST-CAS: acquire for what the last releaser did, release for the next one.
#[inline(always)]
pub fn plain(cell: &Cell, tag: u32, pid_bits: u64, op: i32) -> bool {
    if !is_current([cell], tag) {
        return false;
    }
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

/// Who carries an operation out.
#[derive(Clone, Copy)]
pub struct Doer<'a> {
    /// Its thread slot's control page.
    pub ctl: &'a ThreadCtl,
    /// Its thread slot.
    pub slot: u32,
    /// Its process id.
    pub pid: u32,
    /// Its process slot.
    pub proc: u32,
}

/// One operation with SEM_UNDO on a cell that is free. UNDO-JOURNAL: the head before the lock, the final values as the commit, the commit
/// before they are stored, the word last. docs/crash-model.md says what a recoverer does in between.
#[inline(always)]
pub fn undo(cell: &Cell, adj: &AtomicI16, by: &Doer<'_>, set_page: u32, tag: u32, num: u16, op: i16) -> bool {
    let &Doer { ctl, slot, pid, proc } = by;
    if !is_current([cell], tag) {
        return false;
    }
    let w = cell.word.load(Relaxed);
    let Some(value) = word::free_value(w, tag, op as i32) else { return false };
    let seq = journal::next_seq(ctl.fin.load(Relaxed));
    commit(&ctl.head, journal::head_seq(Kind::Undo, set_page, num, seq)); // HEAD-FIRST
    if cell.word.compare_exchange(w, word::lock(w, slot), AcqRel, Relaxed).is_err() {
        return false;
    }
    let was = adj.load(Relaxed);
    // The range of an adjustment is that of its type.
    let Some(new) = was.checked_sub(op) else {
        cell.word.store(w, Release);
        return false;
    };
    commit(&ctl.fin, Fin { value: value as i32, adj: Some(new), pid }.bits_seq(seq));
    adj.store(new, Relaxed);
    let h = cell.holders.load(Relaxed);
    let now = word::holders::changed(h, proc, was as i32, new as i32);
    if now != h {
        cell.holders.store(now, Relaxed);
    }
    count(cell);
    cell.word.store(word::tag_bits(tag) | word::pid_bits(pid) | value, Release);
    true
}

/// A free cell, locked by the doer; None when it is not free, or the operation cannot proceed: nothing is changed then.
#[inline(always)]
fn lock_free(cell: &Cell, tag: u32, slot: u32, op: i16) -> Option<(u64, u64)> {
    let w = cell.word.load(Relaxed);
    let value = word::free_value(w, tag, op as i32)?;
    cell.word.compare_exchange(w, word::lock(w, slot), AcqRel, Relaxed).is_ok().then_some((w, value)) // CELL-LOCK
}

/// Two plain operations on two cells, all or nothing, under a journal of three words.
#[inline(always)]
pub fn pair(ca: &Cell, cb: &Cell, by: &Doer<'_>, page: u32, tag: u32, a: (u16, i16), b: (u16, i16)) -> bool {
    if !is_current([ca, cb], tag) {
        return false;
    }
    let &Doer { ctl, slot, pid, .. } = by;
    let seq = journal::next_seq(ctl.fin.load(Relaxed));
    commit(&ctl.head, journal::head_seq(Kind::Pair, page, 0, seq)); // HEAD-FIRST
    let Some((wa, va)) = lock_free(ca, tag, slot, a.1) else { return false };
    let Some((_, vb)) = lock_free(cb, tag, slot, b.1) else {
        ca.word.store(wa, Release);
        return false;
    };
    ctl.pair.store(journal::pair((a.0, va as i32), (b.0, vb as i32)), Relaxed);
    commit(&ctl.fin, Fin { value: 0, adj: None, pid }.bits_seq(seq));
    for (cell, value) in [(ca, va), (cb, vb)] {
        count(cell);
        cell.word.store(word::tag_bits(tag) | word::pid_bits(pid) | value, Release);
    }
    true
}
