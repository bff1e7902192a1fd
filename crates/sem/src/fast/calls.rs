//! What a call does to find its cells and itself, before the fast paths.

use manyway_shm::View;
use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::clock;

use super::{Doer, is_current, is_of, pair, plain, undo, undo_head};
use crate::abi::{SEM_UNDO, SEMAEM, SEMVMX, SemBuf};
use crate::attach::{KEPT, Kept, Thread, wiped};
use crate::edges;
use crate::engine::Engine;
use crate::journal::{self, Kind};
use crate::lock::{CellLock, Wait};
use crate::set::{INDEX_BITS, IdEntry, SetRef};
use crate::step::Journal;
use crate::word;

/// The largest call that the fast path for several semaphores takes.
const FEW: usize = 8;

impl Engine {
    /// Finds a set by its id and checks that the caller, as its owner, may do what `want` says (4 read, 2 alter). None: the slow path
    /// decides.
    #[inline(always)]
    fn fast_set(&self, view: View<'_>, id: i32, want: u32) -> Option<Found> {
        let index = id as u32 & (MAX_SETS - 1);
        if index >= self.ids_known.load(Relaxed) {
            return None;
        }
        let e = IdEntry::find(view.id(index)); // ID-PUBLISH
        if e.0 == 0 || e.seq() != id as u32 >> INDEX_BITS {
            return None;
        }
        let head = view.at::<SetHead>(e.at())?;
        self.owner_permits(head, want).then_some(Found { entry: e, index, nsems: head.nsems.load(Relaxed) })
    }

    /// One operation of a call that names its set by id; true when it is done, false when [`Engine::semop`] must be asked. All that the C
    /// library's call does when nothing is in the way: four lines are read (the id table's, the set's head, the cell, the page that a
    /// fork wipes), one is written.
    ///
    /// The parts of the operation are arguments, so that a caller who has just stored them is not stalled by a wider load.
    #[inline(always)]
    pub fn try_one(&self, t: &Thread, id: i32, num: u16, op: i16, flg: i16) -> bool {
        if flg as i32 & SEM_UNDO != 0 {
            return self.undo_one(t, id, num, op);
        }
        // First: who has no place in the namespace must not look at its sets.
        let pid_bits = self.wiped(wiped::PID_BITS).load(Relaxed);
        if pid_bits == 0 {
            return false;
        }
        let view = self.arena.view();
        let Some(set) = self.fast_set(view, id, if op == 0 { 4 } else { 2 }) else { return false };
        let Some(cell) = set.cell(view, num) else { return false };
        is_current([cell], set.entry.tag()) && plain(cell, set.entry.tag(), pid_bits, op as i32)
    }

