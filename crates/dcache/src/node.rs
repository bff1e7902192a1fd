//! Nodes, and what a directory has more.

use std::sync::OnceLock;

use manyway_sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

use crate::Kind;
use crate::inner::allocated;
use crate::lock::{Mutex, MutexGuard};
use crate::mem::{EntryPtr, Own};

/// What names lead to.
pub(crate) struct Node<I> {
    pub refs: AtomicU32,
    pub pins: AtomicU32,
    flags: AtomicU32,
    pub number: u64,
    special: Option<Box<Special<I>>>,
    pub inode: I,
}

const DIRECTORY: u32 = 1;
const LINK: u32 = 2;
/// A directory that was removed: nothing comes below it any more. REMOVED: set under its lock, before its entry is killed.
const REMOVED: u32 = 4;
/// Its bytes are in the books.
const CHARGED: u32 = 8;
/// A tree's top.
const ROOT: u32 = 16;
/// A link's target that came later is in the books too.
const TARGET_CHARGED: u32 = 32;
/// A directory without a number of the store's that was evicted when nobody held it: whoever has it from a walk that was under way must not use it, for
/// the next who looks it up gets another node for it. Set under its lock.
const EVICTED: u32 = 64;

struct Special<I> {
    id: Option<u64>,
    body: Body<I>,
}

enum Body<I> {
    File,
    Directory(Dir<I>),
    Link(OnceLock<Box<[u8]>>),
}

impl<I: 'static> Node<I> {
    pub fn new(kind: Kind, inode: I, number: u64, id: Option<u64>, target: Option<Box<[u8]>>) -> Self {
        let (flags, body) = match kind {
            Kind::File => (0, Body::File),
            Kind::Directory => (DIRECTORY, Body::Directory(Dir::new())),
            Kind::Link => (LINK, Body::Link(target.map_or_else(OnceLock::new, OnceLock::from))),
        };
        let special = (kind != Kind::File || id.is_some()).then(|| Box::new(Special { id, body }));
        let flags = if matches!(&special.as_deref(), Some(Special { body: Body::Link(t), .. }) if t.get().is_some()) {
            flags | TARGET_CHARGED
        } else {
            flags
        };
        Node { refs: AtomicU32::new(1), pins: AtomicU32::new(0), flags: AtomicU32::new(flags), number, special, inode }
    }

    /// Bytes that a node takes from the allocator.
    pub fn size(kind: Kind, id: bool, target: usize) -> usize {
        let special = if kind != Kind::File || id { allocated(size_of::<Special<I>>()) } else { 0 };
        let target = if target > 0 { allocated(target) } else { 0 };
        // A number's place in the index: key, pointer, and the room that a hash table leaves.
        allocated(size_of::<Node<I>>()) + special + target + if id { 32 } else { 0 }
    }

    /// What it has in the books, if it is there.
    pub fn bytes(&self) -> usize {
        let target = if self.flags.load(Relaxed) & TARGET_CHARGED != 0 { self.target().map_or(0, <[u8]>::len) } else { 0 };
        Self::size(self.kind(), self.id().is_some(), target)
    }

    pub fn set_target_charged(&self) {
        self.flags.fetch_or(TARGET_CHARGED, Relaxed);
    }

    /// As an entry's state has it.
    pub fn binding(&self) -> u32 {
        match self.kind() {
            Kind::File => 0,
            Kind::Directory => crate::entry::DIRECTORY,
            Kind::Link => crate::entry::LINK,
        }
    }

    pub fn kind(&self) -> Kind {
        match self.flags.load(Relaxed) & (DIRECTORY | LINK) {
            0 => Kind::File,
            DIRECTORY => Kind::Directory,
            _ => Kind::Link,
        }
    }

    pub fn id(&self) -> Option<u64> {
        self.special.as_ref().and_then(|s| s.id)
    }

    #[inline(always)]
    pub fn dir(&self) -> Option<&Dir<I>> {
        match &self.special.as_ref()?.body {
            Body::Directory(dir) => Some(dir),
            _ => None,
        }
    }

    pub fn target(&self) -> Option<&[u8]> {
        match &self.special.as_ref()?.body {
            Body::Link(target) => target.get().map(|t| &t[..]),
            _ => None,
        }
    }

    /// Keeps a link's target, unless somebody was first. True: it is the one.
    pub fn set_target(&self, bytes: &[u8]) -> bool {
        match self.special.as_ref().map(|s| &s.body) {
            Some(Body::Link(target)) => target.set(bytes.into()).is_ok(),
            _ => false,
        }
    }

    #[inline(always)]
    pub fn is_removed(&self) -> bool {
        self.flags.load(Acquire) & REMOVED != 0
    }

    pub fn set_removed(&self) {
        self.flags.fetch_or(REMOVED, Release);
    }

    pub fn is_evicted(&self) -> bool {
        self.flags.load(Relaxed) & EVICTED != 0
    }

    pub fn set_evicted(&self) {
        self.flags.fetch_or(EVICTED, Relaxed);
    }

    pub fn is_charged(&self) -> bool {
        self.flags.load(Relaxed) & CHARGED != 0
    }

    pub fn set_charged(&self) {
        self.flags.fetch_or(CHARGED, Relaxed);
    }

    pub fn is_root(&self) -> bool {
        self.flags.load(Relaxed) & ROOT != 0
    }

    pub fn set_root(&self) {
        self.flags.fetch_or(ROOT, Relaxed);
    }
}

