//! The crate's unsafe floor: entries and nodes in memory, who owns them, and the table's chains.
//!
//! * An **entry** is counted. One count is its directory's list's, as long as the entry is in the table; taken out, that one is retired,
//!   and given up when every guard that was there has ended. Others are tickets'.
//! * A **node** is counted: by the entries that lead to it or lie in it, by handles, by its pins. It is freed at the last one.
//! * A reference ([`EntryRef`]) is bound to the guard under which it was read from the table. Its lifetime is invariant, so that one
//!   guard's cannot be taken for another's.
#![allow(unsafe_code)]

#[cfg(not(loom))]
use std::alloc::dealloc;
use std::alloc::{Layout, alloc, handle_alloc_error};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::{self, NonNull};

use manyway_sync::atomic::{AtomicPtr, AtomicU32, Ordering::*, spin_hint};

use crate::lock::Mutex;
use crate::node::Node;
use crate::path::Name;
use crate::reclaim::Guard;

/// A name in a directory. All but `state` and `expiry` (and the list's `slot`) stays as it was when the entry came into the table; `node`
/// is stored once, before the entry becomes LIVE. The name lies behind it, padded with zeros to whole words.
#[repr(C)]
pub(crate) struct Entry<I> {
    /// Written by the holder of the bucket's lock bit.
    next: AtomicPtr<Entry<I>>,
    /// Counted.
    parent: NonNull<Node<I>>,
    /// Counted; null: none.
    node: AtomicPtr<Node<I>>,
    pub hash: u32,
    /// [`crate::entry`] has the table.
    pub state: AtomicU32,
    /// In ticks; means something if the state says so.
    pub expiry: AtomicU32,
    refs: AtomicU32,
    /// The place in the directory's list: its lock's.
    pub slot: AtomicU32,
    len: u16,
    #[cfg(loom)]
    life: life::Life,
}

/// In models: whether an entry was freed. It is not given back to the allocator then, so that a use of it is found.
#[cfg(loom)]
mod life {
    pub struct Life(loom::cell::UnsafeCell<bool>);

    impl Life {
        pub fn new() -> Self {
            Life(loom::cell::UnsafeCell::new(true))
        }
        pub fn used(&self) {
            // SAFETY: loom says so if somebody writes at the same time.
            assert!(self.0.with(|alive| unsafe { *alive }), "an entry is used that was freed");
        }
        pub fn end(&self) {
            // SAFETY: as above.
            self.0.with_mut(|alive| unsafe { *alive = false });
        }
    }
}

/// More counts than this mean that they leak.
const MAX_REFS: u32 = 1 << 31;

// SAFETY: an entry is atomics, and what does not change; it owns counts of nodes, which may go to any thread if `I` may.
unsafe impl<I: Send + Sync> Send for Entry<I> {}
// SAFETY: as above.
unsafe impl<I: Send + Sync> Sync for Entry<I> {}

impl<I> Entry<I> {
    /// Bytes asked from the allocator for an entry with a name of `len` bytes.
    pub fn size(len: usize) -> usize {
        size_of::<Entry<I>>() + len.next_multiple_of(8)
    }

    fn layout(len: usize) -> Layout {
        // Names are 65,535 bytes at most: this does not overflow.
        Layout::from_size_align(Self::size(len), align_of::<Entry<I>>()).expect("a small size")
    }

    /// The directory.
    #[inline(always)]
    pub fn parent(&self) -> &Node<I> {
        // SAFETY: the entry owns a count of it.
        unsafe { self.parent.as_ref() }
    }

    /// What the name leads to. BIND: read behind a state that is LIVE (acquire), or by who has stored it.
    #[inline(always)]
    pub fn node(&self) -> Option<&Node<I>> {
        // SAFETY: null, or a node of which the entry owns a count, until it is freed; it is stored once, and never taken back.
        unsafe { self.node.load(Acquire).as_ref() }
    }

    /// Says what the name leads to: once, before the entry is published.
    pub fn set_node(&self, node: NodePtr<I>) {
        let before = self.node.swap(node.into_raw().as_ptr(), Release);
        assert!(before.is_null(), "an entry is bound once");
    }

    pub fn name_len(&self) -> usize {
        self.len as usize
    }
}

/// An owned count of an entry.
#[must_use]
pub(crate) struct EntryPtr<I>(NonNull<Entry<I>>);

