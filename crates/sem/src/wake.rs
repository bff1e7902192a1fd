//! Steps, grants and wake-ups. Everything here runs under the lock that owns the cells; who is to be woken is noted and woken after
//! unlocking. `slot` and `ctl` are the slot in whose name the section runs: the caller's, or a dead owner's under recovery.

use manyway_shm::Fairness;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU32, Ordering::*};
use manyway_sync::{Errno, clock, futex};

use crate::abi::SemBuf;
use crate::edges::{self, commit};
use crate::engine::Engine;
use crate::eval::Verdict;
use crate::journal::{self, Fin, Kind, Step};
use crate::node::{self, Outcome};
use crate::queue::{Where, unpack};
use crate::set::SetRef;
use crate::word;

/// How many wake-ups are kept for after the unlock; beyond that the oldest are done at once.
const KEPT: usize = 64;
/// How long a barging namespace lets newcomers overtake a sleeper.
const BARGE_NS: u64 = 1_000_000;

/// Futex words to wake after unlocking.
pub(crate) struct Wakes<'e> {
    words: [Option<&'e AtomicU32>; KEPT],
    n: usize,
    /// A zero epoch that was added last: its sleepers are all woken by one call.
    epoch: Option<&'e AtomicU32>,
}

impl<'e> Wakes<'e> {
    pub(crate) const fn new() -> Self {
        Wakes { words: [None; KEPT], n: 0, epoch: None }
    }
    fn add(&mut self, word: &'e AtomicU32) {
        if self.n == KEPT {
            self.wake();
        }
        self.words[self.n] = Some(word);
        self.n += 1;
    }
    fn add_epoch(&mut self, word: &'e AtomicU32) {
        if let Some(old) = self.epoch.replace(word)
            && !core::ptr::eq(old, word)
        {
            futex::wake(old, u32::MAX);
        }
    }
    /// Wakes them.
    pub(crate) fn wake(&mut self) {
        for w in &mut self.words[..self.n] {
            if let Some(w) = w.take() {
                futex::wake(w, 1);
            }
        }
        self.n = 0;
        if let Some(w) = self.epoch.take() {
            futex::wake(w, u32::MAX);
        }
    }
}

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
    fn store_value(&self, set: &SetRef<'_>, cell: &Cell, value: i32, pid: u32) {
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
                let sleeper = sleeper.map(|(slot, seq)| (self.ctl(slot), seq));
                if let Some(cell) = set.cell(num as u32)
                    && sleeper.is_none_or(|(c, _)| c.is_some())
                {
                    let proc = ctl.target.load(Relaxed).wrapping_sub(1);
                    let adj = fin.adj.and_then(|_| self.record(proc, set.index, set.tag)).and_then(|r| self.adj(r, num));
                    let sleeper = sleeper.and_then(|(c, seq)| c.map(|c| (c, seq)));
                    let one = edges::One { cell, tag: set.tag, fin, adj: adj.map(|a| (proc, a)), sleeper };
                    if edges::apply_one(&one)
                        && let Some((c, _)) = sleeper
                    {
                        wakes.add(&c.state);
                    }
                }
            }
            Step::SetVal { num } => {
                if let Some(cell) = set.cell(num as u32) {
                    self.clear_adjustments(set, num, cell);
                    cell.word.store(word::with(cell.word.load(Relaxed), fin.value, fin.pid), Release);
                    set.head.ctime.store(clock::realtime_secs(), Relaxed);
                }
            }
            // Its staged words are found by their stamp: see `apply_many`.
            Step::Many { .. } => return,
        }
        commit(&ctl.step, 0);
    }

    fn still_asleep(&self, sleeper: Option<(u32, u32)>) -> bool {
        sleeper.is_none_or(|(slot, seq)| self.ctl(slot).is_some_and(|c| node::is_queued(c, seq)))
    }

    fn mark_done<'e>(&'e self, sleeper: Option<(u32, u32)>, wakes: &mut Wakes<'e>) {
        if let Some((slot, seq)) = sleeper
            && let Some(ctl) = self.ctl(slot)
            && node::finish(ctl, seq, Outcome::Done) == Some(true)
        {
            wakes.add(&ctl.state);
        }
    }

    /// Begins a step over several cells: the stamp for what is staged.
    pub(crate) fn begin_many(&self, slot: u32, ctl: &ThreadCtl, target: u32, pid: u32) -> u32 {
        // 1 to 65,535: 0 is what the fast path stages with.
        let n = ctl.stamp.load(Relaxed) % 0xffff + 1;
        ctl.stamp.store(n, Relaxed);
        ctl.fin.store(Fin { value: 0, adj: None, pid }.bits(), Relaxed);
        ctl.target.store(target + 1, Relaxed);
        stamp_of(slot, n)
    }
    pub(crate) fn commit_many(&self, ctl: &ThreadCtl, sleeper: Option<(u32, u32)>) {
        commit(&ctl.step, Step::Many { sleeper }.bits()); // STEP-COMMIT
    }

    /// Applies one cell's staged value, if it has this stamp.
    fn apply_staged(&self, stamp: u32, target: u32, pid: u32, set: &SetRef<'_>, num: u16, cell: &Cell) {
        let (s, value, adj) = journal::parse_staged(cell.staged.load(Acquire));
        if s == stamp {
            if let Some(adj) = adj {
                self.set_adjustment(target, set, num, cell, adj);
            }
            self.store_value(set, cell, value, pid);
        }
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
        let stamp = stamp_of(slot, ctl.stamp.load(Relaxed));
        let (target, pid) = (ctl.target.load(Relaxed).wrapping_sub(1), Fin::parse(ctl.fin.load(Relaxed)).pid);
        let owned = |cell: &Cell| {
            let w = cell.word.load(Relaxed);
            word::is_locked_by(w, slot) || w & (word::COMPLEX | word::LOCKED) == word::COMPLEX
        };
        if self.still_asleep(sleeper) {
            for num in nums.clone() {
                if let Some(cell) = set.cell(num as u32)
                    && owned(cell)
                {
                    self.apply_staged(stamp, target, pid, set, num, cell);
                }
            }
            self.mark_done(sleeper, wakes);
        }
        commit(&ctl.step, 0);
        // A stamp comes again after 65,536 steps of this slot; what is staged must not outlive that.
        for num in nums {
            if let Some(cell) = set.cell(num as u32)
                && owned(cell)
                && journal::parse_staged(cell.staged.load(Relaxed)).0 == stamp
            {
                cell.staged.store(0, Relaxed);
            }
        }
    }

    /// A sleeper's call ends without effect.
    fn fail<'e>(&'e self, set: &SetRef<'_>, slot: u32, ctl: &'e ThreadCtl, outcome: Outcome, wakes: &mut Wakes<'e>) {
        if node::finish(ctl, node::seq(ctl.state.load(Relaxed)), outcome) == Some(true) {
            if ctl.linked.load(Relaxed) == Where::Zero as u32 {
                if let Some(cell) = set.cell(unpack(ctl.op.load(Relaxed)).num as u32) {
                    self.bump_epoch(set, cell, wakes);
                }
            } else {
                wakes.add(&ctl.state);
            }
        }
        self.unlink(set, slot, ctl);
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
        if !self.context_gone(slot) {
            return false;
        }
        node::withdraw(ctl, node::seq(ctl.state.load(Relaxed)));
        self.unlink(set, slot, ctl);
        true
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
            if let Some(p) = node::finish(ctl, node::seq(ctl.state.load(Relaxed)), Outcome::Done) {
                any = true;
                parked |= p;
            }
            self.unlink(set, slot, ctl);
        }
        if parked {
            self.bump_epoch(set, cell, wakes);
        }
        any
    }

    /// Completes the simple altering sleepers of a LOCKED cell as far as the value goes (update_queue for one semaphore).
    fn grant_alter<'e>(&'e self, ctl: &ThreadCtl, set: &SetRef<'_>, num: u16, cell: &'e Cell, wakes: &mut Wakes<'e>) {
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
        let _ = num;
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
            Verdict::Proceeds => {
                let fin = self.final_of(set, proc, sleeper.pid.load(Relaxed), op);
                let seq = node::seq(sleeper.state.load(Relaxed));
                self.do_one(ctl, set, op.num, fin, proc, Some((s, seq)), wakes);
                self.unlink(set, s, sleeper);
                true
            }
        }
    }

    /// The final value and adjustment of one operation that can proceed.
    pub(crate) fn final_of(&self, set: &SetRef<'_>, proc: u32, pid: u32, op: SemBuf) -> Fin {
        let value = set.cell(op.num as u32).map_or(0, |c| word::value(c.word.load(Relaxed)));
        let adj = (op.flg as i32 & crate::abi::SEM_UNDO != 0).then(|| (self.adjustment(proc, set, op.num) - op.op as i32) as i16);
        Fin { value: value + op.op as i32, adj, pid }
    }

    /// After one cell's value changed in a cell section (do_smart_update): zero-sleepers first, then those who subtract.
    pub(crate) fn scan_cell<'e>(
        &'e self,
        ctl: &ThreadCtl,
        set: &SetRef<'_>,
        num: u16,
        cell: &'e Cell,
        raised: bool,
        wakes: &mut Wakes<'e>,
    ) {
        if word::value(cell.word.load(Relaxed)) == 0 {
            self.grant_zero(set, cell, wakes);
        }
        if raised {
            self.grant_alter(ctl, set, num, cell, wakes);
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
                self.grant_alter(ctl, set, num, cell, wakes);
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
        for (s, sleeper) in self.walk(&set.head.consts) {
            if !self.skip_dead(set, s, sleeper) {
                let _ = self.complete_many(slot, ctl, set, s, sleeper, wakes);
            }
        }
    }

    /// update_queue over the set's queue: in order of arrival, from the start again after each one that is carried out (check_restart:
    /// while complex operations sleep, any completion may let an earlier one go).
    fn update_queue<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
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
                    let done = self.complete_many(slot, ctl, set, s, sleeper, wakes);
                    if done {
                        self.wake_zeros(slot, ctl, set, self.node_ops(s, sleeper).map(|o| o.num), wakes);
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

    /// Evaluates a complex sleeper and carries its operations out if they all can. True: they were.
    fn complete_many<'e>(
        &'e self,
        slot: u32,
        ctl: &ThreadCtl,
        set: &SetRef<'e>,
        s: u32,
        sleeper: &'e ThreadCtl,
        wakes: &mut Wakes<'e>,
    ) -> bool {
        let proc = sleeper.proc.load(Relaxed).wrapping_sub(1);
        let ops = self.node_ops(s, sleeper);
        match self.evaluate(set, proc, ops.clone()) {
            Verdict::Blocks(i) => {
                sleeper.blocker.store(i, Relaxed);
                false
            }
            Verdict::Fails(e) => {
                self.fail(set, s, sleeper, Outcome::of(e), wakes);
                false
            }
            Verdict::Proceeds => {
                let seq = node::seq(sleeper.state.load(Relaxed));
                self.do_many(slot, ctl, set, proc, sleeper.pid.load(Relaxed), ops, Some((s, seq)), wakes);
                self.unlink(set, s, sleeper);
                true
            }
        }
    }

    /// Operations on several cells as one committed step.
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
        let stamp = self.begin_many(slot, ctl, proc, pid);
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
        self.commit_many(ctl, sleeper);
        self.apply_many_in(slot, ctl, set, ops.map(|o| o.num), wakes);
    }

    /// Ends all sleepers of a set that is being removed. With `search`, finds them by their nodes instead of the queues, which a death may
    /// have left half-changed.
    pub(crate) fn end_all<'e>(&'e self, set: &SetRef<'e>, search: bool, wakes: &mut Wakes<'e>) {
        let mut end = |slot: u32, ctl: &'e ThreadCtl, seq: u32, linked: bool| {
            if node::finish(ctl, seq, Outcome::Removed) == Some(true) {
                wakes.add(&ctl.state);
            }
            if linked {
                self.unlink(set, slot, ctl);
            } else {
                ctl.linked.store(0, Relaxed);
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

fn stamp_of(slot: u32, n: u32) -> u32 {
    slot << 16 | n & 0xffff
}

/// The error of an operation that cannot proceed and says IPC_NOWAIT.
pub(crate) const WOULD_BLOCK: Errno = Errno::EAGAIN;
