//! Robust regions under `--cfg shuttle`: the simulated kernel keeps the robust word of each thread by itself.

use manyway_sync::{Errno, sim};

use crate::Arena;

/// See the real one: nothing is kept here.
#[derive(Default)]
pub struct ThreadRegion;

impl ThreadRegion {
    /// None.
    pub const fn new() -> ThreadRegion {
        ThreadRegion
    }

    /// Makes the word at the end of the arena's page at byte offset `at` the calling thread's robust word.
    pub fn link(&self, arena: &Arena, at: u64) -> Result<bool, Errno> {
        Ok(sim::link_robust(arena.page_address(at).ok_or(Errno::EIO)? as usize))
    }

    /// Takes it out again.
    pub fn unlink(&self) {
        sim::unlink_robust();
    }
}

/// See the real one: there are no regions.
pub(crate) fn replace_lost(_: &Arena, _: usize, _: &dyn Fn()) -> bool {
    false
}