// SAFETY: as `Entry`.
unsafe impl<I: Send + Sync> Send for EntryPtr<I> {}
// SAFETY: as above.
unsafe impl<I: Send + Sync> Sync for EntryPtr<I> {}

impl<I> Deref for EntryPtr<I> {
    type Target = Entry<I>;
    fn deref(&self) -> &Entry<I> {
        // SAFETY: counted.
        unsafe { self.0.as_ref() }
    }
}

impl<I> EntryPtr<I> {
    /// A new entry, not in the table yet.
    pub fn new(parent: NodePtr<I>, name: &[u8], hash: u32, state: u32) -> EntryPtr<I> {
        let layout = Entry::<I>::layout(name.len());
        let head = Entry {
            next: AtomicPtr::new(ptr::null_mut()),
            parent: parent.into_raw(),
            node: AtomicPtr::new(ptr::null_mut()),
            hash,
            state: AtomicU32::new(state),
            expiry: AtomicU32::new(0),
            refs: AtomicU32::new(1),
            slot: AtomicU32::new(u32::MAX),
            len: u16::try_from(name.len()).expect("a name's length is looked at first"),
            #[cfg(loom)]
            life: life::Life::new(),
        };
        // SAFETY: the layout is not empty; the head fits in front and is aligned, the name behind it, and the rest of its last word are
        // zeros.
        unsafe {
            let Some(p) = NonNull::new(alloc(layout).cast::<Entry<I>>()) else { handle_alloc_error(layout) };
            p.write(head);
            let place = p.add(1).cast::<u8>();
            let padded = layout.size() - size_of::<Entry<I>>();
            if padded > name.len() {
                place.add(padded - 8).cast::<u64>().write(0);
            }
            place.copy_from_nonoverlapping(NonNull::from(name).cast(), name.len());
            EntryPtr(p)
        }
    }

    pub fn retain(&self) -> EntryPtr<I> {
        let before = self.refs.fetch_add(1, Relaxed);
        assert!(before < MAX_REFS, "counts of an entry leak");
        EntryPtr(self.0)
    }

    /// Gives the count up. At the last one: what the entry owned, and the entry is gone.
    #[must_use]
    pub fn release(self) -> Option<(NodePtr<I>, Option<NodePtr<I>>, usize)> {
        let e = ManuallyDrop::new(self).0;
        // SAFETY: the count that was given up kept it till here. REFS: release, and acquire at the last, as any counted pointer's.
        let entry = unsafe { e.as_ref() };
        if entry.refs.fetch_sub(1, Release) != 1 {
            return None;
        }
        entry.refs.load(Acquire);
        let node = NonNull::new(entry.node.load(Relaxed)).map(NodePtr);
        let parent = NodePtr(entry.parent);
        let len = entry.name_len();
        // SAFETY: nobody else has it: the table's count is given up only when no guard can have read it. Allocated with this layout; its
        // fields have no destructor, and the counts it owned are handed out above.
        #[cfg(not(loom))]
        unsafe {
            ptr::drop_in_place(e.as_ptr());
            dealloc(e.as_ptr().cast(), Entry::<I>::layout(len));
        }
        #[cfg(loom)]
        entry.life.end();
        Some((parent, node, len))
    }

    /// For as long as the count is borrowed.
    pub fn borrow(&self) -> EntryRef<'_, I> {
        EntryRef(self.0, PhantomData)
    }
}

/// Counts are given up through the cache, which keeps the books.
#[cfg(debug_assertions)]
impl<I> Drop for EntryPtr<I> {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a count of an entry was dropped");
    }
}

/// An entry that was read from the table under a guard.
pub(crate) struct EntryRef<'g, I>(NonNull<Entry<I>>, PhantomData<fn(&'g ()) -> &'g ()>);

impl<I> Clone for EntryRef<'_, I> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for EntryRef<'_, I> {}

impl<I: 'static> Deref for EntryRef<'_, I> {
    type Target = Entry<I>;
    #[inline(always)]
    fn deref(&self) -> &Entry<I> {
        self.get()
    }
}

