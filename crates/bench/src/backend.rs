//! Back ends: whose semaphores a workload uses.
//!
//! A workload is written once, generic over [`Backend`] and [`Set`], and compiled for each back end, so that nothing stands
//! between its loop and the back end's call. [`Kind`] names a back end at run time and [`with_backend!`] leads from one to the other.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use manyway_sem::Errno;
use serde::{Deserialize, Serialize};

use crate::Error;

mod kernel;
mod manyway;
mod posix;

pub use kernel::Kernel;
pub use manyway::Manyway;
pub(crate) use manyway::namespace;
pub use posix::Posix;

/// Back ends by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The kernel's System V semaphores.
    Kernel,
    /// Manyway through its crate, strict hand-off.
    Manyway,
    /// Manyway through its crate, barging.
    ManywayBarging,
    /// Manyway through the C symbols of the preloaded library.
    ManywayPreload,
    /// Process-shared `sem_t`: one semaphore a call, no undo, no wait for zero.
    Posix,
}

impl Kind {
    /// As the command line and the report spell it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Manyway => "manyway",
            Kind::ManywayBarging => "manyway-barging",
            Kind::ManywayPreload => "manyway-preload",
            Kind::Posix => "posix",
        }
    }

    /// True when it can do all that a System V semaphore can.
    pub fn is_system_v(self) -> bool {
        self != Kind::Posix
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

/// Where the workers of a run meet: a back end and the directory that holds what they share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// Whose semaphores.
    pub kind: Kind,
    /// The namespace, or the folder of the shared files. The kernel's back end has no use for it.
    pub dir: PathBuf,
}

/// A set's name, good in all processes that have joined its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetId(pub i32);

/// A back end as one thread has joined it.
pub trait Backend: Sized + Sync {
    /// A set as a thread uses it.
    type Set: Set;
    /// Joins the place; once in each thread that makes calls.
    fn join(place: &Place) -> Result<Self, Error>;
    /// A new set with these values. It stays until `remove`.
    fn create(&self, values: &[u16]) -> Result<SetId, Error>;
    /// A set that some thread of some process of this place made.
    fn open(&self, id: SetId) -> Result<Self::Set, Error>;
    /// The set of a key, made with `sems` semaphores of 0 when there is none. It stays until `remove`.
    fn keyed(&self, key: i32, sems: u16) -> Result<SetId, Error>;
    /// Leaves the sets of others behind, where that is possible: from now on this process is alone with its own.
    fn part(&self) {}
    /// How many sets there are, by looking at each.
    fn list(&self) -> Result<usize, Error>;
    /// What a failed call is told as.
    fn failed(&self, call: &'static str, errno: Errno) -> Error;
    /// The first semaphore of a set.
    fn first(&self, id: SetId) -> Result<<Self::Set as Set>::Sem, Error> {
        self.open(id)?.sem(0, false).map_err(|errno| self.failed("semop", errno))
    }
    /// Removes a set; those who sleep in it return.
    fn remove(&self, id: SetId) -> Result<(), Error>;
}

/// A set as a thread uses it.
pub trait Set {
    /// One of its semaphores, as a program would keep it for many calls.
    type Sem: Sem;
    /// Semaphore `num`; with `undo` its operations are taken back when the process ends.
    fn sem(&self, num: u16, undo: bool) -> Result<Self::Sem, Errno>;
    /// A call of several operations, as a program would keep it for many calls.
    type Several: Several;
    /// Operations {semaphore, what is added} that are carried out together or not at all; 0 waits for zero.
    fn several(&self, ops: &[(u16, i16)]) -> Result<Self::Several, Errno>;
    /// Gives a unit to each of some semaphores, in one call, without waiting.
    fn give_each(&self, nums: &[u16]) -> Result<(), Errno>;
    /// Sets all values at once.
    fn set_values(&self, values: &[u16]) -> Result<(), Errno>;
}

/// A call of several operations.
pub trait Several {
    /// Makes it; sleeps until it can be carried out.
    fn call(&self) -> Result<(), Errno>;
}

impl Several for std::convert::Infallible {
    fn call(&self) -> Result<(), Errno> {
        match *self {}
    }
}

/// Operations on one semaphore.
pub trait Sem {
    /// Takes a unit; sleeps until there is one.
    fn take(&self) -> Result<(), Errno>;
    /// Takes a unit; sleeps for so long, then EAGAIN.
    fn take_for(&self, time: Duration) -> Result<(), Errno>;
    /// Takes a unit, or EAGAIN.
    fn try_take(&self) -> Result<(), Errno>;
    /// Gives a unit.
    fn give(&self) -> Result<(), Errno>;
    /// Sleeps until the value is zero.
    fn wait_zero(&self) -> Result<(), Errno>;
    /// How many sleep for a unit (`GETNCNT`).
    fn sleepers(&self) -> Result<u32, Errno>;
    /// How many wait for zero (`GETZCNT`).
    fn zero_sleepers(&self) -> Result<u32, Errno>;
}

/// Runs `$body` with the type `$backend` bound to the back end that `$kind` names.
macro_rules! with_backend {
    ($kind:expr, $backend:ident => $body:expr) => {
        match $kind {
            $crate::backend::Kind::Kernel | $crate::backend::Kind::ManywayPreload => {
                type $backend = $crate::backend::Kernel;
                $body
            }
            $crate::backend::Kind::Manyway | $crate::backend::Kind::ManywayBarging => {
                type $backend = $crate::backend::Manyway;
                $body
            }
            $crate::backend::Kind::Posix => {
                type $backend = $crate::backend::Posix;
                $body
            }
        }
    };
}
pub(crate) use with_backend;
