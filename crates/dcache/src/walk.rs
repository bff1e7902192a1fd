//! The walk: component by component under one guard, without a lock, and a look at all of it again before anything is said.
//!
//! What a component was found by, an entry that was LIVE, is noted. When all of those are still LIVE behind the last look-up, they all were
//! at one moment, for none comes back to life: the answer was true then. Else the walk is done again, once, and then under the rename lock,
//! where only the component that was looked up last can be lost, and that one's directory is locked.

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

/// An answer that a walk has got: it goes along with it, for what is kept of it may be gone again, or too old, before the walk ends.
pub(crate) struct Private<I: Send + Sync + 'static> {
    pub dir: Handle<I>,
    pub name: Box<[u8]>,
    /// The directory's word when the answer came: it counts as long as nothing has been changed there since.
    pub word: Word,
    /// The cache's count of forgotten trees when it was asked for: the directory may lie in one without the cache knowing.
    pub trees: u32,
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
    /// At a link whose target is not known; and the entry that leads to it, with its directory's word.
    Target(&'w Node<I>, Option<(EntryRef<'g, I>, Word)>),
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
    /// And these words; of those that are behind an answer of this walk's own, the changes only, and that no tree was forgotten since.
    words: SmallVec<[Version<'w, I>; 1]>,
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

/// A directory's word, and the cache's count of forgotten trees if that counts too.
type Version<'w, I> = (&'w Dir<I>, Word, Option<u32>);

/// Where a walk is, and what lies before it.
type Position<'w, 'g, I> = (&'w Node<I>, Option<EntryRef<'g, I>>, &'w [u8]);

/// The bits that decide how a component is gone through.
const LOOK: u32 = 3 | DIRECTORY | LINK | NEGATIVE | TIMED | REFERENCED;
const PLAIN_DIRECTORY: u32 = LIVE | DIRECTORY | REFERENCED;
const PLAIN_FILE: u32 = LIVE | REFERENCED;
const PLAIN_NEGATIVE: u32 = LIVE | NEGATIVE | REFERENCED;

/// Components of a plain walk.
const PLAIN: usize = 16;

/// What a plain walk came to.
#[derive(Clone, Copy)]
pub(crate) enum Plain {
    Found,
    Absent { last: bool },
}

/// [`plain`] out of line: one copy for all callers, and what it came to goes through registers.
#[inline(never)]
pub(crate) fn hot<'g, I: Send + Sync + 'static>(
    inner: &Inner<I>,
    guard: &'g Guard,
    start: &Node<I>,
    path: &[u8],
    options: &Walk<'_, I>,
) -> Option<(EntryRef<'g, I>, Plain)> {
    plain::<_, true, false>(inner, guard, start, path, options, &mut (0..0))
}

/// Whether a directory is complete and does not have the name, at which a plain walk has come to nothing: its word.
#[inline(never)]
fn complete_without<I: Send + Sync + 'static>(inner: &Inner<I>, guard: &Guard, node: &Node<I>, hash: u32, name: &Name<'_>) -> Option<Word> {
    if matches!(name.bytes, b"" | b"." | b"..") || name.bytes.len() > inner.name_max || name.bytes.contains(&0) || node.is_removed() {
        return None;
    }
    let dir = node.dir()?;
    // VERSION: the word, the chain, a fence (the walk's), the same word.
    let word = dir.word();
    (inner.is_complete(dir, word) && inner.find(guard, node, hash, name).is_none()).then_some(word)
}

/// The whole of a hot walk: names that are all known, without links, dots, times or a hook. None: the walk in all its cases is to be taken.
/// The entry at which it ends. With `LACKS`, also complete directories that do not have a name: `lacks` says then where in the path it is, and the entry is the directory's.
/// Without `CHECKED` it is the floor that benchmarks compare it with: the same lines, but nothing is noted and
/// looked at again.
#[inline(always)]
pub(crate) fn plain<'g, I: Send + Sync + 'static, const CHECKED: bool, const LACKS: bool>(
    inner: &Inner<I>,
    guard: &'g Guard,
    start: &Node<I>,
    path: &[u8],
    options: &Walk<'_, I>,
    lacks: &mut std::ops::Range<usize>,
) -> Option<(EntryRef<'g, I>, Plain)> {
    if options.parent | options.directory | options.search.is_some() {
        return None;
    }
    let mut cur = start;
    if let Some(b'/') = path.first() {
        cur = options.root.map_or_else(|| inner.root(), |h| h.raw());
    }
    let mut rest = path::skip_slashes(path);
    let mut checks = [None; PLAIN];
    let mut notes = checks.iter_mut();
    let mut via = None;
    let mut version = None;
    let (e, came_to) = loop {
        // `.` and `..` are in no table.
        let name = path::first(rest, inner.seed);
        let hash = inner.hash(cur, &name);
        let Some((e, state)) = inner.find(guard, cur, hash, &name) else {
            if !LACKS {
                return None;
            }
            version = Some((cur.dir()?, complete_without(inner, guard, cur, hash, &name)?));
            let at = path.len() - rest.len();
            *lacks = at..at + name.bytes.len();
            break (via?, Plain::Absent { last: path::skip_slashes(&rest[name.bytes.len()..]).is_empty() });
        };
        let tail = &rest[name.bytes.len()..];
        rest = path::skip_slashes(tail);
        let look = state & LOOK;
        if look == PLAIN_DIRECTORY && !rest.is_empty() {
            if CHECKED {
                *notes.next()? = Some(e.get());
            }
            cur = e.get().node()?;
            if LACKS {
                via = Some(e);
            }
        } else if look == PLAIN_NEGATIVE {
            break (e, Plain::Absent { last: rest.is_empty() });
        } else if look == PLAIN_DIRECTORY || look == PLAIN_FILE && tail.is_empty() {
            break (e, Plain::Found);
        } else {
            return None;
        }
    };
    if CHECKED {
        // KILL: who sees what came after a kill sees the kill here. The last one was LIVE behind all look-ups: that is the moment.
        fence(Acquire);
        let all = checks.iter().map_while(|e| *e).fold(LIVE, |all, e| all & e.state_again());
        if all & LIVE == 0 || start.is_removed() || version.is_some_and(|(dir, word)| dir.word_again() != word) {
            return None;
        }
    }
    Some((e, came_to))
}

