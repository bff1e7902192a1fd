//! Grants: after a change, the sleepers whose operations can go on now are completed on their behalf, in the kernel's order (ipc/sem.c:
//! do_smart_update). Everything here runs under the lock that owns the cells, in the name of `slot`; who is to be woken is noted.

use manyway_shm::Fairness;
use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::{clock, futex};

use crate::abi::SemBuf;
use crate::engine::Engine;
use crate::eval::Verdict;
use crate::node::{self, Outcome};
use crate::queue::{Where, unpack};
use crate::set::SetRef;
use crate::wake::Wakes;
use crate::word;

/// How long a barging namespace lets newcomers overtake a sleeper.
const BARGE_NS: u64 = 1_000_000;

/// The operations of a sleeping call, for when it has been completed: then its node and its page are its thread's again.
struct CallCopy {
    ops: [SemBuf; MAX_OPM as usize],
    n: usize,
}

impl CallCopy {
    const fn new() -> CallCopy {
        CallCopy { ops: [SemBuf { num: 0, op: 0, flg: 0 }; MAX_OPM as usize], n: 0 }
    }
    fn copy(&mut self, ops: impl Iterator<Item = SemBuf>) {
        self.n = 0;
        for (to, op) in self.ops.iter_mut().zip(ops) {
            *to = op;
            self.n += 1;
        }
    }
    fn ops(&self) -> impl Iterator<Item = SemBuf> + Clone {
        self.ops[..self.n].iter().copied()
    }
}