    /// The calling thread as the one who operates, if it is attached. In a section: outside, a handler may fork, and its
    /// child take the parent's place for its own.
    #[inline(always)]
    fn doer<'e>(&self, t: &Thread, view: View<'e>) -> Option<Doer<'e>> {
        let pid_bits = self.wiped(wiped::PID_BITS).load(Relaxed);
        if pid_bits == 0 || t.epoch.load(Relaxed) != self.epoch() {
            return None;
        }
        let ctl = view.at::<ThreadCtl>(t.ctl_at.load(Relaxed))?;
        Some(Doer::new(ctl, t.slot.load(Relaxed), word::pid(pid_bits), self.wiped(wiped::PROC).load(Relaxed) as u32))
    }

    /// One operation with SEM_UNDO of a call that names its set by id; true when it is done. What was found for the last calls is kept:
    /// then the set's head, the cell and the adjustment are read side by side, instead of one behind the other through five tables.
    #[inline(never)]
    fn undo_one(&self, t: &Thread, id: i32, num: u16, op: i16) -> bool {
        let now = clock::realtime_secs();
        let view = self.arena.view();
        if t.in_section.load(Relaxed) != 0 {
            return false;
        }
        self.enter_first(t);
        let done = self.doer(t, view).is_some_and(|by| self.undo_as(t, view, &by, now, id, num, op));
        self.leave_first(t);
        done
    }

    /// The same in a section.
    #[expect(clippy::too_many_arguments, reason = "the parts of an operation")]
    #[inline(always)]
    fn undo_as(&self, t: &Thread, view: View<'_>, by: &Doer<'_>, now: u64, id: i32, num: u16, op: i16) -> bool {
        let kept = &t.kept[(id as usize ^ num as usize) % KEPT];
        let key = Kept::key_of(id, num);
        let done = kept.key.load(Relaxed) == key && {
            let set = IdEntry(kept.set.load(Relaxed));
            let found = (view.at::<SetHead>(set.at()), view.at::<Cell>(kept.cell.load(Relaxed)), view.at(kept.adj.load(Relaxed)));
            matches!(found, (Some(head), Some(cell), Some(adj))
                if self.owner_permits(head, 2)
                    && is_of([cell], set.tag(), now)
                    && undo(cell, adj, by, undo_head((set.at() / PAGE) as u32, num), set.tag(), op))
        };
        if done {
            return true;
        }
        kept.key.store(0, Relaxed);
        self.undo_found(view, by, kept, id, num, op)
    }

    /// The same where it has to be found.
    #[inline(never)]
    fn undo_found(&self, view: View<'_>, by: &Doer<'_>, kept: &Kept, id: i32, num: u16, op: i16) -> bool {
        let Some(set) = self.fast_set(view, id, 2) else { return false };
        let (tag, at) = (set.entry.tag(), set.cell_at(num));
        let Some(cell) = set.cell(view, num) else { return false };
        let Some((adj_at, adj)) = Self::own_adjustment(view, by.proc(), set.index, tag, num) else { return false };
        kept.set.store(set.entry.0, Relaxed);
        kept.cell.store(at, Relaxed);
        kept.adj.store(adj_at, Relaxed);
        kept.key.store(Kept::key_of(id, num), Relaxed);
        is_current([cell], tag) && undo(cell, adj, by, undo_head((set.entry.at() / PAGE) as u32, num), tag, op)
    }

    /// One operation with SEM_UNDO on a cell that was found; true when it is done.
    #[inline(never)]
    pub(crate) fn fast_undo(&self, t: &Thread, cell: &Cell, set: IdEntry, index: u32, num: u16, op: i16) -> bool {
        let view = self.arena.view();
        let tag = set.tag();
        if t.in_section.load(Relaxed) != 0 {
            return false;
        }
        self.enter_first(t);
        let done = self.doer(t, view).is_some_and(|by| {
            // The record is this process's own and goes only with the set, whose removal needs the cell that `undo` locks by its tag.
            Self::own_adjustment(view, by.proc(), index, tag, num)
                .is_some_and(|(_, adj)| is_current([cell], tag) && undo(cell, adj, &by, undo_head((set.at() / PAGE) as u32, num), tag, op))
        });
        self.leave_first(t);
        done
    }

    /// Two operations on two semaphores, without SEM_UNDO; true when they are done. Both are locked (ascending), both staged, then one
    /// store commits them.
    #[inline(never)]
    pub(crate) fn fast_pair(&self, t: &Thread, id: i32, first: SemBuf, second: SemBuf) -> bool {
        let now = clock::realtime_secs();
        let view = self.arena.view();
        let (a, b) = if first.num < second.num { (first, second) } else { (second, first) };
        if a.num == b.num || (a.flg | b.flg) as i32 & SEM_UNDO != 0 || self.wiped(wiped::PID_BITS).load(Relaxed) == 0 {
            return false;
        }
        let want = if a.op | b.op == 0 { 4 } else { 2 };
        let Some(set) = self.fast_set(view, id, want) else { return false };
        let (Some(ca), Some(cb)) = (set.cell(view, a.num), set.cell(view, b.num)) else { return false };
        let (page, tag) = ((set.entry.at() / PAGE) as u32, set.entry.tag());
        if !is_of([ca, cb], tag, now) || t.in_section.load(Relaxed) != 0 {
            return false;
        }
        self.enter_first(t);
        let done = self.doer(t, view).is_some_and(|by| pair(ca, cb, &by, page, tag, (a.num, a.op), (b.num, b.op)));
        self.leave_first(t);
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
        if self.wiped(wiped::PID_BITS).load(Relaxed) != pid_bits {
            // A handler forked, and this is the child.
            self.leave(t);
            return false;
        }
        ctl.begin(Kind::MultiIntent, set, 0);
        let locked = few.lock(self, t, slot, set);
        let done = locked == few.n && few.evaluate(self, set, ops, proc);
        if done {
            let staged = few.cells().iter().filter_map(|c| Some((set.cell(c.num as u32)?, c.value, c.undo.then_some(c.adj as i16))));
            edges::commit_few(ctl, journal::head(Kind::MultiCommit, set.page(), 0), word::pid(pid_bits), staged);
        }
        for c in &few.cells()[..locked] {
            let Some(cell) = set.cell(c.num as u32) else { continue };
            if done {
                let adj = if c.undo { self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, c.num)) } else { None };
                edges::apply_few(cell, set.tag, c.value, pid_bits, adj.map(|a| (proc, a, c.adj as i16)));
            } else {
                cell.word.store(c.word, Release);
            }
        }
        self.leave(t);
        done
    }
}

/// A set found by id.
#[derive(Clone, Copy)]
struct Found {
    entry: IdEntry,
    index: u32,
    nsems: u32,
}

impl Found {
    #[inline(always)]
    fn cell<'e>(&self, view: View<'e>, num: u16) -> Option<&'e Cell> {
        if num as u32 >= self.nsems {
            return None;
        }
        view.at(self.cell_at(num))
    }
    #[inline(always)]
    fn cell_at(&self, num: u16) -> u64 {
        self.entry.at() + size_of::<SetHead>() as u64 + num as u64 * size_of::<Cell>() as u64
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
        let mut few = Few { cells: [FewCell::default(); FEW], n: 0, needs_record: false };
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
            few.cells[at] = FewCell { num: op.num, undo, ..FewCell::default() };
            few.n += 1;
        }
        Some(few)
    }
    fn cells(&self) -> &[FewCell] {
        &self.cells[..self.n]
    }
    /// Locks the cells; how many.
    fn lock(&mut self, engine: &Engine, t: &Thread, slot: u32, set: &SetRef<'_>) -> usize {
        for i in 0..self.n {
            let Some(cell) = set.cell(self.cells[i].num as u32) else { return i };
            match engine.lock_cell(t, slot, set, self.cells[i].num, cell, Wait::Call) {
                Ok(CellLock::Got(w)) if w & word::WAITERS == 0 => {
                    self.cells[i].word = w;
                    self.cells[i].value = word::value(w);
                }
                Ok(CellLock::Got(w)) => {
                    cell.word.store(w, Release);
                    return i;
                }
                // A wait that was given up begins again on the slow path, which gives up in its turn.
                Ok(CellLock::Complex | CellLock::Removed) | Err(_) => return i,
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
