//! Thread and process slots: their words, claiming, and who is gone.

use manyway_shm::alloc::Kind;
use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::identity::Identity;
use manyway_sync::{Errno, robust, sys};

use crate::engine::Engine;

/// A thread-slot word: {generation 18 | recoverer + 1, 22 | process slot 22 | state 2}.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadWord(pub u64);

/// A process-slot word: {generation 20 | recoverer + 1, 20 | pid 22 | state 2}.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcWord(pub u64);

/// What a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum SlotState {
    /// Nobody's.
    Free = 0,
    /// Somebody's, who is still writing down who that is.
    Claimed = 1,
    /// In use.
    Live = 2,
}

const fn slot_state(w: u64) -> SlotState {
    match w & 3 {
        1 => SlotState::Claimed,
        2 => SlotState::Live,
        _ => SlotState::Free,
    }
}

macro_rules! slot_word {
    ($t:ident, $recoverer_bits:literal) => {
        impl $t {
            const RECOVERER_SHIFT: u32 = 24;
            const RECOVERER: u64 = ((1 << $recoverer_bits) - 1) << Self::RECOVERER_SHIFT;
            const GENERATION_SHIFT: u32 = 24 + $recoverer_bits;

            /// State.
            pub const fn state(self) -> SlotState {
                slot_state(self.0)
            }
            /// Who recovers it.
            pub const fn recoverer(self) -> Option<u32> {
                match (self.0 & Self::RECOVERER) >> Self::RECOVERER_SHIFT {
                    0 => None,
                    r => Some(r as u32 - 1),
                }
            }
            /// With another recoverer.
            pub const fn with_recoverer(self, slot: Option<u32>) -> Self {
                let r = match slot {
                    Some(s) => (s as u64 + 1) << Self::RECOVERER_SHIFT,
                    None => 0,
                };
                $t(self.0 & !Self::RECOVERER | r)
            }
            /// The free word of the next generation.
            pub const fn recycled(self) -> Self {
                $t(((self.0 >> Self::GENERATION_SHIFT) + 1) << Self::GENERATION_SHIFT)
            }
            /// In another state, owned by a process slot or pid.
            pub const fn owned(self, by: u32, state: SlotState) -> Self {
                $t(self.0 >> Self::GENERATION_SHIFT << Self::GENERATION_SHIFT | (by as u64 & 0x3f_ffff) << 2 | state as u64)
            }
            /// The process slot (of a thread) or pid (of a process).
            pub const fn by(self) -> u32 {
                (self.0 >> 2) as u32 & 0x3f_ffff
            }
        }
    };
}
slot_word!(ThreadWord, 22);
slot_word!(ProcWord, 20);

/// Takes a slot for recovery. SLOT-RECOVER: the acquire of a successful CAS pairs with the release by which an earlier recoverer, now
/// gone, gave or left it. `gone` tells whether another recoverer has gone.
pub fn claim_recovery(word: &AtomicU64, expected: u64, desired: u64) -> bool {
    word.compare_exchange(expected, desired, AcqRel, Relaxed).is_ok()
}

/// Marks a slot's context as gone where the kernel has not (or will not). False: the slot is somebody else's by now.
pub(crate) fn mark_gone(word: &AtomicU64, w: ThreadWord, ctl: &ThreadCtl) -> bool {
    // The robust word first: should the slot be recycled and linked again behind our look at its word, the CAS meets another thread id.
    let r = ctl.robust.load(Acquire);
    ThreadWord(word.load(Acquire)).with_recoverer(None) == w.with_recoverer(None)
        && (r & robust::OWNER_DIED != 0 || ctl.robust.compare_exchange(r, r | robust::OWNER_DIED, AcqRel, Relaxed).is_ok())
}

