//! For benchmarks: the bare look-up of the same table, and two designs with locks over it.

use crate::{Cache, Handle};

/// Walks `path` (names and single slashes alone: no `.`, `..`, links or hook) with the same guard, hash and table, and no checks: what a walk cannot be faster than. The
/// number of the node.
pub fn floor<I: Send + Sync + 'static>(_cache: &Cache<I>, _start: &Handle<I>, _path: &[u8]) -> Option<u64> {
    todo!()
}

/// As [`floor`], with one global lock taken and given back for each component.
pub fn lock_per_component<I: Send + Sync + 'static>(_cache: &Cache<I>, _start: &Handle<I>, _path: &[u8]) -> Option<u64> {
    todo!()
}

/// As [`floor`], with one global lock held over the walk ("fastwalk").
pub fn lock_per_walk<I: Send + Sync + 'static>(_cache: &Cache<I>, _start: &Handle<I>, _path: &[u8]) -> Option<u64> {
    todo!()
}
