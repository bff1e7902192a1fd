//! The locked paths of semop: all or nothing, then the scan of sleepers, or to sleep.

use manyway_shm::Fairness;
use manyway_shm::layout::*;
use manyway_sync::atomic::{Ordering::*, fence};
use manyway_sync::{Errno, clock};

use crate::abi::{IPC_NOWAIT, SEM_UNDO, SemBuf, Timespec};
use crate::attach::{Me, Thread};
use crate::engine::Engine;
use crate::eval::Verdict;
use crate::id::IdEntry;
use crate::journal::Kind;
use crate::lock::{CellLock, Wait};
use crate::node;
use crate::queue::{Where, pack};
use crate::set::SetRef;
use crate::step::Journal;
use crate::wake::Wakes;
use crate::word;

/// What a locked try came to.
enum Try {
    /// Carried out, or failed for good.
    Ended(Result<(), Errno>),
    /// It cannot proceed and some semaphore that it names is held by SEM_UNDO: the holders must be looked at first.
    LookAtHolders,
    /// It is queued, with this sequence number.
    Sleeps(u32),
    /// The cell belongs to the set lock.
    NeedsSet,
}

/// How a call is to be tried.
#[derive(Clone, Copy)]
struct How {
    /// The holders have been looked at.
    looked: bool,
    /// The call never sleeps: its timeout is zero.
    never_sleep: bool,
}

impl Engine {
    /// semop and semtimedop behind the fast path: the kernel's checks in the kernel's order, then the locked try, then sleep.
    #[cold]
    #[inline(never)]
    pub(crate) fn semop_slow(&self, t: &Thread, id: i32, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        if ops.len() > self.limits().opm as usize {
            return Err(Errno::E2BIG);
        }
        if ops.is_empty() || timeout.is_some_and(|t| !t.is_valid()) {
            return Err(Errno::EINVAL);
        }
        let set = self.set_of_id(id)?;
        self.semop_set(t, &set, ops, timeout)
    }

    /// The same with the set found.
    pub(crate) fn semop_set(&self, t: &Thread, set: &SetRef<'_>, ops: &[SemBuf], timeout: Option<Timespec>) -> Result<(), Errno> {
        if ops.iter().any(|o| o.num as u32 >= set.nsems) {
            return Err(self.beyond(set));
        }
        let alters = ops.iter().any(|o| o.op != 0);
        if !self.permits(set, if alters { 0o222 } else { 0o444 }) {
            return Err(Errno::EACCES);
        }
        let me = self.me(t)?;
        if ops.iter().any(|o| o.flg as i32 & SEM_UNDO != 0) {
            self.ensure_record(t, &me, set)?;
        }
        let me = &me;
        // Who is not the owner, or has come without an id, has not tried this yet.
        if let ([op], Some(cell)) = (ops, set.cell(ops[0].num as u32)) {
            let done = if op.flg as i32 & SEM_UNDO != 0 {
                self.fast_undo(t, cell, IdEntry::new(0, set.at, set.tag), set.index, op.num, op.op)
            } else {
                crate::fast::is_current([cell], set.tag) && crate::fast::plain(cell, set.tag, word::pid_bits(me.pid), op.op as i32)
            };
            if done {
                return Ok(());
            }
        }
        let deadline = timeout
            .map(|d| clock::monotonic_ns().saturating_add((d.sec as u64).saturating_mul(1_000_000_000).saturating_add(d.nsec as u64)));
        // A call that must not wait for units has no time for locks either, beyond the patience that all have.
        let until = if ops.iter().all(|o| o.flg as i32 & IPC_NOWAIT != 0) { 1 } else { deadline.unwrap_or(0) };
        t.until.store(until, Relaxed);
        if ops.len() > 1 {
            if self.fast_few(t, set, ops) {
                return Ok(());
            }
            self.ready_for_several(t, me)?;
        }
        let mut how = How { looked: false, never_sleep: timeout == Some(Timespec { sec: 0, nsec: 0 }) };
        loop {
            self.leave_last_queue(t, me)?;
            t.until.store(until, Relaxed);
            self.enter(t);
            if me.epoch != self.epoch() {
                // A handler forked, and this is the child, which has a place of its own to find.
                self.leave(t);
                return self.semop_set(t, set, ops, timeout);
            }
            let mut wakes = Wakes::new();
            let mut r = Try::NeedsSet;
            if let [op] = *ops {
                r = self.try_cell(t, me, set, op, how, &mut wakes);
            }
            if let Try::NeedsSet = r {
                r = self.try_set(t, me, set, ops, how, &mut wakes);
            }
            wakes.wake();
            self.leave(t);
            match r {
                Try::Ended(r) => return r,
                Try::Sleeps(seq) => return self.sleep(t, me, set, ops, seq, deadline),
                Try::LookAtHolders => {
                    self.bury_all(t, set, ops.iter().map(|o| o.num));
                    how.looked = true;
                }
                Try::NeedsSet => unreachable!("a set section decides"),
            }
        }
    }

