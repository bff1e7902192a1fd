//! Counted handles, and results that are bound to the cache's guard.

use crate::Kind;

/// A counted reference to a node: keeps it in memory, also when its name is gone. It does not keep its name in the cache: [`Handle::pin`] does.
pub struct Handle<I>(std::sync::Arc<I>);

impl<I> Clone for Handle<I> {
    fn clone(&self) -> Self {
        todo!()
    }
}

/// Of the same node of the same cache.
impl<I> PartialEq for Handle<I> {
    fn eq(&self, _other: &Self) -> bool {
        todo!()
    }
}

impl<I> Eq for Handle<I> {}

impl<I> Handle<I> {
    /// The author's inode.
    pub fn inode(&self) -> &I {
        todo!()
    }

    /// The node's number: never used again by this cache. The root's is 1.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        todo!()
    }

    /// Whether it is a directory that was removed: nothing is below it any more.
    pub fn is_removed(&self) -> bool {
        todo!()
    }

    /// Adds `n` to the pins, as a FUSE kernel's look-up count. A pinned node stays: neither it nor its names are evicted, and [`Cache::pinned`](crate::Cache::pinned) finds
    /// it by the number that is returned. The pins belong to the node, not to this handle.
    pub fn pin(&self, _n: u32) -> u64 {
        todo!()
    }
}

/// A node that a walk found. It holds the cache's guard: while it lives, memory that others retire is not freed, so it is to be held
/// shortly, and never while the store is asked. It takes no counted reference: making it writes nothing that other threads read.
pub struct Found<'c, I: Send + Sync + 'static>(&'c I);

impl<I: Send + Sync + 'static> Found<'_, I> {
    /// The author's inode.
    pub fn inode(&self) -> &I {
        todo!()
    }

    /// The node's number.
    pub fn number(&self) -> u64 {
        todo!()
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        todo!()
    }

    /// A counted handle, which may be kept: one write to the node, and one to the cache's own count.
    pub fn handle(&self) -> Handle<I> {
        todo!()
    }
}
