//! Wake-ups: noted under a lock, made after unlocking.

use manyway_sync::atomic::AtomicU32;
use manyway_sync::futex;

/// How many wake-ups are kept for after the unlock; beyond that the oldest are done at once.
const KEPT: usize = 64;

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
    pub(crate) fn add(&mut self, word: &'e AtomicU32) {
        if self.n == KEPT {
            self.wake();
        }
        self.words[self.n] = Some(word);
        self.n += 1;
    }
    pub(crate) fn add_epoch(&mut self, word: &'e AtomicU32) {
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