    /// The node must be out of its last queue before it is used again. It is, unless its thread left without the queue's lock, which it could
    /// not get ([`Engine::take_out`]).
    fn leave_last_queue(&self, t: &Thread, me: &Me<'_>) -> Result<(), Errno> {
        if me.ctl.linked.load(Relaxed) == Where::Nowhere as u32 {
            return Ok(());
        }
        self.enter(t);
        // In a fork's child, made by a handler, this is the parent's node.
        if me.epoch != self.epoch() {
            self.leave(t);
            return Ok(());
        }
        let left = self.withdraw_node(t, me.slot, me.ctl, me.slot, me.ctl, node::seq(me.ctl.state.load(Relaxed)), Wait::Call);
        self.leave(t);
        left
    }

    /// The page for a call's several operations, should it sleep.
    fn ready_for_several(&self, t: &Thread, me: &Me<'_>) -> Result<(), Errno> {
        if t.ops_ready.load(Relaxed) == 0 {
            let at = self.thread_at(me.slot).ok_or(Errno::EIO)?;
            self.arena.populate(at, PAGE).map_err(|_| Errno::ENOMEM)?;
            t.ops_ready.store(1, Relaxed);
        }
        Ok(())
    }

    /// One operation under the lock of its cell.
    fn try_cell<'e>(&'e self, t: &Thread, me: &Me<'e>, set: &SetRef<'e>, op: SemBuf, how: How, wakes: &mut Wakes<'e>) -> Try {
        let Some(cell) = set.cell(op.num as u32) else {
            return Try::Ended(Err(Errno::EIO));
        };
        me.ctl.begin(Kind::Cell, set, op.num);
        match self.lock_cell(t, me.slot, set, op.num, cell, Wait::Call) {
            Ok(CellLock::Got(_)) => {}
            Ok(CellLock::Complex) => return Try::NeedsSet,
            Ok(CellLock::Removed) => return Try::Ended(Err(self.gone(set))),
            Err(e) => return Try::Ended(Err(e)),
        }
        let r = match self.evaluate(set, me.proc, [op].into_iter()) {
            Verdict::Proceeds => {
                let fin = self.final_of(set, me.proc, me.pid, op);
                self.do_one(me.ctl, set, op.num, fin, me.proc, None, wakes);
                self.scan_cell(me.slot, me.ctl, set, op.num, cell, op.op > 0, wakes);
                Try::Ended(Ok(()))
            }
            _ if !how.looked && cell.holders.load(Relaxed) != 0 => Try::LookAtHolders,
            Verdict::Fails(e) => Try::Ended(Err(e)),
            Verdict::Blocks(_) if how.never_sleep => Try::Ended(Err(Errno::EAGAIN)),
            Verdict::Blocks(i) => Try::Sleeps(self.queue_up(t, me, set, &[op], i, false)),
        };
        self.unlock_cell(set, cell);
        r
    }

    /// Any operations under the set lock and the locks of the cells that they name.
    fn try_set<'e>(&'e self, t: &Thread, me: &Me<'e>, set: &SetRef<'e>, ops: &[SemBuf], how: How, wakes: &mut Wakes<'e>) -> Try {
        let mut sorted = [0u16; MAX_OPM as usize];
        let nums = distinct(ops, &mut sorted);
        me.ctl.begin(Kind::Set, set, 0);
        if let Err(e) = self.lock_set(t, me.slot, set, Wait::Call) {
            return Try::Ended(Err(e));
        }
        let r = match self.lock_cells(t, me.slot, set, nums.iter().copied(), Wait::Call) {
            Err(e) => Try::Ended(Err(e)),
            Ok(()) => match self.evaluate(set, me.proc, ops.iter().copied()) {
                Verdict::Proceeds => {
                    if let [op] = *ops {
                        let fin = self.final_of(set, me.proc, me.pid, op);
                        self.do_one(me.ctl, set, op.num, fin, me.proc, None, wakes);
                    } else {
                        self.do_many(me.slot, me.ctl, set, me.proc, me.pid, ops.iter().copied(), None, wakes);
                    }
                    if ops.iter().any(|o| o.op != 0) {
                        self.scan_set(me.slot, me.ctl, set, ops.iter().map(|o| (o.num, o.op > 0)), wakes);
                    }
                    Try::Ended(Ok(()))
                }
                _ if !how.looked && nums.iter().any(|&n| set.cell(n as u32).is_some_and(|c| c.holders.load(Relaxed) != 0)) => {
                    Try::LookAtHolders
                }
                Verdict::Fails(e) => Try::Ended(Err(e)),
                Verdict::Blocks(_) if how.never_sleep => Try::Ended(Err(Errno::EAGAIN)),
                Verdict::Blocks(i) => Try::Sleeps(self.queue_up(t, me, set, ops, i, true)),
            },
        };
        self.unlock_cells(me.slot, set, nums.iter().copied());
        self.unlock_set(set);
        r
    }

    /// Publishes the caller as a sleeper, in the queue where it belongs. Under the locks of a section of its own: the set's (`whole`) or the
    /// cell's.
    fn queue_up(&self, t: &Thread, me: &Me<'_>, set: &SetRef<'_>, ops: &[SemBuf], blocker: u32, whole: bool) -> u32 {
        let ctl = me.ctl;
        let now = clock::monotonic_ns();
        // NODE-PUBLISH: who reads a field written below and then the state sees that the last sleep has ended.
        fence(Release);
        if ops.len() > 1 {
            let at = self.thread_at(me.slot).unwrap_or(0);
            for (i, op) in ops.iter().enumerate() {
                if let Some(w) = self.arena.at::<manyway_sync::atomic::AtomicU64>(at + i as u64 * 8) {
                    w.store(pack(*op), Relaxed);
                }
            }
            // From here on the set lock owns these cells.
            for op in ops {
                if let Some(cell) = set.cell(op.num as u32)
                    && cell.word.load(Relaxed) & word::COMPLEX == 0
                {
                    self.promote(set, op.num, cell);
                }
            }
        }
        node::write(ctl, node::Call { set: (set.page(), set.tag), op: pack(ops[0]), nops: ops.len() as u32 });
        ctl.blocker.store(blocker, Relaxed);
        ctl.offered.store(0, Relaxed);
        ctl.proc.store(me.proc + 1, Relaxed);
        ctl.pid.store(me.pid, Relaxed);
        let which = self.queue_for(set, me.slot, ctl);
        let ticket = match set.cell(ops[0].num as u32) {
            Some(cell) if which == Where::Zero => self.ticket_after(&[&cell.zero], now),
            Some(cell) if which == Where::Alter => self.ticket_after(&[&cell.alter], now),
            _ => self.ticket_after(&[&set.head.alter, &set.head.consts], now),
        };
        ctl.ticket.store(ticket, Relaxed);
        let met = self.met_damage.load(Relaxed);
        let seq = node::publish(ctl);
        self.link(set, ops[0].num, which, me.slot, ctl);
        if ops.len() > 1 {
            self.count_complex(set, me.slot, ctl, true);
        }
        self.mend_queues(met, me.slot, set, if whole { None } else { Some(ops[0].num) });
        t.sleeping.store(seq + 1, Relaxed);
        seq
    }

    /// A sleeper of a barging namespace that was nudged tries for itself. Its result, or None: it sleeps on.
    pub(crate) fn retry(&self, t: &Thread, me: &Me<'_>, set: &SetRef<'_>, op: SemBuf, seq: u32) {
        let Some(cell) = set.cell(op.num as u32) else { return };
        let mut wakes = Wakes::new();
        self.enter(t);
        if me.epoch != self.epoch() {
            return self.leave(t);
        }
        me.ctl.begin(Kind::Cell, set, op.num);
        match self.lock_cell(t, me.slot, set, op.num, cell, Wait::Brief) {
            Ok(CellLock::Got(_)) => {
                // Its own look about must not take what another one has been nudged for.
                let first = self.first_that_fits(set, op.num, cell) == Some(me.slot);
                if first && node::is_queued(me.ctl, seq) && self.evaluate(set, me.proc, [op].into_iter()) == Verdict::Proceeds {
                    let fin = self.final_of(set, me.proc, me.pid, op);
                    self.do_one(me.ctl, set, op.num, fin, me.proc, Some((me.slot, seq)), &mut wakes);
                }
                // Whoever comes next may fit what is left.
                self.scan_cell(me.slot, me.ctl, set, op.num, cell, true, &mut wakes);
                self.unlock_cell(set, cell);
            }
            // A call of several operations that names the cell has come to sleep meanwhile, and nobody has looked at the set's queue since the
            // unit came. There nobody is nudged: those who can go on are completed, in order of arrival.
            Ok(CellLock::Complex) => {
                me.ctl.begin(Kind::Set, set, 0);
                if self.lock_set(t, me.slot, set, Wait::Brief).is_ok() {
                    if self.lock_cells(t, me.slot, set, [op.num].into_iter(), Wait::Brief).is_ok() {
                        self.scan_set(me.slot, me.ctl, set, [(op.num, true)].into_iter(), &mut wakes);
                    }
                    self.unlock_cells(me.slot, set, [op.num].into_iter());
                    self.unlock_set(set);
                }
            }
            _ => {}
        }
        wakes.wake();
        self.leave(t);
    }

    /// Takes the caller out of the queue it sleeps in, unless it has been completed. Its node's state tells which. When the queue's lock is not
    /// to be had it leaves all the same, and its node stays behind: whoever has the lock next takes it out, or it does so itself before
    /// it sleeps again ([`Engine::leave_last_queue`]).
    pub(crate) fn take_out(&self, t: &Thread, slot: u32, ctl: &ThreadCtl, seq: u32) {
        if !node::is_queued(ctl, seq) {
            return;
        }
        self.enter(t);
        if self.withdraw_node(t, slot, ctl, slot, ctl, seq, Wait::Brief).is_err() {
            node::withdraw(ctl, seq);
        }
        self.leave(t);
    }

    /// Takes the node of slot `of` out, in the name of slot `by` (which is inside a section of its own or about to begin one). Err: the lock was
    /// not had.
    #[expect(clippy::too_many_arguments, reason = "two slots, and how long")]
    pub(crate) fn withdraw_node(
        &self,
        t: &Thread,
        by: u32,
        by_ctl: &ThreadCtl,
        of: u32,
        ctl: &ThreadCtl,
        seq: u32,
        wait: Wait,
    ) -> Result<(), Errno> {
        let left = || {
            node::withdraw(ctl, seq);
            ctl.linked.store(Where::Nowhere as u32, Relaxed);
            Ok(())
        };
        if !node::is_queued(ctl, seq) && ctl.linked.load(Relaxed) == Where::Nowhere as u32 {
            return Ok(());
        }
        let Some(set) = self.set_of_page(ctl.set.load(Relaxed), ctl.set_tag.load(Relaxed)) else { return left() };
        let gone = |e| if e == Errno::EIDRM || e == Errno::EIO { left() } else { Err(e) };
        let num = crate::queue::unpack(ctl.op.load(Relaxed)).num;
        let simple = ctl.nops.load(Relaxed) == 1;
        if simple && let Some(cell) = set.cell(num as u32) {
            by_ctl.begin(Kind::Cell, &set, num);
            match self.lock_cell(t, by, &set, num, cell, wait)? {
                CellLock::Got(_) => {
                    let mut wakes = Wakes::new();
                    self.leave_queue(&set, by, of, ctl, seq, Some(num));
                    self.pass_on(by, by_ctl, &set, num, &mut wakes);
                    self.unlock_cell(&set, cell);
                    wakes.wake();
                    return Ok(());
                }
                CellLock::Removed => return left(),
                CellLock::Complex => {}
            }
        }
        by_ctl.begin(Kind::Set, &set, 0);
        if let Err(e) = self.lock_set(t, by, &set, wait) {
            return gone(e);
        }
        // Between the two looks the cell may have been given back to itself.
        let own = match set.cell(num as u32).filter(|_| simple) {
            Some(c) => self.lock_cell(t, by, &set, num, c, wait),
            None => Ok(CellLock::Complex),
        };
        let mut wakes = Wakes::new();
        let r = own.map(|own| {
            self.leave_queue(&set, by, of, ctl, seq, None);
            self.pass_on(by, by_ctl, &set, num, &mut wakes);
            if matches!(own, CellLock::Got(_)) {
                self.unlock_cells(by, &set, [num].into_iter());
            } else {
                for op in self.node_ops(of, ctl) {
                    self.unlock_cells(by, &set, [op.num].into_iter());
                }
            }
        });
        self.unlock_set(&set);
        wakes.wake();
        r
    }

    /// In a barging namespace only one sleeper is nudged for a unit: when that one leaves instead, the next one is; or completed, where the set lock
    /// owns the cell. Under the lock that owns it.
    fn pass_on<'e>(&'e self, by: u32, by_ctl: &ThreadCtl, set: &SetRef<'e>, num: u16, wakes: &mut Wakes<'e>) {
        if self.arena.fairness() == Fairness::Barging
            && let Some(cell) = set.cell(num as u32)
        {
            if word::is_locked_by(cell.word.load(Relaxed), by) {
                self.scan_cell(by, by_ctl, set, num, cell, true, wakes);
            } else {
                self.scan_set(by, by_ctl, set, [(num, true)].into_iter(), wakes);
            }
        }
    }

    fn leave_queue(&self, set: &SetRef<'_>, by: u32, of: u32, ctl: &ThreadCtl, seq: u32, only: Option<u16>) {
        let met = self.met_damage.load(Relaxed);
        if node::withdraw(ctl, seq)
            && ctl.linked.load(Relaxed) == Where::Zero as u32
            && let Some(cell) = set.cell(crate::queue::unpack(ctl.op.load(Relaxed)).num as u32)
        {
            // A sleeper that is about to wait for the epoch must not: it is out.
            cell.zepoch.fetch_add(1, AcqRel);
        }
        self.unlink(set, of, ctl);
        self.mend_queues(met, by, set, only);
    }
}

/// The semaphores of a call, ascending, each once.
fn distinct<'a>(ops: &[SemBuf], buf: &'a mut [u16; MAX_OPM as usize]) -> &'a [u16] {
    let n = ops.len().min(buf.len());
    for (b, op) in buf.iter_mut().zip(ops) {
        *b = op.num;
    }
    buf[..n].sort_unstable();
    let mut kept = 0;
    for i in 0..n {
        if i == 0 || buf[i] != buf[kept - 1] {
            buf[kept] = buf[i];
            kept += 1;
        }
    }
    &buf[..kept]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_sorts_and_drops_repeats() {
        let ops = [3u16, 1, 3, 0, 1].map(|num| SemBuf { num, op: 1, flg: 0 });
        assert_eq!(distinct(&ops, &mut [0; MAX_OPM as usize]), [0, 1, 3]);
        assert_eq!(distinct(&[], &mut [0; MAX_OPM as usize]), [0u16; 0]);
    }
}
