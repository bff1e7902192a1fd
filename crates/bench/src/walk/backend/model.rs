//! The store behind the caches of this process: the names of the tree in memory, asked when a cache does not know.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use manyway_sync::atomic::{AtomicU64, Ordering};

use crate::walk::tree::Tree;

/// The root's number.
pub const ROOT: u64 = 1;

/// What a name leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number.
    pub number: u64,
    /// Whether it is a directory.
    pub directory: bool,
}

/// The store.
#[derive(Default)]
pub struct Model {
    directories: RwLock<HashMap<u64, Directory, foldhash::fast::RandomState>>,
    calls: AtomicU64,
}

type Directory = HashMap<Box<[u8]>, File, foldhash::fast::RandomState>;

impl Model {
    /// One that has a tree.
    pub fn of(tree: &Tree) -> Model {
        let model = Model::default();
        let all = tree.dirs.iter().map(|path| (path, true)).chain(tree.files.iter().map(|path| (path, false)));
        for (number, (path, directory)) in (ROOT + 1..).zip(all) {
            let (parent, name) = model.parent_of(path.as_bytes());
            model.put(parent, name, File { number, directory });
        }
        model
    }

    fn put(&self, parent: u64, name: &[u8], file: File) {
        self.directories.write().unwrap_or_else(PoisonError::into_inner).entry(parent).or_default().insert(name.into(), file);
    }

    /// What a name leads to; counted as a call.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Option<File> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.look(parent, name)
    }

    fn look(&self, parent: u64, name: &[u8]) -> Option<File> {
        self.directories.read().unwrap_or_else(PoisonError::into_inner).get(&parent)?.get(name).copied()
    }

    /// How many calls there have been.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// The number of the directory in which a path ends, and its last name.
    pub fn parent_of<'a>(&self, path: &'a [u8]) -> (u64, &'a [u8]) {
        let at = path.iter().rposition(|&byte| byte == b'/');
        let (above, name) = at.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        let below = |parent, name: &[u8]| self.look(parent, name).map_or(0, |file| file.number);
        (above.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).fold(ROOT, below), name)
    }

    /// Moves a name.
    pub fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let mut directories = self.directories.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = directories.get_mut(&from.0).and_then(|directory| directory.remove(from.1)) {
            directories.entry(to.0).or_default().insert(to.1.into(), file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::Case;

    #[test]
    fn a_renamed_directory_takes_what_is_below_it_along() {
        let tree = Tree::of(Case::RenameDir100, 0).unwrap();
        let model = Model::of(&tree);
        let file = |path: &str| {
            let (parent, name) = model.parent_of(path.as_bytes());
            model.lookup(parent, name)
        };
        let before = file("from/dir/000/file-007");
        assert!(before.is_some_and(|file| !file.directory) && file("to/dir/000/file-007").is_none());
        model.rename(model.parent_of(b"from/dir"), model.parent_of(b"to/dir"));
        assert_eq!((file("to/dir/000/file-007"), file("from/dir/000/file-007")), (before, None));
        assert_eq!(model.calls(), 4);
    }
}
