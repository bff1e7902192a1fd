//! A directory-entry cache for authors of file systems: names to inodes, between a program's look-ups and a store that is slow.
//!
//! A hot walk takes no lock and writes no line that another thread reads. Renames are atomic to walkers: a path that exists throughout is
//! found, one that never existed is not, not even as a mix of two moments. Entries are bounded in number and bytes, retired ones included.
//!
//! There are two levels:
//!
//! * [`Tree`] runs everything: give it a [`Store`] (what asks the disk, the server, the object store), and ask it for paths and changes.
//! * [`Cache`] is the cache alone. [`Cache::walk`] answers with an [`Outcome`]; when the cache does not know, that is a [`Ticket`]: its
//!   holder asks the store and says what came of it, while others who want the name wait. A change of the store goes *begin → ask the
//!   store → commit*.
//!
//! ```
//! use manyway_dcache::{Binding, Cache, Config, Kind, Outcome, Ttl, Walk};
//!
//! // The author's inode is a number here.
//! let cache: Cache<u64> = Cache::new(1, Config::new());
//! let root = cache.root();
//!
//! // The cache knows nothing yet: the first to ask gets a ticket.
//! let Outcome::Miss(ticket) = cache.walk(&root, b"etc/passwd", &Walk::new()) else { panic!() };
//! assert_eq!(ticket.name(), b"etc");
//! let filled = ticket.publish(Binding::new(Kind::Directory, 2), Ttl::Forever);
//! // The walk goes on from there.
//! let Outcome::Miss(ticket) = cache.resume(filled, &Walk::new()) else { panic!() };
//! assert_eq!((*ticket.directory().inode(), ticket.name()), (2, &b"passwd"[..]));
//! ticket.publish(Binding::new(Kind::File, 3), Ttl::Forever);
//!
//! let Outcome::Found(file) = cache.walk(&root, b"/etc/../etc/passwd", &Walk::new()) else { panic!() };
//! assert_eq!(*file.inode(), 3);
//! ```
//!
//! Names are bytes. A name is neither empty nor `.` nor `..`, has no slash and no zero byte.
#![deny(unsafe_code)]

mod binding;
mod cache;
mod change;
mod config;
mod entry;
mod error;
mod evict;
mod handle;
mod inner;
mod invalidate;
mod list;
mod lock;
mod mem;
mod mount;
mod node;
mod outcome;
mod path;
#[cfg(not(any(loom, miri)))]
mod reclaim;
// miri finds fault with the collector's own lines, and would not come to ours.
#[cfg(any(loom, miri))]
#[path = "reclaim_model.rs"]
mod reclaim;
mod room;
mod section;
mod stats;
mod store;
mod ticket;
mod tree;
mod walk;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(feature = "bench")]
#[doc(hidden)]
pub mod bench;

pub use binding::{Binding, Kind};
pub use cache::Cache;
pub use change::{Change, Creation, Rename};
pub use config::{Clock, Config, ManualClock, Ttl};
pub use error::Error;
pub use handle::{Found, Handle};
pub use list::Listing;
pub use outcome::{Absent, LinkTarget, Outcome, Place, Waiting, Walk};
pub use stats::Stats;
pub use store::{Answer, Item, New, Put, Store};
pub use ticket::{Filled, Ticket};
pub use tree::{Names, Tree};

/// The most symbolic links that one walk follows.
pub const MAX_LINKS: u32 = 40;
