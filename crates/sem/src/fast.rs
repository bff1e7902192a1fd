//! The fast paths: a call that can proceed at once and meets no flag. One CAS; with SEM_UNDO one CAS and a journal in the thread's own
//! lines; several semaphores: one CAS each, ascending, without the set lock.
//!
//! Each returns false when the call must take the slow path; nothing has been changed then.

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, Ordering::*};
use manyway_sync::clock;

use crate::abi::{SEM_UNDO, SEMAEM, SEMVMX, SemBuf};
use crate::attach::{Thread, wiped};
use crate::engine::Engine;
use crate::journal::{self, Fin, Kind};
use crate::lock::CellLock;
use crate::set::SetRef;
use crate::wake::Journal;
use crate::word;

/// The largest call that the fast path for several semaphores takes.
const FEW: usize = 8;

/// Stores the time of an operation unless it is there already; a line that need not be written is not.
#[inline]
fn stamp_time(cell: &Cell, tag: u32) {
    let now = word::stamp(tag, clock::realtime_secs());
    if cell.otime.load(Relaxed) != now {
        cell.otime.store(now, Relaxed);
    }
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
    // Until an operation has stamped this incarnation, the stamp must not be lost to a death behind the CAS (programs wait for a first
    // sem_otime): the slow path stamps within a step.
    if word::stamped(cell.otime.load(Relaxed), tag) == 0 {
        return false;
    }
    loop {
        let value = word::value(w) + op;
        if !word::is_free(w, tag) || value as u32 > SEMVMX as u32 || (op == 0 && value != 0) {
            return false;
        }
        let new = word::tag_bits(tag) | pid_bits | value as u64;
        if new == w {
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

/// One operation with SEM_UNDO on a cell that is free. UNDO-JOURNAL: intent before the lock, the final values before the commit, the
/// commit before they are stored, the word last. docs/crash-model.md says what a recoverer does in between.
#[inline]
pub fn undo(cell: &Cell, adj: &AtomicI16, by: &Doer<'_>, set_page: u32, tag: u32, op: SemBuf) -> bool {
    let &Doer { ctl, slot, pid, proc } = by;
    let w = cell.word.load(Relaxed);
    let value = word::value(w) + op.op as i32;
    if !word::is_free(w, tag) || value as u32 > SEMVMX as u32 || (op.op == 0 && value != 0) {
        return false;
    }
    ctl.tag.store(tag, Relaxed);
    ctl.head.store(journal::head(Kind::UndoIntent, set_page, op.num), Release);
    if cell.word.compare_exchange(w, word::lock(w, slot), AcqRel, Relaxed).is_err() {
        return false;
    }
    let was = adj.load(Relaxed);
    let new = was as i32 - op.op as i32;
    if !(-SEMAEM - 1..=SEMAEM).contains(&new) {
        cell.word.store(w, Release);
        return false;
    }
    let new = new as i16;
    ctl.fin.store(
        Fin {
            value,
            adj: Some(new),
            pid,
        }
        .bits(),
        Relaxed,
    );
    ctl.head.store(journal::head(Kind::UndoCommit, set_page, op.num), Release);
    adj.store(new, Relaxed);
    let h = cell.holders.load(Relaxed);
    let now = word::holders::changed(h, proc, was as i32, new as i32);
    if now != h {
        cell.holders.store(now, Relaxed);
    }
    stamp_time(cell, tag);
    count(cell);
    cell.word.store(word::tag_bits(tag) | word::pid_bits(pid) | value as u64, Release);
    true
}

impl Engine {
    /// One operation; true when it is done.
    #[inline]
    pub(crate) fn fast_one(&self, t: &Thread, set: &SetRef<'_>, op: SemBuf) -> bool {
        let Some(cell) = set.cell(op.num as u32) else { return false };
        let pid_bits = self.wiped(wiped::PID_BITS).load(Relaxed);
        if pid_bits == 0 {
            return false;
        }
        if op.flg as i32 & SEM_UNDO == 0 {
            return plain(cell, set.tag, pid_bits, op.op as i32);
        }
        if t.epoch.load(Relaxed) != self.epoch() || t.in_section.load(Relaxed) != 0 {
            return false;
        }
        let (slot, proc) = (t.slot.load(Relaxed), self.wiped(wiped::PROC).load(Relaxed) as u32);
        let Some(ctl) = self.ctl(slot) else { return false };
        // The record is this process's own and goes only with the set, whose removal needs the cell that `undo` locks by its tag.
        let Some(adj) = self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, op.num)) else {
            return false;
        };
        self.enter(t);
        let by = Doer {
            ctl,
            slot,
            pid: word::pid(pid_bits),
            proc,
        };
        let done = undo(cell, adj, &by, set.page(), set.tag, op);
        self.leave(t);
        done
    }

    /// Several operations; true when they are done.
    pub(crate) fn fast_few(&self, t: &Thread, set: &SetRef<'_>, ops: &[SemBuf]) -> bool {
        let pid_bits = self.wiped(wiped::PID_BITS).load(Relaxed);
        if ops.len() > FEW || pid_bits == 0 || t.epoch.load(Relaxed) != self.epoch() || t.in_section.load(Relaxed) != 0 {
            return false;
        }
        let (slot, proc) = (t.slot.load(Relaxed), self.wiped(wiped::PROC).load(Relaxed) as u32);
        let Some(ctl) = self.ctl(slot) else { return false };
        let Some(mut few) = Few::plan(ops) else { return false };
        if few.needs_record && self.record(proc, set.index, set.tag).is_none() {
            return false;
        }
        self.enter(t);
        ctl.begin(Kind::MultiIntent, set, 0);
        let locked = few.lock(self, slot, set);
        let done = locked == few.n && few.evaluate(self, set, ops, proc);
        if done {
            ctl.fin.store(
                Fin {
                    value: 0,
                    adj: None,
                    pid: word::pid(pid_bits),
                }
                .bits(),
                Relaxed,
            );
            for c in few.cells() {
                if let Some(cell) = set.cell(c.num as u32) {
                    cell.staged
                        .store(journal::staged(0, c.value, c.undo.then_some(c.adj as i16)), Relaxed);
                }
            }
            ctl.head.store(journal::head(Kind::MultiCommit, set.page(), 0), Release);
        }
        for c in &few.cells()[..locked] {
            let Some(cell) = set.cell(c.num as u32) else { continue };
            if done {
                self.store_staged(set, cell, c.num, c.value, c.undo.then_some(c.adj as i16), proc, pid_bits);
            } else {
                cell.word.store(c.word, Release);
            }
        }
        self.leave(t);
        done
    }

    /// Applies a cell's part of a multi-operation and unlocks it: the word last.
    #[expect(clippy::too_many_arguments, reason = "the parts of a cell's change")]
    pub(crate) fn store_staged(&self, set: &SetRef<'_>, cell: &Cell, num: u16, value: i32, adj: Option<i16>, proc: u32, pid_bits: u64) {
        if let Some(adj) = adj {
            self.set_adjustment(proc, set, num, cell, adj);
        }
        stamp_time(cell, set.tag);
        count(cell);
        cell.word.store(word::tag_bits(set.tag) | pid_bits | value as u64, Release);
    }
}

/// A cell of a small multi-operation.
#[derive(Clone, Copy, Default)]
struct FewCell {
    num: u16,
    undo: bool,
    /// As it was.
    word: u64,
    /// Running value and adjustment.
    value: i32,
    adj: i32,
}

/// The distinct cells of a small multi-operation, ascending.
struct Few {
    cells: [FewCell; FEW],
    n: usize,
    needs_record: bool,
}

impl Few {
    fn plan(ops: &[SemBuf]) -> Option<Few> {
        let mut few = Few {
            cells: [FewCell::default(); FEW],
            n: 0,
            needs_record: false,
        };
        for op in ops {
            let undo = op.flg as i32 & SEM_UNDO != 0;
            few.needs_record |= undo;
            let mut at = few.n;
            while at > 0 && few.cells[at - 1].num > op.num {
                at -= 1;
            }
            if at > 0 && few.cells[at - 1].num == op.num {
                few.cells[at - 1].undo |= undo;
                continue;
            }
            few.cells.copy_within(at..few.n, at + 1);
            few.cells[at] = FewCell {
                num: op.num,
                undo,
                ..FewCell::default()
            };
            few.n += 1;
        }
        Some(few)
    }
    fn cells(&self) -> &[FewCell] {
        &self.cells[..self.n]
    }
    /// Locks the cells; how many.
    fn lock(&mut self, engine: &Engine, slot: u32, set: &SetRef<'_>) -> usize {
        for i in 0..self.n {
            let Some(cell) = set.cell(self.cells[i].num as u32) else { return i };
            match engine.lock_cell(slot, slot, set.tag, cell) {
                CellLock::Got(w) if w & word::WAITERS == 0 => {
                    self.cells[i].word = w;
                    self.cells[i].value = word::value(w);
                }
                CellLock::Got(w) => {
                    cell.word.store(w, Release);
                    return i;
                }
                CellLock::Complex | CellLock::Removed => return i,
            }
        }
        self.n
    }
    /// True when all operations can proceed; the cells have the final values then.
    fn evaluate(&mut self, engine: &Engine, set: &SetRef<'_>, ops: &[SemBuf], proc: u32) -> bool {
        for c in &mut self.cells[..self.n] {
            if c.undo {
                c.adj = engine.adjustment(proc, set, c.num);
            }
        }
        for op in ops {
            let Some(c) = self.cells[..self.n].iter_mut().find(|c| c.num == op.num) else {
                return false;
            };
            let after = c.value + op.op as i32;
            if (op.op == 0 && c.value != 0) || after as u32 > SEMVMX as u32 {
                return false;
            }
            c.value = after;
            if op.flg as i32 & SEM_UNDO != 0 {
                c.adj -= op.op as i32;
                if !(-SEMAEM - 1..=SEMAEM).contains(&c.adj) {
                    return false;
                }
            }
        }
        true
    }
}