impl Engine {
    pub(crate) fn thread_word(&self, slot: u32) -> Option<&AtomicU64> {
        if slot >= self.arena.header().threads_ready.load(Acquire) {
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
        if proc >= self.arena.header().procs_ready.load(Acquire) {
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
        let w = ThreadWord(word.load(Acquire));
        if w.state() != SlotState::Live {
            return false;
        }
        let r = ctl.robust.load(Acquire);
        if r & robust::OWNER_DIED != 0 {
            return true;
        }
        // No list to link it in: ask whether the thread exists.
        ctl.unlinked.load(Relaxed) == 1
            && self.proc_slot(w.by()).is_some_and(|p| !sys::thread_exists(ProcWord(p.word.load(Acquire)).by(), ctl.tid.load(Relaxed)))
    }

    /// *Context gone*, for certain: also when its process has ended without leaving the mark (the out-of-memory reaper may take the
    /// list away first).
    pub(crate) fn context_gone_for_certain(&self, slot: u32) -> bool {
        if self.context_gone(slot) {
            return true;
        }
        let (Some(word), Some(ctl)) = (self.thread_word(slot), self.ctl(slot)) else {
            return false;
        };
        let w = ThreadWord(word.load(Acquire));
        w.state() == SlotState::Live && self.process_gone(w.by()) && mark_gone(word, w, ctl)
    }

    /// *Process gone*: its identity is no running process's.
    pub(crate) fn process_gone(&self, proc: u32) -> bool {
        let Some(p) = self.proc_slot(proc) else { return false };
        let w = ProcWord(p.word.load(Acquire));
        if w.state() == SlotState::Free {
            return false;
        }
        // A claimant has not written its identity yet: its pid alone decides.
        let identity = match w.state() {
            SlotState::Live => Identity { inode: p.inode.load(Relaxed), start: p.start.load(Relaxed) },
            _ => Identity::default(),
        };
        identity.is_gone(w.by()) && p.word.load(Acquire) == w.0
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
        w.state() != SlotState::Live
            || w.by() != proc
            || ctl.unlinked.load(Relaxed) == 1
            || ctl.robust.load(Acquire) & robust::OWNER_DIED != 0
    }

    /// Claims a free process slot for `pid` and fills it in.
    pub(crate) fn claim_process(&self, pid: u32, identity: Identity) -> Result<u32, Errno> {
        let h = self.arena.header();
        loop {
            let high = self.procs_high();
            let free = (0..high).find(|&i| self.proc_slot(i).is_some_and(|p| ProcWord(p.word.load(Acquire)).state() == SlotState::Free));
            let i = free.unwrap_or(high);
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
            if w.state() != SlotState::Free {
                continue;
            }
            if p.word.compare_exchange(w.0, w.owned(pid, SlotState::Claimed).0, AcqRel, Relaxed).is_ok() {
                p.inode.store(identity.inode, Relaxed);
                p.start.store(identity.start, Relaxed);
                p.thread_hint.store(0, Relaxed);
                // PROC-LIVE: the release publishes the identity to those who find the slot live.
                p.word.store(w.owned(pid, SlotState::Live).0, Release);
                return Ok(i);
            }
        }
    }

    /// Claims a free thread slot for a process slot. It is not live until its robust word is linked.
    pub(crate) fn claim_thread(&self, proc: u32) -> Result<u32, Errno> {
        let h = self.arena.header();
        loop {
            let high = self.threads_high();
            let free = (0..high).find(|&i| self.thread_word(i).is_some_and(|w| ThreadWord(w.load(Acquire)).state() == SlotState::Free));
            let i = free.unwrap_or(high);
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
            if w.state() == SlotState::Free && word.compare_exchange(w.0, w.owned(proc, SlotState::Claimed).0, AcqRel, Relaxed).is_ok() {
                return Ok(i);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_words_keep_their_fields_apart() {
        let w = ThreadWord(0).owned(0x3f_fffe, SlotState::Live).with_recoverer(Some(65535));
        assert_eq!((w.by(), w.state(), w.recoverer()), (0x3f_fffe, SlotState::Live, Some(65535)));
        let n = w.recycled();
        assert_eq!((n.state(), n.recoverer(), n.by()), (SlotState::Free, None, 0));
        assert_ne!(n, w.recycled().recycled());
        let p = ProcWord(0).owned(4_194_303, SlotState::Claimed).with_recoverer(Some(65535));
        assert_eq!((p.by(), p.state(), p.recoverer()), (4_194_303, SlotState::Claimed, Some(65535)));
        assert_eq!(p.with_recoverer(None).recoverer(), None);
    }
}
