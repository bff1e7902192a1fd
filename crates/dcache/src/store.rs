//! What a file system's author writes to use [`Tree`](crate::Tree).

use crate::{Error, Kind, Rename, Ttl};

/// What the store says about a name that exists.
pub struct Item<I> {
    /// The author's inode.
    pub inode: I,
    /// What it is.
    pub kind: Kind,
    /// The store's own number of it: [`Binding::id`](crate::Binding::id). 0: none.
    pub id: u64,
    /// For how long the name may be believed.
    pub ttl: Ttl,
    /// A symbolic link's target, if it is known already; else [`Store::readlink`] is asked when it is wanted.
    pub target: Option<Box<[u8]>>,
}

impl<I> Item<I> {
    /// An item without a number, believed until something changes it.
    pub fn new(kind: Kind, inode: I) -> Self {
        Item { inode, kind, id: 0, ttl: Ttl::Forever, target: None }
    }

    /// With the store's own number.
    pub fn id(mut self, id: u64) -> Self {
        self.id = id;
        self
    }

    /// With a symbolic link's target.
    pub fn target(mut self, target: impl Into<Box<[u8]>>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Believed for so long.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = ttl;
        self
    }
}

/// What the store says about a name.
pub enum Answer<I> {
    /// It exists.
    Found(Item<I>),
    /// It does not, and may be believed for so long.
    Absent(Ttl),
}

/// Takes one name of a listing after the other, with what it leads to.
pub type Put<'a, I> = &'a mut dyn FnMut(&[u8], Item<I>);

/// What is to be made.
#[derive(Clone, Copy, Debug)]
pub enum New<'a> {
    /// A regular file, with these permission bits.
    File(u32),
    /// A directory, with these permission bits.
    Directory(u32),
    /// A symbolic link to this target.
    Link(&'a [u8]),
    /// A device, pipe or socket: mode and device number as of mknod(2).
    Node(u32, u64),
}

/// What a tree of files is kept in: a disk, a server, an object store. All calls are made without any lock, from the thread that asked the
/// tree, and may take their time. What a store does not have it leaves out.
pub trait Store: Send + Sync + 'static {
    /// What the store wants to know of a file or directory, to find it again.
    type Inode: Send + Sync + 'static;

    /// Says what a name in a directory leads to.
    fn lookup(&self, directory: &Self::Inode, name: &[u8]) -> Result<Answer<Self::Inode>, Error>;

    /// Whether a name whose time is over still leads to `inode`: then for how long again. None: look it up. By default none.
    fn revalidate(&self, _directory: &Self::Inode, _name: &[u8], _inode: &Self::Inode) -> Result<Option<Ttl>, Error> {
        Ok(None)
    }

    /// For how long what a change leaves may be believed: a name that was moved or linked, and that an old one is no more. By default until something takes it
    /// away; not where others change the store, too.
    fn ttl(&self) -> Ttl {
        Ttl::Forever
    }

    /// A symbolic link's target.
    fn readlink(&self, _link: &Self::Inode) -> Result<Vec<u8>, Error> {
        Err(Error::Unsupported)
    }

    /// Hands each name of a directory to `put`, without `.` and `..`. Ok: for how long the listing is known to be complete; `Ttl::No` if it
    /// may not be.
    fn list(&self, _directory: &Self::Inode, _put: Put<'_, Self::Inode>) -> Result<Ttl, Error> {
        Err(Error::Unsupported)
    }

    /// Makes something new.
    fn create(&self, _directory: &Self::Inode, _name: &[u8], _new: New<'_>) -> Result<Item<Self::Inode>, Error> {
        Err(Error::Unsupported)
    }

    /// Gives a file one more name.
    fn link(&self, _inode: &Self::Inode, _directory: &Self::Inode, _name: &[u8]) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// Takes a name away that is no directory's.
    fn unlink(&self, _directory: &Self::Inode, _name: &[u8]) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// Removes an empty directory.
    fn rmdir(&self, _directory: &Self::Inode, _name: &[u8]) -> Result<(), Error> {
        Err(Error::Unsupported)
    }

    /// Renames. What rename(2) does: to itself, or between two names of one file, nothing.
    fn rename(&self, _from: (&Self::Inode, &[u8]), _to: (&Self::Inode, &[u8]), _how: Rename) -> Result<(), Error> {
        Err(Error::Unsupported)
    }
}
