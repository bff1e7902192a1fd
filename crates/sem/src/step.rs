//! Steps: one operation carried out whole, for the caller or for a sleeper. Written to the journal, committed by one store, applied, cleared; whoever
//! finds a committed step applies it again. Everything here runs under the lock that owns the cells. `slot` and `ctl` are the slot in whose
//! name the section runs: the caller's, or a dead owner's under recovery.

use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::clock;

use crate::abi::SemBuf;
use crate::edges::{self, commit};
use crate::engine::Engine;
use crate::journal::{self, Fin, Kind, Step};
use crate::node::{self, Outcome};
use crate::set::SetRef;
use crate::wake::Wakes;
use crate::word;

/// Journal entries of a thread slot.
pub(crate) trait Journal {
    /// Writes what is about to be locked. Before the lock is tried.
    fn begin(&self, kind: Kind, set: &SetRef<'_>, num: u16);
}

impl Journal for ThreadCtl {
    fn begin(&self, kind: Kind, set: &SetRef<'_>, num: u16) {
        edges::begin(self, journal::head(kind, set.page(), num));
    }
}

impl Engine {
    pub(crate) fn store_value(&self, set: &SetRef<'_>, cell: &Cell, value: i32, pid: u32) {
        edges::store_value(cell, set.tag, value, pid);
    }

    /// One operation on one cell as a committed step: for the caller itself (`sleeper` None) or for a sleeper.
    #[expect(clippy::too_many_arguments, reason = "a step is all of these")]
    pub(crate) fn do_one<'e>(
        &'e self,
        ctl: &ThreadCtl,
        set: &SetRef<'_>,
        num: u16,
        fin: Fin,
        target: u32,
        sleeper: Option<(u32, u32)>,
        wakes: &mut Wakes<'e>,
    ) {
        edges::commit_one(ctl, num, fin, target, sleeper);
        self.apply_step(ctl, set, wakes);
    }

    /// Applies the committed step, and clears it. Twice does no harm: final values are stored, the sleeper is marked last, and a sleeper
    /// that is marked says that all was applied.
    pub(crate) fn apply_step<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'_>, wakes: &mut Wakes<'e>) {
        let fin = Fin::parse(ctl.fin.load(Relaxed));
        match edges::committed(ctl) {
            Step::None => return,
            Step::One { num, sleeper } => {
                let found = sleeper.map(|(slot, seq)| (self.ctl(slot), seq));
                if let Some(cell) = set.cell(num as u32)
                    && found.is_none_or(|(c, _)| c.is_some())
                {
                    let proc = ctl.target.load(Relaxed).wrapping_sub(1);
                    let adj = fin.adj.and_then(|_| self.record(proc, set.index, set.tag)).and_then(|r| self.adj(r, num));
                    let found = found.and_then(|(c, seq)| c.map(|c| (c, seq)));
                    let one = edges::One { cell, tag: set.tag, fin, adj: adj.map(|a| (proc, a)), sleeper: found };
                    let unlink = || {
                        if let (Some((slot, _)), Some((c, _))) = (sleeper, found) {
                            self.unlink(set, slot, c);
                        }
                    };
                    if edges::apply_one(&one, unlink)
                        && let Some((c, _)) = found
                    {
                        wakes.add(&c.state);
                    }
                }
            }
            Step::SetVal { num } => {
                if let Some(cell) = set.cell(num as u32) {
                    edges::apply_setval(cell, fin, || self.clear_adjustments(set, num, cell));
                    set.head.ctime.store(clock::realtime_secs(), Relaxed);
                }
            }
            // Its staged words are found by their stamp: see `apply_many`.
            Step::Many { .. } => return,
        }
        commit(&ctl.step, 0);
    }

    /// Ends a sleep: out of its queue, then the mark, behind which the node is its thread's again (NODE-DONE). True: it had parked.
    pub(crate) fn end_sleep(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl, seq: u32, outcome: Outcome) -> Option<bool> {
        self.unlink(set, slot, ctl);
        node::finish(ctl, seq, outcome)
    }

    /// Applies a committed step over several cells by looking at all cells of the set: in recovery, and where the step's cells are known by
    /// nothing else.
    pub(crate) fn apply_many<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'_>, wakes: &mut Wakes<'e>) {
        self.apply_many_in(slot, ctl, set, set.cells().map(|(n, _)| n), wakes);
    }

    /// The same over the cells `nums`, which are those of the step.
    pub(crate) fn apply_many_in<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'_>,
        nums: impl Iterator<Item = u16> + Clone,
        wakes: &mut Wakes<'e>,
    ) {
        let Step::Many { sleeper } = edges::committed(ctl) else {
            return;
        };
        let found = sleeper.map(|(s, seq)| self.ctl(s).map(|c| (s, c, seq)));
        // (A sleeper in no slot is damage.)
        let Some(found) = found.map_or(Some(None), |f| f.map(Some)) else { return commit(&ctl.step, 0) };
        let cells = nums.filter_map(|n| set.cell(n as u32).map(|c| (n, c)));
        let adj = |proc, num| self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, num));
        let unlink = || found.into_iter().for_each(|(s, c, _)| self.unlink(set, s, c));
        if edges::apply_many(ctl, (slot, set.tag), cells, adj, found.map(|(_, c, seq)| (c, seq)), unlink)
            && let Some((_, c, _)) = found
        {
            wakes.add(&c.state);
        }
    }

    /// Operations on several cells as one committed step. `ops` is not the sleeper's own copy, which is gone with its mark.
    #[expect(clippy::too_many_arguments, reason = "a step is all of these")]
    pub(crate) fn do_many<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'_>,
        proc: u32,
        pid: u32,
        ops: impl Iterator<Item = SemBuf> + Clone,
        sleeper: Option<(u32, u32)>,
        wakes: &mut Wakes<'e>,
    ) {
        let stamp = edges::begin_many(ctl, slot, proc, pid);
        for op in ops.clone() {
            if let Some(cell) = set.cell(op.num as u32) {
                let (s, v, a) = journal::parse_staged(cell.staged.load(Relaxed));
                let (value, adj) = if s == stamp { (v, a) } else { (word::value(cell.word.load(Relaxed)), None) };
                let adj = match op.flg as i32 & crate::abi::SEM_UNDO != 0 {
                    true => Some((adj.map_or_else(|| self.adjustment(proc, set, op.num), i32::from) - op.op as i32) as i16),
                    false => adj,
                };
                cell.staged.store(journal::staged(stamp, value + op.op as i32, adj), Relaxed);
            }
        }
        edges::commit_many(ctl, sleeper);
        self.apply_many_in(slot, ctl, set, ops.map(|o| o.num), wakes);
    }

    /// The final value and adjustment of one operation that can proceed.
    pub(crate) fn final_of(&self, set: &SetRef<'_>, proc: u32, pid: u32, op: SemBuf) -> Fin {
        let value = set.cell(op.num as u32).map_or(0, |c| word::value(c.word.load(Relaxed)));
        let adj = (op.flg as i32 & crate::abi::SEM_UNDO != 0).then(|| (self.adjustment(proc, set, op.num) - op.op as i32) as i16);
        Fin { value: value + op.op as i32, adj, pid }
    }
}
