//! Mounts: a directory's entry that leads to the root of another tree. A tree is mounted at one place at a time, so that its root's own
//! entry says where `..` leads.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;

use crate::entry::{self, DIRECTORY, LIVE, MOUNT};
use crate::inner::{Expiry, Inner, Trash};
use crate::mem::{NodePtr, NumberMap};
use crate::section::Slot;
use crate::{Error, Handle};

/// What lies under a mounted tree.
pub(crate) struct Covered<I> {
    node: NodePtr<I>,
    expiry: Expiry,
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
        inner.mounts.lock().insert(top.number, Covered { node: covered.retain(), expiry });
        dir.begin();
        inner.take_out(dir, names, e, &mut trash);
        // The place in the list is the one that has just become free.
        let put = inner.put_in(dir, names, new);
        dir.end();
        put.map_err(|new| {
            dir.lose();
            fresh = Some(new);
            Error::Os(12)
        })
    });
    if done.is_err()
        && fresh.as_ref().is_some_and(|f| f.node().is_some())
        && let Some(covered) = inner.mounts.lock().remove(&top.number)
    {
        covered.give_up(inner);
    }
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
        dir.begin();
        inner.take_out(dir, names, e, &mut trash);
        if let Some(new) = fresh.take() {
            let (timed, until) = covered.expiry;
            new.state.store(LIVE | DIRECTORY | timed, Relaxed);
            new.expiry.store(until, Relaxed);
            new.set_node(covered.node.retain());
            if let Err(new) = inner.put_in(dir, names, new) {
                fresh = Some(new);
                dir.lose();
            }
        } else {
            // No room to say what is there: it is asked for again.
            dir.lose();
        }
        dir.end();
        Ok(covered)
    });
    inner.dispose(trash);
    if let Some(fresh) = fresh {
        inner.release_entry(fresh);
    }
    let done = done.map(|covered| covered.give_up(inner));
    inner.settle();
    done
}
