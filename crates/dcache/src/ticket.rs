//! A name that nobody knows yet, and the one who asks the store for it.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;

use crate::entry::{self, FILLING, LIVE, NEGATIVE, PASSAGE, WAITED};
use crate::inner::{Expiry, Inner, Locks, Trash, count};
use crate::mem::{EntryPtr, EntryRef, NodePtr};
use crate::node::{Node, Word};
use crate::outcome::Trip;
use crate::path;
use crate::reclaim::Guard;
use crate::room::Seat;
use crate::walk::Private;
use crate::{Binding, Error, Handle, Ttl};

/// The right and the duty to say what a name leads to. While it is held, others who want the name wait. Dropped without an answer, those
/// who wait are released, and one of them gets the next ticket. It may be sent to another thread and kept for long; no lock and no guard is
/// held.
#[must_use]
pub struct Ticket<I: Send + Sync + 'static> {
    inner: Arc<Inner<I>>,
    directory: Handle<I>,
    name: Box<[u8]>,
    hash: u32,
    /// The directory's word when the ticket was handed out, and the cache's count of forgotten trees.
    word: Word,
    trees: u32,
    /// FILLING; or LIVE and REVALIDATING. None: there was no room for it, and nobody waits. Taken by the answer.
    entry: Option<EntryPtr<I>>,
    stale: bool,
    known: Option<Handle<I>>,
    trip: Option<Trip<I>>,
}

/// What became of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// In the table; and this walk's own, should it be evicted, or its time be over, before the walk ends. The directory's word.
    Kept(Word),
    /// No room, or not to be kept: for this walk alone, as long as nothing is changed in the directory.
    Private(Word),
    /// Something has changed: to be asked again.
    Overtaken,
}

/// What a directory says to who wants a ticket for a name.
pub(crate) enum Opened<I: Send + Sync + 'static> {
    Ticket(Ticket<I>),
    /// The name has become known.
    Again,
    /// The directory was evicted between the walk and this.
    Orphan,
    Wait(Seat),
}

