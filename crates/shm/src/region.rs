//! A thread's robust region (see `manyway_sync::robust`), bound to a page of an arena.

use manyway_sync::Errno;
use manyway_sync::atomic::{AtomicU64, Ordering::*};
use manyway_sync::robust::Region;

use crate::Arena;

/// Where a thread keeps its region. Zero at first; reserved at the first link and kept over forks.
pub struct ThreadRegion(AtomicU64);

impl ThreadRegion {
    /// None yet.
    pub const fn new() -> ThreadRegion {
        ThreadRegion(AtomicU64::new(0))
    }

    /// Links the robust word at the end of the arena's page at byte offset `at` into the calling thread's robust list. False: this
    /// thread's list cannot take it. Only the thread that owns `self` calls this, and not while a link of its own is in force.
    pub fn link(&self, arena: &Arena, at: u64) -> Result<bool, Errno> {
        let page = arena.page_address(at).ok_or(Errno::EIO)?;
        if self.0.load(Relaxed) == 0 {
            self.0.store(Region::reserve()?.address(), Relaxed);
        }
        // SAFETY: only `Region::reserve` above makes the address, in this process or in one that it was forked from.
        let region = unsafe { Region::from_address(self.0.load(Relaxed)) }.ok_or(Errno::EIO)?;
        // SAFETY: the page lies in the arena's shared mapping; the region is this thread's own, so that no other living thread of the
        // process links it.
        unsafe { region.link(page) }
    }

    /// Takes it out again. Only the thread that linked it calls this.
    pub fn unlink(&self) {
        // SAFETY: as in `link`.
        if let Some(region) = unsafe { Region::from_address(self.0.load(Relaxed)) } {
            // SAFETY: by this function's contract.
            unsafe { region.unlink() };
        }
    }
}

impl Default for ThreadRegion {
    fn default() -> Self {
        Self::new()
    }
}
