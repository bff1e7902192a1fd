//! A change of names whose directories are known: on the reference, and through the cache.

use super::fs::{Fs, How, Ino, Make, No};
use super::program::Path;
use super::subject::{Node, Subject};

/// A name in a directory.
pub type Spot = (Node, Vec<u8>);

/// A change of names whose directories are known.
pub enum Doing {
    Create(Spot, Make),
    Link(Node, Spot),
    Unlink(Spot),
    Rmdir(Spot),
    Rename(Spot, Spot, How),
}

impl std::fmt::Debug for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names().into_iter().map(|(dir, name)| format!("{:?} in {dir}", Path(name))).collect();
        write!(f, "{} {}", self.what(), names.join(", "))?;
        match self {
            Doing::Create(_, make) => write!(f, " {make:?}"),
            Doing::Link(node, _) => write!(f, " {}", node.inode().ino),
            Doing::Rename(_, _, how) => write!(f, " {how:?}"),
            _ => Ok(()),
        }
    }
}

impl Doing {
    pub fn what(&self) -> &'static str {
        match self {
            Doing::Create(..) => "create",
            Doing::Link(..) => "link",
            Doing::Unlink(_) => "unlink",
            Doing::Rmdir(_) => "rmdir",
            Doing::Rename(..) => "rename",
        }
    }

    pub fn dirs(&self) -> Vec<Spot> {
        match self {
            Doing::Create(at, _) | Doing::Link(_, at) | Doing::Unlink(at) | Doing::Rmdir(at) => vec![at.clone()],
            Doing::Rename(from, to, _) => vec![from.clone(), to.clone()],
        }
    }

    pub fn names(&self) -> Vec<(Ino, Vec<u8>)> {
        self.dirs().into_iter().map(|(dir, name)| (dir.inode().ino, name)).collect()
    }

    pub fn on(&self, fs: &mut Fs) -> Result<(), No> {
        let ino = |node: &Node| node.inode().ino;
        match self {
            Doing::Create((dir, name), make) => fs.create(ino(dir), name, make.clone()).map(drop),
            Doing::Link(node, (dir, name)) => fs.link(ino(node), ino(dir), name),
            Doing::Unlink((dir, name)) => fs.unlink(ino(dir), name),
            Doing::Rmdir((dir, name)) => fs.rmdir(ino(dir), name),
            Doing::Rename(from, to, how) => fs.rename((ino(&from.0), &from.1), (ino(&to.0), &to.1), *how),
        }
    }

    /// Through the tree, or by hand.
    pub fn through(&self, s: &Subject, low: bool) -> Result<(), No> {
        let no = super::subject::no;
        match self {
            Doing::Create((dir, name), make) if low => s.low_create(dir, name, make).map(drop),
            Doing::Create((dir, name), make) => s.create(dir, name, make).map(drop),
            Doing::Link(node, (dir, name)) if low => s.low_link(node, dir, name),
            Doing::Link(node, (dir, name)) => s.tree.link(node, dir, name).map_err(no),
            Doing::Unlink((dir, name)) if low => s.low_unlink(dir, name),
            Doing::Unlink((dir, name)) => s.tree.unlink(dir, name).map_err(no),
            Doing::Rmdir((dir, name)) if low => s.low_rmdir(dir, name),
            Doing::Rmdir((dir, name)) => s.tree.rmdir(dir, name).map_err(no),
            Doing::Rename(from, to, how) if low => s.low_rename((&from.0, &from.1), (&to.0, &to.1), *how),
            Doing::Rename(from, to, how) => s.rename((&from.0, &from.1), (&to.0, &to.1), *how),
        }
    }
}
