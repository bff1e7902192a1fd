//! Sleeping in semop: park, wait, and look about at each timeout.

use manyway_shm::Fairness;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU32, Ordering::*, compiler_fence, spin_hint};
use manyway_sync::{Errno, clock, futex, sys};

use crate::abi::SemBuf;
use crate::attach::{Me, Thread};
use crate::edges;
use crate::engine::{Damage, Engine};
use crate::journal::Kind;
use crate::lock::{CellLock, Wait};
use crate::node::{self, State};
use crate::queue::{Where, unpack};
use crate::set::SetRef;
use crate::step::Journal;
use crate::wake::Wakes;
use crate::word;

/// A sleeper looks about so often when nobody watches for deaths, …
const TICK_NS: u64 = 50_000_000;
/// … and so often when a watcher does: then it is only a backstop.
const WATCHED_TICK_NS: u64 = 1_000_000_000;
/// How often a sleeper of a barging namespace that finds a unit and does not get it looks again before it sleeps.
const LOOKS: u32 = 64;

/// How often a sleeper looks whether it is served already, before it sleeps: for about as long as falling asleep and being woken take.
const WATCHES: u32 = if cfg!(shuttle) { 2 } else { 400 };
/// A thread's first sleeps go by without; whoever sleeps so rarely gains nothing.
const FIRST_WATCH: u32 = if cfg!(shuttle) { 0 } else { 16 };
/// Each time that it was in vain twice as many sleeps go by without, up to so many: then a watch costs each of them next to nothing.
const MOST_UNWATCHED: u32 = if cfg!(shuttle) { 2 } else { 1024 };

/// True when a taker that has parked would fit the value as it is now. BARGE-NUDGE.
fn fits(set: &SetRef<'_>, op: SemBuf) -> bool {
    op.op < 0 && set.cell(op.num as u32).is_some_and(|cell| edges::fits(cell, op.op))
}

/// The same in passing, for one who has not parked and will look again.
fn may_fit(set: &SetRef<'_>, op: SemBuf) -> bool {
    op.op < 0 && set.cell(op.num as u32).is_some_and(|cell| word::value(cell.word.load(Relaxed)) + op.op as i32 >= 0)
}

impl Thread {
    /// True when it is worth a try to watch for the end of a sleep.
    pub(crate) fn may_watch(&self) -> bool {
        let after = self.watch_after.load(Relaxed);
        self.unwatched.load(Relaxed) >= if after == 0 { FIRST_WATCH } else { after - 1 }
    }
}

impl Engine {
    /// Sleeps until completed, `deadline` (CLOCK_MONOTONIC ns), or a signal.
    pub(crate) fn sleep(
        &self,
        t: &Thread,
        me: &Me<'_>,
        set: &SetRef<'_>,
        ops: &[SemBuf],
        seq: u32,
        deadline: Option<u64>,
    ) -> Result<(), Errno> {
        let ctl = me.ctl;
        let epoch = me.epoch;
        let zero = match (ctl.linked.load(Relaxed) == Where::Zero as u32, set.cell(ops[0].num as u32)) {
            (true, Some(cell)) => Some(&cell.zepoch),
            _ => None,
        };
        let barging = self.arena.fairness() == Fairness::Barging && ops.len() == 1;
        let mut looks = 0;
        // A zero serves all, a unit the first in line.
        if t.may_watch() && (zero.is_some() || ctl.prev.load(Relaxed) == 0) {
            self.watch(t, set, ops, ctl, seq, barging);
        } else {
            t.unwatched.store(t.unwatched.load(Relaxed).saturating_add(1), Relaxed);
        }
        loop {
            if let Some(r) = self.ended(t, ctl, seq, epoch) {
                return r;
            }
            let Some((futex_word, expected)) = node::ready_to_wait(ctl, seq, zero) else { continue };
            // Who releases nudges those who have parked; what came before that must be seen here. (Bounded: what fits the value may still
            // be impossible.)
            if barging && looks < LOOKS && fits(set, ops[0]) {
                looks += 1;
                self.retry(t, me, set, ops[0], seq);
                continue;
            }
            looks = 0;
            let tick = if self.arena.header().watcher.load(Relaxed) != 0 { WATCHED_TICK_NS } else { TICK_NS };
            let left = deadline.map_or(u64::MAX, |d| d.saturating_sub(clock::monotonic_ns()));
            let waited = if left == 0 { Err(Errno::ETIMEDOUT) } else { self.wait_unless_ended(t, futex_word, expected, left.min(tick)) };
            if let Some(r) = self.ended(t, ctl, seq, epoch) {
                return r;
            }
            match waited {
                Err(Errno::EINTR) => {
                    self.take_out(t, me.slot, ctl, seq);
                    return self.result_of(t, ctl, Errno::EINTR);
                }
                Err(Errno::ETIMEDOUT) => {
                    if deadline.is_some_and(|d| clock::monotonic_ns() >= d) {
                        self.take_out(t, me.slot, ctl, seq);
                        return self.result_of(t, ctl, Errno::EAGAIN);
                    }
                    self.look_about(t, set, ops);
                    self.look_for_self(t, me, set, ops, seq);
                    if barging {
                        self.retry(t, me, set, ops[0], seq);
                    }
                }
                _ => {
                    if barging && node::is_queued(ctl, seq) {
                        self.retry(t, me, set, ops[0], seq);
                    }
                }
            }
        }
    }

