//! The walk: component by component under one guard, without a lock, and a look at all of it again before anything is said.
//!
//! What a component was found by, an entry that was LIVE, is noted. When all of those are still LIVE behind the last look-up, they all were at one moment, for none
//! comes back to life: the answer was true then. Else the walk is done again, once, and then under the rename lock, where only the component
//! that was looked up last can be lost, and that one's directory is locked.

use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::Arc;

use manyway_sync::atomic::{Ordering::*, fence};
use smallvec::SmallVec;

use crate::entry::{self, DIRECTORY, LINK, LIVE, NEGATIVE, REFERENCED, REVALIDATING, TIMED};
use crate::inner::{Inner, count};
use crate::lock::MutexGuard;
use crate::mem::{Entry, EntryRef};
use crate::node::{Dir, Names, Node, Word};
use crate::outcome::Walk;
use crate::path::{self, Name};
use crate::reclaim::Guard;
use crate::{Error, Handle, MAX_LINKS};

/// An answer that was not kept, for the walk that has asked for it.
pub(crate) struct Private<I: Send + Sync + 'static> {
    pub dir: Handle<I>,
    pub name: Box<[u8]>,
    /// The directory's word when the answer came: it counts as long as nothing has been changed there since.
    pub word: Word,
    pub node: Option<Handle<I>>,
}

/// What a walk goes over.
pub(crate) struct Route<'w, I: Send + Sync + 'static> {
    pub inner: &'w Arc<Inner<I>>,
    pub start: &'w Node<I>,
    pub path: &'w [u8],
    pub options: &'w Walk<'w, I>,
    pub private: &'w [Private<I>],
}

