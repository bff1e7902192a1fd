//! Grants: after a change, the sleepers whose operations can go on now are completed on their behalf, in the kernel's order (ipc/sem.c:
//! do_smart_update). Everything here runs under the lock that owns the cells, in the name of `slot`; who is to be woken is noted.

use manyway_shm::Fairness;
use manyway_shm::layout::*;
use manyway_sync::atomic::Ordering::*;
use manyway_sync::{clock, futex};

use crate::abi::SemBuf;
use crate::edges;
use crate::engine::Engine;
use crate::eval::Verdict;
use crate::node::{self, Outcome};
use crate::queue::{Where, unpack};
use crate::set::SetRef;
use crate::wake::Wakes;
use crate::word;

/// How long a barging namespace lets newcomers overtake a sleeper that is first in line, from the first unit on that it could have had. Counted from
/// the beginning of its sleep instead, a long queue would have none but sleepers that have waited long, and be handed on one by one.
const BARGE_US: i32 = 1_000;

/// True until a sleeper has been overtaken for so long.
fn may_be_overtaken(sleeper: &ThreadCtl) -> bool {
    // Never 0, which is no time.
    let now = (clock::monotonic_ns() / 1000) as u32 | 1;
    let since = sleeper.offered.load(Relaxed);
    let passed = now.wrapping_sub(since) as i32;
    // A time to come is half an hour old, or damage: it begins anew.
    let begins = since == 0 || passed < 0;
    if begins {
        sleeper.offered.store(now, Relaxed);
    }
    begins || passed < BARGE_US
}

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
    fn fail<'e>(&'e self, set: &SetRef<'e>, slot: u32, ctl: &'e ThreadCtl, outcome: Outcome, wakes: &mut Wakes<'e>) {
        let zero = (ctl.linked.load(Relaxed) == Where::Zero as u32).then(|| unpack(ctl.op.load(Relaxed)).num);
        if self.end_sleep(set, slot, ctl, node::seq(ctl.state.load(Relaxed)), outcome) == Some(true) {
            match zero {
                Some(num) => {
                    if let Some(cell) = set.cell(num as u32) {
                        self.bump_epoch(cell, wakes);
                    }
                }
                None => wakes.add(&ctl.state),
            }
        }
    }

    fn bump_epoch<'e>(&'e self, cell: &'e Cell, wakes: &mut Wakes<'e>) {
        node::bump_epoch(&cell.zepoch); // ZERO-EPOCH
        wakes.add_epoch(&cell.zepoch);
    }

    /// True, after taking it out, when a node is nobody's who sleeps: its thread is gone, or has left without the queue's lock, which it could
    /// not get. No unit goes to the dead.
    fn skip_dead(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) -> bool {
        let nobodys = node::state(ctl.state.load(Acquire)) != node::State::Queued || self.context_gone(slot);
        if nobodys {
            self.bury_sleeper(set, slot, ctl);
        }
        nobodys
    }
    fn bury_sleeper(&self, set: &SetRef<'_>, slot: u32, ctl: &ThreadCtl) {
        // In this order: once it sleeps no more its slot may be somebody else's.
        self.unlink(set, slot, ctl);
        node::withdraw(ctl, node::seq(ctl.state.load(Relaxed)));
    }

    /// Completes the zero-sleepers of a cell whose value is 0 (wake_const_ops in ipc/sem.c). True: there was one.
    fn grant_zero<'e>(&'e self, set: &SetRef<'e>, num: u16, cell: &'e Cell, wakes: &mut Wakes<'e>) -> bool {
        let (mut any, mut parked) = (false, false);
        for (slot, ctl) in self.walk(set, num, Where::Zero) {
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
            self.bump_epoch(cell, wakes);
        }
        any
    }

    /// Completes the simple altering sleepers of a LOCKED cell as far as the value goes (update_queue for one semaphore).
    fn grant_alter<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'e>, num: u16, cell: &'e Cell, wakes: &mut Wakes<'e>) {
        let barging = self.arena.fairness() == Fairness::Barging;
        for (s, sleeper) in self.walk(set, num, Where::Alter) {
            let value = word::value(cell.word.load(Relaxed));
            if value == 0 {
                break;
            }
            if self.skip_dead(set, s, sleeper) {
                continue;
            }
            let op = unpack(sleeper.op.load(Relaxed));
            if barging && value + op.op as i32 >= 0 && may_be_overtaken(sleeper) {
                // It is woken to try for itself; until then a newcomer may be faster. BARGE-NUDGE
                if edges::nudge(sleeper) {
                    wakes.add(&sleeper.state);
                }
                break;
            }
            if self.complete(ctl, set, s, sleeper, wakes) && word::value(cell.word.load(Relaxed)) == 0 {
                self.grant_zero(set, num, cell, wakes);
            }
        }
    }

    /// The first one of a cell's simple altering sleepers that its value suffices for.
    pub(crate) fn first_that_fits(&self, set: &SetRef<'_>, num: u16, cell: &Cell) -> Option<u32> {
        let value = word::value(cell.word.load(Relaxed));
        let fits = |ctl: &ThreadCtl| value + unpack(ctl.op.load(Relaxed)).op as i32 >= 0;
        self.walk(set, num, Where::Alter).find(|&(s, ctl)| !self.skip_dead(set, s, ctl) && fits(ctl)).map(|(s, _)| s)
    }

    /// Evaluates a simple altering sleeper and carries its operation out if it can. True: it was carried out.
    fn complete<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'e>, s: u32, sleeper: &'e ThreadCtl, wakes: &mut Wakes<'e>) -> bool {
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
    #[expect(clippy::too_many_arguments, reason = "the section, the cell, what changed")]
    pub(crate) fn scan_cell<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        num: u16,
        cell: &'e Cell,
        raised: bool,
        wakes: &mut Wakes<'e>,
    ) {
        let met = self.met_damage.load(Relaxed);
        let scan = |wakes: &mut Wakes<'e>| {
            if word::value(cell.word.load(Relaxed)) == 0 {
                self.grant_zero(set, num, cell, wakes);
            }
            if raised {
                self.grant_alter(ctl, set, num, cell, wakes);
            }
        };
        scan(wakes);
        if self.mend_queues(met, slot, set, Some(num)) {
            scan(wakes);
        }
    }

    /// Makes the queues of a section anew if damage was met since `met` was read. True: so it was; sleepers that were lost are there again.
    pub(crate) fn mend_queues(&self, met: u32, slot: u32, set: &SetRef<'_>, only: Option<u16>) -> bool {
        let damaged = self.met_damage.load(Relaxed) != met;
        if damaged {
            self.rebuild(slot, set, only);
        }
        damaged
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
        let met = self.met_damage.load(Relaxed);
        let scan = |wakes: &mut Wakes<'e>| {
            self.wake_zeros(slot, ctl, set, changed.clone().map(|(n, _)| n), wakes);
            self.scan_alter(slot, ctl, set, changed.clone(), wakes);
        };
        scan(wakes);
        if self.mend_queues(met, slot, set, None) {
            scan(wakes);
        }
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
        let met = self.met_damage.load(Relaxed);
        let scan = |wakes: &mut Wakes<'e>| {
            if !self.wake_zeros(slot, ctl, set, changed.clone(), wakes)
                && set.head.consts.head.load(Relaxed) != 0
                && set.cells().any(|(_, c)| word::value(c.word.load(Relaxed)) == 0)
            {
                self.wake_consts(slot, ctl, set, wakes);
            }
            self.scan_alter(slot, ctl, set, changed.clone().map(|n| (n, true)), wakes);
        };
        scan(wakes);
        if self.mend_queues(met, slot, set, None) {
            scan(wakes);
        }
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
                self.grant_alter(ctl, set, num, cell, wakes);
            }
        }
    }

    /// The same for all cells that the section owns.
    pub(crate) fn scan_all<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
        self.scan_changed(slot, ctl, set, set.cells().map(|(n, _)| n), wakes);
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
                && edges::owned(cell, slot)
                && word::value(cell.word.load(Relaxed)) == 0
            {
                zero = true;
                self.grant_zero(set, num, cell, wakes);
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
        for (s, sleeper) in self.walk(set, 0, Where::SetConst) {
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
        // Each time round a sleeper is completed, so there are no more than slots (unless a hostile writer puts them to sleep again).
        'again: for _ in 0..=MAX_SLOTS {
            for (s, sleeper) in self.walk(set, 0, Where::SetAlter) {
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
    /// have left half-changed; also where the queues turn out to be damaged.
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
        let met = self.met_damage.load(Relaxed);
        if !search {
            for (num, _) in set.cells() {
                for which in [Where::Zero, Where::Alter] {
                    for (slot, ctl) in self.walk(set, num, which) {
                        end(slot, ctl, node::seq(ctl.state.load(Relaxed)), true);
                    }
                }
            }
            for which in [Where::SetAlter, Where::SetConst] {
                for (slot, ctl) in self.walk(set, 0, which) {
                    end(slot, ctl, node::seq(ctl.state.load(Relaxed)), true);
                }
            }
        }
        let search = search || self.met_damage.load(Relaxed) != met;
        if search {
            for slot in 0..self.threads_high() {
                if let Some(ctl) = self.ctl(slot)
                    && let Some((_, seq)) = self.asleep_here(set, ctl)
                {
                    end(slot, ctl, seq, false);
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
