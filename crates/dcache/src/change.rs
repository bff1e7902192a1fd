//! Changes of names: begin, ask the store, commit.
//!
//! Between begin and commit the cache answers as before, and nobody's fill can bring in what the store has done already: its names are
//! *reserved*, in the lists of their directories, where whoever wants a ticket looks. Two changes of one name go one after the other: the
//! second begin waits for the end of the first. A thread must not begin a change while it holds another.
//!
//! The commit holds the locks of its directories: their versions odd, all old bindings killed, all new ones published, the versions even.
//! Who looks for a name in between finds neither old nor new, and no complete directory; it asks for a ticket, and waits for the lock.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::*;
use smallvec::SmallVec;

use crate::entry::{self, LIVE, NEGATIVE, TIMED};
use crate::inner::{Expiry, Inner, Locks, Trash, count};
use crate::mem::{EntryPtr, EntryRef};
use crate::node::Node;
use crate::reclaim::Guard;
use crate::section::{Known, KnownNames, Slot};
use crate::{Binding, Error, Handle, Kind, Ttl};

/// How a rename treats its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// What the target's name led to is replaced.
    Replace,
    /// The target must not exist (RENAME_NOREPLACE).
    NoReplace,
    /// Both exist and change places (RENAME_EXCHANGE).
    Exchange,
}

/// A name that is reserved until this ends.
struct Reserved<I: Send + Sync + 'static> {
    inner: Arc<Inner<I>>,
    first: Slot<I>,
    second: Option<Slot<I>>,
    /// Whether it is known what the store has done.
    settled: bool,
}

impl<I: Send + Sync + 'static> Reserved<I> {
    fn slots(&self) -> SmallVec<[&Slot<I>; 2]> {
        [Some(&self.first), self.second.as_ref()].into_iter().flatten().collect()
    }

    /// An entry for one of the names, if there is room.
    fn entry(&self, slot: &Slot<I>) -> Option<EntryPtr<I>> {
        self.inner.new_entry(slot.dir.raw(), &slot.name(&self.inner), slot.hash, LIVE)
    }

    /// Commits: `f` in the section of the names, with the versions odd. Then the names are free.
    fn commit(
        mut self,
        more: &[&Node<I>],
        moving: Option<&Node<I>>,
        fresh: &mut [Option<EntryPtr<I>>],
        f: impl FnOnce(&Inner<I>, &Guard, &mut Locks<'_, I>, &mut Fresh<'_, I>, &mut Trash<I>),
    ) {
        let inner = self.inner.clone();
        let mut trash = Trash::new();
        {
            let slots = self.slots();
            inner.section(&slots, more, moving, |guard, locks| {
                let mut dirs: SmallVec<[&Node<I>; 2]> = slots.iter().map(|s| s.dir.raw()).collect();
                dirs.dedup_by_key(|d| d.number);
                let now = inner.trees_forgotten();
                let forgotten = slots.iter().any(|s| locks.get(s.dir.raw()).1.is_forgotten(s.hash, &s.name, now));
                for dir in &dirs {
                    locks.get(dir).0.begin();
                }
                f(&inner, guard, locks, &mut Fresh { entries: fresh, forgotten }, &mut trash);
                if forgotten {
                    inner.forget(guard, locks, &slots, &mut trash);
                }
                for dir in &dirs {
                    locks.get(dir).0.end();
                }
            });
        }
        self.settled = true;
        drop(self);
        count(&inner.books.changes);
        for left in fresh.iter_mut().filter_map(Option::take) {
            inner.release_entry(left);
        }
        inner.dispose(trash);
        inner.settle();
    }
}

impl<I: Send + Sync + 'static> Drop for Reserved<I> {
    fn drop(&mut self) {
        let slots = self.slots();
        let mut trash = Trash::new();
        if !self.settled {
            self.inner.section(&slots, &[], None, |guard, locks| self.inner.forget(guard, locks, &slots, &mut trash));
        }
        self.inner.release_names(&slots);
        self.inner.dispose(trash);
    }
}

/// Entries that were made before the locks were taken, one for each name.
struct Fresh<'a, I> {
    entries: &'a mut [Option<EntryPtr<I>>],
    /// A name was invalidated while the change was under way: none is bound.
    forgotten: bool,
}

