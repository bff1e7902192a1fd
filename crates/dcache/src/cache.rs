//! The cache: its handles, walks and all that changes it.

use std::sync::Arc;

use manyway_sync::atomic::Ordering::Relaxed;

use crate::inner::Inner;
use crate::{Change, Config, Creation, Error, Filled, Handle, Listing, Outcome, Place, Rename, Stats, Walk};
use crate::{change, mount, outcome};

/// Names to nodes of the author's inode type. Cheap to clone; all clones are one cache.
pub struct Cache<I: Send + Sync + 'static>(pub(crate) Arc<Inner<I>>);

impl<I: Send + Sync + 'static> Clone for Cache<I> {
    fn clone(&self) -> Self {
        Cache(self.0.clone())
    }
}

impl<I: Send + Sync + 'static> Cache<I> {
    /// A cache that knows its root, a directory, and nothing else. The table is made at once: 8 bytes for each entry of the bound.
    pub fn new(root: I, config: Config<I>) -> Cache<I> {
        Cache(Inner::new(root, config))
    }

    /// The root. Its number is 1.
    pub fn root(&self) -> Handle<I> {
        Handle::new(&self.0, self.0.root().retain())
    }

    /// Walks `path` from `start`, which need not be a directory if the path is empty.
    ///
    /// Lock-free as long as the cache knows; it waits (unless [`Walk::no_wait`]) where somebody else holds a ticket for a component. Who
    /// holds a ticket or a change must not walk through its names.
    #[inline(always)]
    pub fn walk<'c>(&'c self, start: &Handle<I>, path: &[u8], options: &Walk<'_, I>) -> Outcome<'c, I> {
        outcome::walk(&self.0, start, path, options)
    }

    /// Looks one name up in a directory. Links are not followed, and [`Outcome::Place`], [`Outcome::Target`] and [`Outcome::Orphan`] do not
    /// come. `.`, `..` and what is no name give [`Error::Invalid`].
    pub fn lookup<'c>(&'c self, directory: &Handle<I>, name: &[u8]) -> Outcome<'c, I> {
        outcome::lookup(&self.0, directory, name)
    }

    /// Goes on with the walk from which a ticket came, with the same options. An answer that was not kept for want of room or by
    /// [`Ttl::No`] is used for this walk alone; one that a change overtook is asked for again.
    pub fn resume<'c>(&'c self, filled: Filled<I>, options: &Walk<'_, I>) -> Outcome<'c, I> {
        outcome::resume(&self.0, filled.trip, options)
    }

    /// A directory's name as the cache has it now: the directory above it and its name there. None for a root, or when the cache has it
    /// under no name, or it is another cache's.
    pub fn place(&self, directory: &Handle<I>) -> Option<Place<I>> {
        if !directory.is_of(&self.0) {
            return None;
        }
        self.0.place(directory.raw()).map(|(dir, name)| Place { directory: Handle::new(&self.0, dir), name })
    }

    // ---- changes

    /// Begins the making of a name. [`Error::Exists`] if the cache knows that the name is there. Waits while another change of the same
    /// name is under way, as all changes do.
    pub fn create(&self, directory: &Handle<I>, name: &[u8]) -> Result<Creation<I>, Error> {
        change::create(&self.0, directory, name)
    }

    /// Begins one more name for `node`.
    pub fn link(&self, node: &Handle<I>, directory: &Handle<I>, name: &[u8]) -> Result<Change<I>, Error> {
        change::link(&self.0, node, directory, name)
    }

    /// Begins the end of a name that is no directory's. [`Error::NotFound`], [`Error::IsDirectory`] as far as the cache knows.
    pub fn unlink(&self, directory: &Handle<I>, name: &[u8]) -> Result<Change<I>, Error> {
        change::unlink(&self.0, directory, name, false)
    }

    /// Begins the end of a directory. [`Error::NotFound`], [`Error::NotDirectory`], and [`Error::Busy`] for a mount point, as far as the
    /// cache knows; whether it is empty, the store says.
    pub fn rmdir(&self, directory: &Handle<I>, name: &[u8]) -> Result<Change<I>, Error> {
        change::unlink(&self.0, directory, name, true)
    }

    /// Begins a rename. Looks, as far as the cache knows, for what rename(2) forbids: a directory over something else and the reverse, a
    /// directory into itself ([`Error::Invalid`]), mount points ([`Error::Busy`]), an existing target with [`Rename::NoReplace`].
    pub fn rename(&self, from: (&Handle<I>, &[u8]), to: (&Handle<I>, &[u8]), how: Rename) -> Result<Change<I>, Error> {
        change::begin_rename(&self.0, from, to, how)
    }

    /// Begins a listing of a directory, from which its names are learnt.
    pub fn list(&self, directory: &Handle<I>) -> Result<Listing<I>, Error> {
        Listing::begin(&self.0, directory)
    }

    // ---- what the store has changed by itself

    /// Forgets what the cache knows of one name (also that there is none), and that the directory's listing was complete.
    pub fn invalidate(&self, directory: &Handle<I>, name: &[u8]) {
        self.0.invalidate(directory, name)
    }

    /// Forgets all names below a directory, its own stays. Of another cache's directory nothing is known here, and nothing forgotten.
    pub fn invalidate_subtree(&self, directory: &Handle<I>) {
        if directory.is_of(&self.0) {
            self.0.invalidate_subtree(directory.raw())
        }
    }

    /// Forgets all names.
    pub fn invalidate_all(&self) {
        self.0.invalidate_all()
    }

    // ---- mounts

    /// Makes the root of another tree, which no name leads to until it is mounted.
    pub fn new_root(&self, inode: I) -> Handle<I> {
        Handle::new(&self.0, self.0.new_root(inode))
    }

    /// Mounts `root` (of [`Cache::new_root`]) over the directory with this name, which the cache must know: walks go on in the mounted
    /// tree, and its `..` is the mount point's. A tree is mounted at one place at a time. [`Error::Busy`] if either is mounted already.
    pub fn mount(&self, directory: &Handle<I>, name: &[u8], root: &Handle<I>) -> Result<(), Error> {
        mount::mount(&self.0, directory, name, root)
    }

    /// Takes the mount away again: the covered directory is there as before. [`Error::Invalid`] if nothing is mounted there.
    pub fn unmount(&self, directory: &Handle<I>, name: &[u8]) -> Result<(), Error> {
        mount::unmount(&self.0, directory, name)
    }

    // ---- pins and bounds

    /// The pinned node with this number.
    pub fn pinned(&self, number: u64) -> Option<Handle<I>> {
        self.0.find_pinned(number).map(|n| Handle::new(&self.0, n))
    }

    /// Takes `n` pins away from the node with this number, as a FUSE kernel's forget does; how many are left. More than there are: all of
    /// them.
    pub fn unpin(&self, number: u64, n: u32) -> u64 {
        self.0.unpin(number, n)
    }

    /// Names that could not be evicted because their nodes are pinned, at most `max`, each told once: so that a kernel can be told to
    /// forget them. Empty unless the bound was met.
    pub fn pressure(&self, max: usize) -> Vec<Place<I>> {
        self.0
            .clock_hand
            .take_met(max)
            .into_iter()
            .filter_map(|(directory, name)| Some(Place { directory: Handle::new(&self.0, self.0.find_pinned(directory)?), name }))
            .collect()
    }

    /// Evicts up to `n` entries, as if room was needed; how many it were.
    pub fn shrink(&self, n: usize) -> usize {
        self.0.evict(n, false)
    }

    /// Frees what is retired, as far as no walker can be reading it, and calls the hook. Done by and by as the cache is used; for quiet
    /// moments, and for tests.
    pub fn reclaim(&self) {
        self.0.reclaim.push();
        self.0.settle();
    }

    /// Counts of the moment.
    pub fn stats(&self) -> Stats {
        let b = &self.0.books;
        Stats {
            entries: b.entries.load(Relaxed),
            bytes: b.bytes.load(Relaxed),
            retired: b.retired.load(Relaxed),
            negatives: b.negatives.load(Relaxed),
            nodes: b.nodes.load(Relaxed),
            pinned: b.pinned.load(Relaxed),
            misses: b.misses.load(Relaxed),
            stale: b.stale.load(Relaxed),
            waits: b.waits.load(Relaxed),
            overtaken: b.overtaken.load(Relaxed),
            refused: b.refused.load(Relaxed),
            evicted: b.evicted.load(Relaxed),
            restarts: b.restarts.load(Relaxed),
            locked_walks: b.locked_walks.load(Relaxed),
            changes: b.changes.load(Relaxed),
        }
    }
}
