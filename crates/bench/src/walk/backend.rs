//! Back ends of the walks: who keeps the names.
//!
//! A case is written once, generic over [`Names`], and compiled for each back end. [`Kind`] names a back end at run time and [`with_names!`]
//! leads from one to the other.

use std::ffi::CStr;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::Tree;
use crate::Error;

pub mod dcache;
pub mod kernel;
pub mod maps;
pub mod model;

/// Back ends by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Manyway's dentry cache.
    Dcache,
    /// The same with one counter of hits that all threads add to.
    DcacheCounted,
    /// Its table under one lock, taken for each component.
    GlobalLock,
    /// Its table under one lock, held over the walk.
    Fastwalk,
    /// Its table and its hash, and nothing checked.
    Floor,
    /// The kernel's fstatat(2) on a tmpfs.
    KernelTmpfs,
    /// The same on an ext4.
    KernelExt4,
    /// `Mutex<HashMap>`, keyed by the parent's number and the name.
    MutexHashmap,
    /// `RwLock<HashMap>`.
    RwlockHashmap,
    /// `DashMap`.
    Dashmap,
    /// `papaya::HashMap`.
    Papaya,
    /// `moka::sync::Cache`.
    Moka,
}

impl Kind {
    /// As the command line and the report spell it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Dcache => "dcache",
            Kind::DcacheCounted => "dcache-counted",
            Kind::GlobalLock => "global-lock",
            Kind::Fastwalk => "fastwalk",
            Kind::Floor => "floor",
            Kind::KernelTmpfs => "kernel-tmpfs",
            Kind::KernelExt4 => "kernel-ext4",
            Kind::MutexHashmap => "mutex-hashmap",
            Kind::RwlockHashmap => "rwlock-hashmap",
            Kind::Dashmap => "dashmap",
            Kind::Papaya => "papaya",
            Kind::Moka => "moka",
        }
    }

    /// True when its names are in the process's own memory.
    pub fn in_process(self) -> bool {
        !matches!(self, Kind::KernelTmpfs | Kind::KernelExt4)
    }
}

impl From<Kind> for &'static str {
    fn from(kind: Kind) -> &'static str {
        kind.name()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A back end that has a tree.
pub trait Names: Sized + Sync {
    /// Makes the tree. What lies in files lies in `dir`, which is empty.
    fn build(dir: &Path, tree: &Tree) -> Result<Self, Unable>;

    /// Looks up what a path leads to from the root: a number that tells one file from another, or None where there is nothing.
    fn walk(&self, path: &CStr) -> Option<u64>;

    /// Moves a directory.
    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error>;

    /// Empties the cache; the tree stays.
    fn forget(&mut self) -> Result<(), Unable>;

    /// Takes the guard that each walk takes, and gives it back, where it can be taken by itself.
    fn guard(&self) {}

    /// How often the names' store has been asked because the cache did not know; None where nobody can tell.
    fn store_calls(&self) -> Option<u64>;
}

/// A cache in this process's memory that can be filled to a bound.
pub trait Bounded: Sized {
    /// One that holds so many entries at most.
    fn bounded(entries: usize) -> Self;
    /// Puts files with an 8-byte inode each into one directory.
    fn fill(&mut self, names: impl Iterator<Item = String>) -> Result<(), Error>;
    /// How many entries it holds.
    fn entries(&self) -> usize;
}

/// Why a back end does not take part.
#[derive(Debug)]
pub enum Unable {
    /// This machine, or this back end by its nature, has no such thing: the row is left out with this reason.
    LeftOut(String),
    /// It should have been possible.
    Failed(Error),
}

impl From<Error> for Unable {
    fn from(error: Error) -> Unable {
        Unable::Failed(error)
    }
}

/// Runs `$body` with the type `$names` bound to the back end that `$kind` names.
macro_rules! with_names {
    ($kind:expr, $names:ident => $body:expr) => {{
        use $crate::walk::backend::{dcache, kernel, maps};
        with_names!(@ $kind, $names, $body;
            Dcache: dcache::Dcache,
            DcacheCounted: dcache::Counted,
            GlobalLock: dcache::GlobalLock,
            Fastwalk: dcache::Fastwalk,
            Floor: dcache::Floor,
            KernelTmpfs: kernel::Tmpfs,
            KernelExt4: kernel::Ext4,
            MutexHashmap: maps::Peer<maps::MutexMap>,
            RwlockHashmap: maps::Peer<maps::RwLockMap>,
            Dashmap: maps::Peer<maps::Dash>,
            Papaya: maps::Peer<maps::Papaya>,
            Moka: maps::Peer<maps::Moka>,
        )
    }};
    (@ $kind:expr, $names:ident, $body:expr; $($variant:ident: $type:ty,)*) => {
        match $kind {
            $($crate::walk::backend::Kind::$variant => {
                type $names = $type;
                $body
            })*
        }
    };
}
pub(crate) use with_names;