impl<I: Send + Sync + 'static> Fresh<'_, I> {
    /// Binds name number `i`. False: there is no room, and the directory knows it.
    fn bind(
        &mut self,
        inner: &Inner<I>,
        locks: &mut Locks<'_, I>,
        i: usize,
        slot: &Slot<I>,
        node: Option<&Node<I>>,
        (timed, until): Expiry,
    ) -> bool {
        let (dir, names) = locks.get(slot.dir.raw());
        if slot.dir.is_removed() {
            return false;
        }
        if self.forgotten {
            dir.lose();
            return false;
        }
        // A complete directory without the name says as much as a negative entry.
        if node.is_none() && inner.is_complete_within(dir) {
            return true;
        }
        let Some(entry) = self.entries[i].take() else {
            if node.is_some() {
                dir.lose();
            }
            return false;
        };
        entry.state.store(LIVE | node.map_or(NEGATIVE, Node::binding) | timed, Relaxed);
        entry.expiry.store(until, Relaxed);
        if let Some(node) = node {
            entry.set_node(node.retain());
        }
        match inner.put_in(dir, names, entry) {
            Ok(()) => true,
            Err(entry) => {
                self.entries[i] = Some(entry);
                if node.is_some() {
                    dir.lose();
                }
                false
            }
        }
    }
}

/// What is LIVE under a reserved name, if its time is not over.
struct Old<'g, I> {
    node: Option<&'g Node<I>>,
    expiry: Expiry,
}

impl<I: Send + Sync + 'static> Inner<I> {
    /// Takes out what a reserved name has. `moving`: what it leads to gets another name in this section.
    fn end_name(&self, guard: &Guard, locks: &mut Locks<'_, I>, slot: &Slot<I>, moving: bool, trash: &mut Trash<I>) {
        if let Some((e, _)) = slot.find(self, guard) {
            let (dir, names) = locks.get(slot.dir.raw());
            if moving {
                self.take_out_moving(dir, names, e, trash)
            } else {
                self.take_out(dir, names, e, trash)
            };
        }
    }

    fn old<'g>(&self, guard: &'g Guard, slot: &Slot<I>) -> Option<Old<'g, I>> {
        let (e, state): (EntryRef<'g, I>, u32) = slot.find(self, guard)?;
        let holds = entry::kind(state) == LIVE && !self.is_over(state, &e);
        holds.then(|| Old { node: e.get().node(), expiry: (state & TIMED, e.expiry.load(Relaxed)) })
    }

    /// A directory that is no more: nothing comes below it from now on. Its lock is held.
    fn end_directory(node: Option<&Node<I>>) {
        if let Some(node) = node.filter(|n| n.dir().is_some()) {
            node.set_removed();
        }
    }
}

enum Op {
    Link,
    Unlink,
    Rename(Rename),
    Nothing,
}

/// A link, unlink, rmdir or rename that was begun. Commit it when the store has done it, drop it when not. **A drop does not know what the
/// store did**: the names are forgotten. [`Change::unchanged`] says that the store has refused.
#[must_use]
pub struct Change<I: Send + Sync + 'static> {
    reserved: Reserved<I>,
    op: Op,
    node: Option<Handle<I>>,
    target: Known<I>,
    ttl: Option<Ttl>,
}

impl<I: Send + Sync + 'static> Change<I> {
    /// For how long that which the change leaves may be believed: a new name, and that an old one is no more. If not said, as long as what the name led to
    /// before; if that is not known, until something takes it away.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The node whose name is going to change, if the cache knows it: the one that is linked, unlinked, removed or renamed.
    pub fn node(&self) -> Option<&Handle<I>> {
        self.node.as_ref()
    }

    /// What the target of a rename leads to now, if the cache knows.
    pub fn target(&self) -> Option<&Handle<I>> {
        self.target.node()
    }

    /// The store has done it: walkers see the change as a whole from here on.
    pub fn commit(self) {
        let Change { reserved, op, node, ttl, .. } = self;
        let left: Left = ttl.map(|ttl| reserved.inner.expiry(ttl));
        match op {
            Op::Nothing => reserved.settle(),
            Op::Link => {
                let node = node.expect("a link has its node");
                bind(reserved, &node, left, false);
            }
            Op::Unlink => unbind(reserved, node, left),
            Op::Rename(Rename::Exchange) => exchange(reserved, left),
            Op::Rename(_) => rename(reserved, left),
        }
    }

    /// The store has refused, and nothing is changed.
    pub fn unchanged(self) {
        self.reserved.settle();
    }
}

impl<I: Send + Sync + 'static> Reserved<I> {
    fn settle(mut self) {
        self.settled = true;
    }
}

