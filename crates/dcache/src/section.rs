//! The section in which names are changed: which locks it takes, and how a change reserves its names.

use smallvec::SmallVec;

use crate::entry::{self, FILLING, LIVE, MOUNT, PASSAGE};
use crate::inner::{Inner, Locks, Trash, count};
use crate::mem::EntryRef;
use crate::node::{Changing, Node};
use crate::path::{self, Name};
use crate::reclaim::Guard;
use crate::{Error, Handle};

/// A name in a directory.
pub(crate) struct Slot<I: Send + Sync + 'static> {
    pub dir: Handle<I>,
    pub name: Box<[u8]>,
    pub hash: u32,
}

impl<I: Send + Sync + 'static> Slot<I> {
    pub fn new(inner: &Inner<I>, dir: &Handle<I>, name: &[u8]) -> Result<Self, Error> {
        if !dir.is_of(inner) {
            return Err(Error::Invalid);
        }
        if dir.raw().dir().is_none() {
            return Err(Error::NotDirectory);
        }
        let looked = inner.name(name)?;
        Ok(Slot { dir: dir.clone(), name: name.into(), hash: inner.hash(dir.raw(), &looked) })
    }

    pub fn name(&self, inner: &Inner<I>) -> Name<'_> {
        path::first(&self.name, inner.seed)
    }

    pub fn find<'g>(&self, inner: &Inner<I>, guard: &'g Guard) -> Option<(EntryRef<'g, I>, u32)> {
        inner.find(guard, self.dir.raw(), self.hash, &self.name(inner))
    }

    pub fn is(&self, other: &Slot<I>) -> bool {
        self.dir == other.dir && self.name == other.name
    }

    /// In this order a change reserves its names.
    fn order(&self) -> (u64, &[u8]) {
        (self.dir.number(), &self.name)
    }
}

/// What the cache knows of a name.
pub(crate) enum Known<I: Send + Sync + 'static> {
    /// It leads to this node; whether something is mounted there.
    Node(Handle<I>, bool),
    Absent,
    Unknown,
}

pub(crate) type KnownNames<I> = SmallVec<[Known<I>; 2]>;

impl<I: Send + Sync + 'static> Known<I> {
    pub fn node(&self) -> Option<&Handle<I>> {
        match self {
            Known::Node(node, _) => Some(node),
            _ => None,
        }
    }
}

