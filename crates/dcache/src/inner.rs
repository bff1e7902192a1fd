//! The cache's parts, its books, and what every change of the table is made of.

use std::sync::Arc;
use std::time::{Duration, Instant};

use manyway_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::*, fence};
use smallvec::SmallVec;

use crate::binding::{Binding, To};
use crate::config::{Clock, Config, Evicted, Ttl};
use crate::entry::{self, NEGATIVE, TIMED, WAITED};
use crate::lock::{Mutex, MutexGuard};
use crate::mem::{Entry, EntryPtr, EntryRef, Index, NodePtr, NumberMap, Table};
use crate::mount::Mounts;
use crate::node::{Dir, Names, Node};
use crate::path::{self, Name};
use crate::reclaim::{Guard, Reclaim};
use crate::room::{Key, Rooms};
use crate::{Error, Kind};

pub(crate) struct Inner<I: Send + Sync + 'static> {
    pub table: Table<I>,
    pub reclaim: Reclaim<I>,
    pub index: Index<I>,
    pub rooms: Rooms,
    /// Orders the ends of all bindings that walks go on from. Comes before any directory's lock.
    pub rename: Mutex<()>,
    pub mounts: Mutex<Mounts<I>>,
    pub pins: Box<[Mutex<NumberMap<NodePtr<I>>>]>,
    pub books: Books,
    pub clock_hand: crate::evict::Hand,
    pub root: Option<NodePtr<I>>,
    pub seed: u64,
    pub name_max: usize,
    time: Time,
    evicted: Option<Evicted<I>>,
    /// Nodes that nobody refers to any more, on their way to the hook.
    grave: Mutex<Vec<Box<Node<I>>>>,
    buried: AtomicUsize,
    numbers: AtomicU64,
    /// How often everything was forgotten, and how often that or a tree was.
    all_forgotten: AtomicU32,
    trees_forgotten: AtomicU32,
}

enum Time {
    Machine(Instant),
    Of(Arc<dyn Clock>),
}

/// What is counted. None of it is touched by a hot walk.
#[derive(Default)]
pub(crate) struct Books {
    pub bound_entries: usize,
    pub bound_bytes: usize,
    pub bound_negatives: usize,
    pub entries: AtomicUsize,
    pub bytes: AtomicUsize,
    pub retired: AtomicUsize,
    pub retired_bytes: AtomicUsize,
    pub negatives: AtomicUsize,
    pub nodes: AtomicUsize,
    pub pinned: AtomicUsize,
    pub misses: AtomicU64,
    pub stale: AtomicU64,
    pub waits: AtomicU64,
    pub overtaken: AtomicU64,
    pub refused: AtomicU64,
    pub evicted: AtomicU64,
    pub restarts: AtomicU64,
    pub locked_walks: AtomicU64,
    pub changes: AtomicU64,
}

pub(crate) fn count(n: &AtomicU64) {
    n.fetch_add(1, Relaxed);
}

/// What an allocator takes for `n` bytes: a word more, in units of 16, as the C library's.
pub(crate) fn allocated(n: usize) -> usize {
    (n + 8).next_multiple_of(16).max(32)
}

impl Books {
    /// Puts entries and bytes into the books, if the bounds let it.
    pub fn take(&self, entries: usize, bytes: usize) -> bool {
        fn add(n: &AtomicUsize, more: usize, bound: usize) -> bool {
            let mut old = n.load(Relaxed);
            while more <= bound.saturating_sub(old) {
                match n.compare_exchange_weak(old, old + more, Relaxed, Relaxed) {
                    Ok(_) => return true,
                    Err(now) => old = now,
                }
            }
            more == 0
        }
        if !add(&self.entries, entries, self.bound_entries) {
            return false;
        }
        if add(&self.bytes, bytes, self.bound_bytes) {
            return true;
        }
        self.entries.fetch_sub(entries, Relaxed);
        false
    }

    pub fn give(&self, entries: usize, bytes: usize) {
        self.entries.fetch_sub(entries, Relaxed);
        self.bytes.fetch_sub(bytes, Relaxed);
    }
}

/// Entries that were killed under locks, until those are given back.
pub(crate) struct Trash<I>(SmallVec<[(EntryPtr<I>, u32); 4]>);

