//! SEM_UNDO: where adjustments (semadj) are, and who holds.
//!
//! A process has one undo record per set, found in two loads: process slot → directory → record. An adjustment is read and written only
//! under the lock that owns its cell. Records come and go under the registry lock.

use manyway_shm::View;
use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicI16, AtomicU32, Ordering::*};
use manyway_sync::{Errno, clock};

use crate::attach::Me;
use crate::edges;
use crate::engine::Engine;
use crate::journal::{self, head};
use crate::lock::Wait;
use crate::set::SetRef;
use crate::slots::{ProcWord, SlotState};
use crate::step::Journal;
use crate::word::{self, holders};

/// An undo record: byte offset of its head.
#[derive(Clone, Copy)]
pub(crate) struct Record<'e> {
    pub(crate) at: u64,
    pub(crate) head: &'e UndoHead,
}

impl Engine {
    fn directory_word(&self, proc: u32, index: u32) -> Option<&AtomicU32> {
        let page = self.proc_slot(proc)?.dirs.get((index >> 10) as usize)?.load(Acquire);
        // 0: there is none. What else lies before the extents is none either, but damage.
        if (page as u64) < EXTENTS_AT / PAGE {
            return None;
        }
        self.arena.at(page as u64 * PAGE + (index & 1023) as u64 * 4)
    }