/// The making of a name that was begun.
#[must_use]
pub struct Creation<I: Send + Sync + 'static>(Reserved<I>);

impl<I: Send + Sync + 'static> Creation<I> {
    /// The store has made it: the name leads to `binding`. A new directory is known to be empty, for as long, if `empty` says so.
    ///
    /// # Panics
    /// If the binding is a handle of another cache.
    pub fn commit(self, binding: Binding<I>, ttl: Ttl, empty: bool) -> Handle<I> {
        let inner = self.0.inner.clone();
        let expiry = inner.expiry(ttl);
        let (node, room) = inner.node_of(binding, expiry.is_some());
        let node = Handle::new(&inner, node);
        let empty = empty && node.raw().refs.load(Acquire) == 1;
        bind(self.0, &node, Some(expiry.filter(|_| room)), empty);
        node
    }

    /// The store has refused, and nothing is changed.
    pub fn unchanged(self) {
        self.0.settle();
    }
}

/// For how long what a change leaves holds: as long as what was there, if not said; None within: it is not to be kept.
type Left = Option<Option<Expiry>>;

const FOREVER: Expiry = (0, u32::MAX);

fn holds(left: Left, before: Option<Expiry>) -> Expiry {
    left.flatten().or(before).unwrap_or(FOREVER)
}

/// The name leads to `node` from now on; a directory that nobody else knows and that is empty, as long.
fn bind<I: Send + Sync + 'static>(reserved: Reserved<I>, node: &Handle<I>, left: Left, empty: bool) {
    let mut fresh = [if left == Some(None) { None } else { reserved.entry(&reserved.first) }];
    let slot = reserved.first.again();
    let node = node.raw();
    let moving = (node.dir().is_some() && (node.id().is_some() || node.refs.load(Acquire) > 1)).then_some(node);
    reserved.commit(&[], moving, &mut fresh, |inner, guard, locks, fresh, trash| {
        if moving.is_some_and(|m| m.is_root() || inner.is_below(guard, slot.dir.raw(), m)) {
            // What the store says cannot be.
            return inner.forget(guard, locks, &[&slot], trash);
        }
        let until = holds(left, inner.old(guard, &slot).map(|o| o.expiry));
        if let (true, false, Some(dir)) = (empty, fresh.forgotten, node.dir()) {
            dir.set_empty(until.1, inner.all_forgotten());
        }
        // A directory that was known under another name has moved beside the cache.
        if let Some(own) = moving.and_then(|m| m.dir()).and_then(|d| d.own.get(guard)) {
            let (dir, names) = locks.get(own.get().parent());
            dir.doubt();
            inner.take_out_moving(dir, names, own, trash);
        }
        inner.end_name(guard, locks, &slot, false, trash);
        if !fresh.bind(inner, locks, 0, &slot, Some(node), until) {
            inner.lost(node, trash);
        }
    });
}

/// The name leads nowhere from now on. `node`: what it led to at the begin, if that was known.
fn unbind<I: Send + Sync + 'static>(reserved: Reserved<I>, node: Option<Handle<I>>, left: Left) {
    let mut fresh = [if left != Some(None) && reserved.inner.room_for_negative() { reserved.entry(&reserved.first) } else { None }];
    let slot = reserved.first.again();
    let victim: SmallVec<[&Node<I>; 1]> = node.iter().map(|n| n.raw()).filter(|n| n.dir().is_some()).collect();
    reserved.commit(&victim, None, &mut fresh, |inner, guard, locks, fresh, trash| {
        let old = inner.old(guard, &slot);
        let until = holds(left, old.as_ref().map(|o| o.expiry));
        Inner::end_directory(old.and_then(|o| o.node).or(victim.first().copied()));
        inner.end_name(guard, locks, &slot, false, trash);
        fresh.bind(inner, locks, 0, &slot, None, until);
    });
    if let Some(node) = node.as_ref().filter(|n| n.is_removed()) {
        // What is left there: names that do not exist.
        node.forget_in();
    }
}

