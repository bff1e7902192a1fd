//! A cache in front of a store.

use std::sync::Arc;

use crate::*;

/// A [`Store`] behind a [`Cache`]: runs the loops of walk, miss and fill, and of begin, change and commit. Cheap to clone.
pub struct Tree<S: Store>(Arc<S>);

impl<S: Store> Tree<S> {
    /// A tree whose root has the inode `root`.
    pub fn new(_store: S, _root: S::Inode, _config: Config<S::Inode>) -> Self {
        todo!()
    }

    /// The cache: for walks of one's own, pins, invalidation, statistics.
    pub fn cache(&self) -> &Cache<S::Inode> {
        todo!()
    }

    /// The store.
    pub fn store(&self) -> &S {
        todo!()
    }

    /// The root.
    pub fn root(&self) -> Handle<S::Inode> {
        todo!()
    }

    /// What a path from the root leads to, links followed.
    pub fn resolve(&self, path: impl AsRef<[u8]>) -> Result<Handle<S::Inode>, Error> {
        self.walk(&self.root(), path.as_ref(), &Walk::new())
    }

    /// What a path from `start` leads to; [`Error::NotFound`] when there is none.
    pub fn walk(&self, _start: &Handle<S::Inode>, _path: &[u8], _options: &Walk<'_, S::Inode>) -> Result<Handle<S::Inode>, Error> {
        todo!()
    }

    /// The directory and the last name of a path from the root.
    pub fn place(&self, _path: impl AsRef<[u8]>) -> Result<Place<S::Inode>, Error> {
        todo!()
    }

    /// What a name in a directory leads to.
    pub fn lookup(&self, _directory: &Handle<S::Inode>, _name: &[u8]) -> Result<Handle<S::Inode>, Error> {
        todo!()
    }

    /// A symbolic link's target.
    pub fn readlink(&self, _link: &Handle<S::Inode>) -> Result<Vec<u8>, Error> {
        todo!()
    }

    /// The names of a directory as the store lists them, with their nodes. Afterwards the directory is complete, if the store says so.
    pub fn list(&self, _directory: &Handle<S::Inode>) -> Result<Vec<(Vec<u8>, Handle<S::Inode>)>, Error> {
        todo!()
    }

    /// Makes something new.
    pub fn create(&self, _directory: &Handle<S::Inode>, _name: &[u8], _new: New<'_>) -> Result<Handle<S::Inode>, Error> {
        todo!()
    }

    /// Gives a file one more name.
    pub fn link(&self, _node: &Handle<S::Inode>, _directory: &Handle<S::Inode>, _name: &[u8]) -> Result<(), Error> {
        todo!()
    }

    /// Takes a name away that is no directory's.
    pub fn unlink(&self, _directory: &Handle<S::Inode>, _name: &[u8]) -> Result<(), Error> {
        todo!()
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, _directory: &Handle<S::Inode>, _name: &[u8]) -> Result<(), Error> {
        todo!()
    }

    /// Renames.
    pub fn rename(&self, _from: (&Handle<S::Inode>, &[u8]), _to: (&Handle<S::Inode>, &[u8]), _how: Rename) -> Result<(), Error> {
        todo!()
    }
}
