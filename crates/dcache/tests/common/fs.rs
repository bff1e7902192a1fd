//! The reference: a file system as a plain value. What it says is right; the cache before a store must say the same.

use std::collections::BTreeMap;

/// The number of an inode; the root has [`ROOT`].
pub type Ino = u64;
/// The root's number.
pub const ROOT: Ino = 1;
/// So many symbolic links are followed in one walk.
pub const LINKS: u32 = 40;

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum No {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    Loop,
    Denied,
    NotPermitted,
    /// The store could not say.
    Failed,
    /// A directory has no name in the cache any more: `..` leads nowhere. The reference never says so.
    Stale,
    /// A mount point; or somebody else's ticket. The reference never says so.
    Busy,
}

/// What an inode is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    Dir(BTreeMap<Vec<u8>, Ino>),
    File,
    Link(Vec<u8>),
}

/// A kind to create.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Make {
    Dir,
    File,
    Link(Vec<u8>),
}

/// How a rename meets what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    Replace,
    NoReplace,
    Exchange,
}

/// An inode. It stays after its last name is gone, as one that somebody holds open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub body: Body,
    /// How many names it has.
    pub names: u32,
    /// Of a directory: where `..` leads.
    pub parent: Ino,
    /// Of a directory: nobody may search it.
    pub closed: bool,
}

/// What a walk is to do besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags {
    /// A symbolic link at the end is the answer.
    pub no_follow: bool,
    /// Only a directory will do.
    pub directory: bool,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fs {
    nodes: BTreeMap<Ino, Node>,
    next: Ino,
}

impl Default for Fs {
    fn default() -> Fs {
        let root = Node { body: Body::Dir(BTreeMap::new()), names: 1, parent: ROOT, closed: false };
        Fs { nodes: BTreeMap::from([(ROOT, root)]), next: ROOT + 1 }
    }
}

impl Fs {
    /// The number that the next inode has.
    pub fn next(&self) -> Ino {
        self.next
    }

    pub fn node(&self, ino: Ino) -> &Node {
        &self.nodes[&ino]
    }

