//! Thread and process slots: claiming, and who is gone.

use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::identity::Identity;
use manyway_sync::{Errno, sys};

use crate::engine::Engine;
pub(crate) use crate::slotword::*;

/// The tables grow by so many slots before those of the dead are looked for.
const BATCH: u32 = 64;

impl Engine {
    pub(crate) fn thread_word(&self, slot: u32) -> Option<&AtomicU64> {
        if slot >= self.arena.header().threads_ready.load(Acquire).min(MAX_SLOTS) {
            return None;
        }
        self.arena.at(THREAD_WORDS_AT + slot as u64 * 8)
    }
    /// Where a thread slot's pages lie.
    pub(crate) fn thread_at(&self, slot: u32) -> Option<u64> {
        let e = self.arena.header().thread_extents.get((slot / THREADS_PER_EXTENT) as usize)?.load(Acquire);
        if e == 0 || e > MAX_EXTENTS {
            return None;
        }
        Some(EXTENTS_AT + (e as u64 - 1) * EXTENT + (slot % THREADS_PER_EXTENT) as u64 * THREAD_PAGES * PAGE)
    }
    /// The control page of a slot that has been claimed at some time.
    #[inline]
    pub(crate) fn ctl(&self, slot: u32) -> Option<&ThreadCtl> {
        if slot >= self.arena.header().threads_high.load(Acquire) {
            return None;
        }
        self.arena.at(self.thread_at(slot)? + PAGE)
    }
    pub(crate) fn threads_high(&self) -> u32 {
        let h = self.arena.header();
        h.threads_high.load(Acquire).min(h.threads_ready.load(Acquire)).min(MAX_SLOTS)
    }
    pub(crate) fn proc_slot(&self, proc: u32) -> Option<&ProcSlot> {
        if proc >= self.arena.header().procs_ready.load(Acquire).min(MAX_SLOTS) {
            return None;
        }
        self.arena.at(PROCS_AT + proc as u64 * size_of::<ProcSlot>() as u64)
    }
    pub(crate) fn procs_high(&self) -> u32 {
        let h = self.arena.header();
        h.procs_high.load(Acquire).min(h.procs_ready.load(Acquire)).min(MAX_SLOTS)
    }

    /// *Context gone*, as far as two loads tell: the kernel has marked the slot's robust word.
    pub(crate) fn context_gone(&self, slot: u32) -> bool {
        let (Some(word), Some(ctl)) = (self.thread_word(slot), self.ctl(slot)) else {
            return false;
        };
        let Some(w) = live(word) else { return false };
        if is_marked(ctl) {
            return true;
        }
        // No list to link it in: ask whether the thread exists.
        ctl.unlinked.load(Relaxed) == 1
            && self.proc_slot(w.by()).is_some_and(|p| !sys::thread_exists(ProcWord(p.word.load(Acquire)).by(), ctl.tid.load(Relaxed)))
    }

    /// True when no slot that is in use has this number, or one that is no process's and that nobody recovers.
    pub(crate) fn slot_is_nobodys(&self, slot: u32) -> bool {
        let Some(w) = self.thread_word(slot).filter(|_| slot < self.threads_high()).and_then(live) else { return true };
        let is_process = |p: &ProcSlot| ProcWord::read(&p.word).state() != SlotState::Free;
        w.recoverer().is_none() && !self.proc_slot(w.by()).is_some_and(is_process)
    }

    /// *Context gone*, for certain: also when it has ended without leaving the mark (the out-of-memory reaper may take the list away first; a
    /// hostile writer may have changed the word that the kernel looks at).
    pub(crate) fn context_gone_for_certain(&self, slot: u32) -> bool {
        if self.context_gone(slot) {
            return true;
        }
        let (Some(word), Some(ctl)) = (self.thread_word(slot), self.ctl(slot)) else {
            return false;
        };
        let thread_gone = |w: ThreadWord| {
            let pid = self.proc_slot(w.by()).map(|p| ProcWord::read(&p.word)).filter(|p| p.state() == SlotState::Live);
            pid.is_some_and(|p| !sys::thread_exists(p.by(), ctl.tid.load(Relaxed)))
        };
        live(word).is_some_and(|w| (self.process_gone(w.by()) || thread_gone(w)) && mark_gone(word, w, ctl))
    }

    /// The same of a sleeper that is about to get what it waits for, or is counted. The question (a system call or two) is spared those who
    /// have slept for less than a second.
    pub(crate) fn sleeper_gone_for_certain(&self, slot: u32, ctl: &ThreadCtl) -> bool {
        const LONG_NS: u64 = 1_000_000_000;
        manyway_sync::clock::monotonic_coarse_ns().saturating_sub(ctl.ticket.load(Relaxed)) > LONG_NS && self.context_gone_for_certain(slot)
    }