fn rename<I: Send + Sync + 'static>(reserved: Reserved<I>, left: Left) {
    let Some(to) = reserved.second.as_ref().map(Slot::again) else { return reserved.settle() };
    let from = reserved.first.again();
    let inner = reserved.inner.clone();
    let mut victim = None;
    let kept = left != Some(None);
    let negative = if kept && inner.room_for_negative() { reserved.entry(&from) } else { None };
    let mut fresh = [negative, if kept { reserved.entry(&to) } else { None }];
    reserved.commit(&[], None, &mut fresh, |inner, guard, locks, fresh, trash| {
        let (source, target) = (inner.old(guard, &from), inner.old(guard, &to));
        let target_known = target.is_some() || inner.is_complete_within(locks.get(to.dir.raw()).0);
        let replaced = target.and_then(|t| t.node);
        let moved = source.as_ref().and_then(|s| s.node);
        if moved.is_some() && moved.map(|n| n.number) == replaced.map(|n| n.number) {
            // Two names of one file: nothing happens.
            return;
        }
        Inner::end_directory(replaced);
        victim = replaced.filter(|n| n.is_removed()).map(Node::retain);
        let (Some(node), Some(source)) = (moved.filter(|n| !inner.is_below(guard, to.dir.raw(), n)), source) else {
            return inner.forget(guard, locks, &[&from, &to], trash);
        };
        let until = holds(left, Some(source.expiry));
        inner.end_name(guard, locks, &from, true, trash);
        inner.end_name(guard, locks, &to, false, trash);
        if !fresh.bind(inner, locks, 1, &to, Some(node), until) {
            inner.lost(node, trash);
        }
        if target_known || node.dir().is_some() {
            fresh.bind(inner, locks, 0, &from, None, until);
        } else {
            // The target might have been another name of the same file: then nothing has happened, and the old name is still there.
            locks.get(from.dir.raw()).0.lose();
        }
    });
    if let Some(victim) = victim {
        inner.forget_in(&victim);
        inner.release_node(victim);
        inner.settle();
    }
}

fn exchange<I: Send + Sync + 'static>(reserved: Reserved<I>, left: Left) {
    let Some(b) = reserved.second.as_ref().map(Slot::again) else { return reserved.settle() };
    let a = reserved.first.again();
    let mut fresh = if left == Some(None) { [None, None] } else { [reserved.entry(&a), reserved.entry(&b)] };
    reserved.commit(&[], None, &mut fresh, |inner, guard, locks, fresh, trash| {
        let known = |slot: &Slot<I>| inner.old(guard, slot).and_then(|o| Some((o.node?, o.expiry)));
        let (x, y) = (known(&a), known(&b));
        let looped =
            x.is_some_and(|(n, _)| inner.is_below(guard, b.dir.raw(), n)) || y.is_some_and(|(n, _)| inner.is_below(guard, a.dir.raw(), n));
        if looped {
            return inner.forget(guard, locks, &[&a, &b], trash);
        }
        inner.end_name(guard, locks, &a, x.is_some(), trash);
        inner.end_name(guard, locks, &b, y.is_some(), trash);
        for (i, slot, to) in [(0, &a, y), (1, &b, x)] {
            match to {
                Some((node, expiry)) => {
                    if !fresh.bind(inner, locks, i, slot, Some(node), holds(left, Some(expiry))) {
                        inner.lost(node, trash);
                    }
                }
                None => locks.get(slot.dir.raw()).0.lose(),
            }
        }
    });
}

impl<I: Send + Sync + 'static> Slot<I> {
    fn again(&self) -> Slot<I> {
        Slot { dir: self.dir.clone(), name: self.name.clone(), hash: self.hash }
    }
}

impl<I: Send + Sync + 'static> Inner<I> {
    /// A directory that was taken out to be put elsewhere, and was not: its own entry is the one that is DEAD.
    fn lost(&self, node: &Node<I>, trash: &Trash<I>) {
        if let Some(dir) = node.dir() {
            for dead in trash.entries() {
                dir.own.clear(dead);
            }
        }
    }

    fn begin(self: &Arc<Self>, first: Slot<I>, second: Option<Slot<I>>) -> Result<(Reserved<I>, KnownNames<I>), Error> {
        let inner = self.clone();
        let slots: SmallVec<[&Slot<I>; 2]> = [Some(&first), second.as_ref()].into_iter().flatten().collect();
        let known = self.reserve_names(&slots, |node| Handle::new(&inner, node.retain()))?;
        drop(slots);
        // Nothing has been asked of the store: what goes wrong before that changes nothing.
        Ok((Reserved { inner, first, second, settled: true }, known))
    }
}

impl<I: Send + Sync + 'static> Reserved<I> {
    /// From here on the store may be asked.
    fn begun(mut self) -> Self {
        self.settled = false;
        self
    }
}

