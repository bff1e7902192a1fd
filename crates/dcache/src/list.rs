//! Directories whose listing is known to be complete.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;

use crate::binding::To;
use crate::entry::{self, LIVE, MOUNT, TIMED};
use crate::inner::{Inner, Trash};
use crate::node::{Node, Word};
use crate::section::Slot;
use crate::{Binding, Error, Handle, Kind, Ttl};

/// A listing of a directory that the store is asked for. When all names were put and nothing came between, the directory is *complete*:
/// names that the cache does not have there are absent, without asking.
#[must_use]
pub struct Listing<I: Send + Sync + 'static> {
    inner: Arc<Inner<I>>,
    directory: Handle<I>,
    since: Word,
    trees: u32,
    /// All names were kept.
    whole: bool,
}

impl<I: Send + Sync + 'static> Listing<I> {
    pub(crate) fn begin(inner: &Arc<Inner<I>>, directory: &Handle<I>) -> Result<Self, Error> {
        let dir = directory.raw().dir().ok_or(Error::NotDirectory)?;
        // In the lock no change is half made.
        if !directory.is_of(inner) {
            return Err(Error::Invalid);
        }
        let trees = inner.trees_forgotten();
        let since = {
            let _names = dir.lock();
            if directory.is_removed() {
                return Err(Error::NotFound);
            }
            if directory.raw().is_evicted() {
                return Err(Error::Stale);
            }
            dir.word()
        };
        Ok(Listing { inner: inner.clone(), directory: directory.clone(), since, trees, whole: true })
    }

    /// The directory.
    pub fn directory(&self) -> &Handle<I> {
        &self.directory
    }

    /// A name that the store has listed, and for how long it may be believed. A new binding without [`Binding::id`] leaves a node of its
    /// kind that the name leads to already. False: it was not kept (a change of the name is under way or has come since the listing began,
    /// no room), and the directory will not be complete.
    ///
    /// # Panics
    /// If the binding is a handle of another cache.
    pub fn put(&mut self, name: &[u8], binding: Binding<I>, ttl: Ttl) -> bool {
        self.node(name, binding, ttl).1
    }

    /// As [`Listing::put`], with the node: the one that the name leads to in the cache, if it was kept.
    pub fn node(&mut self, name: &[u8], binding: Binding<I>, ttl: Ttl) -> (Handle<I>, bool) {
        let inner = self.inner.clone();
        let anonymous = match &binding.0 {
            To::New { kind, id: None, .. } => Some(*kind),
            _ => None,
        };
        let expiry = inner.expiry(ttl);
        let (node, room) = inner.node_of(binding, expiry.is_some());
        let node = Handle::new(&inner, node);
        let (found, kept) = match (Slot::new(&inner, &self.directory, name), expiry.filter(|_| room)) {
            (Ok(slot), Some(expiry)) => self.put_node(&slot, &node, expiry, anonymous),
            _ => (None, false),
        };
        self.whole &= kept;
        (found.unwrap_or(node), kept)
    }

    fn put_node(
        &mut self,
        slot: &Slot<I>,
        node: &Handle<I>,
        (timed, until): (u32, u32),
        anonymous: Option<Kind>,
    ) -> (Option<Handle<I>>, bool) {
        let inner = &self.inner.clone();
        let mut since = self.since;
        let handle = node;
        let node = handle.raw();
        let mut fresh = inner.new_entry(slot.dir.raw(), &slot.name(inner), slot.hash, LIVE | node.binding() | timed);
        let moving = (node.dir().is_some() && (node.id().is_some() || node.refs.load(Acquire) > 1)).then_some(node);
        let mut trash = Trash::new();
        let outcome = inner.section(&[slot], &[], moving, |guard, locks| {
            let (dir, names) = locks.get(slot.dir.raw());
            if slot.dir.is_removed()
                || !dir.word().same_version(since)
                || self.trees != inner.trees_forgotten()
                || names.is_changing(slot.hash, &slot.name)
            {
                return (None, false);
            }
            let old = slot.find(inner, guard);
            if let Some((e, state)) = old
                && entry::kind(state) == LIVE
                && let Some(there) = e.node()
            {
                let same = state & MOUNT != 0
                    || std::ptr::eq(there, node)
                    || anonymous.is_some_and(|kind| there.kind() == kind) && !inner.is_over(state, &e);
                if same {
                    if state & timed & TIMED != 0 {
                        e.expiry.store(until, Relaxed);
                    }
                    return (Some(there.retain()), true);
                }
            }
            if moving.is_some_and(|m| m.is_root() || inner.is_below(guard, slot.dir.raw(), m)) {
                return (None, false);
            }
            let Some(new) = fresh.take() else { return (None, false) };
            new.expiry.store(until, Relaxed);
            new.set_node(node.retain());
            if let Some(own) = moving.and_then(|m| m.dir()).and_then(|d| d.own.get(guard)) {
                let (elsewhere, names) = locks.get(own.get().parent());
                // It is not there any more: what the store has said of that name does not go.
                elsewhere.doubt();
                inner.take_out_moving(elsewhere, names, own, &mut trash);
            }
            let (dir, names) = locks.get(slot.dir.raw());
            let old = slot.find(inner, guard);
            let replaces = old.is_some_and(|(_, state)| entry::kind(state) == LIVE);
            if replaces {
                // VERSION: between the kill of what holds and its successor a complete directory does not say that there is nothing.
                dir.begin();
            }
            if let Some((e, _)) = old {
                inner.take_out(dir, names, e, &mut trash);
            }
            let put = inner.put_in(dir, names, new);
            if put.is_err() {
                dir.lose();
            }
            if replaces {
                dir.end();
                // The listing's own change.
                since = dir.word();
            }
            match put {
                Ok(()) => (None, true),
                Err(new) => {
                    fresh = Some(new);
                    (None, false)
                }
            }
        });
        self.since = since;
        inner.dispose(trash);
        if let Some(fresh) = fresh {
            inner.release_entry(fresh);
            inner.settle();
        }
        (outcome.0.map(|n| Handle::new(inner, n)), outcome.1)
    }

    /// The store has listed everything. True: the directory is complete, for `ttl`. A listing that ends otherwise (dropped, part of the
    /// names) leaves the names it has put and sets nothing.
    pub fn complete(self, ttl: Ttl) -> bool {
        let raw: &Node<I> = self.directory.raw();
        let (Some(dir), Some((_, until)), true) = (raw.dir(), self.inner.expiry(ttl), self.whole) else { return false };
        let _names = dir.lock();
        let all = self.inner.all_forgotten();
        // Nothing was forgotten where this may lie.
        let whole = !raw.is_removed() && self.inner.trees_forgotten() == self.trees;
        whole && dir.set_complete(self.since, until, all)
    }
}