impl<I: Send + Sync + 'static> Ticket<I> {
    /// No lock and no guard is held. The trip is taken only for a ticket.
    pub(crate) fn open(inner: &Arc<Inner<I>>, directory: &Handle<I>, name: &[u8], trip: impl FnOnce() -> Trip<I>) -> Opened<I> {
        let parent = directory.raw();
        let Some(dir) = parent.dir() else { return Opened::Again };
        let looked = path::first(name, inner.seed);
        let hash = inner.hash(parent, &looked);
        let entry = inner.new_entry(parent, &looked, hash, FILLING);
        let mut names = dir.lock();
        let guard = inner.reclaim.enter();
        let (word, trees) = (dir.word(), inner.trees_forgotten());
        let opened = if parent.is_evicted() {
            Opened::Orphan
        } else if let Some(change) = names.changing.iter_mut().find(|c| c.hash == hash && *c.name == *name) {
            change.waited = true;
            inner.rooms.sit(Inner::change_key(parent, hash), || true).map_or(Opened::Again, Opened::Wait)
        } else if parent.is_removed() || inner.find(&guard, parent, hash, &looked).is_some() || inner.is_complete(dir, word) {
            Opened::Again
        } else {
            let mine = entry.and_then(|e| {
                let mine = e.retain();
                match inner.put_in(dir, &mut names, e) {
                    Ok(()) => Some(mine),
                    Err(e) => {
                        inner.release_entry(e);
                        inner.release_entry(mine);
                        None
                    }
                }
            });
            drop((guard, names));
            count(&inner.books.misses);
            return Opened::Ticket(Ticket {
                inner: inner.clone(),
                directory: directory.clone(),
                name: name.into(),
                hash,
                word,
                trees,
                entry: mine,
                stale: false,
                known: None,
                trip: Some(trip()),
            });
        };
        drop((guard, names));
        if let Some(entry) = entry {
            inner.release_entry(entry);
            inner.settle();
        }
        opened
    }

    /// For an entry on which REVALIDATING was set by the caller.
    pub(crate) fn stale(inner: &Arc<Inner<I>>, entry: EntryPtr<I>, trip: Trip<I>) -> Ticket<I> {
        count(&inner.books.stale);
        let parent = entry.parent();
        let directory = Handle::new(inner, parent.retain());
        let known = entry.node().map(|n| Handle::new(inner, n.retain()));
        let word = parent.dir().expect("a parent is a directory").word();
        let (name, hash) = (entry.borrow().name().into(), entry.hash);
        let trees = inner.trees_forgotten();
        Ticket { inner: inner.clone(), directory, name, hash, word, trees, entry: Some(entry), stale: true, known, trip: Some(trip) }
    }

    /// The directory in which the name is to be looked up.
    pub fn directory(&self) -> &Handle<I> {
        &self.directory
    }

    /// The name.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether the name was known and its time is over ([`Outcome::Stale`](crate::Outcome::Stale)).
    pub fn is_stale(&self) -> bool {
        self.stale
    }

    /// What a stale name led to; none: it did not exist, or the ticket is not a stale name's.
    pub fn known(&self) -> Option<&Handle<I>> {
        self.known.as_ref()
    }

    /// The name leads to this. For a stale one: from now on, which may be the same as before.
    ///
    /// # Panics
    /// If the binding is a handle of another cache.
    pub fn publish(self, binding: Binding<I>, ttl: Ttl) -> Filled<I> {
        let expiry = self.inner.expiry(ttl);
        // Of a directory that others may know already, the place is looked at.
        let (node, room) = self.inner.node_of(binding, expiry.is_some());
        self.answer(Some(node), expiry, room)
    }

    /// The name does not exist: the store has said so with authority.
    pub fn absent(self, ttl: Ttl) -> Filled<I> {
        let expiry = self.inner.expiry(ttl);
        let room = expiry.is_some() && self.inner.room_for_negative();
        self.answer(None, expiry, room)
    }

    /// A stale name: it is as it was. As a drop if the ticket is not a stale name's.
    pub fn same(mut self, ttl: Ttl) -> Filled<I> {
        if !self.stale {
            self.give_up(Ok(()));
            let trip = self.trip.take().expect("a ticket has its trip");
            return Filled { trip, kept: false, node: None };
        }
        let expiry = self.inner.expiry(ttl);
        let node = self.known.as_ref().map(|k| k.raw().retain());
        self.answer(node, expiry, true)
    }

    /// The store could not say. Those who wait at this moment get the same error; nothing is kept.
    pub fn failed(mut self, error: Error) {
        self.give_up(Err(error));
    }

    fn give_up(&mut self, outcome: Result<(), Error>) {
        let Some(entry) = self.entry.take() else { return };
        let mut trash = Trash::new();
        let old = if self.stale {
            entry.revalidated(None)
        } else {
            let (dir, mut names) = self.directory.raw().dir().map(|d| (d, d.lock())).expect("a ticket's is a directory");
            (entry::kind(entry.state.load(Acquire)) == FILLING).then(|| self.inner.take_out(dir, &mut names, entry.borrow(), &mut trash))
        };
        if old.is_some_and(|s| s & WAITED != 0) {
            self.inner.rooms.call(entry.borrow().address(), outcome);
        }
        self.inner.dispose(trash);
        self.inner.release_entry(entry);
        self.inner.settle();
    }

    fn answer(mut self, node: Option<NodePtr<I>>, expiry: Option<Expiry>, room: bool) -> Filled<I> {
        let handle = node.map(|n| Handle::new(&self.inner, n));
        let fate = self.settle(handle.as_ref().map(|h| h.raw()), expiry.filter(|_| room));
        match fate {
            Fate::Kept(_) => self.inner.clock_hand.something_happened(),
            Fate::Overtaken => count(&self.inner.books.overtaken),
            Fate::Private(_) if expiry.is_some() => count(&self.inner.books.refused),
            _ => {}
        }
        let mut trip = self.trip.take().expect("a ticket has its trip");
        if let Fate::Kept(word) | Fate::Private(word) = fate {
            let name = std::mem::take(&mut self.name);
            trip.private.push(Private { dir: self.directory.clone(), name, word, trees: self.trees, node: handle.clone() });
        }
        Filled { trip, kept: matches!(fate, Fate::Kept(_)), node: handle }
    }

    /// Brings the answer into the table.
    fn settle(&mut self, node: Option<&Node<I>>, expiry: Option<Expiry>) -> Fate {
        let inner = &*self.inner;
        let mine = self.entry.take();
        // What a stale name is replaced with.
        let changed = self.stale && self.known.as_ref().map(|k| k.number()) != node.map(|n| n.number);
        let binding = node.map_or(NEGATIVE, Node::binding);
        let mut fresh = None;
        if let (true, Some((timed, expiry))) = (changed, expiry) {
            let looked = path::first(&self.name, inner.seed);
            fresh = inner.new_entry(self.directory.raw(), &looked, self.hash, LIVE | binding | timed);
            if let Some(fresh) = &fresh {
                fresh.expiry.store(expiry, Relaxed);
                if let Some(node) = node {
                    fresh.set_node(node.retain());
                }
            }
        }
        let mut trash = Trash::new();
        let mut woken = false;
        let fate = {
            let guard = inner.reclaim.enter();
            self.settle_under(&guard, mine.as_ref(), node, binding, expiry, &mut fresh, &mut trash, &mut woken)
        };
        if let (true, Some(mine)) = (woken, &mine) {
            inner.rooms.call(mine.borrow().address(), Ok(()));
        }
        inner.dispose(trash);
        for left in mine.into_iter().chain(fresh) {
            inner.release_entry(left);
        }
        inner.settle();
        fate
    }

    #[allow(clippy::too_many_arguments)]
    fn settle_under(
        &self,
        guard: &Guard,
        mine: Option<&EntryPtr<I>>,
        node: Option<&Node<I>>,
        binding: u32,
        expiry: Option<Expiry>,
        fresh: &mut Option<EntryPtr<I>>,
        trash: &mut Trash<I>,
        woken: &mut bool,
    ) -> Fate {
        let inner = &*self.inner;
        let parent = self.directory.raw();
        // A directory that others may know has one place: who gives it another takes the first away, in the rename lock.
        let moving = node.filter(|n| n.dir().is_some() && (n.id().is_some() || n.refs.load(Relaxed) > 1));
        let _passages =
            (moving.is_some() || self.stale && mine.is_some_and(|e| e.state.load(Acquire) & PASSAGE != 0)).then(|| inner.rename.lock());
        let elsewhere: Option<EntryRef<'_, I>> = moving.and_then(|n| n.dir()).and_then(|d| d.own.get(guard)).filter(|own| {
            // Not its own place, whose time is over.
            !(std::ptr::eq(own.parent(), parent) && own.name() == &*self.name)
        });
        let mut locks = Locks::of([Some(parent), elsewhere.map(|e| e.get().parent())].into_iter().flatten());
        let (dir, names) = locks.get(parent);

        let looked = path::first(&self.name, inner.seed);
        let overtaken = parent.is_removed()
            || match mine {
                Some(e) if self.stale => !e.is_live() || names.is_changing(self.hash, &self.name),
                Some(e) => entry::kind(e.state.load(Acquire)) != FILLING,
                None => {
                    names.is_changing(self.hash, &self.name)
                        || !dir.word().same_changes(self.word)
                        || self.trees != inner.trees_forgotten()
                        || inner.find(guard, parent, self.hash, &looked).is_some()
                }
            };
        if overtaken {
            match mine {
                Some(e) if self.stale => *woken = e.revalidated(None).is_some_and(|s| s & WAITED != 0),
                // The directory was removed, and this is still there.
                Some(e) if entry::kind(e.state.load(Acquire)) == FILLING => {
                    inner.take_out(dir, names, e.borrow(), trash);
                }
                _ => {}
            }
            return Fate::Overtaken;
        }
        let looped = moving.is_some_and(|n| n.is_root() || inner.is_below(guard, parent, n));
        'keep: {
            let (Some((timed, until)), Some(mine), false) = (expiry, mine, looped) else { break 'keep };
            if self.stale && fresh.is_none() {
                if self.known.as_ref().map(|k| k.number()) != node.map(|n| n.number) {
                    break 'keep;
                }
                *woken = mine.revalidated(Some((timed, until))).is_some_and(|s| s & WAITED != 0);
                return Fate::Kept(dir.word());
            }
            if let Some(old) = elsewhere {
                let (dir, names) = locks.get(old.get().parent());
                // It is not there any more: what the store has said of that name does not go.
                dir.doubt();
                inner.take_out_moving(dir, names, old, trash);
            }
            let (dir, names) = locks.get(parent);
            if let Some(new) = fresh.take() {
                // VERSION: between the kill of what held and its successor a complete directory does not say that there is nothing.
                dir.begin();
                inner.take_out(dir, names, mine.borrow(), trash);
                let put = inner.put_in(dir, names, new);
                if put.is_err() {
                    dir.lose();
                }
                dir.end();
                let Err(new) = put else { return Fate::Kept(dir.word()) };
                *fresh = Some(new);
                return Fate::Private(dir.word());
            }
            // BIND: the node first. Who comes to the entry by the directory itself does so before it is LIVE.
            if let Some(node) = node {
                mine.set_node(node.retain());
                if let Some(below) = node.dir() {
                    below.own.set(mine);
                }
            }
            let old = mine.publish(binding | timed, until);
            *woken = old & WAITED != 0;
            if binding & NEGATIVE != 0 {
                inner.books.negatives.fetch_add(1, Relaxed);
            }
            return Fate::Kept(dir.word());
        }
        let (dir, names) = locks.get(parent);
        dir.lose();
        if let Some(mine) = mine {
            inner.take_out(dir, names, mine.borrow(), trash);
        }
        Fate::Private(dir.word())
    }
}