impl<I> Trash<I> {
    pub fn new() -> Self {
        Trash(SmallVec::new())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn entries(&self) -> impl Iterator<Item = EntryRef<'_, I>> {
        self.0.iter().map(|(e, _)| e.borrow())
    }
}

/// The locks of some directories, taken in the order of their numbers.
pub(crate) struct Locks<'a, I>(SmallVec<[Locked<'a, I>; 4]>);

type Locked<'a, I> = (&'a Node<I>, &'a Dir<I>, MutexGuard<'a, Names<I>>);

impl<'a, I: 'static> Locks<'a, I> {
    pub fn of(dirs: impl IntoIterator<Item = &'a Node<I>>) -> Self {
        let mut dirs: SmallVec<[&Node<I>; 4]> = dirs.into_iter().collect();
        dirs.sort_unstable_by_key(|d| d.number);
        dirs.dedup_by_key(|d| d.number);
        Locks(dirs.into_iter().filter_map(|d| d.dir().map(|dir| (d, dir, dir.lock()))).collect())
    }

    pub fn has(&self, node: &Node<I>) -> bool {
        self.0.iter().any(|(d, ..)| d.number == node.number)
    }

    pub fn get(&mut self, node: &Node<I>) -> (&'a Dir<I>, &mut MutexGuard<'a, Names<I>>) {
        let (_, dir, names) = self.0.iter_mut().find(|(d, ..)| d.number == node.number).expect("it was locked");
        (dir, names)
    }
}

/// How long a binding holds: TIMED or nothing, and the tick.
pub(crate) type Expiry = (u32, u32);

