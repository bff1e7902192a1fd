//! The three locks (registry, set, cell), each a word that names its owner's slot, and how long to wait for one.
//!
//! Order: registry → set → cells ascending. The owner's journal `head` says what it is about to lock *before* it tries.

use manyway_shm::layout::*;
use manyway_sync::atomic::{AtomicU64, Ordering::*, spin_hint};
use manyway_sync::{Errno, clock, sys};

use crate::attach::Thread;
use crate::edges;
pub(crate) use crate::edges::CellLock;
use crate::engine::{Damage, Engine};
use crate::journal::{Kind, parse_head};
use crate::set::SetRef;
use crate::word;

/// Spins before the first look at the owner. (Each is a step of shuttle's schedule.)
const SPINS: u32 = if cfg!(shuttle) { 2 } else { 128 };
/// Naps before a look at the owner's process (a system call or two): the kernel's mark is there much earlier, if it comes.
const NAPS_BEFORE_DOUBT: u32 = 16;
/// Naps after which an owner that cannot be one is taken for damage: about 50 ms. In good order a slot is recycled only when nothing is
/// locked in its name, and its journal names a lock before the lock names it.
const NAPS_BEFORE_SEIZURE: u32 = 64;
/// After so long a wait for somebody who lives (a debugger has stopped it, say) a call gives up for reasons of its own: see [`Wait`].
const PATIENCE_NS: u64 = 1_000_000_000;

/// How long to wait for a lock whose owner lives and does not let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// What was asked for: until a signal's handler has run (EINTR) or the call's time is up (EAGAIN), but no shorter than [`PATIENCE_NS`]:
    /// nobody finds out by a signal or a timeout that a lock was busy for a moment.
    Call,
    /// What is done by the way, for somebody who is gone, say: [`PATIENCE_NS`], then EBUSY. It is tried again some other time.
    Brief,
}

/// What is waited for, as an owner's journal names it.
#[derive(Clone, Copy)]
enum Lock {
    Registry,
    Set { page: u32 },
    Cell { page: u32, num: u16 },
}

impl Lock {
    /// True when a section with this journal's head may hold the lock.
    fn is_named_by(self, head: u64) -> bool {
        let (kind, page, num) = parse_head(head);
        match (self, kind) {
            (_, Kind::Idle) => false,
            (Lock::Registry, _) => matches!(kind, Kind::Registry | Kind::Remove),
            (Lock::Set { page: mine }, Kind::Set | Kind::SetAllCommit | Kind::Registry | Kind::Remove) => page == mine,
            (Lock::Set { .. }, _) => false,
            (Lock::Cell { page: mine, num: this }, Kind::Undo | Kind::Cell) => page == mine && num == this,
            (Lock::Cell { page: mine, .. }, _) => page == mine,
        }
    }
}

/// A wait for one lock: spin, then look whether the owner lives, then nap, each longer.
struct Patience<'a> {
    t: &'a Thread,
    /// The waiting slot, in whose name an owner that is gone is recovered.
    by: u32,
    lock: Lock,
    wait: Wait,
    rounds: u32,
    /// Naps in a row at which the owner's journal knew nothing of the lock.
    strange: u32,
    /// When the first nap began.
    since: u64,
    /// A handler has run meanwhile.
    signalled: bool,
}

impl<'a> Patience<'a> {
    fn new(t: &'a Thread, by: u32, lock: Lock, wait: Wait) -> Self {
        Patience { t, by, lock, wait, rounds: 0, strange: 0, since: 0, signalled: false }
    }