impl<I: Send + Sync + 'static> Inner<I> {
    /// The root of the mounted tree in which a directory lies; None: the cache does not know. In the rename lock.
    pub(crate) fn tree_of(&self, guard: &Guard, dir: &Node<I>) -> Option<u64> {
        let mut cur = dir;
        while !cur.is_root() {
            cur = cur.dir()?.own.get(guard)?.get().parent();
        }
        Some(cur.number)
    }

    /// Whether a directory is `above` or lies below it. In the rename lock.
    pub(crate) fn is_below(&self, guard: &Guard, dir: &Node<I>, above: &Node<I>) -> bool {
        let mut cur = dir;
        loop {
            if std::ptr::eq(cur, above) {
                return true;
            }
            match cur.dir().and_then(|d| d.own.get(guard)) {
                Some(own) => cur = own.get().parent(),
                None => return false,
            }
        }
    }
}

impl<I: Send + Sync + 'static> Drop for Ticket<I> {
    fn drop(&mut self) {
        self.give_up(Ok(()));
    }
}

/// A ticket that was answered: the walk can go on with [`Cache::resume`](crate::Cache::resume).
pub struct Filled<I: Send + Sync + 'static> {
    pub(crate) trip: Trip<I>,
    pub(crate) kept: bool,
    pub(crate) node: Option<Handle<I>>,
}

impl<I: Send + Sync + 'static> Filled<I> {
    /// Whether the answer is in the cache now. No: a change or an invalidation came between the question and the answer, there was no room
    /// for it, or its time to live is nothing. Then it is the asker's alone.
    pub fn kept(&self) -> bool {
        self.kept
    }

    /// What the name leads to; none: it does not exist.
    pub fn node(&self) -> Option<&Handle<I>> {
        self.node.as_ref()
    }
}
