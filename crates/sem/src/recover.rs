//! Recovery of slots whose context or process is gone. docs/crash-model.md enumerates the states; each function here may itself die
//! anywhere and be begun again by the next one.

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, AtomicU64, Ordering::*};

use crate::attach::{Me, Thread};
use crate::edges;
use crate::engine::Engine;
use crate::journal::{Fin, Kind, Step, is_committed, parse_head, parse_pair};
use crate::lock::Wait;
use crate::node;
use crate::set::SetRef;
use crate::slots::*;
use crate::wake::Wakes;
use crate::word;

impl Engine {
    /// Makes slot `by` the recoverer of a thread slot that is gone. None: somebody who lives is on it, or it is not (or no longer) gone.
    fn claim_thread_recovery(&self, slot: u32, by: u32) -> Option<(&AtomicU64, ThreadWord)> {
        let word = self.thread_word(slot)?;
        let w = live(word)?;
        if !self.context_gone(slot) {
            return None;
        }
        w.recover(word, by, self.ctl(by)?, |r| self.context_gone_for_certain(r)).map(|mine| (word, mine))
    }

    /// Lets go of the locks that a dead slot holds, in its name, and gives the claim back. Waits for nobody. False: somebody else is on it.
    pub(crate) fn release_locks(&self, slot: u32, by: u32) -> bool {
        let Some((word, mine)) = self.claim_thread_recovery(slot, by) else {
            return false;
        };
        self.release_locks_of(slot);
        mine.give_back(word);
        true
    }

    /// What a slot's journal says it holds, finished or dropped, and unlocked. For a slot that the caller recovers, or its own after a
    /// section was abandoned.
    pub(crate) fn release_locks_of(&self, slot: u32) {
        let Some(ctl) = self.ctl(slot) else { return };
        let head = ctl.head.load(Acquire);
        let (kind, page, num) = parse_head(head);
        let committed = is_committed(head, ctl.fin.load(Acquire));
        let mut wakes = Wakes::new();
        let set = self.set_on_page(page);
        match (kind, &set) {
            (Kind::Idle, _) => {}
            (Kind::Undo, Some(set)) => self.release_undo(slot, ctl, set, num, committed),
            (Kind::Pair, Some(set)) => self.release_pair(slot, ctl, set, committed),
            (Kind::MultiIntent | Kind::MultiCommit, Some(set)) => self.release_multi(slot, ctl, set, kind == Kind::MultiCommit),
            (Kind::Cell, Some(set)) => self.release_cell(slot, ctl, set, num, &mut wakes),
            (Kind::Set | Kind::SetAllCommit | Kind::Access, Some(set)) => self.release_set(slot, ctl, set, kind, &mut wakes),
            (Kind::Registry, set) => self.release_registry(slot, set.as_ref()),
            (Kind::Remove, set) => self.release_remove(slot, set.as_ref(), &mut wakes),
            // The set's page is no set: nothing of it can be locked by this slot.
            (_, None) => {}
        }
        ctl.step.store(0, Relaxed);
        ctl.head.store(0, Release);
        wakes.wake();
    }

    fn release_undo(&self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'_>, num: u16, commit: bool) {
        let Some(cell) = set.cell(num as u32) else { return };
        self.settle(slot, set, num, cell, commit.then(|| Fin::parse(ctl.fin.load(Relaxed))));
    }

    fn release_pair(&self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'_>, commit: bool) {
        let pid = Fin::parse(ctl.fin.load(Relaxed)).pid;
        if commit {
            for (num, value) in parse_pair(ctl.pair.load(Relaxed)) {
                if let Some(cell) = set.cell(num as u32) {
                    self.settle(slot, set, num, cell, Some(Fin { value, adj: None, pid }));
                }
            }
        } else {
            for (num, cell) in set.cells() {
                self.settle(slot, set, num, cell, None);
            }
        }
    }