    /// One round of waiting for the slot `owner`, which the lock's `word` names. True: it cannot be the owner; the lock may be seized.
    fn wait(&mut self, engine: &Engine, word: &AtomicU64, owner: u32) -> Result<bool, Errno> {
        self.rounds += 1;
        if owner == self.by {
            // Who waits has nothing of it.
            return Ok(true);
        }
        if self.rounds <= SPINS {
            spin_hint();
            return Ok(false);
        }
        let naps = self.rounds - SPINS;
        let gone = if naps.is_multiple_of(NAPS_BEFORE_DOUBT) { engine.context_gone_for_certain(owner) } else { engine.context_gone(owner) };
        // A dead owner whose journal knows nothing of the lock lets go of nothing.
        if gone && engine.release_locks(owner, self.by) && !word::is_locked_by(word.load(Acquire), owner) {
            return Ok(false);
        }
        let now = clock::monotonic_ns();
        if self.since == 0 {
            self.since = now;
        }
        self.signalled |= sys::nap((20_000 << naps.min(6)).min(1_000_000)) || self.t.deferred.load(Relaxed) != 0;
        self.strange = if self.is_strange(engine, word, owner) { self.strange + 1 } else { 0 };
        if self.strange >= NAPS_BEFORE_SEIZURE {
            self.strange = 0;
            return Ok(true);
        }
        if now.saturating_sub(self.since) < PATIENCE_NS {
            return Ok(false);
        }
        let until = self.t.until.load(Relaxed);
        match self.wait {
            Wait::Brief => Err(Errno::EBUSY),
            Wait::Call if self.signalled => Err(Errno::EINTR),
            Wait::Call if until != 0 && now >= until => Err(Errno::EAGAIN),
            Wait::Call => Ok(false),
        }
    }

    /// True when the lock's word names an owner that does not know of it: no slot in use, or one whose journal, before and behind a look at
    /// the word, names something else (HEAD-FIRST). One look may meet an owner between two sections; many in a row are damage.
    fn is_strange(&self, engine: &Engine, word: &AtomicU64, owner: u32) -> bool {
        if engine.slot_is_nobodys(owner) {
            return true;
        }
        let Some(ctl) = engine.ctl(owner) else { return true };
        let names = || self.lock.is_named_by(ctl.head.load(Acquire));
        !names() && word::is_locked_by(word.load(Acquire), owner) && !names()
    }
}

impl Engine {
    /// Locks a cell for slot `slot`. CELL-LOCK. Err: it was not had; see [`Wait`].
    pub(crate) fn lock_cell(&self, t: &Thread, slot: u32, set: &SetRef<'_>, num: u16, cell: &Cell, wait: Wait) -> Result<CellLock, Errno> {
        let mut patience = Patience::new(t, slot, Lock::Cell { page: set.page(), num }, wait);
        loop {
            match edges::try_lock_cell(cell, set.tag, slot) {
                Ok(r) => return Ok(r),
                Err(Some(other)) => {
                    if patience.wait(self, &cell.word, other)? {
                        self.seize(set.index, &cell.word, other, |w| word::unlock(w, set.tag));
                    }
                }
                Err(None) => {}
            }
        }
    }

    /// Unlocks a word whose owner is none, a hostile or broken writer's work: what it guards may be damaged, but nobody waits for ever.
    #[cold]
    fn seize(&self, index: u32, lock: &AtomicU64, owner: u32, free: impl FnOnce(u64) -> u64) {
        let w = lock.load(Acquire);
        if word::is_locked_by(w, owner) {
            self.damaged(Damage::Lock, index);
            let _ = lock.compare_exchange(w, free(w), AcqRel, Relaxed);
        }
    }

    /// Unlocks a cell that was locked by the caller's slot, with the value and pid its word has now. CELL-LOCK.
    pub(crate) fn unlock_cell(&self, set: &SetRef<'_>, cell: &Cell) {
        edges::unlock_cell(cell, set.tag);
    }

