//! The locked paths of semop: all or nothing, then the scan of sleepers, or to sleep.

use manyway_shm::layout::*;
use manyway_sync::atomic::{Ordering::*, fence};
use manyway_sync::{Errno, clock};

use crate::abi::{SEM_UNDO, SemBuf, Timespec};
use crate::attach::{Me, Thread};
use crate::engine::Engine;
use crate::eval::Verdict;
use crate::id::IdEntry;
use crate::journal::Kind;
use crate::lock::CellLock;
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
            return Err(Errno::EFBIG);
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
        if ops.len() > 1 {
            if self.fast_few(t, set, ops) {
                return Ok(());
            }
            self.ready_for_several(t, me)?;
        }
        let deadline = timeout
            .map(|d| clock::monotonic_ns().saturating_add((d.sec as u64).saturating_mul(1_000_000_000).saturating_add(d.nsec as u64)));
        let mut how = How { looked: false, never_sleep: timeout == Some(Timespec { sec: 0, nsec: 0 }) };
        loop {
            self.enter(t);
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
        match self.lock_cell(me.slot, me.slot, set.tag, cell) {
            CellLock::Complex => return Try::NeedsSet,
            CellLock::Removed => return Try::Ended(Err(Errno::EIDRM)),
            CellLock::Got(_) => {}
        }
        let r = match self.evaluate(set, me.proc, [op].into_iter()) {
            Verdict::Proceeds => {
                let fin = self.final_of(set, me.proc, me.pid, op);
                self.do_one(me.ctl, set, op.num, fin, me.proc, None, wakes);
                self.scan_cell(me.ctl, set, cell, op.op > 0, wakes);
                Try::Ended(Ok(()))
            }
            _ if !how.looked && cell.holders.load(Relaxed) != 0 => Try::LookAtHolders,
            Verdict::Fails(e) => Try::Ended(Err(e)),
            Verdict::Blocks(_) if how.never_sleep => Try::Ended(Err(Errno::EAGAIN)),
            Verdict::Blocks(i) => Try::Sleeps(self.queue_up(t, me, set, &[op], i)),
        };
        self.unlock_cell(set, cell);
        r
    }

    /// Any operations under the set lock and the locks of the cells that they name.
    fn try_set<'e>(&'e self, t: &Thread, me: &Me<'e>, set: &SetRef<'e>, ops: &[SemBuf], how: How, wakes: &mut Wakes<'e>) -> Try {
        let mut sorted = [0u16; MAX_OPM as usize];
        let nums = distinct(ops, &mut sorted);
        me.ctl.begin(Kind::Set, set, 0);
        if !self.lock_set(me.slot, me.slot, set) {
            return Try::Ended(Err(Errno::EIDRM));
        }
        let r = match self.lock_cells(me.slot, me.slot, set, nums.iter().copied()) {
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
                Verdict::Blocks(i) => Try::Sleeps(self.queue_up(t, me, set, ops, i)),
            },
        };
        self.unlock_cells(me.slot, set, nums.iter().copied());
        self.unlock_set(set);
        r
    }

    /// Publishes the caller as a sleeper, in the queue where it belongs. Under the locks of a section of its own.
    fn queue_up(&self, t: &Thread, me: &Me<'_>, set: &SetRef<'_>, ops: &[SemBuf], blocker: u32) -> u32 {
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
        ctl.proc.store(me.proc + 1, Relaxed);
        ctl.pid.store(me.pid, Relaxed);
        let which = self.queue_for(set, me.slot, ctl);
        let ticket = match set.cell(ops[0].num as u32) {
            Some(cell) if which == Where::Zero => self.ticket_after(&[&cell.zero], now),
            Some(cell) if which == Where::Alter => self.ticket_after(&[&cell.alter], now),
            _ => self.ticket_after(&[&set.head.alter, &set.head.consts], now),
        };
        ctl.ticket.store(ticket, Relaxed);
        let seq = node::publish(ctl);
        self.link(set, ops[0].num, which, me.slot, ctl);
        if ops.len() > 1 {
            self.count_complex(set, me.slot, ctl, true);
        }
        t.sleeping.store(seq + 1, Relaxed);
        seq
    }

    /// A sleeper of a barging namespace that was nudged tries for itself. Its result, or None: it sleeps on.
    pub(crate) fn retry(&self, t: &Thread, me: &Me<'_>, set: &SetRef<'_>, op: SemBuf, seq: u32) {
        let Some(cell) = set.cell(op.num as u32) else { return };
        let mut wakes = Wakes::new();
        self.enter(t);
        me.ctl.begin(Kind::Cell, set, op.num);
        if let CellLock::Got(_) = self.lock_cell(me.slot, me.slot, set.tag, cell) {
            if node::is_queued(me.ctl, seq) && self.evaluate(set, me.proc, [op].into_iter()) == Verdict::Proceeds {
                let fin = self.final_of(set, me.proc, me.pid, op);
                self.do_one(me.ctl, set, op.num, fin, me.proc, Some((me.slot, seq)), &mut wakes);
            }
            // Whoever comes next may fit what is left.
            self.scan_cell(me.ctl, set, cell, true, &mut wakes);
            self.unlock_cell(set, cell);
        }
        wakes.wake();
        self.leave(t);
    }

    /// Takes the caller out of the queue it sleeps in, unless it has been completed. Its node's state tells which.
    pub(crate) fn take_out(&self, t: &Thread, slot: u32, ctl: &ThreadCtl, seq: u32) {
        self.enter(t);
        self.withdraw_node(slot, ctl, slot, ctl, seq);
        self.leave(t);
    }

    /// Takes the node of slot `of` out, in the name of slot `by` (which is inside a section of its own or about to begin one).
    pub(crate) fn withdraw_node(&self, by: u32, by_ctl: &ThreadCtl, of: u32, ctl: &ThreadCtl, seq: u32) {
        if !node::is_queued(ctl, seq) {
            return;
        }
        let Some(set) = self.set_of_page(ctl.set.load(Relaxed), ctl.set_tag.load(Relaxed)) else {
            node::withdraw(ctl, seq);
            return;
        };
        let num = crate::queue::unpack(ctl.op.load(Relaxed)).num;
        let simple = ctl.nops.load(Relaxed) == 1;
        if simple && let Some(cell) = set.cell(num as u32) {
            by_ctl.begin(Kind::Cell, &set, num);
            match self.lock_cell(by, by, set.tag, cell) {
                CellLock::Got(_) => {
                    self.leave_queue(&set, of, ctl, seq);
                    self.unlock_cell(&set, cell);
                    return;
                }
                CellLock::Removed => {
                    node::withdraw(ctl, seq);
                    return;
                }
                CellLock::Complex => {}
            }
        }
        by_ctl.begin(Kind::Set, &set, 0);
        if !self.lock_set(by, by, &set) {
            node::withdraw(ctl, seq);
            return;
        }
        // Between the two looks the cell may have been given back to itself.
        let own = simple && set.cell(num as u32).is_some_and(|c| matches!(self.lock_cell(by, by, set.tag, c), CellLock::Got(_)));
        self.leave_queue(&set, of, ctl, seq);
        if own {
            self.unlock_cells(by, &set, [num].into_iter());
        } else {
            for op in self.node_ops(of, ctl) {
                self.unlock_cells(by, &set, [op.num].into_iter());
            }
        }
        self.unlock_set(&set);
    }

    fn leave_queue(&self, set: &SetRef<'_>, of: u32, ctl: &ThreadCtl, seq: u32) {
        if node::withdraw(ctl, seq) {
            if ctl.linked.load(Relaxed) == Where::Zero as u32
                && let Some(cell) = set.cell(crate::queue::unpack(ctl.op.load(Relaxed)).num as u32)
            {
                // A sleeper that is about to wait for the epoch must not: it is out.
                cell.zepoch.fetch_add(1, AcqRel);
            }
            self.unlink(set, of, ctl);
        }
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
