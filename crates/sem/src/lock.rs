//! The three locks (registry, set, cell), each a word that names its owner's slot, and how long to wait for one.
//!
//! Order: registry → set → cells ascending. The owner's journal `head` says what it is about to lock *before* it tries.

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU64, Ordering::*, spin_hint};
use manyway_sync::{Errno, sys};

use crate::edges;
pub(crate) use crate::edges::CellLock;
use crate::engine::Engine;
use crate::set::SetRef;
use crate::word;

/// Waiting for an owner: spin, then look whether it lives, then nap, each longer.
#[derive(Default)]
struct Patience {
    rounds: u32,
}

/// Spins before the first look at the owner. (Each is a step of shuttle's schedule.)
const SPINS: u32 = if cfg!(shuttle) { 2 } else { 128 };
/// Naps before a look at the owner's process (a system call or two): the kernel's mark is there much earlier, if it comes.
const NAPS_BEFORE_DOUBT: u32 = 16;
/// Naps after which an owner that is nobody (no slot in use has this number) is taken for damage: about 50 ms. In good order a slot is
/// recycled only when nothing is locked in its name.
const NAPS_BEFORE_SEIZURE: u32 = 64;

impl Patience {
    /// One round of waiting for the slot `owner`. `by` is the waiting slot, in whose name an owner that is gone is recovered. True: the
    /// owner is nobody; the lock may be seized.
    fn wait(&mut self, engine: &Engine, owner: u32, by: u32) -> bool {
        self.rounds += 1;
        if self.rounds <= SPINS {
            spin_hint();
            return false;
        }
        let naps = self.rounds - SPINS;
        let gone = if naps.is_multiple_of(NAPS_BEFORE_DOUBT) { engine.context_gone_for_certain(owner) } else { engine.context_gone(owner) };
        if gone && engine.release_locks(owner, by) {
            return false;
        }
        sys::nap((20_000 << naps.min(6)).min(1_000_000));
        naps >= NAPS_BEFORE_SEIZURE && naps.is_multiple_of(NAPS_BEFORE_DOUBT) && engine.slot_is_nobodys(owner)
    }
}

impl Engine {
    /// Locks a cell for slot `owner`. CELL-LOCK.
    pub(crate) fn lock_cell(&self, owner: u32, by: u32, tag: u32, cell: &Cell) -> CellLock {
        let mut patience = Patience::default();
        loop {
            match edges::try_lock_cell(cell, tag, owner) {
                Ok(r) => return r,
                Err(Some(other)) => {
                    if patience.wait(self, other, by) {
                        self.seize(&cell.word, other, |w| word::unlock(w, tag));
                    }
                }
                Err(None) => {}
            }
        }
    }

    /// Unlocks a word whose owner is nobody, a hostile or broken writer's work: what it guards may be damaged, but nobody waits for ever.
    #[cold]
    fn seize(&self, lock: &AtomicU64, owner: u32, free: impl FnOnce(u64) -> u64) {
        let w = lock.load(Acquire);
        if word::is_locked_by(w, owner) {
            let _ = lock.compare_exchange(w, free(w), AcqRel, Relaxed);
        }
    }

    /// Unlocks a cell that was locked by the caller's slot, with the value and pid its word has now. CELL-LOCK.
    pub(crate) fn unlock_cell(&self, set: &SetRef<'_>, cell: &Cell) {
        edges::unlock_cell(cell, set.tag);
    }

    /// Locks a set for slot `owner`. False: it is gone. SET-LOCK.
    #[must_use]
    pub(crate) fn lock_set(&self, owner: u32, by: u32, set: &SetRef<'_>) -> bool {
        let free = word::tag_bits(set.tag);
        let mut patience = Patience::default();
        loop {
            match edges::try_lock(&set.head.lock, free, owner) {
                Ok(()) => return true,
                Err(w) if w & word::LOCKED != 0 => {
                    if patience.wait(self, word::owner(w), by) {
                        self.seize(&set.head.lock, word::owner(w), |_| free);
                    }
                }
                Err(w) if w == free => {}
                Err(_) => return false,
            }
        }
    }
    pub(crate) fn unlock_set(&self, set: &SetRef<'_>) {
        edges::unlock(&set.head.lock, word::tag_bits(set.tag));
    }

    /// Locks the registry for slot `owner`. REGISTRY-LOCK.
    pub(crate) fn lock_registry(&self, owner: u32, by: u32) {
        let lock = &self.arena.header().registry;
        let mut patience = Patience::default();
        while let Err(w) = edges::try_lock(lock, 0, owner) {
            if w & word::LOCKED != 0 {
                if patience.wait(self, word::owner(w), by) {
                    self.seize(lock, word::owner(w), |_| 0);
                }
            } else if w != 0 {
                // No lock word: a hostile writer. Take it over.
                let _ = lock.compare_exchange(w, 0, AcqRel, Relaxed);
            }
        }
    }
    pub(crate) fn unlock_registry(&self) {
        edges::unlock(&self.arena.header().registry, 0);
    }

    /// Locks those cells of `nums` (ascending, no number twice) that are not COMPLEX; the caller holds the set lock.
    pub(crate) fn lock_cells(&self, owner: u32, by: u32, set: &SetRef<'_>, nums: impl Iterator<Item = u16>) -> Result<(), Errno> {
        for num in nums {
            let cell = set.cell(num as u32).ok_or(Errno::EIO)?;
            if self.lock_cell(owner, by, set.tag, cell) == CellLock::Removed {
                return Err(Errno::EIDRM);
            }
        }
        Ok(())
    }

    /// Unlocks those of `nums` that are LOCKED by the slot, and gives COMPLEX cells that no complex sleeper names any more back to
    /// themselves. The caller holds the set lock.
    pub(crate) fn unlock_cells(&self, owner: u32, set: &SetRef<'_>, nums: impl Iterator<Item = u16>) {
        for num in nums {
            let Some(cell) = set.cell(num as u32) else { continue };
            let w = cell.word.load(Relaxed);
            if w & word::COMPLEX != 0 && w & word::LOCKED == 0 {
                if cell.ncomplex.load(Relaxed) == 0 {
                    self.demote(set, num, cell);
                }
            } else if word::is_locked_by(w, owner) {
                if w & word::COMPLEX != 0 {
                    // Promoted in this section: the set lock owns it from now on.
                    cell.word.store(word::unlock(word::flag(w, word::WAITERS, false), set.tag), Release);
                } else {
                    self.unlock_cell(set, cell);
                }
            }
        }
    }
}
