//! The words of thread and process slots: who has them, who recovers them, and how they change hands.

use manyway_shm::layout::ThreadCtl;
use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::robust;

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

            /// The word as it is. SLOT-LIVE, PROC-LIVE: the acquire pairs with the release of `go_live`.
            #[inline]
            pub fn read(word: &AtomicU64) -> Self {
                $t(word.load(Acquire))
            }
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
            /// Takes a free slot whose word this is. SLOT-FREE: the acquire pairs with the release of `recycle`.
            pub fn claim(self, word: &AtomicU64, by: u32) -> bool {
                let claimed = self.owned(by, SlotState::Claimed);
                self.state() == SlotState::Free && word.compare_exchange(self.0, claimed.0, AcqRel, Relaxed).is_ok()
            }
            /// The slot is in use from here on. SLOT-LIVE, PROC-LIVE: the release publishes what its claimant has written to those who
            /// find it live.
            pub fn go_live(self, word: &AtomicU64, by: u32) {
                word.store(self.owned(by, SlotState::Live).0, Release);
            }
            /// Gives a slot back whose word this is. False: it has changed. SLOT-FREE: the release puts all that was done to it before.
            pub fn recycle(self, word: &AtomicU64) -> bool {
                word.compare_exchange(self.0, self.recycled().0, AcqRel, Relaxed).is_ok()
            }
            /// Makes slot `by` the recoverer of a slot whose word this is and whose owner is gone. None: somebody who lives is on it, or the
            /// word has changed. SLOT-RECOVER: the acquire pairs with the release by which an earlier recoverer gave it back; what one that
            /// died had done is ordered by the mark of its end, which `gone` has read.
            pub fn recover(self, word: &AtomicU64, by: u32, by_ctl: &ThreadCtl, gone: impl FnOnce(u32) -> bool) -> Option<Self> {
                match self.recoverer() {
                    Some(r) if r != by && !gone(r) => return None,
                    _ => {}
                }
                // Before the claim, so that this slot is not recycled while its name stands there.
                by_ctl.recovered.store(1, Release);
                let mine = self.with_recoverer(Some(by));
                word.compare_exchange(self.0, mine.0, AcqRel, Relaxed).is_ok().then_some(mine)
            }
            /// Gives the recovery back. SLOT-RECOVER.
            pub fn give_back(self, word: &AtomicU64) {
                let _ = word.compare_exchange(self.0, self.with_recoverer(None).0, AcqRel, Relaxed);
            }
            /// Takes the name of slot `by` off a word, if it stands there.
            pub fn forget(word: &AtomicU64, by: u32) {
                let w = Self::read(word);
                if w.recoverer() == Some(by) {
                    w.give_back(word);
                }
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

/// The word of a live slot. SLOT-LIVE: the acquire pairs with the release of [`ThreadWord::go_live`].
#[inline]
pub fn live(word: &AtomicU64) -> Option<ThreadWord> {
    let w = ThreadWord::read(word);
    (w.state() == SlotState::Live).then_some(w)
}

/// True when the slot's robust word has the mark of its thread's end. The acquire puts all stores of that thread before what follows.
#[inline]
pub fn is_marked(ctl: &ThreadCtl) -> bool {
    ctl.robust.load(Acquire) & robust::OWNER_DIED != 0
}

/// Makes the control page of a slot that has just been claimed its new owner's. GONE-MARK: the release puts the claim before the robust word:
/// who reads this one finds the slot's word changed.
pub fn occupy(ctl: &ThreadCtl, tid: u32) {
    ctl.head.store(0, Relaxed);
    ctl.step.store(0, Relaxed);
    ctl.recovered.store(0, Relaxed);
    ctl.linked.store(0, Relaxed);
    ctl.tid.store(tid, Relaxed);
    ctl.robust.store(tid, Release);
}

/// GONE-MARK. Marks a slot's context as gone where the kernel has not (or will not). False: the slot is somebody else's by now.
pub fn mark_gone(word: &AtomicU64, w: ThreadWord, ctl: &ThreadCtl) -> bool {
    // The robust word first: should the slot be recycled and linked again behind our look at its word, the CAS meets another thread id.
    let r = ctl.robust.load(Acquire);
    ThreadWord(word.load(Acquire)).with_recoverer(None) == w.with_recoverer(None)
        && (r & robust::OWNER_DIED != 0 || ctl.robust.compare_exchange(r, r | robust::OWNER_DIED, AcqRel, Relaxed).is_ok())
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