impl<'w, 'g: 'w, I: Send + Sync + 'static> Walker<'w, 'g, I> {
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

    fn go(&mut self) -> End<'w, 'g, I> {
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
            let name = path::first(rest, self.route.inner.seed);
            let tail = &rest[name.bytes.len()..];
            match self.component((cur, via, tail), name) {
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
    fn component(&mut self, (cur, via, tail): Position<'w, 'g, I>, name: Name<'w>) -> ControlFlow<End<'w, 'g, I>, Position<'w, 'g, I>> {
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
        let (e, state) = match self.look_up(cur, via, dir, name, last) {
            Continue(found) => found,
            Break(Ok(end)) => return Break(end),
            Break(Err(node)) => return self.onward((cur, None, tail), node.binding(), node, None, last, slash),
        };
        if entry::kind(state) != LIVE {
            return Break(End::Wait(e));
        }
        if inner.is_over(state, &e) {
            match self.told(cur, dir, name, dir.word()) {
                Some(Some(node)) => return self.onward((cur, None, tail), node.binding(), node, None, last, slash),
                Some(None) => return Break(End::Lacks(cur, via, name, last)),
                None => {}
            }
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
            let Some(target) = node.target() else {
                // The word before the last looks: whatever changes the name after it is seen by the word.
                return Break(End::Target(node, e.and_then(|e| Some((e, e.get().parent().dir()?.word())))));
            };
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

    /// Looks a name up. `Err`: a private answer.
    #[allow(clippy::type_complexity)]
    fn look_up(
        &mut self,
        cur: &'w Node<I>,
        via: Option<EntryRef<'g, I>>,
        dir: &'w Dir<I>,
        name: Name<'w>,
        last: bool,
    ) -> ControlFlow<Result<End<'w, 'g, I>, &'w Node<I>>, (EntryRef<'g, I>, u32)> {
        let Route { inner, options, .. } = *self.route;
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
            self.words.push((dir, word, None));
            return Break(Ok(End::Lacks(cur, via, name, last)));
        }
        match self.told(cur, dir, name, word) {
            Some(Some(node)) => return Break(Err(node)),
            Some(None) => return Break(Ok(End::Lacks(cur, via, name, last))),
            None => {}
        }
        Break(Ok(if last && options.create { End::Place(cur, name) } else { End::Miss(cur, name) }))
    }

    /// What the store has told this walk of a name, if nothing has been changed in the directory since: a node, or that there is none.
    fn told(&mut self, cur: &Node<I>, dir: &'w Dir<I>, name: Name<'_>, word: Word) -> Option<Option<&'w Node<I>>> {
        let trees = self.route.inner.trees_forgotten();
        let is_it =
            |p: &&Private<I>| std::ptr::eq(p.dir.raw(), cur) && *p.name == *name.bytes && word.same_changes(p.word) && p.trees == trees;
        let answer = self.route.private.iter().rfind(is_it)?;
        self.words.push((dir, word, Some(trees)));
        Some(answer.node.as_ref().map(|node| node.raw()))
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
    fn holds(&self) -> bool {
        // KILL, VERSION: who sees what came after a kill sees the kill here.
        fence(Acquire);
        let still = |(dir, word, own): &Version<'_, I>| match own {
            Some(trees) => dir.word_again().same_changes(*word) && self.route.inner.trees_forgotten() == *trees,
            None => dir.word_again() == *word,
        };
        self.checks.iter().all(|e| e.is_live()) && self.words.iter().all(still) && self.route.start.is_removed() == self.removed
    }
}

impl<'w, I: Send + Sync + 'static> Route<'w, I> {
    /// Walks, until it holds. Then the hook is asked.
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