    /// Looks for a moment whether the sleep ends by itself, before the thread sleeps. It does where the one who ends it runs on another CPU at this
    /// moment: then neither has a system call to make. On the same CPU it would only keep that one from running; so a thread goes by what came of it
    /// the last time. (Where the peer runs now cannot be asked for; where it ran last would be a word more for each grant to write.)
    fn watch(&self, t: &Thread, set: &SetRef<'_>, ops: &[SemBuf], ctl: &ThreadCtl, seq: u32, barging: bool) {
        t.unwatched.store(0, Relaxed);
        for _ in 0..WATCHES {
            // Ended, or by a handler, or there is something to try for.
            if !node::is_queued(ctl, seq) || t.sleeping.load(Relaxed) == 0 || (barging && may_fit(set, ops[0])) {
                t.watch_after.store(1, Relaxed);
                return;
            }
            spin_hint();
        }
        let after = t.watch_after.load(Relaxed).max(1);
        t.watch_after.store((2 * after).min(MOST_UNWATCHED), Relaxed);
    }

    /// Waits, unless a handler has taken the thread out of its sleep.
    fn wait_unless_ended(&self, t: &Thread, word: &AtomicU32, expected: u32, ns: u64) -> Result<(), Errno> {
        // A handler that runs between this look and the wait changes the word that is waited for: the node's state, or the epoch.
        if t.sleeping.load(Relaxed) == 0 {
            return Ok(());
        }
        futex::wait(word, expected, ns)
    }

    /// The call's result if its sleep has ended.
    fn ended(&self, t: &Thread, ctl: &ThreadCtl, seq: u32, epoch: u64) -> Option<Result<(), Errno>> {
        // The state first: of what a handler did between the two looks the second one tells.
        let state = node::ended(ctl, seq); // NODE-DONE
        compiler_fence(SeqCst);
        // A handler took the thread out (and may have slept itself, in this node; or have forked: then this is the child, and the node is the
        // parent's).
        if t.sleeping.load(Relaxed) == 0 || self.epoch() != epoch {
            return Some(Self::noted(t));
        }
        let state = state?;
        t.sleeping.store(0, Relaxed);
        Some(match state {
            State::Finished(o) => o.result(),
            // Nobody but its thread takes a living one out without a result, and that one knows: a hostile or broken writer.
            _ => Err(Errno::EIO),
        })
    }

    /// How a sleep ended that a handler has ended.
    fn noted(t: &Thread) -> Result<(), Errno> {
        match t.outcome.load(Relaxed) {
            0 => Ok(()),
            e => Err(Errno(e as i32)),
        }
    }

    /// The result after the thread was taken out, or not: a result that was there already wins.
    fn result_of(&self, t: &Thread, ctl: &ThreadCtl, otherwise: Errno) -> Result<(), Errno> {
        // In this order: a handler before the second look has noted the result, and may have slept in this node itself.
        let state = node::state(ctl.state.load(Acquire));
        compiler_fence(SeqCst);
        if t.sleeping.load(Relaxed) == 0 {
            return Self::noted(t);
        }
        t.sleeping.store(0, Relaxed);
        match state {
            State::Finished(o) => o.result(),
            _ => Err(otherwise),
        }
    }

