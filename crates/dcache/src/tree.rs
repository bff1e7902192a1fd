//! A cache in front of a store.

use std::sync::Arc;

use crate::{Answer, Binding, Cache, Config, Error, Filled, Handle, Item, Kind, New, Outcome, Place, Rename, Store, Ticket, Ttl, Walk};

/// A [`Store`] behind a [`Cache`]: runs the loops of walk, miss and fill, and of begin, change and commit. Cheap to clone.
pub struct Tree<S: Store> {
    cache: Cache<S::Inode>,
    store: Arc<S>,
}

impl<S: Store> Clone for Tree<S> {
    fn clone(&self) -> Self {
        Tree { cache: self.cache.clone(), store: self.store.clone() }
    }
}

/// The names of a directory with their nodes.
pub type Names<I> = Vec<(Vec<u8>, Handle<I>)>;

/// Where a walk came to.
enum Reached<I: Send + Sync + 'static> {
    Node(Handle<I>),
    Place(Place<I>),
}

fn binding<I: Send + Sync + 'static>(item: Item<I>) -> (Binding<I>, Ttl) {
    let mut binding = Binding::new(item.kind, item.inode);
    if item.id != 0 {
        binding = binding.id(item.id);
    }
    if let Some(target) = item.target {
        binding = binding.target(target);
    }
    (binding, item.ttl)
}

/// Whether an error of the store says that nothing was changed, and that what the cache knows need not be doubted.
fn refused(error: &Error) -> bool {
    const NO_SPACE: i32 = 28;
    const READ_ONLY: i32 = 30;
    const QUOTA: i32 = 122;
    use Error::*;
    matches!(
        error,
        NotEmpty | Denied | NotPermitted | Invalid | CrossDevice | Busy | Unsupported | NameTooLong | Os(NO_SPACE | READ_ONLY | QUOTA)
    )
}

impl<S: Store> Tree<S> {
    /// A tree whose root has the inode `root`.
    pub fn new(store: S, root: S::Inode, config: Config<S::Inode>) -> Self {
        Tree { cache: Cache::new(root, config), store: Arc::new(store) }
    }

    /// The cache: for walks of one's own, pins, invalidation, statistics.
    pub fn cache(&self) -> &Cache<S::Inode> {
        &self.cache
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The root.
    pub fn root(&self) -> Handle<S::Inode> {
        self.cache.root()
    }

    /// Asks the store for what a ticket wants to know.
    fn fill(&self, ticket: Ticket<S::Inode>) -> Result<Filled<S::Inode>, Error> {
        let (directory, name) = (ticket.directory().inode(), ticket.name());
        let asked = match ticket.known() {
            Some(known) => self.store.revalidate(directory, name, known.inode()),
            None => Ok(None),
        };
        let answer = match asked {
            Ok(Some(ttl)) => return Ok(ticket.same(ttl)),
            Ok(None) => self.store.lookup(directory, name),
            Err(e) => Err(e),
        };
        match answer {
            Ok(Answer::Found(item)) => {
                let (binding, ttl) = binding(item);
                Ok(ticket.publish(binding, ttl))
            }
            Ok(Answer::Absent(ttl)) => Ok(ticket.absent(ttl)),
            Err(e) => {
                ticket.failed(e.clone());
                Err(e)
            }
        }
    }

    fn reach<'a>(&'a self, mut outcome: Outcome<'a, S::Inode>, options: &Walk<'_, S::Inode>) -> Result<Reached<S::Inode>, Error> {
        loop {
            let filled = match outcome {
                Outcome::Found(found) => return Ok(Reached::Node(found.handle())),
                Outcome::Place(place) => return Ok(Reached::Place(place)),
                Outcome::Absent(_) => return Err(Error::NotFound),
                Outcome::Miss(ticket) | Outcome::Stale(ticket) => self.fill(ticket)?,
                Outcome::Target(wanted) => {
                    let target = self.store.readlink(wanted.link().inode())?;
                    wanted.publish(&target)
                }
                Outcome::Busy(waiting) => waiting.wait()?,
                Outcome::Orphan(_) => return Err(Error::Stale),
                Outcome::Failed(e) => return Err(e),
            };
            outcome = self.cache.resume(filled, options);
        }
    }