impl Engine {
    /// A sleeper's call ends without effect.
    fn fail<'e>(&'e self, set: &SetRef<'_>, slot: u32, ctl: &'e ThreadCtl, outcome: Outcome, wakes: &mut Wakes<'e>) {
        let zero = (ctl.linked.load(Relaxed) == Where::Zero as u32).then(|| unpack(ctl.op.load(Relaxed)).num);
        if self.end_sleep(set, slot, ctl, node::seq(ctl.state.load(Relaxed)), outcome) == Some(true) {
            match zero {
                Some(num) => {
                    if let Some(cell) = set.cell(num as u32) {
                        self.bump_epoch(set, cell, wakes);
                    }
                }
                None => wakes.add(&ctl.state),
            }
        }
    }

    fn bump_epoch<'e>(&'e self, set: &SetRef<'_>, cell: &Cell, wakes: &mut Wakes<'e>) {
        node::bump_epoch(&cell.zepoch); // ZERO-EPOCH
        let at = set.at + size_of::<SetHead>() as u64 + self.cell_number(set, cell) * size_of::<Cell>() as u64;
        if let Some(c) = self.arena.at::<Cell>(at) {
            wakes.add_epoch(&c.zepoch);
        }
    }
    fn cell_number(&self, set: &SetRef<'_>, cell: &Cell) -> u64 {
        set.cell(0).map_or(0, |first| (core::ptr::from_ref(cell) as u64 - core::ptr::from_ref(first) as u64) / size_of::<Cell>() as u64)
    }

    /// True, after burying it, when a sleeper's thread is gone: no unit goes to the dead.
    fn skip_dead(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) -> bool {
        let gone = self.context_gone(slot);
        if gone {
            self.bury_sleeper(set, slot, ctl);
        }
        gone
    }
    fn bury_sleeper(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) {
        // In this order: once it sleeps no more its slot may be somebody else's.
        self.unlink(set, slot, ctl);
        node::withdraw(ctl, node::seq(ctl.state.load(Relaxed)));
    }

    /// Completes the zero-sleepers of a cell whose value is 0 (wake_const_ops in ipc/sem.c). True: there was one.
    fn grant_zero<'e>(&'e self, set: &SetRef<'_>, cell: &'e Cell, wakes: &mut Wakes<'e>) -> bool {
        let (mut any, mut parked) = (false, false);
        for (slot, ctl) in self.walk(&cell.zero) {
            if self.skip_dead(set, slot, ctl) {
                continue;
            }
            // Its pid and time first: a death in between leaves it asleep, to be completed by who recovers.
            self.store_value(set, cell, 0, ctl.pid.load(Relaxed));
            if let Some(p) = self.end_sleep(set, slot, ctl, node::seq(ctl.state.load(Relaxed)), Outcome::Done) {
                any = true;
                parked |= p;
            }
        }
        if parked {
            self.bump_epoch(set, cell, wakes);
        }
        any
    }

    /// Completes the simple altering sleepers of a LOCKED cell as far as the value goes (update_queue for one semaphore).
    fn grant_alter<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'_>, cell: &'e Cell, wakes: &mut Wakes<'e>) {
        let barging = self.arena.fairness() == Fairness::Barging;
        for (s, sleeper) in self.walk(&cell.alter) {
            let value = word::value(cell.word.load(Relaxed));
            if value == 0 {
                break;
            }
            if self.skip_dead(set, s, sleeper) {
                continue;
            }
            let op = unpack(sleeper.op.load(Relaxed));
            if barging && value + op.op as i32 >= 0 {
                let waited = clock::monotonic_ns().saturating_sub(sleeper.ticket.load(Relaxed));
                if waited < BARGE_NS {
                    // It is woken to try for itself; until then a newcomer may be faster.
                    if node::nudge(sleeper, node::seq(sleeper.state.load(Relaxed))) {
                        wakes.add(&sleeper.state);
                    }
                    break;
                }
            }
            if self.complete(ctl, set, s, sleeper, wakes) && word::value(cell.word.load(Relaxed)) == 0 {
                self.grant_zero(set, cell, wakes);
            }
        }
    }

    /// Evaluates a simple altering sleeper and carries its operation out if it can. True: it was carried out.
    fn complete<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'_>, s: u32, sleeper: &'e ThreadCtl, wakes: &mut Wakes<'e>) -> bool {
        let op = unpack(sleeper.op.load(Relaxed));
        let proc = sleeper.proc.load(Relaxed).wrapping_sub(1);
        match self.evaluate(set, proc, [op].into_iter()) {
            Verdict::Blocks(_) => false,
            Verdict::Fails(e) => {
                self.fail(set, s, sleeper, Outcome::of(e), wakes);
                false
            }
            Verdict::Proceeds if self.sleeper_gone_for_certain(s, sleeper) => {
                self.bury_sleeper(set, s, sleeper);
                false
            }
            Verdict::Proceeds => {
                let fin = self.final_of(set, proc, sleeper.pid.load(Relaxed), op);
                let seq = node::seq(sleeper.state.load(Relaxed));
                self.do_one(ctl, set, op.num, fin, proc, Some((s, seq)), wakes);
                true
            }
        }
    }

    /// After one cell's value changed in a cell section (do_smart_update): zero-sleepers first, then those who subtract.
    pub(crate) fn scan_cell<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'_>, cell: &'e Cell, raised: bool, wakes: &mut Wakes<'e>) {
        if word::value(cell.word.load(Relaxed)) == 0 {
            self.grant_zero(set, cell, wakes);
        }
        if raised {
            self.grant_alter(ctl, set, cell, wakes);
        }
    }

    /// After a semop changed values in a set section: the cells that it named (with whether each was raised).
    pub(crate) fn scan_set<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        changed: impl Iterator<Item = (u16, bool)> + Clone,
        wakes: &mut Wakes<'e>,
    ) {
        self.wake_zeros(slot, ctl, set, changed.clone().map(|(n, _)| n), wakes);
        self.scan_alter(slot, ctl, set, changed, wakes);
    }

    /// The same after SETVAL, SETALL or a process's undo: the complex zero-sleepers are looked at when *any* semaphore of the set is 0
    /// (do_smart_wakeup_zero without operations).
    pub(crate) fn scan_changed<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        changed: impl Iterator<Item = u16> + Clone,
        wakes: &mut Wakes<'e>,
    ) {
        if !self.wake_zeros(slot, ctl, set, changed.clone(), wakes)
            && set.head.consts.head.load(Relaxed) != 0
            && set.cells().any(|(_, c)| word::value(c.word.load(Relaxed)) == 0)
        {
            self.wake_consts(slot, ctl, set, wakes);
        }
        self.scan_alter(slot, ctl, set, changed.map(|n| (n, true)), wakes);
    }

    fn scan_alter<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        changed: impl Iterator<Item = (u16, bool)>,
        wakes: &mut Wakes<'e>,
    ) {
        self.update_queue(slot, ctl, set, wakes);
        for (num, raised) in changed {
            if let Some(cell) = set.cell(num as u32)
                && raised
                && word::is_locked_by(cell.word.load(Relaxed), slot)
            {
                self.grant_alter(ctl, set, cell, wakes);
            }
        }
    }

    /// The same for all cells that the section owns.
    pub(crate) fn scan_all<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
        self.scan_changed(slot, ctl, set, set.cells().map(|(n, _)| n), wakes);
    }

    pub(crate) fn owned(&self, slot: u32, cell: &Cell) -> bool {
        let w = cell.word.load(Relaxed);
        word::is_locked_by(w, slot) || w & (word::COMPLEX | word::LOCKED) == word::COMPLEX
    }

    /// do_smart_wakeup_zero: simple zero-sleepers of each cell that is 0; then, if there was such a cell (true), the complex ones.
    fn wake_zeros<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        nums: impl Iterator<Item = u16>,
        wakes: &mut Wakes<'e>,
    ) -> bool {
        let mut zero = false;
        for num in nums {
            if let Some(cell) = set.cell(num as u32)
                && self.owned(slot, cell)
                && word::value(cell.word.load(Relaxed)) == 0
            {
                zero = true;
                self.grant_zero(set, cell, wakes);
            }
        }
        if zero {
            self.wake_consts(slot, ctl, set, wakes);
        }
        zero
    }

    fn wake_consts<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
        if set.head.consts.head.load(Relaxed) == 0 {
            return;
        }
        let mut call = CallCopy::new();
        for (s, sleeper) in self.walk(&set.head.consts) {
            if !self.skip_dead(set, s, sleeper) {
                let _ = self.complete_many(slot, ctl, set, s, sleeper, &mut call, wakes);
            }
        }
    }

    /// update_queue over the set's queue: in order of arrival, from the start again after each one that is carried out (check_restart:
    /// while complex operations sleep, any completion may let an earlier one go).
    fn update_queue<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
        if set.head.alter.head.load(Relaxed) == 0 {
            return;
        }
        let mut call = CallCopy::new();
        'again: loop {
            for (s, sleeper) in self.walk(&set.head.alter) {
                if self.skip_dead(set, s, sleeper) {
                    continue;
                }
                let simple = sleeper.nops.load(Relaxed) == 1;
                let done = if simple {
                    let num = unpack(sleeper.op.load(Relaxed)).num;
                    let done = self.complete(ctl, set, s, sleeper, wakes);
                    if done {
                        self.wake_zeros(slot, ctl, set, [num].into_iter(), wakes);
                    }
                    done
                } else {
                    let done = self.complete_many(slot, ctl, set, s, sleeper, &mut call, wakes);
                    if done {
                        self.wake_zeros(slot, ctl, set, call.ops().map(|o| o.num), wakes);
                    }
                    done
                };
                if done {
                    continue 'again;
                }
            }
            return;
        }
    }

    /// Evaluates a complex sleeper and carries its operations out if they all can. True: they were; `call` has them.
    #[expect(clippy::too_many_arguments, reason = "a step is all of these")]
    fn complete_many<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        s: u32,
        sleeper: &'e ThreadCtl,
        call: &mut CallCopy,
        wakes: &mut Wakes<'e>,
    ) -> bool {
        let proc = sleeper.proc.load(Relaxed).wrapping_sub(1);
        match self.evaluate(set, proc, self.node_ops(s, sleeper)) {
            Verdict::Blocks(i) => {
                sleeper.blocker.store(i, Relaxed);
                false
            }
            Verdict::Fails(e) => {
                self.fail(set, s, sleeper, Outcome::of(e), wakes);
                false
            }
            Verdict::Proceeds if self.sleeper_gone_for_certain(s, sleeper) => {
                self.bury_sleeper(set, s, sleeper);
                false
            }
            Verdict::Proceeds => {
                let seq = node::seq(sleeper.state.load(Relaxed));
                call.copy(self.node_ops(s, sleeper));
                self.do_many(slot, ctl, set, proc, sleeper.pid.load(Relaxed), call.ops(), Some((s, seq)), wakes);
                true
            }
        }
    }

    /// Ends all sleepers of a set that is being removed. With `search`, finds them by their nodes instead of the queues, which a death may
    /// have left half-changed.
    pub(crate) fn end_all<'e>(&'e self, set: &SetRef<'e>, search: bool, wakes: &mut Wakes<'e>) {
        let mut end = |slot: u32, ctl: &'e ThreadCtl, seq: u32, linked: bool| {
            // (Links that a death has left half-changed are not followed; who ends a sleep may be anywhere the moment after.)
            let parked = if linked {
                self.end_sleep(set, slot, ctl, seq, Outcome::Removed)
            } else {
                ctl.linked.store(0, Relaxed);
                node::finish(ctl, seq, Outcome::Removed)
            };
            if parked == Some(true) {
                wakes.add(&ctl.state);
            }
        };
        if search {
            for slot in 0..self.threads_high() {
                if let Some(ctl) = self.ctl(slot)
                    && let Some((_, seq)) = self.asleep_here(set, ctl)
                {
                    end(slot, ctl, seq, false);
                }
            }
        } else {
            for (_, cell) in set.cells() {
                for q in [&cell.zero, &cell.alter] {
                    for (slot, ctl) in self.walk(q) {
                        end(slot, ctl, node::seq(ctl.state.load(Relaxed)), true);
                    }
                }
            }
            for q in [&set.head.alter, &set.head.consts] {
                for (slot, ctl) in self.walk(q) {
                    end(slot, ctl, node::seq(ctl.state.load(Relaxed)), true);
                }
            }
        }
        for (_, cell) in set.cells() {
            cell.zepoch.fetch_add(1, AcqRel);
            if cell.word.load(Relaxed) & word::WAITERS != 0 || search {
                futex::wake(&cell.zepoch, u32::MAX);
            }
        }
    }
}
