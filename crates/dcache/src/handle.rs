//! Counted handles, and results that are bound to the cache's guard.

use std::fmt;
use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;

use crate::Kind;
use crate::inner::Inner;
use crate::mem::{Held, NodePtr};
use crate::node::Node;

/// A counted reference to a node: keeps it in memory, also when its name is gone. It does not keep its name in the cache: [`Handle::pin`]
/// does.
pub struct Handle<I: Send + Sync + 'static> {
    /// None only while it is dropped.
    node: Option<NodePtr<I>>,
    inner: Arc<Inner<I>>,
}

impl<I: Send + Sync + 'static> Clone for Handle<I> {
    fn clone(&self) -> Self {
        Handle::new(&self.inner, self.raw().retain())
    }
}

impl<I: Send + Sync + 'static> Drop for Handle<I> {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            self.inner.release_node(node);
            self.inner.settle();
        }
    }
}

/// Of the same node.
impl<I: Send + Sync + 'static> PartialEq for Handle<I> {
    fn eq(&self, other: &Self) -> bool {
        self.raw().address() == other.raw().address()
    }
}

impl<I: Send + Sync + 'static> Eq for Handle<I> {}

impl<I: Send + Sync + 'static> fmt::Debug for Handle<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind(), self.number())
    }
}

impl<I: Send + Sync + 'static> Handle<I> {
    pub(crate) fn new(inner: &Arc<Inner<I>>, node: NodePtr<I>) -> Self {
        Handle { node: Some(node), inner: inner.clone() }
    }

    #[inline(always)]
    pub(crate) fn raw(&self) -> &Node<I> {
        self.node.as_deref().expect("a handle has its node")
    }

    pub(crate) fn is_of(&self, inner: &Inner<I>) -> bool {
        std::ptr::eq(&*self.inner, inner)
    }

    pub(crate) fn forget_in(&self) {
        self.inner.forget_in(self.raw());
    }

    /// The author's inode.
    pub fn inode(&self) -> &I {
        &self.raw().inode
    }

    /// The node's number: never used again by this cache. The root's is 1.
    pub fn number(&self) -> u64 {
        self.raw().number
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.raw().kind()
    }

    /// A symbolic link's target, if the cache has it.
    pub fn target(&self) -> Option<&[u8]> {
        self.raw().target()
    }

    /// Whether it is a directory that was removed: nothing is below it any more.
    pub fn is_removed(&self) -> bool {
        self.raw().is_removed()
    }

    /// Adds `n` to the pins, as a FUSE kernel's look-up count. A pinned node stays: neither it nor its names are evicted, and
    /// [`Cache::pinned`](crate::Cache::pinned) finds it by the number that is returned. The pins belong to the node, not to this handle.
    pub fn pin(&self, n: u32) -> u64 {
        self.inner.pin(self.raw(), n);
        self.raw().number
    }
}

impl<I: Send + Sync + 'static> Inner<I> {
    fn pinned(&self, number: u64) -> &crate::lock::Mutex<crate::mem::NumberMap<NodePtr<I>>> {
        &self.pins[(number % self.pins.len() as u64) as usize]
    }

    /// The first pin comes with a count of the node, in the map by which the number is found.
    pub(crate) fn pin(&self, node: &Node<I>, n: u32) {
        if n == 0 {
            return;
        }
        let mut map = self.pinned(node.number).lock();
        let pins = node.pins.load(Relaxed);
        node.pins.store(pins.saturating_add(n), Relaxed);
        if pins == 0 {
            map.insert(node.number, node.retain());
            self.books.pinned.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn unpin(&self, number: u64, n: u32) -> u64 {
        let gone = {
            let mut map = self.pinned(number).lock();
            let Some(node) = map.get(&number) else { return 0 };
            let left = node.pins.load(Relaxed).saturating_sub(n);
            node.pins.store(left, Relaxed);
            if left > 0 {
                return u64::from(left);
            }
            map.remove(&number)
        };
        if let Some(node) = gone {
            self.books.pinned.fetch_sub(1, Relaxed);
            self.release_node(node);
        }
        self.clock_hand.something_happened();
        self.settle();
        0
    }

    pub(crate) fn find_pinned(&self, number: u64) -> Option<NodePtr<I>> {
        if number == 1 {
            return Some(self.root().retain());
        }
        self.pinned(number).lock().get(&number).map(|n| n.retain())
    }
}

/// Where a result is, and what keeps it there.
pub(crate) enum Spot<'c, I: Send + Sync + 'static> {
    /// The node that an entry leads to, kept by a guard.
    Entry(Held<I>),
    /// The root.
    Root(&'c Node<I>),
    /// Whatever else.
    Own(Handle<I>),
}

impl<I: Send + Sync + 'static> Spot<'_, I> {
    #[inline(always)]
    pub fn node(&self) -> &Node<I> {
        match self {
            Spot::Entry(held) => held.entry().get().node().expect("an entry that was found leads to a node"),
            Spot::Root(node) => node,
            Spot::Own(handle) => handle.raw(),
        }
    }
}

/// A node that a walk found. It holds the cache's guard: while it lives, memory that others retire is not freed, so it is to be held
/// shortly, and never while the store is asked. It takes no counted reference: making it writes nothing that other threads read.
pub struct Found<'c, I: Send + Sync + 'static> {
    pub(crate) spot: Spot<'c, I>,
    pub(crate) inner: &'c Arc<Inner<I>>,
}

impl<I: Send + Sync + 'static> Found<'_, I> {
    #[inline(always)]
    fn node(&self) -> &Node<I> {
        self.spot.node()
    }

    /// The author's inode.
    #[inline(always)]
    pub fn inode(&self) -> &I {
        &self.node().inode
    }

    /// The node's number.
    #[inline(always)]
    pub fn number(&self) -> u64 {
        self.node().number
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.node().kind()
    }

    /// A counted handle, which may be kept: one write to the node, and one to the cache's own count.
    pub fn handle(&self) -> Handle<I> {
        Handle::new(self.inner, self.node().retain())
    }
}

impl<I: Send + Sync + 'static> fmt::Debug for Found<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind(), self.number())
    }
}