impl<I: Send + Sync + 'static> Inner<I> {
    pub fn new(root: I, config: Config<I>) -> Arc<Self> {
        let seed = config.seed.unwrap_or_else(|| {
            use std::hash::{BuildHasher, RandomState};
            RandomState::new().hash_one(0u64)
        });
        let root = NodePtr::new(Node::new(Kind::Directory, root, 1, None, None));
        root.set_root();
        let books = Books {
            bound_entries: config.entries,
            bound_bytes: config.bytes,
            bound_negatives: (config.entries as u64 * u64::from(config.negative_percent) / 100) as usize,
            nodes: AtomicUsize::new(1),
            ..Books::default()
        };
        Arc::new(Inner {
            table: Table::new(config.entries),
            reclaim: Reclaim::new(),
            index: Index::new(),
            rooms: Rooms::new(),
            rename: Mutex::new(()),
            mounts: Mutex::new(Mounts::default()),
            pins: (0..16).map(|_| Mutex::new(NumberMap::default())).collect(),
            books,
            clock_hand: crate::evict::Hand::new(),
            root: Some(root),
            seed,
            name_max: config.name_max,
            time: config.clock.map_or_else(|| Time::Machine(Instant::now()), Time::Of),
            evicted: config.evicted,
            grave: Mutex::new(Vec::new()),
            buried: AtomicUsize::new(0),
            numbers: AtomicU64::new(2),
            all_forgotten: AtomicU32::new(0),
            trees_forgotten: AtomicU32::new(0),
        })
    }

    pub fn root(&self) -> &Node<I> {
        self.root.as_ref().expect("there is a root as long as the cache is used")
    }

    /// A name that stands alone.
    pub fn name<'a>(&self, name: &'a [u8]) -> Result<Name<'a>, Error> {
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            return Err(Error::Invalid);
        }
        if name.len() > self.name_max {
            return Err(Error::NameTooLong);
        }
        Ok(path::first(name, self.seed))
    }

    // ---- time

    fn elapsed(&self) -> Duration {
        match &self.time {
            Time::Machine(start) => start.elapsed(),
            Time::Of(clock) => clock.now(),
        }
    }

    /// The time in ticks of 16 ms. After two years all that has a time is stale.
    pub fn now(&self) -> u32 {
        (self.elapsed().as_millis() >> 4).min(u128::from(u32::MAX)) as u32
    }

    /// None: not to be kept.
    pub fn expiry(&self, ttl: Ttl) -> Option<Expiry> {
        match ttl {
            Ttl::No => None,
            Ttl::Forever => Some((0, u32::MAX)),
            Ttl::For(d) => Some((TIMED, (self.elapsed().saturating_add(d).as_millis() >> 4).min(u128::from(u32::MAX - 1)) as u32)),
        }
    }

    /// Whether a LIVE entry's time is over.
    pub fn is_over(&self, state: u32, entry: &Entry<I>) -> bool {
        state & TIMED != 0 && self.now() >= entry.expiry.load(Relaxed)
    }

    /// Whether the directory's word says that all its names are here, and that still holds.
    pub fn is_complete(&self, dir: &Dir<I>, word: crate::node::Word) -> bool {
        word.is_complete() && dir.complete_in() == self.all_forgotten() && self.is_within(dir.complete_until())
    }

    /// The same, for who is making a change in the directory.
    pub fn is_complete_within(&self, dir: &Dir<I>) -> bool {
        dir.word().is_complete_within() && dir.complete_in() == self.all_forgotten() && self.is_within(dir.complete_until())
    }

    /// How often everything was forgotten: a directory that became complete before is not.
    pub fn all_forgotten(&self) -> u32 {
        self.all_forgotten.load(Acquire)
    }

    /// How often a tree, or everything, was: what the store was asked before is not to be believed where that might lie.
    pub fn trees_forgotten(&self) -> u32 {
        self.trees_forgotten.load(Acquire)
    }

    /// A tree, or everything, is going to be forgotten.
    pub fn forget_trees(&self, all: bool) {
        if all {
            self.all_forgotten.fetch_add(1, AcqRel);
        }
        self.trees_forgotten.fetch_add(1, AcqRel);
        fence(SeqCst);
    }

    fn is_within(&self, until: u32) -> bool {
        until == u32::MAX || self.now() < until
    }

    // ---- entries

    /// A new entry within the bounds, making room if need be. No lock and no guard may be held.
    pub fn new_entry(&self, parent: &Node<I>, name: &Name<'_>, hash: u32, state: u32) -> Option<EntryPtr<I>> {
        if !self.reserve(1, allocated(Entry::<I>::size(name.bytes.len()))) {
            return None;
        }
        Some(EntryPtr::new(parent.retain(), name.bytes, hash, state))
    }

    /// The node that a binding names, made if need be. One that is going to be in the table comes into the books; false: there is no room
    /// for it, and it is its asker's alone. No lock and no guard is held.
    pub fn node_of(self: &Arc<Self>, binding: Binding<I>, keep: bool) -> (NodePtr<I>, bool) {
        let (kind, inode, id, target) = match binding.0 {
            To::Node(handle) => {
                assert!(handle.is_of(self), "a node of another cache");
                self.adopt(handle.raw());
                return (handle.raw().retain(), keep);
            }
            To::New { kind, inode, id, target } => (kind, inode, id, target),
        };
        let bytes = Node::<I>::size(kind, id.is_some(), target.as_ref().map_or(0, |t| t.len()));
        let charged = keep && self.reserve(0, bytes);
        let mut inode = Some(inode);
        let mut make = || {
            let inode = inode.take().expect("made once");
            let node = Node::new(kind, inode, self.numbers.fetch_add(1, Relaxed), id, target.clone());
            if charged {
                node.set_charged();
            }
            if let Some(dir) = node.dir() {
                dir.covered_in.store(self.trees_forgotten(), Relaxed);
            }
            self.books.nodes.fetch_add(1, Relaxed);
            NodePtr::new(node)
        };
        let node = match id {
            None => make(),
            // A directory that was removed has left its number to the next.
            Some(id) => self.index.get_or(id, |n| n.kind() == kind && !n.is_removed(), make),
        };
        if inode.is_some() && charged {
            self.books.give(0, bytes);
        }
        self.adopt(&node);
        (node, charged)
    }

    /// A node that is there already is about to get a name. Below a directory may be what should have been forgotten with a tree, while the cache did
    /// not know that it lies there.
    fn adopt(&self, node: &Node<I>) {
        let Some(dir) = node.dir() else { return };
        let now = self.trees_forgotten();
        if dir.covered_in.load(Acquire) != now {
            self.forget_below(node);
            dir.covered_in.store(now, Release);
        }
    }

    /// A node that no name leads to.
    pub fn new_root(&self, inode: I) -> NodePtr<I> {
        let node = Node::new(Kind::Directory, inode, self.numbers.fetch_add(1, Relaxed), None, None);
        node.set_root();
        self.books.nodes.fetch_add(1, Relaxed);
        NodePtr::new(node)
    }

    /// The entry of a name that is not DEAD. In the directory's lock it stays what it is, but for a FILLING one, which only that lock's
    /// holder ends.
    #[inline(always)]
    pub fn find<'g>(&self, guard: &'g Guard, dir: &Node<I>, hash: u32, name: &Name<'_>) -> Option<(EntryRef<'g, I>, u32)> {
        self.table.probe(guard, dir, hash, name)
    }

    #[inline(always)]
    pub fn hash(&self, dir: &Node<I>, name: &Name<'_>) -> u32 {
        // A model is to do the same each time, wherever its memory lies.
        let of = if cfg!(loom) { dir.number as usize * 64 } else { dir.address() };
        path::in_directory(name.hash, of)
    }

    /// Puts an entry into its directory's list and into the table. The list keeps the count. It is also the own entry of the directory that it
    /// leads to. Given back, and known to nobody, if the list cannot grow within the bounds.
    pub fn put_in(&self, dir: &Dir<I>, names: &mut MutexGuard<'_, Names<I>>, entry: EntryPtr<I>) -> Result<(), EntryPtr<I>> {
        let names = &mut **names;
        let room = names.list.capacity();
        if names.list.len() == room {
            let more = (room / 2).max(4);
            if !self.books.take(0, more * 8) {
                return Err(entry);
            }
            names.list.reserve_exact(more);
            self.books.bytes.fetch_add(8 * (names.list.capacity() - room - more), Relaxed);
        }
        // From here on it stays: who finds it by the directory below reads it under a guard alone.
        if let Some(below) = entry.node().and_then(|n| n.dir()) {
            below.own.set(&entry);
        }
        if entry.state.load(Relaxed) & NEGATIVE != 0 {
            self.books.negatives.fetch_add(1, Relaxed);
        }
        entry.slot.store(names.list.len() as u32, Relaxed);
        self.table.insert(&entry);
        names.list.push(entry);
        dir.cached.store(names.list.len() as u32, Relaxed);
        Ok(())
    }

    /// Kills an entry and takes it out. The directory's lock is held, and the rename lock if it is a passage. The state before.
    pub fn take_out(&self, dir: &Dir<I>, names: &mut MutexGuard<'_, Names<I>>, entry: EntryRef<'_, I>, trash: &mut Trash<I>) -> u32 {
        let old = self.take_out_moving(dir, names, entry, trash);
        if old & entry::DIRECTORY != 0
            && let Some(below) = entry.node().and_then(|n| n.dir())
        {
            below.own.clear(entry);
        }
        old
    }

    /// As [`Inner::take_out`], for a directory that gets another entry in the same section: whoever goes up from it meanwhile finds the old
    /// one, DEAD, and not none.
    pub fn take_out_moving(&self, dir: &Dir<I>, names: &mut MutexGuard<'_, Names<I>>, entry: EntryRef<'_, I>, trash: &mut Trash<I>) -> u32 {
        let names = &mut **names;
        // KILL
        let old = entry.kill();
        if old & NEGATIVE != 0 {
            self.books.negatives.fetch_sub(1, Relaxed);
        }
        let slot = entry.slot.load(Relaxed) as usize;
        let gone = names.list.swap_remove(slot);
        if let Some(moved) = names.list.get(slot) {
            moved.slot.store(slot as u32, Relaxed);
        }
        debug_assert!(gone.borrow().address() == entry.address());
        self.table.remove(&gone);
        let (len, room) = (names.list.len(), names.list.capacity());
        if room > 16 && len < room / 4 {
            names.list.shrink_to(len * 2);
            self.books.bytes.fetch_sub(8 * (room - names.list.capacity()), Relaxed);
        } else if len == 0 {
            names.list = Vec::new();
            self.books.bytes.fetch_sub(8 * room, Relaxed);
        }
        dir.cached.store(len as u32, Relaxed);
        trash.0.push((gone, old));
        old
    }

    /// Retires what was taken out, and wakes who waits there. No lock is held.
    pub fn dispose(&self, trash: Trash<I>) {
        if trash.0.is_empty() {
            return;
        }
        // KILL: who kills and then walks sees what others have killed before their walks.
        fence(SeqCst);
        let mut bytes = 0;
        for (entry, old) in &trash.0 {
            bytes += allocated(Entry::<I>::size(entry.name_len()));
            if old & WAITED != 0 {
                self.rooms.call(entry.borrow().address(), Ok(()));
            }
        }
        self.books.retired.fetch_add(trash.len(), Relaxed);
        self.books.retired_bytes.fetch_add(bytes, Relaxed);
        self.clock_hand.something_happened();
        self.reclaim.retire(trash.0.into_iter().map(|(e, _)| e));
        self.settle();
    }

    /// Gives up an entry's count that is not the table's.
    pub fn release_entry(&self, entry: EntryPtr<I>) -> bool {
        let Some((parent, node, len)) = entry.release() else { return false };
        self.books.give(1, allocated(Entry::<I>::size(len)));
        self.release_node(parent);
        if let Some(node) = node {
            self.release_node(node);
        }
        true
    }

    /// Gives up a node's count. Its end, if this was the last one, comes when no lock is held.
    pub fn release_node(&self, node: NodePtr<I>) {
        if let Some(node) = self.index.release(node) {
            let mut grave = self.grave.lock();
            grave.push(node);
            self.buried.store(grave.len(), Relaxed);
        }
    }

    /// Frees what may be freed, and calls the hook. No lock is held.
    pub fn settle(&self) {
        thread_local! {
            /// The cache for which the thread is here.
            static HERE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
        }
        /// Also when the author's code panics.
        struct Leave(usize);
        impl Drop for Leave {
            fn drop(&mut self) {
                HERE.set(self.0);
            }
        }
        let me = std::ptr::from_ref(self).addr();
        let here = Leave(HERE.replace(me));
        if here.0 == me {
            // The hook, or an inode's destructor, has used the cache: what that has left is taken in the loop below.
            return;
        }
        loop {
            for entry in self.reclaim.take_free() {
                let bytes = allocated(Entry::<I>::size(entry.name_len()));
                self.books.retired.fetch_sub(1, Relaxed);
                self.books.retired_bytes.fetch_sub(bytes, Relaxed);
                self.release_entry(entry);
            }
            if self.buried.load(Relaxed) == 0 {
                break;
            }
            let dead = {
                let mut grave = self.grave.lock();
                self.buried.store(0, Relaxed);
                std::mem::take(&mut *grave)
            };
            for node in dead {
                self.books.nodes.fetch_sub(1, Relaxed);
                if node.is_charged() {
                    self.books.give(0, node.bytes());
                }
                let Node { number, inode, .. } = *node;
                match &self.evicted {
                    Some(hook) => hook(number, inode),
                    None => drop(inode),
                }
            }
        }
    }

    /// A directory's own place, if it has one.
    pub fn place(&self, node: &Node<I>) -> Option<(NodePtr<I>, Box<[u8]>)> {
        let guard = self.reclaim.enter();
        let own = node.dir()?.own.get(&guard)?;
        own.is_live().then(|| (own.parent().retain(), own.name().into()))
    }

    // ---- changes of one name

    pub fn change_key(dir: &Node<I>, hash: u32) -> Key {
        // Odd: no entry's address.
        (dir.number << 33 | u64::from(hash) << 1) | 1
    }
}