/// What a directory has more than a file.
pub(crate) struct Dir<I> {
    names: Mutex<Names<I>>,
    /// Counts of changes and losses, whether a change is being committed, and whether all names are here.
    word: AtomicU64,
    /// Until when it is complete, in ticks; `u32::MAX`: for ever.
    complete_until: AtomicU32,
    /// How many entries are in the list, to be read without the lock.
    pub cached: AtomicU32,
    /// The cache's count of forgotten trees when it became complete, and when what is below it was last known to be all right.
    complete_in: AtomicU32,
    pub covered_in: AtomicU32,
    /// The entry that leads here, while it is LIVE: set and cleared under the rename lock, or before anybody else knows the directory.
    pub own: Own<I>,
}

/// What the lock of a directory keeps. A count of each entry in the table that has it as parent; and the names that are being changed.
pub(crate) struct Names<I> {
    pub list: Vec<EntryPtr<I>>,
    pub changing: Vec<Changing>,
}

pub(crate) struct Changing {
    pub hash: u32,
    pub name: Box<[u8]>,
    /// Somebody waits for the end of it.
    pub waited: bool,
    /// The name was invalidated meanwhile: what the store has done may have been undone beside it.
    pub forgotten: bool,
    /// The cache's count of forgotten trees at the begin.
    pub begun_in: u32,
}

impl<I> Names<I> {
    pub fn is_changing(&self, hash: u32, name: &[u8]) -> bool {
        self.changing.iter().any(|c| c.hash == hash && *c.name == *name)
    }

    /// Whether what a change of the name is going to say is not to be believed any more. `now`: the cache's count of forgotten trees.
    pub fn is_forgotten(&self, hash: u32, name: &[u8], now: u32) -> bool {
        self.changing.iter().any(|c| c.hash == hash && *c.name == *name && (c.forgotten || c.begun_in != now))
    }
}

const COMPLETE: u64 = 1;
/// A change is being committed.
const ODD: u64 = 2;
/// One loss more.
const LOSS: u64 = 4;
/// One change more, in the upper half; losses that come around add to it, which does no harm.
const CHANGE: u64 = 1 << 32;

/// A directory's word as it was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    pub fn is_odd(self) -> bool {
        self.0 & ODD != 0
    }
    pub fn is_complete(self) -> bool {
        self.0 & (COMPLETE | ODD) == COMPLETE
    }
    /// As [`Word::is_complete`], for who is making the change.
    pub fn is_complete_within(self) -> bool {
        self.0 & COMPLETE != 0
    }
    /// Whether no change and no loss came between.
    pub fn same_version(self, other: Word) -> bool {
        (self.0 ^ other.0) & !COMPLETE == 0
    }
    /// Whether no change came between, and none is being made: what the store has said still goes, whatever the cache has forgotten meanwhile.
    pub fn same_changes(self, other: Word) -> bool {
        !self.is_odd() && !other.is_odd() && (self.0 ^ other.0) & !(CHANGE - 1) == 0
    }
}

impl<I: 'static> Dir<I> {
    fn new() -> Self {
        Dir {
            names: Mutex::new(Names { list: Vec::new(), changing: Vec::new() }),
            word: AtomicU64::new(0),
            complete_until: AtomicU32::new(0),
            cached: AtomicU32::new(0),
            complete_in: AtomicU32::new(0),
            covered_in: AtomicU32::new(0),
            own: Own::none(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, Names<I>> {
        self.names.lock()
    }

    /// VERSION: what the chains had when the word was so.
    #[inline(always)]
    pub fn word(&self) -> Word {
        Word(self.word.load(Acquire))
    }

    /// The word, looked at again behind a fence (VERSION).
    #[inline(always)]
    pub fn word_again(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    pub fn complete_until(&self) -> u32 {
        self.complete_until.load(Relaxed)
    }

    fn update(&self, f: impl Fn(u64) -> u64) {
        let mut old = self.word.load(Relaxed);
        // VERSION: before any kill that follows.
        while let Err(now) = self.word.compare_exchange_weak(old, f(old), AcqRel, Relaxed) {
            old = now;
        }
        manyway_sync::atomic::fence(SeqCst);
    }

    /// The cache is going to know less of the directory: it is not complete any more, and what was read of it before is not
    /// to be relied on. For the lock's holder.
    pub fn lose(&self) {
        self.update(|w| (w & !COMPLETE).wrapping_add(LOSS));
    }

    /// The same, and the store may have changed the directory.
    pub fn doubt(&self) {
        self.update(|w| (w & !COMPLETE).wrapping_add(CHANGE));
    }

    /// The lock's holder begins to make a change. What is known to be complete stays so.
    pub fn begin(&self) {
        self.update(|w| w | ODD);
    }

    /// And has made it.
    pub fn end(&self) {
        self.update(|w| (w & !ODD).wrapping_add(CHANGE));
    }

    /// Complete, if nothing has come since `since`. For the lock's holder.
    pub fn set_complete(&self, since: Word, until: u32, now: u32) -> bool {
        if since.is_odd() || !self.word().same_version(since) {
            return false;
        }
        self.complete_until.store(until, Relaxed);
        self.complete_in.store(now, Relaxed);
        // VERSION: all names are in their chains.
        self.update(|w| w | COMPLETE);
        true
    }

    /// A directory that nobody knows yet, and that has nothing in it.
    pub fn set_empty(&self, until: u32, now: u32) {
        self.complete_until.store(until, Relaxed);
        self.complete_in.store(now, Relaxed);
        self.word.store(COMPLETE, Release);
    }

    /// The cache's count of forgotten trees when it became complete.
    pub fn complete_in(&self) -> u32 {
        self.complete_in.load(Relaxed)
    }
}