    /// *Process gone*: its identity is no running process's.
    pub(crate) fn process_gone(&self, proc: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        let w = ProcWord::read(&p.word); // PROC-LIVE
        if w.state() == SlotState::Free {
            return false;
        }
        // A claimant has not written its identity yet: its pid alone decides.
        let identity = match w.state() {
            SlotState::Live => Identity { inode: p.inode.load(Relaxed), start: p.start.load(Relaxed) },
            _ => Identity::default(),
        };
        // The same process still: one that somebody has begun to recover meanwhile is gone all the same, and what it held may still be missing.
        identity.is_gone(w.by()) && ProcWord(p.word.load(Acquire)).with_recoverer(None) == w.with_recoverer(None)
    }

    /// False when a thread of the process is known to live, by two loads; true: ask [`Engine::process_gone`].
    pub(crate) fn process_suspect(&self, proc: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        let hint = p.thread_hint.load(Relaxed);
        if hint == 0 {
            return true;
        }
        let (Some(word), Some(ctl)) = (self.thread_word(hint - 1), self.ctl(hint - 1)) else {
            return true;
        };
        let w = ThreadWord(word.load(Acquire));
        w.state() != SlotState::Live || w.by() != proc || ctl.unlinked.load(Relaxed) == 1 || is_marked(ctl)
    }

    /// True when all slots of a table are taken that has grown in whole batches: the next one to come makes it grow, unless the dead are
    /// cleared away before. `taken` tells of a slot.
    fn batch_is_full(high: u32, taken: impl Fn(u32) -> bool) -> bool {
        high.is_multiple_of(BATCH) && (0..high).rev().all(taken)
    }
    fn proc_taken(&self, i: u32) -> bool {
        self.proc_slot(i).is_none_or(|p| ProcWord(p.word.load(Acquire)).state() != SlotState::Free)
    }
    fn thread_taken(&self, i: u32) -> bool {
        self.thread_word(i).is_none_or(|w| ThreadWord(w.load(Acquire)).state() != SlotState::Free)
    }
    /// True when a table is about to grow, perhaps only because nobody has cleared away after the dead.
    pub(crate) fn about_to_grow(&self) -> bool {
        Self::batch_is_full(self.threads_high(), |i| self.thread_taken(i)) || Self::batch_is_full(self.procs_high(), |i| self.proc_taken(i))
    }

    /// Claims a free process slot for `pid` and fills it in.
    pub(crate) fn claim_process(&self, pid: u32, identity: Identity) -> Result<u32, Errno> {
        let h = self.arena.header();
        loop {
            let high = self.procs_high();
            let i = (0..high).find(|&i| !self.proc_taken(i)).unwrap_or(high);
            if i >= MAX_SLOTS {
                return Err(Errno::ENOSPC);
            }
            if i >= h.procs_ready.load(Acquire) {
                const PER_PAGE: u32 = (PAGE / size_of::<ProcSlot>() as u64) as u32;
                let first = i & !(PER_PAGE - 1);
                self.arena.populate(PROCS_AT + first as u64 * size_of::<ProcSlot>() as u64, PAGE)?;
                h.procs_ready.fetch_max(first + PER_PAGE, AcqRel);
            }
            let Some(p) = self.proc_slot(i) else { return Err(Errno::EIO) };
            h.procs_high.fetch_max(i + 1, AcqRel);
            let w = ProcWord(p.word.load(Acquire));
            if w.claim(&p.word, pid) {
                p.inode.store(identity.inode, Relaxed);
                p.start.store(identity.start, Relaxed);
                p.thread_hint.store(0, Relaxed);
                w.go_live(&p.word, pid); // PROC-LIVE: the identity before it
                return Ok(i);
            }
        }
    }

    /// Claims a free thread slot for a process slot. It is not live until its robust word is linked.
    pub(crate) fn claim_thread(&self, proc: u32) -> Result<u32, Errno> {
        let h = self.arena.header();
        loop {
            let high = self.threads_high();
            let i = (0..high).find(|&i| !self.thread_taken(i)).unwrap_or(high);
            if i >= MAX_SLOTS {
                return Err(Errno::ENOSPC);
            }
            if i >= h.threads_ready.load(Acquire) {
                let first = i & !511;
                self.arena.populate(THREAD_WORDS_AT + first as u64 * 8, PAGE)?;
                h.threads_ready.fetch_max(first + 512, AcqRel);
            }
            if self.thread_at(i).is_none() {
                let e = self.arena.take_extent(Kind::Threads)?;
                let entry = &h.thread_extents[(i / THREADS_PER_EXTENT) as usize];
                let _ = entry.compare_exchange(0, e + 1, AcqRel, Relaxed);
            }
            let at = self.thread_at(i).ok_or(Errno::EIO)?;
            self.arena.populate(at + PAGE, PAGE)?;
            h.threads_high.fetch_max(i + 1, AcqRel);
            let word = self.thread_word(i).ok_or(Errno::EIO)?;
            let w = ThreadWord(word.load(Acquire));
            if w.claim(word, proc) {
                return Ok(i);
            }
        }
    }
}