    pub fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.node(ino).body, Body::Dir(_))
    }

    /// A directory that has been removed: nothing is in it, and nothing can be put there.
    pub fn is_removed(&self, ino: Ino) -> bool {
        self.node(ino).names == 0
    }

    /// All directories that are in the tree, in the order of their numbers.
    pub fn dirs(&self) -> Vec<Ino> {
        self.nodes.iter().filter(|(_, n)| matches!(n.body, Body::Dir(_)) && n.names > 0).map(|(&ino, _)| ino).collect()
    }

    /// All names of the tree: directory, name, inode.
    pub fn names(&self) -> Vec<(Ino, Vec<u8>, Ino)> {
        let of = |dir: Ino| self.list(dir).expect("a directory").into_iter().map(move |(name, ino)| (dir, name, ino));
        self.dirs().into_iter().flat_map(of).collect()
    }

    /// The path of a directory that is in the tree.
    pub fn path_of(&self, mut dir: Ino) -> Vec<u8> {
        let mut names = vec![];
        while dir != ROOT {
            let parent = self.node(dir).parent;
            let entries = self.entries(parent).expect("a directory");
            names.push(entries.iter().find(|&(_, &i)| i == dir).expect("in its parent").0.clone());
            dir = parent;
        }
        names.push(vec![]);
        names.reverse();
        let path = names.join(&b'/');
        if path.is_empty() { b"/".to_vec() } else { path }
    }

    pub fn inodes(&self) -> impl Iterator<Item = (Ino, &Node)> {
        self.nodes.iter().map(|(&ino, n)| (ino, n))
    }

    /// Nobody may search it, or everybody.
    pub fn close(&mut self, dir: Ino, closed: bool) {
        self.nodes.get_mut(&dir).expect("an inode").closed = closed;
    }

    fn entries(&self, dir: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, No> {
        match &self.node(dir).body {
            Body::Dir(entries) => Ok(entries),
            _ => Err(No::NotDirectory),
        }
    }

    fn entries_mut(&mut self, dir: Ino) -> &mut BTreeMap<Vec<u8>, Ino> {
        match &mut self.nodes.get_mut(&dir).expect("an inode").body {
            Body::Dir(entries) => entries,
            _ => panic!("{dir} is no directory"),
        }
    }

    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, No> {
        self.entries(dir)?.get(name).copied().ok_or(No::NotFound)
    }

    pub fn list(&self, dir: Ino) -> Result<Vec<(Vec<u8>, Ino)>, No> {
        Ok(self.entries(dir)?.iter().map(|(n, &i)| (n.clone(), i)).collect())
    }

    pub fn create(&mut self, dir: Ino, name: &[u8], make: Make) -> Result<Ino, No> {
        self.create_as(dir, name, make, self.next)
    }

    /// The new inode's number is given.
    pub fn create_as(&mut self, dir: Ino, name: &[u8], make: Make, ino: Ino) -> Result<Ino, No> {
        self.may_put(dir, name)?;
        let body = match make {
            Make::Dir => Body::Dir(BTreeMap::new()),
            Make::File => Body::File,
            Make::Link(to) => Body::Link(to),
        };
        self.next = self.next.max(ino + 1);
        self.nodes.insert(ino, Node { body, names: 1, parent: dir, closed: false });
        self.entries_mut(dir).insert(name.to_vec(), ino);
        Ok(ino)
    }

    fn may_put(&self, dir: Ino, name: &[u8]) -> Result<(), No> {
        if self.entries(dir)?.contains_key(name) {
            return Err(No::Exists);
        }
        if self.is_removed(dir) { Err(No::NotFound) } else { Ok(()) }
    }

    /// One more name for what is no directory.
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), No> {
        if self.is_dir(ino) {
            return Err(No::NotPermitted);
        }
        self.may_put(dir, name)?;
        if self.is_removed(ino) {
            return Err(No::NotFound);
        }
        self.entries_mut(dir).insert(name.to_vec(), ino);
        self.nodes.get_mut(&ino).expect("an inode").names += 1;
        Ok(())
    }

    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), No> {
        let ino = self.lookup(dir, name)?;
        if self.is_dir(ino) {
            return Err(No::IsDirectory);
        }
        self.take(dir, name);
        Ok(())
    }

    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), No> {
        let ino = self.lookup(dir, name)?;
        if !self.entries(ino)?.is_empty() {
            return Err(No::NotEmpty);
        }
        self.take(dir, name);
        Ok(())
    }

    fn take(&mut self, dir: Ino, name: &[u8]) {
        let ino = self.entries_mut(dir).remove(name).expect("it was there");
        self.nodes.get_mut(&ino).expect("an inode").names -= 1;
    }

    /// `dir` is `above`, or below it.
    pub fn is_below(&self, mut dir: Ino, above: Ino) -> bool {
        loop {
            if dir == above {
                return true;
            }
            if dir == ROOT {
                return false;
            }
            dir = self.node(dir).parent;
        }
    }

    /// As renameat2(2).
    pub fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8]), how: How) -> Result<(), No> {
        let moved = self.lookup(from.0, from.1)?;
        let there = match self.lookup(to.0, to.1) {
            Ok(ino) => Some(ino),
            Err(No::NotFound) => None,
            Err(no) => return Err(no),
        };
        if self.is_removed(to.0) {
            return Err(No::NotFound);
        }
        match (how, there) {
            (How::NoReplace, Some(_)) => return Err(No::Exists),
            (How::Exchange, None) => return Err(No::NotFound),
            _ => {}
        }
        if self.is_dir(moved) && self.is_below(to.0, moved) {
            return Err(No::Invalid);
        }
        let Some(there) = there else {
            self.take(from.0, from.1);
            self.put(to, moved);
            return Ok(());
        };
        if self.is_dir(there) && self.is_below(from.0, there) {
            return Err(if how == How::Exchange { No::Invalid } else { No::NotEmpty });
        }
        // Two names of one inode, or one name twice: nothing is done.
        if there == moved {
            return Ok(());
        }
        if how == How::Exchange {
            self.take(from.0, from.1);
            self.take(to.0, to.1);
            self.put(to, moved);
            self.put(from, there);
            return Ok(());
        }
        match (self.is_dir(moved), self.is_dir(there)) {
            (true, false) => return Err(No::NotDirectory),
            (false, true) => return Err(No::IsDirectory),
            (true, true) if !self.entries(there)?.is_empty() => return Err(No::NotEmpty),
            _ => {}
        }
        self.take(to.0, to.1);
        self.take(from.0, from.1);
        self.put(to, moved);
        Ok(())
    }

    fn put(&mut self, at: (Ino, &[u8]), ino: Ino) {
        self.entries_mut(at.0).insert(at.1.to_vec(), ino);
        let node = self.nodes.get_mut(&ino).expect("an inode");
        node.names += 1;
        if matches!(node.body, Body::Dir(_)) {
            node.parent = at.0;
        }
    }

    /// The inode to which a path leads; the empty path to where it starts. Slashes at the end ask for a directory.
    pub fn walk(&self, start: Ino, path: &[u8], flags: Flags) -> Result<Ino, No> {
        if path.is_empty() {
            return if flags.directory && !self.is_dir(start) { Err(No::NotDirectory) } else { Ok(start) };
        }
        let directory = flags.directory || path.ends_with(b"/");
        let follow = !flags.no_follow || path.ends_with(b"/");
        let mut links = 0;
        let at = self.follow(start, path, follow, &mut links)?;
        if directory && !self.is_dir(at) { Err(No::NotDirectory) } else { Ok(at) }
    }

    fn follow(&self, start: Ino, path: &[u8], follow: bool, links: &mut u32) -> Result<Ino, No> {
        let mut at = if path.starts_with(b"/") { ROOT } else { start };
        let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|n| !n.is_empty()).collect();
        let slash_at_end = path.ends_with(b"/");
        for (i, name) in names.iter().enumerate() {
            let last = i + 1 == names.len();
            self.entries(at)?;
            if self.node(at).closed {
                return Err(No::Denied);
            }
            let found = match *name {
                b"." => at,
                b".." => self.node(at).parent,
                name => self.lookup(at, name)?,
            };
            at = match &self.node(found).body {
                Body::Link(to) if !last || follow || slash_at_end => {
                    *links += 1;
                    if *links > LINKS {
                        return Err(No::Loop);
                    }
                    if to.is_empty() {
                        return Err(No::NotFound);
                    }
                    let end = self.follow(at, to, true, links)?;
                    if to.ends_with(b"/") && !self.is_dir(end) {
                        return Err(No::NotDirectory);
                    }
                    end
                }
                _ => found,
            };
        }
        Ok(at)
    }
}
