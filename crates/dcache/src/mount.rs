//! Mounts: a directory's entry that leads to the root of another tree. A tree is mounted at one place at a time, so that its root's own
//! entry says where `..` leads.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;

use crate::entry::{self, DIRECTORY, LIVE, MOUNT};
use crate::inner::{Expiry, Inner, Trash};
use crate::mem::{NodePtr, NumberMap};
use crate::node::Word;
use crate::section::Slot;
use crate::{Error, Handle};

/// What lies under a mounted tree.
pub(crate) struct Covered<I> {
    node: NodePtr<I>,
    expiry: Expiry,
    /// The directory's word when it was covered: it is still there as long as nothing has been changed.
    word: Word,
}

/// By the number of the root that is mounted.
pub(crate) type Mounts<I> = NumberMap<Covered<I>>;

impl<I: Send + Sync + 'static> Covered<I> {
    pub fn give_up(self, inner: &Inner<I>) {
        inner.release_node(self.node);
    }
}

pub(crate) fn mount<I: Send + Sync + 'static>(
    inner: &Arc<Inner<I>>,
    directory: &Handle<I>,
    name: &[u8],
    root: &Handle<I>,
) -> Result<(), Error> {
    let slot = Slot::new(inner, directory, name)?;
    let top = root.raw();
    if !root.is_of(inner) || !top.is_root() || std::ptr::eq(top, inner.root()) {
        return Err(Error::Invalid);
    }
    let mut fresh = inner.new_entry(slot.dir.raw(), &slot.name(inner), slot.hash, LIVE | DIRECTORY | MOUNT);
    let mut trash = Trash::new();
    let done = inner.section(&[&slot], &[], Some(top), |guard, locks| {
        let (dir, names) = locks.get(slot.dir.raw());
        let own = top.dir().map(|d| &d.own).ok_or(Error::Invalid)?;
        if names.is_changing(slot.hash, &slot.name) || own.get(guard).is_some() {
            return Err(Error::Busy);
        }
        let (e, state) = slot.find(inner, guard).filter(|(_, s)| entry::kind(*s) == LIVE).ok_or(Error::NotFound)?;
        let covered = e.get().node().ok_or(Error::NotFound)?;
        if state & DIRECTORY == 0 {
            return Err(Error::NotDirectory);
        }
        if state & MOUNT != 0 {
            return Err(Error::Busy);
        }
        if inner.is_below(guard, slot.dir.raw(), top) {
            return Err(Error::Invalid);
        }
        let new = fresh.take().ok_or(Error::Os(12))?;
        new.set_node(top.retain());
        let expiry = (state & entry::TIMED, e.expiry.load(Relaxed));
        dir.begin();
        inner.take_out(dir, names, e, &mut trash);
        // The place in the list is the one that has just become free.
        let put = inner.put_in(dir, names, new);
        if put.is_err() {
            dir.lose();
        }
        dir.end();
        if let Err(new) = put {
            fresh = Some(new);
            return Err(Error::Os(12));
        }
        inner.mounts.lock().insert(top.number, Covered { node: covered.retain(), expiry, word: dir.word() });
        Ok(())
    });
    inner.dispose(trash);
    if let Some(fresh) = fresh {
        inner.release_entry(fresh);
    }
    inner.settle();
    done
}

pub(crate) fn unmount<I: Send + Sync + 'static>(inner: &Arc<Inner<I>>, directory: &Handle<I>, name: &[u8]) -> Result<(), Error> {
    let slot = Slot::new(inner, directory, name)?;
    let mut fresh = inner.new_entry(slot.dir.raw(), &slot.name(inner), slot.hash, LIVE | DIRECTORY);
    let mut trash = Trash::new();
    let done = inner.section(&[&slot], &[], None, |guard, locks| {
        let (dir, names) = locks.get(slot.dir.raw());
        let (e, _) = slot.find(inner, guard).filter(|(_, s)| s & MOUNT != 0).ok_or(Error::Invalid)?;
        let top = e.get().node().ok_or(Error::Invalid)?;
        let covered = inner.mounts.lock().remove(&top.number).ok_or(Error::Invalid)?;
        // Meanwhile it may have been forgotten, removed, or found elsewhere.
        let there = &covered.node;
        let is_there = dir.word().same_changes(covered.word)
            && !there.is_removed()
            && there.dir().is_some_and(|d| d.own.get(guard).is_none())
            && !inner.is_below(guard, slot.dir.raw(), there);
        dir.begin();
        inner.take_out(dir, names, e, &mut trash);
        let mut is_back = false;
        if let Some(new) = fresh.take_if(|_| is_there) {
            let (timed, until) = covered.expiry;
            new.state.store(LIVE | DIRECTORY | timed, Relaxed);
            new.expiry.store(until, Relaxed);
            new.set_node(there.retain());
            fresh = inner.put_in(dir, names, new).err();
            is_back = fresh.is_none();
        }
        if !is_back {
            // Or there is no room to say so: it is asked for again.
            dir.lose();
        }
        dir.end();
        Ok((covered, is_back))
    });
    inner.dispose(trash);
    if let Some(fresh) = fresh {
        inner.release_entry(fresh);
    }
    let done = done.map(|(covered, is_back)| {
        if let (false, Some(dir)) = (is_back, covered.node.dir()) {
            let (guard, _passages, _names) = (inner.reclaim.enter(), inner.rename.lock(), dir.lock());
            if dir.own.get(&guard).is_none() {
                inner.disown(&covered.node);
            }
        }
        covered.give_up(inner);
    });
    inner.settle();
    done
}
