//! A thread's robust region (see `manyway_sync::robust`), bound to a page of an arena; and the regions of threads that have ended, or have no
//! more use for them, for those that begin. A region stays mapped while the process lives: there are as many as threads were ever linked at
//! the same time.

use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::robust::{OWNER_DIED, Region, TID_MASK};
use manyway_sync::{Errno, sys};

use crate::Arena;

/// Words of a region's notes.
const NEXT: usize = 0;
/// {thread id | kept 1}. Kept: it is being linked, or its owner keeps it though it is not linked; nobody else may take it. 0: nobody's.
const OWNER: usize = 1;
/// [`Arena::serial`] of the arena whose page it shows. Another arena's page is not looked at: its file may have been cut short.
const ARENA: usize = 2;

/// How many regions are looked at for one whose thread has ended.
const LOOKED_AT: usize = 64;

/// All regions of the process, so that a thread that ends without a word leaves its region to a later one of the same arena, and one that
/// unlinks it to any other.
struct Regions(AtomicU64);

static REGIONS: Regions = Regions(AtomicU64::new(0));

impl Regions {
    fn owner(tid: u32, kept: bool) -> u64 {
        (tid as u64) << 1 | kept as u64
    }

    /// A region for thread `tid`, kept: of a thread that has ended, or a new one.
    fn take(&self, tid: u32, arena: &Arena) -> Result<Region, Errno> {
        let mut next = self.0.load(Acquire);
        for _ in 0..LOOKED_AT {
            // SAFETY: the list holds addresses of regions that this process, or the one that it was forked from, has reserved.
            let Some(region) = (unsafe { Region::from_address(next) }) else { break };
            let owner = region.notes()[OWNER].load(Acquire);
            // The word is shared, and may lie: a region that a living thread's list has in it must not be given to another one.
            let ended = || {
                let (word, of) = (region.word().load(Acquire), (owner >> 1) as u32);
                (word & OWNER_DIED != 0 || word & TID_MASK != of) && !sys::thread_exists(sys::getpid(), of)
            };
            let left = owner == 0 || owner & 1 == 0 && region.notes()[ARENA].load(Relaxed) == arena.serial() && ended();
            if left && region.notes()[OWNER].compare_exchange(owner, Self::owner(tid, true), AcqRel, Relaxed).is_ok() {
                return Ok(region);
            }
            next = region.notes()[NEXT].load(Relaxed);
        }
        let region = Region::reserve()?;
        region.notes()[OWNER].store(Self::owner(tid, true), Relaxed);
        let mut head = self.0.load(Relaxed);
        loop {
            region.notes()[NEXT].store(head, Relaxed);
            match self.0.compare_exchange_weak(head, region.address(), Release, Relaxed) {
                Ok(_) => return Ok(region),
                Err(now) => head = now,
            }
        }
    }
}

/// For [`Arena::replace_lost`]: the pages of the arena that regions show.
pub(crate) fn replace_lost(arena: &Arena, address: usize, first: &dyn Fn()) -> bool {
    let mut next = REGIONS.0.load(Acquire);
    // SAFETY: as in `Regions::take`.
    while let Some(region) = unsafe { Region::from_address(next) } {
        if address.wrapping_sub(region.address() as usize) < manyway_sync::memory::PAGE {
            if region.notes()[ARENA].load(Relaxed) != arena.serial() {
                return false;
            }
            first();
            // SAFETY: the page that it showed is lost; the word that the kernel may mark in its stead lies in memory of the process.
            return unsafe { region.forget_page() };
        }
        next = region.notes()[NEXT].load(Relaxed);
    }
    false
}

/// Where a thread keeps its region. Zero at first; taken at the first link, kept over forks, and left to others by [`ThreadRegion::unlink`].
pub struct ThreadRegion(AtomicU64);

impl ThreadRegion {
    /// None yet.
    pub const fn new() -> ThreadRegion {
        ThreadRegion(AtomicU64::new(0))
    }

    fn get(&self) -> Option<Region> {
        // SAFETY: the address came from `Regions::take`, in this process or in one that it was forked from.
        unsafe { Region::from_address(self.0.load(Relaxed)) }
    }

    /// Links the robust word at the end of the arena's page at byte offset `at` into the calling thread's robust list. False: this
    /// thread's list cannot take it. Only the thread that owns `self` calls this, and not while a link of its own is in force.
    pub fn link(&self, arena: &Arena, at: u64) -> Result<bool, Errno> {
        let page = arena.page_address(at).ok_or(Errno::EIO)?;
        let tid = sys::gettid();
        let region = match self.get() {
            Some(own) => own,
            None => REGIONS.take(tid, arena)?,
        };
        self.0.store(region.address(), Relaxed);
        region.notes()[OWNER].store(Regions::owner(tid, true), Release);
        region.notes()[ARENA].store(arena.serial(), Relaxed);
        // SAFETY: the page lies in the arena's shared mapping; the region is this thread's own, so that no other living thread of the
        // process links it.
        let linked = unsafe { region.link(page) }?;
        // Not linked, its end cannot be seen: it stays this thread's.
        region.notes()[OWNER].store(Regions::owner(tid, !linked), Release);
        Ok(linked)
    }

    /// Takes it out again. Only the thread that linked it calls this.
    pub fn unlink(&self) {
        if let Some(region) = self.get() {
            let owner = &region.notes()[OWNER];
            owner.store(owner.load(Relaxed) | 1, Release);
            // SAFETY: by this function's contract.
            unsafe { region.unlink() };
            // The arena's page must not be held by a region that nobody uses. One that still shows it stays this thread's.
            // SAFETY: it is not linked any more, and this thread's.
            if unsafe { region.forget_page() } {
                self.0.store(0, Relaxed);
                owner.store(0, Release);
            }
        }
    }
}

impl Default for ThreadRegion {
    fn default() -> Self {
        Self::new()
    }
}
