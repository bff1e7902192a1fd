//! For benchmarks: the bare look-up of the same table, and two designs with locks over it.

use std::sync::Mutex;

use crate::mem::Held;
use crate::walk::plain;
use crate::{Cache, Handle, Walk, path};

/// The look-ups of a walk and nothing else: the walk's own lines for names and hashes, the table's for the chains; no checks, no flags, no
/// `.` or `..`.
#[inline(always)]
fn bare<I: Send + Sync + 'static, L>(cache: &Cache<I>, start: &Handle<I>, path: &[u8], lock: impl Fn() -> L) -> Option<u64> {
    let inner = &*cache.0;
    let guard = inner.reclaim.enter();
    let mut cur = start.raw();
    let mut rest = path;
    loop {
        rest = path::skip_slashes(rest);
        if rest.is_empty() {
            return Some(cur.number);
        }
        let name = path::first(rest, inner.seed);
        let _lock = lock();
        let (e, _) = inner.find(&guard, cur, inner.hash(cur, &name), &name)?;
        cur = e.get().node()?;
        rest = &rest[name.bytes.len()..];
    }
}

/// Walks `path` (names alone: no `.`, `..`, links or hook) by the lines of the walk itself, under the same guard, with the same hash and
/// table, but without noting what it has come by and looking at that again: what a walk cannot be faster than. The number of the node.
#[inline(never)]
pub fn floor<I: Send + Sync + 'static>(cache: &Cache<I>, start: &Handle<I>, path: &[u8]) -> Option<u64> {
    let inner = &*cache.0;
    let options = Walk::new();
    let (held, _) = Held::pick(inner.reclaim.enter(), |guard| {
        plain::<_, false, false>(inner, guard, start.raw(), path, &options, &mut (0..0)).ok_or(())
    })
    .ok()?;
    held.entry().node().map(|n| n.number)
}

static LOCK: Mutex<()> = Mutex::new(());

/// The bare look-ups, with one global lock taken and given back for each component.
#[inline(never)]
pub fn lock_per_component<I: Send + Sync + 'static>(cache: &Cache<I>, start: &Handle<I>, path: &[u8]) -> Option<u64> {
    bare(cache, start, path, || LOCK.lock())
}

/// The bare look-ups, with one global lock held over the walk ("fastwalk").
#[inline(never)]
pub fn lock_per_walk<I: Send + Sync + 'static>(cache: &Cache<I>, start: &Handle<I>, path: &[u8]) -> Option<u64> {
    let _lock = LOCK.lock();
    bare(cache, start, path, || ())
}

/// The bare look-ups, without any lock.
#[inline(never)]
pub fn look_ups<I: Send + Sync + 'static>(cache: &Cache<I>, start: &Handle<I>, path: &[u8]) -> Option<u64> {
    bare(cache, start, path, || ())
}