    /// Lets go of a cell that is LOCKED by a dead slot, with what it had committed for it.
    fn settle(&self, slot: u32, set: &SetRef<'_>, num: u16, cell: &Cell, committed: Option<Fin>) {
        let adj = self.own_adjustment_of(slot, set, num);
        edges::settle(cell, set.tag, slot, committed, adj, || self.recount_holders(set, num, cell));
    }

    /// The adjustment of a slot's process.
    fn own_adjustment_of(&self, slot: u32, set: &SetRef<'_>, num: u16) -> Option<&AtomicI16> {
        let proc = self.thread_word(slot).map(|w| ThreadWord(w.load(Acquire)).by())?;
        self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, num))
    }

    fn release_multi(&self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'_>, commit: bool) {
        let pid = Fin::parse(ctl.fin.load(Relaxed)).pid;
        for (num, cell) in set.cells() {
            if word::is_locked_by(cell.word.load(Acquire), slot) {
                let adj = self.own_adjustment_of(slot, set, num);
                edges::settle_few(cell, set.tag, slot, commit.then_some(pid), adj, || self.recount_holders(set, num, cell));
            }
        }
    }

    fn release_cell<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, num: u16, wakes: &mut Wakes<'e>) {
        let Some(cell) = set.cell(num as u32) else { return };
        if !word::is_locked_by(cell.word.load(Acquire), slot) {
            return;
        }
        // The queues first: the step takes its sleeper out of one.
        self.rebuild(slot, set, Some(num));
        self.apply_step(ctl, set, wakes);
        self.recount_holders(set, num, cell);
        self.scan_cell(slot, ctl, set, num, cell, true, wakes);
        self.wake_finished(set, wakes);
        self.unlock_cell(set, cell);
    }

    fn release_set<'e>(&'e self, slot: u32, ctl: &ThreadCtl, set: &SetRef<'e>, kind: Kind, wakes: &mut Wakes<'e>) {
        if !word::is_locked_by(set.head.lock.load(Acquire), slot) {
            return;
        }
        match kind {
            Kind::SetAllCommit => self.apply_setall(slot, ctl, set),
            Kind::Access => self.apply_access(ctl, set),
            _ => {}
        }
        self.rebuild(slot, set, None);
        match Step::parse(ctl.step.load(Acquire)) {
            Step::Many { .. } => self.apply_many(slot, ctl, set, wakes),
            _ => self.apply_step(ctl, set, wakes),
        }
        for (num, cell) in set.cells() {
            let w = cell.word.load(Relaxed);
            if w & word::COMPLEX != 0 || word::is_locked_by(w, slot) {
                self.recount_holders(set, num, cell);
            }
        }
        self.scan_all(slot, ctl, set, wakes);
        self.wake_finished(set, wakes);
        self.unlock_cells(slot, set, set.cells().map(|(n, _)| n));
        self.unlock_set(set);
    }

    fn release_registry(&self, slot: u32, set: Option<&SetRef<'_>>) {
        if let Some(set) = set {
            self.unlock_cells(slot, set, set.cells().map(|(n, _)| n));
            if word::is_locked_by(set.head.lock.load(Acquire), slot) {
                self.unlock_set(set);
            }
        }
        if word::is_locked_by(self.arena.header().registry.load(Acquire), slot) {
            self.rebuild_registry();
            self.unlock_registry();
        }
    }

    fn release_remove<'e>(&'e self, slot: u32, set: Option<&SetRef<'e>>, wakes: &mut Wakes<'e>) {
        if !word::is_locked_by(self.arena.header().registry.load(Acquire), slot) {
            return;
        }
        if let Some(set) = set {
            self.carry_removal(set, true, wakes);
            self.wake_finished(set, wakes);
        }
        self.rebuild_registry();
        self.unlock_registry();
    }

    /// A dead owner may have marked sleepers and not woken them: wakes all that are marked and sleep on this set.
    fn wake_finished<'e>(&'e self, set: &SetRef<'e>, wakes: &mut Wakes<'e>) {
        wakes.wake();
        for slot in 0..self.threads_high() {
            if let Some(ctl) = self.ctl(slot)
                && ctl.set.load(Relaxed) == set.page()
                && matches!(node::state(ctl.state.load(Acquire)), node::State::Finished(_))
            {
                manyway_sync::futex::wake(&ctl.state, 1);
            }
        }
        for (_, cell) in set.cells() {
            if cell.zepoch.load(Relaxed) != 0 {
                cell.zepoch.fetch_add(1, AcqRel);
                manyway_sync::futex::wake(&cell.zepoch, u32::MAX);
            }
        }
    }

    /// Recovers a thread slot whole: locks, node, name as a recoverer; then recycles it. In the name of `me`, who holds nothing.
    fn recover_thread(&self, t: &Thread, me: &Me<'_>, slot: u32) -> bool {
        let Some((word, mine)) = self.claim_thread_recovery(slot, me.slot) else {
            return false;
        };
        let Some(ctl) = self.ctl(slot) else { return false };
        self.enter(t);
        self.release_locks_of(slot);
        let state = ctl.state.load(Acquire);
        let done = self.withdraw_node(t, me.slot, me.ctl, slot, ctl, node::seq(state), Wait::Brief).is_ok();
        if done {
            self.forget_recoverer(slot, ctl);
        } else {
            // The queue's lock was not to be had: some other time.
            mine.give_back(word);
        }
        let done = done && mine.recycle(word);
        self.leave(t);
        done
    }

    /// Takes a slot's name off the slots it was recovering, before it is recycled: a later user of it is somebody else.
    pub(crate) fn forget_recoverer(&self, slot: u32, ctl: &ThreadCtl) {
        if ctl.recovered.load(Acquire) == 0 {
            return;
        }
        for i in 0..self.threads_high() {
            if let Some(word) = self.thread_word(i) {
                ThreadWord::forget(word, slot);
            }
        }
        for i in 0..self.procs_high() {
            if let Some(p) = self.proc_slot(i) {
                ProcWord::forget(&p.word, slot);
            }
        }
        ctl.recovered.store(0, Release);
    }

    /// Recovers a process that is gone: its threads, then its adjustments, then its slot. Called without any lock. False: somebody else is
    /// on it.
    pub(crate) fn recover_process(&self, t: &Thread, proc: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        // One section over all of it: a handler in the middle could find this very process and finish it under our hands.
        let Ok(me) = self.enter_as_me(t) else { return false };
        let done = self.recover_process_as(t, &me, p, proc);
        self.leave(t);
        done
    }

    fn recover_process_as(&self, t: &Thread, me: &Me<'_>, p: &ProcSlot, proc: u32) -> bool {
        let w = ProcWord(p.word.load(Acquire));
        // Judged between the load and the claim: whoever asked before may have judged another process.
        if w.state() == SlotState::Free || proc == me.proc || !self.process_gone(proc) {
            return false;
        }
        let Some(mine) = w.recover(&p.word, me.slot, me.ctl, |r| self.context_gone_for_certain(r)) else { return false };
        for slot in 0..self.threads_high() {
            let (Some(word), Some(ctl)) = (self.thread_word(slot), self.ctl(slot)) else {
                continue;
            };
            let tw = ThreadWord(word.load(Acquire));
            if tw.state() == SlotState::Free || tw.by() != proc {
                continue;
            }
            if tw.state() == SlotState::Claimed {
                tw.recycle(word);
                continue;
            }
            // The process is gone, so is the thread, marked or not.
            mark_gone(word, tw, ctl);
            // Somebody else is on it, who may still finish a step of it: its adjustment must find the process's record, and this slot must
            // not be taken for one of the next process here. So the process stays until its last thread is done with.
            if !self.recover_thread(t, me, slot) && ThreadWord::read(word).with_recoverer(None) == tw.with_recoverer(None) {
                mine.give_back(&p.word);
                return false;
            }
        }
        if !self.apply_process(t, me, proc, w.by()) || !self.free_process(t, me, p, proc) {
            // A lock was not to be had: some other time.
            mine.give_back(&p.word);
            return false;
        }
        mine.recycle(&p.word)
    }

    /// Applies all adjustments of a process. False: not all of them, since a lock was not to be had.
    pub(crate) fn apply_process(&self, t: &Thread, me: &Me<'_>, proc: u32, pid: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        for (d, dir) in p.dirs.iter().enumerate() {
            let page = dir.load(Acquire);
            if page == 0 {
                continue;
            }
            let Some(words) = self.arena.at::<Directory>(page as u64 * PAGE) else {
                continue;
            };
            for (i, w) in words.0.iter().enumerate() {
                if w.load(Acquire) != 0
                    && let Some((_, set)) = self.set_of_index((d * 1024 + i) as u32)
                    && !self.apply_record(t, me, proc, pid, &set)
                {
                    return false;
                }
            }
        }
        true
    }

    fn free_process(&self, t: &Thread, me: &Me<'_>, p: &ProcSlot, proc: u32) -> bool {
        if p.dirs.iter().all(|d| d.load(Relaxed) == 0) {
            return true;
        }
        self.enter(t);
        me.ctl.step.store(0, Relaxed);
        crate::edges::commit(&me.ctl.head, crate::journal::head(Kind::Registry, 0, 0));
        if self.lock_registry(t, me.slot, Wait::Brief).is_err() {
            self.leave(t);
            return false;
        }
        for (d, dir) in p.dirs.iter().enumerate() {
            let page = dir.load(Relaxed);
            if page == 0 {
                continue;
            }
            let Some(words) = self.arena.at::<Directory>(page as u64 * PAGE) else { continue };
            for (i, w) in words.0.iter().enumerate() {
                if w.load(Relaxed) != 0 {
                    self.free_record(proc, (d * 1024 + i) as u32);
                }
            }
            dir.store(0, Release);
            self.arena.free(page as u64 * PAGE);
        }
        self.unlock_registry();
        self.leave(t);
        true
    }

    /// Recovers a process that is gone, or waits until somebody else has; not longer than about a second, should that one be stopped. True:
    /// it is done.
    pub(crate) fn see_recovered(&self, t: &Thread, proc: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        let generation = ProcWord(p.word.load(Acquire)).with_recoverer(None);
        let began = manyway_sync::clock::monotonic_ns();
        for round in 0..1000u64 {
            if manyway_sync::clock::monotonic_ns().saturating_sub(began) > 1_000_000_000 {
                break;
            }
            if self.recover_process(t, proc) || ProcWord(p.word.load(Acquire)).with_recoverer(None) != generation {
                return true;
            }
            manyway_sync::sys::nap((round * 20_000).clamp(20_000, 1_000_000));
        }
        false
    }

    /// Recovers every process that is gone, or the one with this pid. Returns how many. Without `ask` only those are found whose thread was
    /// marked: two loads tell of the others that they live, unless the mark is missing (the out-of-memory reaper may take the list away).
    pub(crate) fn reap_processes(&self, t: &Thread, pid: Option<u32>, ask: bool) -> usize {
        let mut n = 0;
        for proc in 0..self.procs_high() {
            let Some(p) = self.proc_slot(proc) else { continue };
            let w = ProcWord(p.word.load(Acquire));
            if w.state() == SlotState::Free || pid.is_some_and(|want| want != w.by()) {
                continue;
            }
            if (ask || self.process_suspect(proc)) && self.process_gone(proc) {
                // Of one that was reported dead the undo is to be seen by the next call: wait for who is on it.
                n += if pid.is_some() { self.see_recovered(t, proc) } else { self.recover_process(t, proc) } as usize;
            }
        }
        n
    }

    /// Recovers threads that are gone of processes that live.
    pub(crate) fn reap_threads(&self, t: &Thread) {
        let Ok(me) = self.me(t) else { return };
        for slot in 0..self.threads_high() {
            if slot != me.slot && self.context_gone(slot) {
                self.recover_thread(t, &me, slot);
            }
        }
    }
}