impl<I: Send + Sync + 'static> Inner<I> {
    /// Runs `f` with the locks that a change of the slots' names needs: their directories', those of the directories that they lead to,
    /// `more`; and the rename lock, if a passage comes to its end or `moving`, a directory, gets a place. No lock is held.
    pub(crate) fn section<R>(
        &self,
        slots: &[&Slot<I>],
        more: &[&Node<I>],
        moving: Option<&Node<I>>,
        f: impl FnOnce(&Guard, &mut Locks<'_, I>) -> R,
    ) -> R {
        let mut with_rename = moving.is_some();
        loop {
            let guard = self.reclaim.enter();
            let _passages = with_rename.then(|| self.rename.lock());
            let mut dirs: SmallVec<[&Node<I>; 8]> = slots.iter().map(|s| s.dir.raw()).chain(more.iter().copied()).collect();
            for slot in slots {
                if let Some((e, state)) = slot.find(self, &guard) {
                    with_rename |= state & PASSAGE != 0;
                    dirs.extend(e.get().node().filter(|n| n.dir().is_some()));
                }
            }
            if with_rename && _passages.is_none() {
                continue;
            }
            dirs.extend(moving.and_then(|m| m.dir()).and_then(|d| d.own.get(&guard)).map(|own| own.get().parent()));
            let mut locks = Locks::of(dirs);
            // What was there may have come since.
            let all = slots.iter().all(|slot| match slot.find(self, &guard) {
                Some((e, state)) => {
                    with_rename |= state & PASSAGE != 0;
                    (_passages.is_some() || state & PASSAGE == 0) && e.node().is_none_or(|n| n.dir().is_none() || locks.has(n))
                }
                None => true,
            });
            if all {
                return f(&guard, &mut locks);
            }
        }
    }

    /// Reserves the names of a change: no fill of them is kept, and no other change of them begins, until `release`. What the cache knows
    /// of each.
    pub(crate) fn reserve_names(&self, slots: &[&Slot<I>], handle: impl Fn(&Node<I>) -> Handle<I>) -> Result<KnownNames<I>, Error> {
        let mut order: SmallVec<[usize; 2]> = (0..slots.len()).collect();
        order.sort_by(|&a, &b| slots[a].order().cmp(&slots[b].order()));
        let mut known: KnownNames<I> = slots.iter().map(|_| Known::Unknown).collect();
        let mut trash = Trash::new();
        for (n, &i) in order.iter().enumerate() {
            match self.reserve_name(slots[i], &mut trash, &handle) {
                Ok(k) => known[i] = k,
                Err(e) => {
                    self.dispose(trash);
                    let before: SmallVec<[&Slot<I>; 2]> = order[..n].iter().map(|&i| slots[i]).collect();
                    self.release_names(&before);
                    return Err(e);
                }
            }
        }
        self.dispose(trash);
        Ok(known)
    }

    fn reserve_name(&self, slot: &Slot<I>, trash: &mut Trash<I>, handle: &impl Fn(&Node<I>) -> Handle<I>) -> Result<Known<I>, Error> {
        let parent = slot.dir.raw();
        let dir = parent.dir().ok_or(Error::NotDirectory)?;
        loop {
            let mut names = dir.lock();
            if parent.is_removed() {
                return Err(Error::NotFound);
            }
            if parent.is_evicted() {
                return Err(Error::Stale);
            }
            if let Some(other) = names.changing.iter_mut().find(|c| c.hash == slot.hash && *c.name == *slot.name) {
                other.waited = true;
                let seat = self.rooms.sit(Inner::change_key(parent, slot.hash), || true);
                drop(names);
                count(&self.books.waits);
                if let Some(seat) = seat {
                    seat.wait()?;
                }
                continue;
            }
            let begun_in = self.trees_forgotten();
            names.changing.push(Changing { hash: slot.hash, name: slot.name.clone(), waited: false, forgotten: false, begun_in });
            let guard = self.reclaim.enter();
            return Ok(match slot.find(self, &guard) {
                // Whoever has asked may have been told what the store is going to do now.
                Some((e, state)) if entry::kind(state) == FILLING => {
                    self.take_out(dir, &mut names, e, trash);
                    Known::Unknown
                }
                Some((e, state)) if entry::kind(state) == LIVE && !self.is_over(state, &e) => match e.node() {
                    Some(node) => Known::Node(handle(node), state & MOUNT != 0),
                    None => Known::Absent,
                },
                Some(_) => Known::Unknown,
                None if self.is_complete(dir, dir.word()) => Known::Absent,
                None => Known::Unknown,
            });
        }
    }

    /// The end of a change: who waits for it goes on.
    pub(crate) fn release_names(&self, slots: &[&Slot<I>]) {
        for slot in slots {
            let parent = slot.dir.raw();
            let Some(dir) = parent.dir() else { continue };
            let mut names = dir.lock();
            let Some(i) = names.changing.iter().position(|c| c.hash == slot.hash && c.name == slot.name) else { continue };
            let change = names.changing.swap_remove(i);
            drop(names);
            if change.waited {
                self.rooms.call(Inner::change_key(parent, slot.hash), Ok(()));
            }
        }
    }

    /// Forgets what is known of the names, in a section of theirs. What is mounted stays.
    pub(crate) fn forget(&self, guard: &Guard, locks: &mut Locks<'_, I>, slots: &[&Slot<I>], trash: &mut Trash<I>) {
        for slot in slots {
            let (dir, names) = locks.get(slot.dir.raw());
            dir.doubt();
            if let Some((e, state)) = slot.find(self, guard)
                && state & MOUNT == 0
            {
                self.take_out(dir, names, e, trash);
            }
        }
    }
}