impl<'g, I: 'static> EntryRef<'g, I> {
    #[inline(always)]
    pub fn get(self) -> &'g Entry<I> {
        // SAFETY: the guard under which it was read lives for 'g (or the count that was borrowed does).
        let entry = unsafe { self.0.as_ref() };
        #[cfg(loom)]
        entry.life.used();
        entry
    }

    #[inline(always)]
    pub fn name(self) -> &'g [u8] {
        // SAFETY: `len` bytes lie behind the head, in the same allocation, and are never written again; it lives as above.
        unsafe { NonNull::slice_from_raw_parts(self.0.add(1).cast::<u8>(), self.get().len as usize).as_ref() }
    }

    /// Whether the entry's name is this one.
    #[inline(always)]
    fn has_name(self, name: &Name<'_>) -> bool {
        let len = name.bytes.len();
        if self.get().len as usize != len {
            return false;
        }
        // SAFETY: whole words lie behind the head, aligned as the head is, `len` bytes rounded up.
        let word = |i: usize| unsafe { self.0.add(1).cast::<u64>().add(i).read() };
        let mut i = 0;
        while let Some(chunk) = name.bytes[8 * i..].first_chunk::<8>() {
            if word(i) != u64::from_le_bytes(*chunk).to_le() {
                return false;
            }
            i += 1;
        }
        len.is_multiple_of(8) || word(i) == name.last.to_le()
    }

    /// A count of it, for what outlives the guard.
    pub fn retain(self) -> EntryPtr<I> {
        // Under the guard the table's count is not given up yet, so this is never the first.
        let p = ManuallyDrop::new(EntryPtr(self.0));
        p.retain()
    }

    /// What people wait at.
    pub fn address(self) -> u64 {
        self.0.addr().get() as u64
    }
}

/// An owned count of a node.
#[must_use]
pub(crate) struct NodePtr<I>(NonNull<Node<I>>);

// SAFETY: a node is atomics, locks, and the author's inode.
unsafe impl<I: Send + Sync> Send for NodePtr<I> {}
// SAFETY: as above.
unsafe impl<I: Send + Sync> Sync for NodePtr<I> {}

impl<I> Deref for NodePtr<I> {
    type Target = Node<I>;
    #[inline(always)]
    fn deref(&self) -> &Node<I> {
        // SAFETY: counted.
        unsafe { self.0.as_ref() }
    }
}

impl<I> NodePtr<I> {
    pub fn new(node: Node<I>) -> NodePtr<I> {
        let p = NonNull::from(Box::leak(Box::new(node)));
        // `Node::retain` makes such a pointer out of a reference.
        let _ = p.as_ptr().expose_provenance();
        NodePtr(p)
    }

    fn into_raw(self) -> NonNull<Node<I>> {
        ManuallyDrop::new(self).0
    }

    /// Gives the count up, if it is not the last one.
    fn release_unless_last(self) -> Result<(), NodePtr<I>> {
        let mut n = self.refs.load(Relaxed);
        while n > 1 {
            // REFS: what was done with this count comes before the node's end.
            match self.refs.compare_exchange_weak(n, n - 1, Release, Relaxed) {
                Ok(_) => {
                    let _ = self.into_raw();
                    return Ok(());
                }
                Err(now) => n = now,
            }
        }
        Err(self)
    }

    /// Gives the count up; at the last one, the node.
    fn release(self) -> Option<Box<Node<I>>> {
        let p = self.into_raw();
        // SAFETY: counted till the next line.
        let node = unsafe { p.as_ref() };
        if node.refs.fetch_sub(1, Release) != 1 {
            return None;
        }
        node.refs.load(Acquire);
        // SAFETY: it came from a box, and this was the last count of it.
        Some(unsafe { Box::from_raw(p.as_ptr()) })
    }
}

#[cfg(debug_assertions)]
impl<I> Drop for NodePtr<I> {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a count of a node was dropped");
    }
}

impl<I> Node<I> {
    /// One more count. Who has a reference to a node has it from somebody with a count, so this is never the first.
    pub fn retain(&self) -> NodePtr<I> {
        let before = self.refs.fetch_add(1, Relaxed);
        assert!(before < MAX_REFS, "counts of a node leak");
        // With the provenance of the whole box, which a shared reference does not have: this may be the count that frees it.
        let p = ptr::with_exposed_provenance_mut(self.address());
        // SAFETY: a reference's address is not null.
        NodePtr(unsafe { NonNull::new_unchecked(p) })
    }

