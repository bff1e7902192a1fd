//! The id table's entries.

use manyway_shm::layout::PAGE;
use manyway_sync::atomic::{AtomicU64, Ordering::*};

/// Ids are `seq << INDEX_BITS | index` (IPCMNI_SHIFT).
pub const INDEX_BITS: u32 = 15;

/// An entry of the id table: {seq 16 | page 26 | tag 22}; 0 is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdEntry(pub u64);

impl IdEntry {
    /// For a set at byte offset `at`.
    pub fn new(seq: u32, at: u64, tag: u32) -> IdEntry {
        IdEntry((seq as u64) << 48 | (at / PAGE) << 22 | tag as u64)
    }
    /// The id's sequence number.
    #[inline]
    pub fn seq(self) -> u32 {
        (self.0 >> 48) as u32
    }
    /// Byte offset of the set.
    #[inline]
    pub fn at(self) -> u64 {
        (self.0 >> 22 & 0x3ff_ffff) * PAGE
    }
    /// The set's incarnation.
    #[inline]
    pub fn tag(self) -> u32 {
        self.0 as u32 & crate::word::MAX_TAG
    }

    /// ID-PUBLISH: the set is there from here on; the release puts what it was initialised with before the id.
    pub fn publish(self, word: &AtomicU64) {
        word.store(self.0, Release);
    }
    /// The set is not there from here on.
    pub fn withdraw(word: &AtomicU64) {
        word.store(0, Release);
    }
    /// ID-PUBLISH: the acquire pairs with the release of [`IdEntry::publish`]: who finds the id finds the set initialised.
    #[inline]
    pub fn find(word: &AtomicU64) -> IdEntry {
        IdEntry(word.load(Acquire))
    }
}
