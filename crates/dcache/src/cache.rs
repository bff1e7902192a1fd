//! The cache: its handles, walks and all that changes it.

use crate::*;

/// Names to nodes of the author's inode type. Cheap to clone; all clones are one cache.
pub struct Cache<I: Send + Sync + 'static>(std::sync::Arc<I>);

impl<I: Send + Sync + 'static> Clone for Cache<I> {
    fn clone(&self) -> Self {
        todo!()
    }
}

impl<I: Send + Sync + 'static> Cache<I> {
    /// A cache that knows its root, a directory, and nothing else. The table is made at once: 8 bytes for each entry of the bound.
    pub fn new(_root: I, _config: Config<I>) -> Cache<I> {
        todo!()
    }

    /// The root. Its number is 1.
    pub fn root(&self) -> Handle<I> {
        todo!()
    }

    /// Walks `path` from `start`, which need not be a directory if the path is empty.
    ///
    /// Lock-free as long as the cache knows; it waits (unless [`Walk::no_wait`]) where somebody else holds a ticket for a component. Who holds a ticket
    /// or a change must not walk through its names.
    pub fn walk<'c>(&'c self, _start: &Handle<I>, _path: &[u8], _options: &Walk<'_, I>) -> Outcome<'c, I> {
        todo!()
    }

    /// Looks one name up in a directory. Links are not followed, and [`Outcome::Place`], [`Outcome::Target`] and [`Outcome::Orphan`] do not
    /// come. `.`, `..` and what is no name give [`Error::Invalid`].
    pub fn lookup<'c>(&'c self, _directory: &Handle<I>, _name: &[u8]) -> Outcome<'c, I> {
        todo!()
    }

    /// Goes on with the walk from which a ticket came, with the same options. An answer that was not kept for want of room or by [`Ttl::No`] is used for this
    /// walk alone; one that a change overtook is asked for again.
    pub fn resume<'c>(&'c self, _filled: Filled<I>, _options: &Walk<'_, I>) -> Outcome<'c, I> {
        todo!()
    }

    /// A directory's name as the cache has it now: the directory above it and its name there. None for a root, or when the cache has it under no name.
    pub fn place(&self, _directory: &Handle<I>) -> Option<Place<I>> {
        todo!()
    }

    // ---- changes

    /// Begins the making of a name. [`Error::Exists`] if the cache knows that the name is there. Waits while another change of the same name is
    /// under way, as all changes do.
    pub fn create(&self, _directory: &Handle<I>, _name: &[u8]) -> Result<Creation<I>, Error> {
        todo!()
    }

    /// Begins one more name for `node`.
    pub fn link(&self, _node: &Handle<I>, _directory: &Handle<I>, _name: &[u8]) -> Result<Change<I>, Error> {
        todo!()
    }

    /// Begins the end of a name that is no directory's. [`Error::NotFound`], [`Error::IsDirectory`] as far as the cache knows.
    pub fn unlink(&self, _directory: &Handle<I>, _name: &[u8]) -> Result<Change<I>, Error> {
        todo!()
    }

    /// Begins the end of a directory. [`Error::NotFound`], [`Error::NotDirectory`], and [`Error::Busy`] for a mount point, as far as the cache knows;
    /// whether it is empty, the store says.
    pub fn rmdir(&self, _directory: &Handle<I>, _name: &[u8]) -> Result<Change<I>, Error> {
        todo!()
    }

    /// Begins a rename. Looks, as far as the cache knows, for what rename(2) forbids: a directory over something else and the reverse, a directory into
    /// itself ([`Error::Invalid`]), mount points ([`Error::Busy`]), an existing target with [`Rename::NoReplace`].
    pub fn rename(&self, _from: (&Handle<I>, &[u8]), _to: (&Handle<I>, &[u8]), _how: Rename) -> Result<Change<I>, Error> {
        todo!()
    }

    /// Begins a listing of a directory, from which its names are learnt.
    pub fn list(&self, _directory: &Handle<I>) -> Result<Listing<I>, Error> {
        todo!()
    }

    // ---- what the store has changed by itself

    /// Forgets what the cache knows of one name (also that there is none), and that the directory's listing was complete.
    pub fn invalidate(&self, _directory: &Handle<I>, _name: &[u8]) {
        todo!()
    }

    /// Forgets all names below a directory, its own stays.
    pub fn invalidate_subtree(&self, _directory: &Handle<I>) {
        todo!()
    }

    /// Forgets all names.
    pub fn invalidate_all(&self) {
        todo!()
    }

    // ---- mounts

    /// Makes the root of another tree, which no name leads to until it is mounted.
    pub fn new_root(&self, _inode: I) -> Handle<I> {
        todo!()
    }

    /// Mounts `root` (of [`Cache::new_root`]) over the directory with this name, which the cache must know: walks go on in the mounted tree, and its `..` is the
    /// mount point's. A tree is mounted at one place at a time. [`Error::Busy`] if either is mounted already.
    pub fn mount(&self, _directory: &Handle<I>, _name: &[u8], _root: &Handle<I>) -> Result<(), Error> {
        todo!()
    }

    /// Takes the mount away again: the covered directory is there as before. [`Error::Invalid`] if nothing is mounted there.
    pub fn unmount(&self, _directory: &Handle<I>, _name: &[u8]) -> Result<(), Error> {
        todo!()
    }

    // ---- pins and bounds

    /// The pinned node with this number.
    pub fn pinned(&self, _number: u64) -> Option<Handle<I>> {
        todo!()
    }

    /// Takes `n` pins away from the node with this number, as a FUSE kernel's forget does; how many are left. More than there are: all of them.
    pub fn unpin(&self, _number: u64, _n: u32) -> u64 {
        todo!()
    }

    /// Names that could not be evicted because their nodes are pinned, at most `max`, each told once: so that a kernel can be told to forget them. Empty unless the
    /// bound was met.
    pub fn pressure(&self, _max: usize) -> Vec<Place<I>> {
        todo!()
    }

    /// Evicts up to `n` entries, as if room was needed; how many it were.
    pub fn shrink(&self, _n: usize) -> usize {
        todo!()
    }

    /// Frees what is retired, as far as no walker can be reading it, and calls the hook. Done by and by as the cache is used; for quiet
    /// moments, and for tests.
    pub fn reclaim(&self) {
        todo!()
    }

    /// Counts of the moment.
    pub fn stats(&self) -> Stats {
        todo!()
    }
}