    #[inline(always)]
    pub fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}

/// A hash for numbers that are spread already, or counted up.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl std::hash::Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// Nodes by the store's number. It has no counts: a node takes itself out before it is freed, under the same lock as it is found.
pub(crate) struct Index<I>(Box<[Shard<I>]>);

type Shard<I> = Mutex<NumberMap<NonNull<Node<I>>>>;

// SAFETY: as `NodePtr`: a node may be reached from any thread.
unsafe impl<I: Send + Sync> Send for Index<I> {}
// SAFETY: as above.
unsafe impl<I: Send + Sync> Sync for Index<I> {}

const SHARDS: u64 = 16;

impl<I: 'static> Index<I> {
    pub fn new() -> Self {
        Index((0..SHARDS).map(|_| Mutex::new(NumberMap::default())).collect())
    }

    fn shard(&self, id: u64) -> &Shard<I> {
        &self.0[(id % SHARDS) as usize]
    }

    /// The node with this number, if it is what is looked for; else the one that `make` makes, from now on.
    pub fn get_or(&self, id: u64, is: impl Fn(&Node<I>) -> bool, make: impl FnOnce() -> NodePtr<I>) -> NodePtr<I> {
        let mut shard = self.shard(id).lock();
        if let Some(p) = shard.get(&id) {
            // SAFETY: a node's last count is given up under this lock, together with its place here: what is here is counted.
            let node = unsafe { p.as_ref() };
            if is(node) {
                return node.retain();
            }
        }
        let node = make();
        shard.insert(id, node.0);
        node
    }

    /// Gives a count up; at the last one, the node, which nobody finds any more.
    pub fn release(&self, node: NodePtr<I>) -> Option<Box<Node<I>>> {
        let node = match node.release_unless_last() {
            Ok(()) => return None,
            Err(node) => node,
        };
        let Some(id) = node.id() else { return node.release() };
        let mut shard = self.shard(id).lock();
        let at = node.0;
        let last = node.release();
        // Another one may have the number by now.
        if last.is_some() && shard.get(&id) == Some(&at) {
            shard.remove(&id);
        }
        last
    }
}

// ---- the table

const LOCKED: usize = 1;

fn unmark<I>(p: *mut Entry<I>) -> *mut Entry<I> {
    p.map_addr(|a| a & !LOCKED)
}

/// The hash table: for each bucket the head of a chain, with a lock bit for who changes the chain. Readers take no notice of the bit.
pub(crate) struct Table<I>(Box<[AtomicPtr<Entry<I>>]>);

/// A bucket's lock bit.
struct Bucket<'t, I> {
    head: &'t AtomicPtr<Entry<I>>,
    first: *mut Entry<I>,
}

impl<I> Drop for Bucket<'_, I> {
    fn drop(&mut self) {
        // CHAIN: what was written to entries and links before is seen by who comes through the head.
        self.head.store(self.first, Release);
    }
}