    /// Locks a set for slot `slot`. SET-LOCK. EIDRM: it is gone; EIO: it is not, but its lock says so; else see [`Wait`].
    pub(crate) fn lock_set(&self, t: &Thread, slot: u32, set: &SetRef<'_>, wait: Wait) -> Result<(), Errno> {
        let free = word::tag_bits(set.tag);
        let mut patience = Patience::new(t, slot, Lock::Set { page: set.page() }, wait);
        loop {
            match edges::try_lock(&set.head.lock, free, slot) {
                Ok(()) => return Ok(()),
                Err(w) if w & word::LOCKED != 0 => {
                    if patience.wait(self, &set.head.lock, word::owner(w))? {
                        self.seize(set.index, &set.head.lock, word::owner(w), |_| free);
                    }
                }
                Err(w) if w == free => {}
                Err(_) => return Err(self.gone(set)),
            }
        }
    }
    pub(crate) fn unlock_set(&self, set: &SetRef<'_>) {
        edges::unlock(&set.head.lock, word::tag_bits(set.tag));
    }

    /// Why the words of a set say that it is gone: it is (EIDRM); or they are damaged, since the id table still has it (EIO): it is withdrawn
    /// from there before they change.
    pub(crate) fn gone(&self, set: &SetRef<'_>) -> Errno {
        match self.set_of_index(set.index) {
            _ if self.is_lost() => Errno::EIO,
            Some((e, now)) if e.tag() == set.tag && now.at == set.at => {
                self.damaged(Damage::Set, set.index);
                Errno::EIO
            }
            _ => Errno::EIDRM,
        }
    }

    /// Locks the registry for slot `slot`. REGISTRY-LOCK. Err: see [`Wait`].
    pub(crate) fn lock_registry(&self, t: &Thread, slot: u32, wait: Wait) -> Result<(), Errno> {
        let lock = &self.arena.header().registry;
        let mut patience = Patience::new(t, slot, Lock::Registry, wait);
        while let Err(w) = edges::try_lock(lock, 0, slot) {
            if w & word::LOCKED != 0 {
                if patience.wait(self, lock, word::owner(w))? {
                    self.seize(NO_SET, lock, word::owner(w), |_| 0);
                }
            } else if w != 0 {
                // No lock word: a hostile writer. Take it over.
                self.damaged(Damage::Lock, NO_SET);
                let _ = lock.compare_exchange(w, 0, AcqRel, Relaxed);
            }
        }
        Ok(())
    }
    pub(crate) fn unlock_registry(&self) {
        edges::unlock(&self.arena.header().registry, 0);
    }

    /// Locks those cells of `nums` (ascending, no number twice) that are not COMPLEX; the caller holds the set lock.
    pub(crate) fn lock_cells(
        &self,
        t: &Thread,
        slot: u32,
        set: &SetRef<'_>,
        nums: impl Iterator<Item = u16>,
        wait: Wait,
    ) -> Result<(), Errno> {
        for num in nums {
            let cell = set.cell(num as u32).ok_or(Errno::EIO)?;
            if self.lock_cell(t, slot, set, num, cell, wait)? == CellLock::Removed {
                return Err(self.gone(set));
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

/// For [`Engine::damaged`]: no set's index.
pub(crate) const NO_SET: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::head;

    #[test]
    fn a_journal_names_what_its_section_may_hold() {
        let cell = Lock::Cell { page: 7, num: 3 };
        for (kind, num, page, named) in [
            (Kind::Idle, 3, 7, [false, false, false]),
            (Kind::Undo, 3, 7, [false, false, true]),
            (Kind::Cell, 4, 7, [false, false, false]),
            (Kind::Pair, 0, 7, [false, false, true]),
            (Kind::MultiCommit, 0, 8, [false, false, false]),
            (Kind::Set, 0, 7, [false, true, true]),
            (Kind::SetAllCommit, 0, 8, [false, false, false]),
            (Kind::Registry, 0, 0, [true, false, false]),
            (Kind::Registry, 0, 7, [true, true, true]),
            (Kind::Remove, 0, 7, [true, true, true]),
        ] {
            let h = head(kind, page, num);
            assert_eq!([Lock::Registry, Lock::Set { page: 7 }, cell].map(|l| l.is_named_by(h)), named, "{kind:?} {num} {page}");
        }
    }
}