    /// The record of a process for a set; None when it has none.
    pub(crate) fn record(&self, proc: u32, index: u32, tag: u32) -> Option<Record<'_>> {
        let off = self.directory_word(proc, index)?.load(Acquire);
        // As with directories.
        if (off as u64) < EXTENTS_AT / 64 {
            return None;
        }
        let at = off as u64 * 64;
        let head: &UndoHead = self.arena.at(at)?;
        edges::is_record_of(head, tag).then_some(Record { at, head }) // RECORD-PUBLISH
    }

    /// Where the adjustment of the calling process, whose slot is `proc`, for a semaphore of a set is, and it: three loads behind each other, all of
    /// lines that only this process writes.
    #[inline(always)]
    pub(crate) fn own_adjustment<'e>(view: View<'e>, proc: u32, index: u32, tag: u32, num: u16) -> Option<(u64, &'e AtomicI16)> {
        let dir = view.proc_slot(proc).dirs[(index >> 10) as usize & 31].load(Acquire) as u64;
        if dir == 0 {
            return None;
        }
        let at = view.at::<AtomicU32>(dir * PAGE + (index & 1023) as u64 * 4)?.load(Acquire) as u64 * 64;
        let head = view.at::<UndoHead>(at)?;
        // RECORD-PUBLISH. Offset 0 is the header, whose first word is no tag.
        if !edges::is_record_of(head, tag) || num as u32 >= head.nsems.load(Relaxed) {
            return None;
        }
        let at = at + UNDO_ADJ_AT + num as u64 * 2;
        Some((at, view.at(at)?))
    }

    /// An adjustment of a record.
    #[inline]
    pub(crate) fn adj(&self, r: Record<'_>, num: u16) -> Option<&AtomicI16> {
        if num as u32 >= r.head.nsems.load(Relaxed) {
            return None;
        }
        self.arena.at(r.at + UNDO_ADJ_AT + num as u64 * 2)
    }

    /// A process's adjustment for a semaphore; 0 when it has no record.
    pub(crate) fn adjustment(&self, proc: u32, set: &SetRef<'_>, num: u16) -> i32 {
        self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, num)).map_or(0, |a| a.load(Relaxed) as i32)
    }

    /// Makes sure that the calling process has a record for the set. Called without any lock.
    pub(crate) fn ensure_record(&self, t: &crate::attach::Thread, me: &Me<'_>, set: &SetRef<'_>) -> Result<(), Errno> {
        if self.record(me.proc, set.index, set.tag).is_some() {
            return Ok(());
        }
        self.enter(t);
        if me.epoch != self.epoch() {
            // A handler forked, and this is the child: the caller finds out, too.
            self.leave(t);
            return Ok(());
        }
        crate::edges::commit(&me.ctl.head, head(journal::Kind::Registry, 0, 0));
        let r = self.lock_registry(t, me.slot, Wait::Call).and_then(|()| {
            let r = self.make_record(me.proc, set);
            self.unlock_registry();
            r
        });
        self.leave(t);
        r
    }

    fn make_record(&self, proc: u32, set: &SetRef<'_>) -> Result<(), Errno> {
        let no_memory = |e| if e == Errno::ENOSPC { Errno::ENOMEM } else { e };
        // The set may have gone while we waited; its records went with it and none may come after.
        match self.set_of_index(set.index) {
            Some((e, _)) if e.tag() == set.tag => {}
            _ => return Err(Errno::EIDRM),
        }
        if self.record(proc, set.index, set.tag).is_some() {
            return Ok(());
        }
        let dir = self.proc_slot(proc).and_then(|p| p.dirs.get((set.index >> 10) as usize)).ok_or(Errno::EIO)?;
        if dir.load(Relaxed) == 0 {
            let at = self.arena.alloc(Kind::Directories, PAGE).map_err(no_memory)?;
            let d: &Directory = self.arena.at(at).ok_or(Errno::EIO)?;
            d.0.iter().for_each(|w| w.store(0, Relaxed));
            dir.store((at / PAGE) as u32, Release);
        }
        let kind = Kind::for_undo(set.nsems).ok_or(Errno::EIO)?;
        let bytes = UNDO_ADJ_AT + set.nsems as u64 * 2;
        let at = self.arena.alloc(kind, bytes).map_err(no_memory)?;
        let r: &UndoHead = self.arena.at(at).ok_or(Errno::EIO)?;
        edges::open_record(r, set.nsems);
        for num in 0..set.nsems {
            if let Some(a) = self.adj(Record { at, head: r }, num as u16) {
                a.store(0, Relaxed);
            }
        }
        edges::publish_record(r, set.tag); // RECORD-PUBLISH
        let word = self.directory_word(proc, set.index).ok_or(Errno::EIO)?;
        word.store((at / 64) as u32, Release);
        Ok(())
    }

    /// Frees a process's record for a set, if any. Under the registry lock.
    pub(crate) fn free_record(&self, proc: u32, index: u32) {
        let Some(word) = self.directory_word(proc, index) else { return };
        let off = word.swap(0, AcqRel);
        if off as u64 >= EXTENTS_AT / 64 {
            if let Some(h) = self.arena.at::<UndoHead>(off as u64 * 64) {
                h.tag.store(0, Release);
            }
            self.arena.free(off as u64 * 64);
        }
    }

    /// Calls `f` with each process that has a nonzero adjustment for the semaphore.
    pub(crate) fn each_holder(&self, set: &SetRef<'_>, num: u16, mut f: impl FnMut(u32, i32)) {
        for proc in 0..self.procs_high() {
            let live = self.proc_slot(proc).is_some_and(|p| ProcWord(p.word.load(Acquire)).state() == SlotState::Live);
            let adj = if live { self.adjustment(proc, set, num) } else { 0 };
            if adj != 0 {
                f(proc, adj);
            }
        }
    }

    /// Counts a cell's holders anew. Under the lock that owns the cell.
    pub(crate) fn recount_holders(&self, set: &SetRef<'_>, num: u16, cell: &Cell) {
        let mut h = 0;
        self.each_holder(set, num, |proc, adj| h = holders::changed(h, proc, 0, adj));
        cell.holders.store(h, Relaxed);
    }

    /// No process has an adjustment for the semaphore any more (SETVAL, SETALL). Under the lock that owns the cell.
    pub(crate) fn clear_adjustments(&self, set: &SetRef<'_>, num: u16, cell: &Cell) {
        if cell.holders.load(Relaxed) != 0 {
            for proc in 0..self.procs_high() {
                // A record that is freed meanwhile has 0 here: one that has not must wait for this cell's lock. Look it up again to know
                // that what was read was in this record.
                let adj = || self.record(proc, set.index, set.tag).and_then(|r| self.adj(r, num));
                if adj().is_some_and(|a| a.load(Acquire) != 0)
                    && let Some(a) = adj()
                {
                    a.store(0, Relaxed);
                }
            }
            cell.holders.store(0, Relaxed);
        }
    }

    /// Looks at the holders of a semaphore and applies the undo of one that is gone. True: there was one; look at the semaphore again.
    /// Called without any lock.
    ///
    /// Two loads tell of a holder that it lives, unless the mark of its end is missing (see [`Engine::context_gone_for_certain`]): so one of
    /// them, the `doubted`th, may be asked for certain. No more than one, since there may be as many sleepers that ask as holders.
    fn bury_holders(&self, t: &crate::attach::Thread, set: &SetRef<'_>, num: u16, doubted: Option<u32>) -> bool {
        let Some(cell) = set.cell(num as u32) else { return false };
        let h = cell.holders.load(Acquire);
        if h == 0 {
            return false;
        }
        let doubted = doubted.map(|d| d % holders::count(h).max(1));
        if let (Some(only), None) = (holders::only(h), doubted)
            && !self.process_suspect(only)
        {
            return false;
        }
        let (mut gone, mut n) = (None, 0);
        self.each_holder(set, num, |proc, _| {
            if gone.is_none() && (doubted == Some(n) || self.process_suspect(proc)) && self.process_gone(proc) {
                gone = Some(proc);
            }
            n += 1;
        });
        gone.is_some_and(|proc| self.see_recovered(t, proc))
    }

    /// A number, at most every 50 ms: time to ask for certain, and whom.
    fn doubt(&self, t: &crate::attach::Thread) -> Option<u32> {
        const DOUBT_NS: u64 = 50_000_000;
        let now = clock::monotonic_ns() / DOUBT_NS;
        // Scattered: callers have rhythms of their own.
        let number = (now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u32;
        (t.doubted.swap(now, Relaxed) != now).then_some(number)
    }

    /// The same for all semaphores of a set that `nums` names; every now and then with a doubt.
    pub(crate) fn bury_all(&self, t: &crate::attach::Thread, set: &SetRef<'_>, nums: impl Iterator<Item = u16>) {
        for num in nums {
            let doubted = if self.held(set, num) { self.doubt(t) } else { None };
            if self.bury_holders(t, set, num, doubted) {
                while self.bury_holders(t, set, num, None) {}
            }
        }
    }
    /// The same for a second look in one call.
    pub(crate) fn bury_marked(&self, t: &crate::attach::Thread, set: &SetRef<'_>, nums: impl Iterator<Item = u16>) {
        for num in nums {
            while self.bury_holders(t, set, num, None) {}
        }
    }
    fn held(&self, set: &SetRef<'_>, num: u16) -> bool {
        set.cell(num as u32).is_some_and(|c| c.holders.load(Relaxed) != 0)
    }

    /// Applies a process's adjustments for one set: value := clamp(value + adjustment), all at once (exit_sem in ipc/sem.c: one locked pass
    /// per set, never waiting). Called without any lock, in the name of `me`. False: a lock was not had; some are not applied yet.
    pub(crate) fn apply_record(&self, t: &crate::attach::Thread, me: &Me<'_>, proc: u32, pid: u32, set: &SetRef<'_>) -> bool {
        let Some(r) = self.record(proc, set.index, set.tag) else { return true };
        let held = |num: &u16| self.adj(r, *num).is_some_and(|a| a.load(Relaxed) != 0);
        let nums = || (0..set.nsems.min(MAX_MSL)).map(|n| n as u16);
        let mut wakes = crate::wake::Wakes::new();
        self.enter(t);
        me.ctl.begin(journal::Kind::Set, set, 0);
        if let Err(e) = self.lock_set(t, me.slot, set, Wait::Brief) {
            self.leave(t);
            return e != Errno::EBUSY;
        }
        // An adjustment that is not 0 stays so until its cell is ours: its process is gone (or is the caller).
        let locked = self.lock_cells(t, me.slot, set, nums().filter(held), Wait::Brief);
        if locked.is_ok() {
            let step = edges::begin_many(me.ctl, me.slot, proc, pid);
            for num in nums().filter(held) {
                // Another thread of the caller may have made one nonzero since: its cell is not ours.
                if let (Some(cell), Some(a)) = (set.cell(num as u32).filter(|c| edges::owned(c, me.slot)), self.adj(r, num)) {
                    let v = (word::value(cell.word.load(Relaxed)) + a.load(Relaxed) as i32).clamp(0, crate::abi::SEMVMX);
                    cell.staged.store(journal::staged(step, v, Some(0)), Relaxed);
                }
            }
            edges::commit_many(me.ctl, None);
            self.apply_many(me.slot, me.ctl, set, &mut wakes);
            if let Some(first) = set.cell(0) {
                first.otime.store(word::stamp(set.tag, manyway_sync::clock::realtime_secs()), Relaxed);
            }
            self.scan_all(me.slot, me.ctl, set, &mut wakes);
        }
        self.unlock_cells(me.slot, set, nums());
        self.unlock_set(set);
        wakes.wake();
        self.leave(t);
        locked != Err(Errno::EBUSY)
    }
}