impl<I: 'static> Table<I> {
    pub fn new(buckets: usize) -> Self {
        Table((0..buckets).map(|_| AtomicPtr::new(ptr::null_mut())).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn head(&self, hash: u32) -> &AtomicPtr<Entry<I>> {
        &self.0[((u64::from(hash) * self.0.len() as u64) >> 32) as usize]
    }

    fn lock(&self, hash: u32) -> Bucket<'_, I> {
        let head = self.head(hash);
        let mut spins = 0u32;
        loop {
            let p = head.load(Relaxed);
            // CHAIN: as a reader, and behind the last holder.
            if p.addr() & LOCKED == 0 && head.compare_exchange(p, p.map_addr(|a| a | LOCKED), Acquire, Relaxed).is_ok() {
                return Bucket { head, first: p };
            }
            spins += 1;
            if spins < 128 {
                spin_hint();
            } else {
                // The holder was put off the processor.
                crate::lock::nap();
            }
        }
    }

    /// Puts an entry at the head of its chain. Its directory's list keeps a count of it, and the directory's lock is held.
    pub fn insert(&self, entry: &EntryPtr<I>) {
        let mut bucket = self.lock(entry.hash);
        entry.next.store(bucket.first, Relaxed);
        bucket.first = entry.0.as_ptr();
    }

    /// Takes an entry out of its chain. Its own link stays, for who stands on it.
    pub fn remove(&self, entry: &EntryPtr<I>) {
        let mut bucket = self.lock(entry.hash);
        let next = entry.next.load(Relaxed);
        if bucket.first == entry.0.as_ptr() {
            bucket.first = next;
            return;
        }
        let mut p = bucket.first;
        // SAFETY: what is in the chain is counted by its directory's list, and goes out of it only under this lock.
        while let Some(e) = unsafe { p.as_ref() } {
            p = e.next.load(Relaxed);
            if p == entry.0.as_ptr() {
                // CHAIN: the rest of the chain is as complete as before.
                e.next.store(next, Release);
                return;
            }
        }
        unreachable!("an entry that is in its directory's list is in its chain");
    }

    /// The entry of this name that is not DEAD, and its state.
    #[inline(always)]
    pub fn probe<'g>(&self, guard: &'g Guard, dir: &Node<I>, hash: u32, name: &Name<'_>) -> Option<(EntryRef<'g, I>, u32)> {
        let _ = guard;
        // CHAIN: acquire, here and at each link.
        let mut p = unmark(self.head(hash).load(Acquire));
        while let Some(found) = NonNull::new(p) {
            let e = EntryRef(found, PhantomData::<fn(&'g ()) -> &'g ()>);
            let entry = e.get();
            if entry.hash == hash && ptr::eq(entry.parent.as_ptr(), dir) && e.has_name(name) {
                // BIND: what was stored before the entry became LIVE.
                let state = entry.state.load(Acquire);
                if crate::entry::kind(state) != crate::entry::DEAD {
                    return Some((e, state));
                }
            }
            p = entry.next.load(Acquire);
        }
        None
    }

    /// Shows each entry of bucket `i` to `f`.
    pub fn each<'g>(&self, guard: &'g Guard, i: usize, mut f: impl FnMut(EntryRef<'g, I>)) {
        let _ = guard;
        let mut p = unmark(self.0[i].load(Acquire));
        while let Some(found) = NonNull::new(p) {
            let e = EntryRef(found, PhantomData::<fn(&'g ()) -> &'g ()>);
            p = e.next.load(Acquire);
            f(e);
        }
    }
}

/// A directory's own entry: no count, since who kills the entry takes it out first.
pub(crate) struct Own<I>(AtomicPtr<Entry<I>>);

impl<I: 'static> Own<I> {
    pub fn none() -> Self {
        Own(AtomicPtr::new(ptr::null_mut()))
    }

    /// BIND: release, so that who goes up finds a whole entry.
    pub fn set(&self, entry: &EntryPtr<I>) {
        self.0.store(entry.0.as_ptr(), Release);
    }

    /// Takes `entry` out, if it is the one; before it is retired.
    pub fn clear(&self, entry: EntryRef<'_, I>) {
        let _ = self.0.compare_exchange(entry.0.as_ptr(), ptr::null_mut(), Release, Relaxed);
    }

    #[inline(always)]
    pub fn get<'g>(&self, guard: &'g Guard) -> Option<EntryRef<'g, I>> {
        let _ = guard;
        NonNull::new(self.0.load(Acquire)).map(|p| EntryRef(p, PhantomData))
    }
}

/// An entry with the guard that keeps it.
pub(crate) struct Held<I> {
    entry: NonNull<Entry<I>>,
    _guard: Guard,
}

impl<I: 'static> Held<I> {
    /// Runs `f` under `guard`. What it picks is kept together with the guard; else the guard ends and the rest is handed on.
    #[inline(always)]
    pub fn pick<T, E>(guard: Guard, f: impl for<'g> FnOnce(&'g Guard) -> Result<(EntryRef<'g, I>, T), E>) -> Result<(Held<I>, T), E> {
        match f(&guard) {
            // An entry of this guard's: its lifetime can be no other's, for `f` takes any.
            Ok((e, rest)) => Ok((Held { entry: e.0, _guard: guard }, rest)),
            Err(e) => Err(e),
        }
    }

    #[inline(always)]
    pub fn entry(&self) -> EntryRef<'_, I> {
        EntryRef(self.entry, PhantomData)
    }
}

const _: () = assert!(cfg!(any(loom, shuttle)) || offset_of!(Entry<u64>, len) == 44 && size_of::<Entry<u64>>() == 48);