impl<I: Send + Sync + 'static> Drop for Inner<I> {
    fn drop(&mut self) {
        // Whoever had a handle, a ticket or a guard is gone.
        for (_, covered) in std::mem::take(&mut *self.mounts.lock()) {
            covered.give_up(self);
        }
        for shard in &self.pins {
            let pinned = std::mem::take(&mut *shard.lock());
            for (_, node) in pinned {
                self.release_node(node);
            }
        }
        let mut entries = self.reclaim.take_all();
        let guard = self.reclaim.enter();
        for i in 0..self.table.len() {
            let mut parents: SmallVec<[NodePtr<I>; 8]> = SmallVec::new();
            self.table.each(&guard, i, |e| parents.push(e.parent().retain()));
            for parent in parents {
                let dir = parent.dir().expect("what has names below it is a directory");
                let mut names = dir.lock();
                let mut trash = Trash::new();
                while let Some(last) = names.list.last() {
                    let last = last.retain();
                    self.take_out(dir, &mut names, last.borrow(), &mut trash);
                    self.release_entry(last);
                }
                entries.extend(trash.0.into_iter().map(|(e, _)| e));
                drop(names);
                self.release_node(parent);
            }
        }
        drop(guard);
        for entry in entries {
            self.release_entry(entry);
        }
        if let Some(root) = self.root.take() {
            self.release_node(root);
        }
        self.settle();
    }
}
