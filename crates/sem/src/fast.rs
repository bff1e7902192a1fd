//! The fast paths: a call that can proceed at once and meets no flag. One CAS; with SEM_UNDO one CAS and a journal in the thread's own
//! lines; several semaphores: one CAS each, ascending, without the set lock.
//!
//! Each returns false when the call must take the slow path; nothing has been changed then.

#[cfg(not(loom))]
mod calls;

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, Ordering::*};
use manyway_sync::clock;

use crate::abi::SEMVMX;
use crate::edges::commit;
use crate::journal::{self, Fin, Kind};
use crate::word;

/// True when an operation has stamped this incarnation. Before that the stamp must not be lost to a death behind the operation (programs
/// wait for a first sem_otime): the slow path stamps within a step.
#[inline(always)]
fn is_stamped(cell: &Cell, tag: u32) -> bool {
    word::tag(cell.otime.load(Relaxed)) == tag
}

/// Stores the time of an operation unless it is there already; a line that need not be written is not.
#[inline(always)]
pub fn stamp_times<const N: usize>(cells: [&Cell; N], tag: u32) {
    let now = word::stamp(tag, clock::realtime_secs());
    for cell in cells {
        if cell.otime.load(Relaxed) != now {
            cell.otime.store(now, Relaxed);
        }
    }
}
/// The same for one.
#[inline(always)]
pub fn stamp_time(cell: &Cell, tag: u32) {
    stamp_times([cell], tag);
}

/// Counts an operation; racing ones may be lost, which is said where the count is shown.
#[inline]
fn count(cell: &Cell) {
    cell.operations.store(cell.operations.load(Relaxed).wrapping_add(1), Relaxed);
}

/// One operation without SEM_UNDO on a cell that is free. FAST-CAS: acquire for what the last releaser did, release for the next one.
#[inline]
pub fn plain(cell: &Cell, tag: u32, pid_bits: u64, op: i32) -> bool {
    let mut w = cell.word.load(Acquire);
    if !is_stamped(cell, tag) {
        return false;
    }
    loop {
        let value = word::value(w) + op;
        if !word::is_free(w, tag) || value as u32 > SEMVMX as u32 || (op == 0 && value != 0) {
            return false;
        }
        let new = word::tag_bits(tag) | pid_bits | value as u64;
        if op == 0 && new == w {
            // A zero operation after another one of the same process writes nothing.
            stamp_time(cell, tag);
            return true;
        }
        match cell.word.compare_exchange_weak(w, new, AcqRel, Acquire) {
            Ok(_) => break,
            Err(now) => w = now,
        }
    }
    stamp_time(cell, tag);
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
/// before they are stored, the word last. docs/crash-model.md says what a recoverer does in between. The caller stamps the time.
#[inline(always)]
pub fn undo(cell: &Cell, adj: &AtomicI16, by: &Doer<'_>, set_page: u32, tag: u32, num: u16, op: i16) -> bool {
    let &Doer { ctl, slot, pid, proc } = by;
    let w = cell.word.load(Relaxed);
    let value = word::value(w) + op as i32;
    if !is_stamped(cell, tag) || !word::is_free(w, tag) || value as u32 > SEMVMX as u32 || (op == 0 && value != 0) {
        return false;
    }
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
    commit(&ctl.fin, Fin { value, adj: Some(new), pid }.bits_seq(seq));
    adj.store(new, Relaxed);
    let h = cell.holders.load(Relaxed);
    let now = word::holders::changed(h, proc, was as i32, new as i32);
    if now != h {
        cell.holders.store(now, Relaxed);
    }
    count(cell);
    cell.word.store(word::tag_bits(tag) | word::pid_bits(pid) | value as u64, Release);
    true
}

/// A free cell, locked by the doer; None when it is not free, or the operation cannot proceed: nothing is changed then.
#[inline(always)]
fn lock_free(cell: &Cell, tag: u32, slot: u32, op: i16) -> Option<(u64, i32)> {
    let w = cell.word.load(Relaxed);
    let value = word::value(w) + op as i32;
    if !word::is_free(w, tag) || value as u32 > SEMVMX as u32 || (op == 0 && value != 0) {
        return None;
    }
    cell.word.compare_exchange(w, word::lock(w, slot), AcqRel, Relaxed).is_ok().then_some((w, value)) // CELL-LOCK
}

/// Two plain operations on two cells, all or nothing, under a journal of three words. The caller stamps the times.
#[inline(always)]
pub fn pair(ca: &Cell, cb: &Cell, by: &Doer<'_>, page: u32, tag: u32, a: (u16, i16), b: (u16, i16)) -> bool {
    if !is_stamped(ca, tag) || !is_stamped(cb, tag) {
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
    ctl.pair.store(journal::pair((a.0, va), (b.0, vb)), Relaxed);
    commit(&ctl.fin, Fin { value: 0, adj: None, pid }.bits_seq(seq));
    for (cell, value) in [(ca, va), (cb, vb)] {
        count(cell);
        cell.word.store(word::tag_bits(tag) | word::pid_bits(pid) | value as u64, Release);
    }
    true
}