    /// Has the owner of a lock, or a holder, gone?
    fn look_about(&self, t: &Thread, set: &SetRef<'_>, ops: &[SemBuf]) {
        self.enter(t);
        if t.epoch.load(Relaxed) != self.epoch() {
            // A handler forked, and this is the child: it sleeps no more.
            return self.leave(t);
        }
        let me = t.slot.load(Relaxed);
        let cells = ops.iter().filter_map(|op| set.cell(op.num as u32)).map(|c| c.word.load(Relaxed));
        for w in core::iter::once(set.head.lock.load(Relaxed)).chain(cells) {
            if w & word::LOCKED != 0 && self.context_gone_for_certain(word::owner(w)) {
                self.release_locks(word::owner(w), me);
            }
        }
        self.leave(t);
        let watcher = &self.arena.header().watcher;
        let pid = watcher.load(Relaxed);
        if pid != 0 && !sys::thread_exists(pid, pid) {
            let _ = watcher.compare_exchange(pid, 0, AcqRel, Relaxed);
        }
        self.reap_processes(t, None, false);
        self.bury_all(t, set, ops.iter().map(|op| op.num));
    }

    /// Is the caller still in the queue? A hostile or broken writer may have taken it out, and then nobody would ever complete it.
    fn look_for_self(&self, t: &Thread, me: &Me<'_>, set: &SetRef<'_>, ops: &[SemBuf], seq: u32) {
        let lost = || node::is_queued(me.ctl, seq) && !self.is_linked(set, me.slot, me.ctl);
        if !lost() {
            return;
        }
        let mut wakes = Wakes::new();
        self.enter(t);
        if me.epoch != self.epoch() {
            return self.leave(t);
        }
        let cell = match *ops {
            [op] => set.cell(op.num as u32).map(|c| (op.num, c)),
            _ => None,
        };
        let simple = cell.and_then(|(num, cell)| {
            me.ctl.begin(Kind::Cell, set, num);
            let got = self.lock_cell(t, me.slot, set, num, cell, Wait::Brief);
            matches!(got, Ok(CellLock::Got(_))).then_some((num, cell))
        });
        if let Some((num, cell)) = simple {
            if lost() {
                self.damaged(Damage::Queue, set.index);
                self.rebuild(me.slot, set, Some(num));
                self.scan_cell(me.slot, me.ctl, set, num, cell, true, &mut wakes);
            }
            self.unlock_cell(set, cell);
        } else {
            me.ctl.begin(Kind::Set, set, 0);
            if self.lock_set(t, me.slot, set, Wait::Brief).is_ok() {
                if lost() {
                    self.damaged(Damage::Queue, set.index);
                    self.rebuild(me.slot, set, None);
                    self.scan_all(me.slot, me.ctl, set, &mut wakes);
                }
                self.unlock_cells(me.slot, set, set.cells().map(|(n, _)| n));
                self.unlock_set(set);
            }
        }
        wakes.wake();
        self.leave(t);
    }

    /// For the signal trampoline: see [`Engine::before_handler`].
    pub(crate) fn interrupt(&self, t: &Thread) -> u64 {
        let sleeping = t.sleeping.load(Relaxed);
        if sleeping == 0 || t.epoch.load(Relaxed) != self.epoch() {
            return 0;
        }
        let slot = t.slot.load(Relaxed);
        let Some(ctl) = self.ctl(slot) else { return 0 };
        self.take_out(t, slot, ctl, sleeping - 1);
        let r = self.result_of(t, ctl, Errno::EINTR);
        let errno = r.map_or_else(|e| e.0 as u32, |()| 0);
        t.outcome.store(errno, Relaxed);
        1 << 32 | errno as u64
    }

    /// For the signal trampoline: see [`Engine::after_handler`].
    pub(crate) fn resume(&self, t: &Thread, token: u64) {
        if token != 0 {
            t.sleeping.store(0, Relaxed);
            t.outcome.store(token as u32, Relaxed);
        }
    }

    /// What blocks a sleeper.
    pub(crate) fn blocker(&self, slot: u32, ctl: &ThreadCtl) -> SemBuf {
        self.node_op(slot, ctl, ctl.blocker.load(Relaxed)).unwrap_or(unpack(ctl.op.load(Relaxed)))
    }
}