/// Where a walk ended.
pub(crate) enum End<'w, 'g, I> {
    /// At a node, and the entry that leads to it.
    At(&'w Node<I>, Option<EntryRef<'g, I>>),
    /// At the entry of a name that does not exist. Whether it is the last.
    Negative(EntryRef<'g, I>, bool),
    /// In a directory that does not have the name.
    Lacks(&'w Node<I>, Option<EntryRef<'g, I>>, Name<'w>, bool),
    Place(&'w Node<I>, Name<'w>),
    Miss(&'w Node<I>, Name<'w>),
    /// At somebody's ticket.
    Wait(EntryRef<'g, I>),
    /// At a name whose time is over.
    Stale(EntryRef<'g, I>),
    Target(&'w Node<I>),
    Orphan(&'w Node<I>),
    Failed(Error),
}

struct Walker<'w, 'g, I: Send + Sync + 'static> {
    route: &'w Route<'w, I>,
    guard: &'g Guard,
    /// Where absolute paths begin.
    top: &'w Node<I>,
    /// All that has to hold at one moment.
    checks: SmallVec<[&'g Entry<I>; 16]>,
    /// And these versions.
    words: SmallVec<[(&'w Dir<I>, Word); 1]>,
    /// The directories above the present one, as far as the walk has come down.
    ups: SmallVec<[&'w Node<I>; 16]>,
    /// What comes behind the links that are being followed.
    below: SmallVec<[&'w [u8]; 4]>,
    /// The directories in which a component was looked up, if there is a hook.
    searched: SmallVec<[&'w Node<I>; 4]>,
    links: u32,
    must_be_directory: bool,
    removed: bool,
    /// The rename lock is held, and this is the lock of the directory of the last component.
    locked: bool,
    last: Option<MutexGuard<'w, Names<I>>>,
}

/// Where a walk is, and what lies before it.
type Position<'w, 'g, I> = (&'w Node<I>, Option<EntryRef<'g, I>>, &'w [u8]);

/// The bits that decide how a component is gone through.
const LOOK: u32 = 3 | DIRECTORY | LINK | NEGATIVE | TIMED | REFERENCED;
const PLAIN_DIRECTORY: u32 = LIVE | DIRECTORY | REFERENCED;
const PLAIN_FILE: u32 = LIVE | REFERENCED;
const PLAIN_NEGATIVE: u32 = LIVE | NEGATIVE | REFERENCED;

impl<'w, 'g: 'w, I: Send + Sync + 'static> Walker<'w, 'g, I> {
    #[inline(always)]
    fn new(route: &'w Route<'w, I>, guard: &'g Guard, locked: bool) -> Self {
        Walker {
            route,
            guard,
            top: route.options.root.map_or_else(|| route.inner.root(), |h| h.raw()),
            checks: SmallVec::new(),
            words: SmallVec::new(),
            ups: SmallVec::new(),
            below: SmallVec::new(),
            searched: SmallVec::new(),
            links: 0,
            must_be_directory: route.options.directory,
            removed: route.start.is_removed(),
            locked,
            last: None,
        }
    }

    #[inline(always)]
    fn go(&mut self) -> End<'w, 'g, I> {
        let Route { inner, options, .. } = *self.route;
        // Nothing has to be looked at on the way but names.
        let plain = !(options.parent || self.locked || options.search.is_some());
        let (mut cur, mut via, mut rest) = (self.route.start, None, self.route.path);
        if rest.first() == Some(&b'/') {
            cur = self.top;
        }
        loop {
            rest = path::skip_slashes(rest);
            if rest.is_empty() {
                match self.below.pop() {
                    Some(behind) => rest = behind,
                    None => return self.arrive(cur, via),
                }
                continue;
            }
            let name = path::first(rest, inner.seed);
            let tail = &rest[name.bytes.len()..];
            let mut found = None;
            if plain {
                found = inner.find(self.guard, cur, inner.hash(cur, &name), &name);
                if let Some((e, state)) = found {
                    let look = state & LOOK;
                    if look == PLAIN_DIRECTORY {
                        self.checks.push(e.get());
                        self.ups.push(cur);
                        cur = e.get().node().expect("bound");
                        via = Some(e);
                        rest = tail;
                        continue;
                    }
                    if look == PLAIN_FILE && tail.is_empty() && self.below.is_empty() && !self.must_be_directory {
                        self.checks.push(e.get());
                        return End::At(cur, Some(e));
                    }
                    if look == PLAIN_NEGATIVE {
                        self.checks.push(e.get());
                        return End::Negative(e, path::skip_slashes(tail).is_empty() && self.below.is_empty());
                    }
                }
            }
            match self.component((cur, via, tail), name, found) {
                Continue(on) => (cur, via, rest) = on,
                Break(end) => return end,
            }
        }
    }

    fn arrive(&self, cur: &'w Node<I>, via: Option<EntryRef<'g, I>>) -> End<'w, 'g, I> {
        if self.route.options.parent {
            return End::Failed(Error::Invalid);
        }
        if self.must_be_directory && cur.dir().is_none() {
            return End::Failed(Error::NotDirectory);
        }
        End::At(cur, via)
    }

    /// A component in all its cases.
    #[inline(never)]
    fn component(
        &mut self,
        (cur, via, tail): Position<'w, 'g, I>,
        name: Name<'w>,
        found: Option<(EntryRef<'g, I>, u32)>,
    ) -> ControlFlow<End<'w, 'g, I>, Position<'w, 'g, I>> {
        let Route { inner, options, .. } = *self.route;
        let next = path::skip_slashes(tail);
        let last = next.is_empty() && self.below.is_empty();
        let slash = last && !tail.is_empty();
        let Some(dir) = cur.dir() else { return Break(End::Failed(Error::NotDirectory)) };
        if options.search.is_some() {
            self.searched.push(cur);
        }
        match name.bytes {
            b"." => return Continue((cur, via, tail)),
            b".." => return self.up((cur, via, tail), dir),
            _ => {}
        }
        let (e, state) = match found {
            Some(found) => found,
            None => match self.look_up(cur, via, dir, name, last) {
                Continue(found) => found,
                Break(Ok(end)) => return Break(end),
                Break(Err(node)) => return self.onward((cur, None, tail), node.binding(), node, None, last, slash),
            },
        };
        if entry::kind(state) != LIVE {
            return Break(End::Wait(e));
        }
        if inner.is_over(state, &e) {
            return Break(if state & REVALIDATING != 0 { End::Wait(e) } else { End::Stale(e) });
        }
        e.set_referenced(state);
        self.checks.push(e.get());
        let Some(node) = e.get().node() else { return Break(End::Negative(e, last)) };
        self.onward((cur, via, tail), state, node, Some(e), last, slash)
    }

    /// Goes on from a component that leads to `node`.
    fn onward(
        &mut self,
        (cur, via, tail): Position<'w, 'g, I>,
        state: u32,
        node: &'w Node<I>,
        e: Option<EntryRef<'g, I>>,
        last: bool,
        slash: bool,
    ) -> ControlFlow<End<'w, 'g, I>, Position<'w, 'g, I>> {
        if state & LINK != 0 && !(last && !slash && self.route.options.no_follow) {
            self.links += 1;
            if self.links > MAX_LINKS {
                return Break(End::Failed(Error::Loop));
            }
            let Some(target) = node.target() else { return Break(End::Target(node)) };
            let next = path::skip_slashes(tail);
            if !next.is_empty() {
                self.below.push(next);
            }
            self.must_be_directory |= slash;
            return match target {
                [] => Break(End::Failed(Error::NotFound)),
                [b'/', ..] => {
                    self.ups.clear();
                    Continue((self.top, None, target))
                }
                _ => Continue((cur, via, target)),
            };
        }
        if state & DIRECTORY != 0 {
            self.ups.push(cur);
            return Continue((node, e, tail));
        }
        if !last || slash || self.must_be_directory {
            return Break(End::Failed(Error::NotDirectory));
        }
        Break(End::At(node, e))
    }

    /// Looks a name up where nothing was found at first, or with the directory locked. `Err`: a private answer.
    #[allow(clippy::type_complexity)]
    fn look_up(
        &mut self,
        cur: &'w Node<I>,
        via: Option<EntryRef<'g, I>>,
        dir: &'w Dir<I>,
        name: Name<'w>,
        last: bool,
    ) -> ControlFlow<Result<End<'w, 'g, I>, &'w Node<I>>, (EntryRef<'g, I>, u32)> {
        let Route { inner, options, private, .. } = *self.route;
        if name.bytes.len() > inner.name_max {
            return Break(Ok(End::Failed(Error::NameTooLong)));
        }
        if name.bytes.contains(&0) {
            return Break(Ok(End::Failed(Error::Invalid)));
        }
        if last && options.parent {
            return Break(Ok(End::Place(cur, name)));
        }
        if self.locked {
            self.last = None;
            self.last = Some(dir.lock());
        }
        if cur.is_removed() {
            return Break(Ok(End::Lacks(cur, via, name, last)));
        }
        // VERSION: the word, the chain, a fence (in `holds`), the same word.
        let word = dir.word();
        if let Some(found) = inner.find(self.guard, cur, inner.hash(cur, &name), &name) {
            return Continue(found);
        }
        if inner.is_complete(dir, word) {
            self.words.push((dir, word));
            return Break(Ok(End::Lacks(cur, via, name, last)));
        }
        let mine = private
            .iter()
            .rfind(|p| std::ptr::eq(p.dir.raw(), cur) && *p.name == *name.bytes && word.same_version(p.word) && !word.is_odd());
        if let Some(p) = mine {
            self.words.push((dir, word));
            return Break(match &p.node {
                Some(node) => Err(node.raw()),
                None => Ok(End::Lacks(cur, via, name, last)),
            });
        }
        Break(Ok(if last && options.create { End::Place(cur, name) } else { End::Miss(cur, name) }))
    }

    fn up(&mut self, (cur, via, tail): Position<'w, 'g, I>, dir: &'w Dir<I>) -> ControlFlow<End<'w, 'g, I>, Position<'w, 'g, I>> {
        if std::ptr::eq(cur, self.top) {
            return Continue((cur, via, tail));
        }
        if let Some(up) = self.ups.pop() {
            return Continue((up, None, tail));
        }
        match dir.own.get(self.guard) {
            // If it is DEAD by now, the walk is done again.
            Some(own) => {
                self.checks.push(own.get());
                Continue((own.get().parent(), None, tail))
            }
            None if cur.is_root() => Continue((cur, via, tail)),
            None => Break(End::Orphan(cur)),
        }
    }

    /// Whether all that the walk rests on holds.
    #[inline(always)]
    fn holds(&self) -> bool {
        // KILL, VERSION: who sees what came after a kill sees the kill here.
        fence(Acquire);
        self.checks.iter().all(|e| e.is_live())
            && self.words.iter().all(|(dir, word)| dir.word_again() == *word)
            && self.route.start.is_removed() == self.removed
    }
}

impl<'w, I: Send + Sync + 'static> Route<'w, I> {
    /// Walks, until it holds. Then the hook is asked.
    #[inline(always)]
    pub fn walk<'g: 'w>(&'w self, guard: &'g Guard) -> End<'w, 'g, I> {
        let mut walker = Walker::new(self, guard, false);
        let end = walker.go();
        if walker.holds() {
            return if self.options.search.is_none() { end } else { self.permitted(end, &walker.searched) };
        }
        drop(walker);
        self.walk_again(guard)
    }

    #[cold]
    fn walk_again<'g: 'w>(&'w self, guard: &'g Guard) -> End<'w, 'g, I> {
        let books = &self.inner.books;
        count(&books.restarts);
        let mut walker = Walker::new(self, guard, false);
        let end = walker.go();
        if walker.holds() {
            return self.permitted(end, &walker.searched);
        }
        count(&books.locked_walks);
        let passages = self.inner.rename.lock();
        let (end, searched) = loop {
            let mut walker = Walker::new(self, guard, true);
            let end = walker.go();
            if walker.holds() {
                break (end, walker.searched);
            }
        };
        drop(passages);
        self.permitted(end, &searched)
    }

    fn permitted<'g>(&self, end: End<'w, 'g, I>, searched: &[&Node<I>]) -> End<'w, 'g, I> {
        match self.options.search {
            Some(may) if !searched.iter().all(|dir| may(&dir.inode)) => End::Failed(Error::Denied),
            _ => end,
        }
    }
}