/// What [`Cache`](crate::Cache) hands on.
pub(crate) fn create<I: Send + Sync + 'static>(inner: &Arc<Inner<I>>, directory: &Handle<I>, name: &[u8]) -> Result<Creation<I>, Error> {
    let (reserved, known) = inner.begin(Slot::new(inner, directory, name)?, None)?;
    match &known[0] {
        Known::Node(..) => Err(Error::Exists),
        _ => Ok(Creation(reserved.begun())),
    }
}

pub(crate) fn link<I: Send + Sync + 'static>(
    inner: &Arc<Inner<I>>,
    node: &Handle<I>,
    directory: &Handle<I>,
    name: &[u8],
) -> Result<Change<I>, Error> {
    if node.kind() == Kind::Directory {
        return Err(Error::NotPermitted);
    }
    if !node.is_of(inner) {
        return Err(Error::Invalid);
    }
    let (reserved, known) = inner.begin(Slot::new(inner, directory, name)?, None)?;
    match &known[0] {
        Known::Node(..) => Err(Error::Exists),
        _ => Ok(Change { reserved: reserved.begun(), op: Op::Link, node: Some(node.clone()), target: Known::Unknown, ttl: None }),
    }
}

/// `directory`: whether it has to be one, or must not be.
pub(crate) fn unlink<I: Send + Sync + 'static>(
    inner: &Arc<Inner<I>>,
    directory: &Handle<I>,
    name: &[u8],
    is_dir: bool,
) -> Result<Change<I>, Error> {
    let (reserved, mut known) = inner.begin(Slot::new(inner, directory, name)?, None)?;
    let node = match known.remove(0) {
        Known::Absent => return Err(Error::NotFound),
        Known::Node(node, mounted) => match (node.kind() == Kind::Directory, is_dir) {
            (true, false) => return Err(Error::IsDirectory),
            (false, true) => return Err(Error::NotDirectory),
            _ if mounted => return Err(Error::Busy),
            _ => Some(node),
        },
        Known::Unknown => None,
    };
    Ok(Change { reserved: reserved.begun(), op: Op::Unlink, node, target: Known::Unknown, ttl: None })
}

pub(crate) fn begin_rename<I: Send + Sync + 'static>(
    inner: &Arc<Inner<I>>,
    from: (&Handle<I>, &[u8]),
    to: (&Handle<I>, &[u8]),
    how: Rename,
) -> Result<Change<I>, Error> {
    let (a, b) = (Slot::new(inner, from.0, from.1)?, Slot::new(inner, to.0, to.1)?);
    let same = a.is(&b);
    let (reserved, mut known) = inner.begin(a, (!same).then_some(b))?;
    let source = known.remove(0);
    let target = known.pop().unwrap_or(Known::Unknown);
    match (&source, &target, how) {
        (Known::Absent, ..) | (_, Known::Absent, Rename::Exchange) => return Err(Error::NotFound),
        (Known::Node(_, true), ..) | (_, Known::Node(_, true), _) => return Err(Error::Busy),
        (_, Known::Node(..), Rename::NoReplace) => return Err(Error::Exists),
        (Known::Node(..), _, Rename::NoReplace) if same => return Err(Error::Exists),
        _ => {}
    }
    let (x, y) = (source.node(), target.node());
    let is_dir = |n: &Handle<I>| n.kind() == Kind::Directory;
    {
        let _passages = inner.rename.lock();
        let guard = inner.reclaim.enter();
        let (tree, other) = (inner.tree_of(&guard, from.0.raw()), inner.tree_of(&guard, to.0.raw()));
        if tree.is_some() && other.is_some() && tree != other {
            return Err(Error::CrossDevice);
        }
        if x.is_some_and(|x| is_dir(x) && inner.is_below(&guard, to.0.raw(), x.raw())) {
            return Err(Error::Invalid);
        }
        if !same && y.is_some_and(|y| is_dir(y) && inner.is_below(&guard, from.0.raw(), y.raw())) {
            return Err(if how == Rename::Exchange { Error::Invalid } else { Error::NotEmpty });
        }
    }
    if let (Some(x), Some(y), true) = (x, y, how == Rename::Replace) {
        match (is_dir(x), is_dir(y)) {
            (true, false) => return Err(Error::NotDirectory),
            (false, true) => return Err(Error::IsDirectory),
            _ => {}
        }
    }
    let nothing = same || x.is_some() && x == y;
    let op = if nothing { Op::Nothing } else { Op::Rename(how) };
    let node = match source {
        Known::Node(node, _) => Some(node),
        _ => None,
    };
    Ok(Change { reserved: reserved.begun(), op, node, target, ttl: None })
}