    /// What a path from the root leads to, links followed.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<Handle<S::Inode>, Error> {
        self.walk(&self.root(), path.as_ref(), &Walk::new())
    }

    /// What a path from `start` leads to; [`Error::NotFound`] when there is none. With [`Walk::parent`] or [`Walk::create`] use
    /// [`Tree::place_from`].
    pub fn walk(&self, start: &Handle<S::Inode>, path: &[u8], options: &Walk<'_, S::Inode>) -> Result<Handle<S::Inode>, Error> {
        match self.reach(self.cache.walk(start, path, options), options)? {
            Reached::Node(node) => Ok(node),
            Reached::Place(_) => Err(Error::Invalid),
        }
    }

    /// The directory and the last name of a path from the root.
    pub fn place(&self, path: impl AsRef<[u8]>) -> Result<Place<S::Inode>, Error> {
        self.place_from(&self.root(), path.as_ref(), &Walk::new())
    }

    /// The directory and the last name of a path from `start`.
    pub fn place_from(&self, start: &Handle<S::Inode>, path: &[u8], options: &Walk<'_, S::Inode>) -> Result<Place<S::Inode>, Error> {
        let options = (*options).parent();
        match self.reach(self.cache.walk(start, path, &options), &options)? {
            Reached::Place(place) => Ok(place),
            Reached::Node(_) => Err(Error::Invalid),
        }
    }

    /// What a name in a directory leads to. A link is not followed.
    pub fn lookup(&self, directory: &Handle<S::Inode>, name: &[u8]) -> Result<Handle<S::Inode>, Error> {
        match self.reach(self.cache.lookup(directory, name), &Walk::new())? {
            Reached::Node(node) => Ok(node),
            Reached::Place(_) => Err(Error::Invalid),
        }
    }

    /// A symbolic link's target.
    pub fn readlink(&self, link: &Handle<S::Inode>) -> Result<Vec<u8>, Error> {
        match link.target() {
            Some(target) => Ok(target.to_vec()),
            None => self.store.readlink(link.inode()),
        }
    }

    /// The names of a directory as the store lists them, with their nodes. Afterwards the directory is complete, if the store says so.
    pub fn list(&self, directory: &Handle<S::Inode>) -> Result<Names<S::Inode>, Error> {
        let mut listing = self.cache.list(directory)?;
        let mut names = Vec::new();
        let ttl = self.store.list(directory.inode(), &mut |name, item| {
            let (binding, ttl) = binding(item);
            names.push((name.to_vec(), listing.node(name, binding, ttl).0));
        })?;
        listing.complete(ttl);
        Ok(names)
    }

    /// Makes something new.
    pub fn create(&self, directory: &Handle<S::Inode>, name: &[u8], new: New<'_>) -> Result<Handle<S::Inode>, Error> {
        let creation = self.cache.create(directory, name)?;
        match self.store.create(directory.inode(), name, new) {
            Ok(item) => {
                let empty = item.kind == Kind::Directory;
                let (mut binding, ttl) = binding(item);
                if let New::Link(target) = new {
                    binding = binding.target(target);
                }
                Ok(creation.commit(binding, ttl, empty))
            }
            Err(e) => {
                if refused(&e) {
                    creation.unchanged();
                }
                Err(e)
            }
        }
    }

    fn done(&self, change: crate::Change<S::Inode>, done: Result<(), Error>) -> Result<(), Error> {
        match &done {
            Ok(()) => change.ttl(self.store.ttl()).commit(),
            Err(e) if refused(e) => change.unchanged(),
            Err(_) => drop(change),
        }
        done
    }

    /// Gives a file one more name.
    pub fn link(&self, node: &Handle<S::Inode>, directory: &Handle<S::Inode>, name: &[u8]) -> Result<(), Error> {
        let change = self.cache.link(node, directory, name)?;
        self.done(change, self.store.link(node.inode(), directory.inode(), name))
    }

    /// Takes a name away that is no directory's.
    pub fn unlink(&self, directory: &Handle<S::Inode>, name: &[u8]) -> Result<(), Error> {
        let change = self.cache.unlink(directory, name)?;
        self.done(change, self.store.unlink(directory.inode(), name))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, directory: &Handle<S::Inode>, name: &[u8]) -> Result<(), Error> {
        // So that the node is known that is going to be no directory any more.
        let _node = self.lookup(directory, name)?;
        let change = self.cache.rmdir(directory, name)?;
        self.done(change, self.store.rmdir(directory.inode(), name))
    }

    /// Renames.
    pub fn rename(&self, from: (&Handle<S::Inode>, &[u8]), to: (&Handle<S::Inode>, &[u8]), how: Rename) -> Result<(), Error> {
        // Both are looked up first: whether the two are one file decides what a rename does.
        let _source = self.lookup(from.0, from.1)?;
        let _target = match self.lookup(to.0, to.1) {
            Err(Error::NotFound) => None,
            found => Some(found?),
        };
        let change = self.cache.rename(from, to, how)?;
        self.done(change, self.store.rename((from.0.inode(), from.1), (to.0.inode(), to.1), how))
    }
}
