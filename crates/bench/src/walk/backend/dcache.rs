//! Manyway's dentry cache before the store in memory, and what it is set against on its own table: one counter more, locks, no checks.

use std::ffi::CStr;
use std::path::Path;

use manyway_dcache::{Binding, Cache, Config, Handle, Kind, Outcome, Rename, Ticket, Ttl, Walk, bench};
use manyway_sync::atomic::{AtomicU64, Ordering};

use super::model::{File, Model, ROOT};
use super::{Bounded, Names, Unable};
use crate::Error;
use crate::walk::tree::Tree;

/// The cache as an author uses it.
pub struct Dcache {
    cache: Cache<u64>,
    root: Handle<u64>,
    store: Model,
}

impl Names for Dcache {
    fn build(_: &Path, tree: &Tree) -> Result<Self, Unable> {
        Ok(Dcache::new(Config::new(), Model::of(tree)))
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        let outcome = self.cache.walk(&self.root, path.to_bytes(), &Walk::new());
        // Looked at where it is: to move what was found out of the outcome takes as long as a look-up.
        match &outcome {
            Outcome::Found(found) => Some(*found.inode()),
            Outcome::Absent(_) => None,
            _ => self.fill(outcome),
        }
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        let (from, to) = (self.place(from)?, self.place(to)?);
        let change = self.cache.rename((&from.0, from.1), (&to.0, to.1), Rename::Replace).map_err(failed("rename"))?;
        self.store.rename((*from.0.inode(), from.1), (*to.0.inode(), to.1));
        change.commit();
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Unable> {
        self.cache.invalidate_all();
        self.cache.reclaim();
        Ok(())
    }

    fn guard(&self) {
        // The empty path leads to the start: no name is looked up.
        drop(self.cache.walk(&self.root, b"", &Walk::new()));
    }

    fn store_calls(&self) -> Option<u64> {
        Some(self.store.calls())
    }
}

impl Dcache {
    fn new(config: Config<u64>, store: Model) -> Dcache {
        let cache = Cache::new(ROOT, config);
        Dcache { root: cache.root(), cache, store }
    }

    #[cold]
    fn fill<'c>(&'c self, outcome: Outcome<'c, u64>) -> Option<u64> {
        match self.answered(outcome) {
            Outcome::Found(found) => Some(*found.inode()),
            // The trees have no links and no mounts; a directory in between that is not there is a name that is not there.
            _ => None,
        }
    }

    /// Asks the store until the walk has an answer.
    fn answered<'c>(&'c self, mut outcome: Outcome<'c, u64>) -> Outcome<'c, u64> {
        loop {
            outcome = match outcome {
                Outcome::Miss(ticket) | Outcome::Stale(ticket) => {
                    let answer = self.store.lookup(*ticket.directory().inode(), ticket.name());
                    self.cache.resume(said(ticket, answer), &Walk::new())
                }
                answer => return answer,
            }
        }
    }

    /// The directory of a path, and the last name.
    fn place<'a>(&self, path: &'a CStr) -> Result<(Handle<u64>, &'a [u8]), Error> {
        let path = path.to_bytes();
        let at = path.iter().rposition(|&byte| byte == b'/');
        let (above, name) = at.map_or((&path[..0], path), |at| (&path[..at], &path[at + 1..]));
        match self.answered(self.cache.walk(&self.root, above, &Walk::new())) {
            Outcome::Found(found) => Ok((found.handle(), name)),
            _ => Err(failed("walk")(manyway_dcache::Error::NotFound)),
        }
    }
}

fn said(ticket: Ticket<u64>, answer: Option<File>) -> manyway_dcache::Filled<u64> {
    match answer {
        Some(File { number, directory }) => {
            let kind = if directory { Kind::Directory } else { Kind::File };
            ticket.publish(Binding::new(kind, number), Ttl::Forever)
        }
        None => ticket.absent(Ttl::Forever),
    }
}

fn failed(call: &'static str) -> impl FnOnce(manyway_dcache::Error) -> Error {
    move |error| Error::io(format!("dcache: {call}"))(error.into())
}

impl Bounded for Dcache {
    fn bounded(entries: usize) -> Self {
        Dcache::new(Config::new().entries(entries), Model::default())
    }

    fn fill(&mut self, names: impl Iterator<Item = String>) -> Result<(), Error> {
        for (number, name) in names.enumerate() {
            match self.cache.lookup(&self.root, name.as_bytes()) {
                Outcome::Miss(ticket) => drop(said(ticket, Some(File { number: number as u64, directory: false }))),
                _ => return Err(failed("lookup")(manyway_dcache::Error::Exists)),
            }
        }
        self.cache.reclaim();
        Ok(())
    }

    fn entries(&self) -> usize {
        self.cache.stats().entries
    }
}

/// The cache, and one counter of hits, as authors like to have: every walk writes a line that all others write.
pub struct Counted {
    cached: Dcache,
    hits: AtomicU64,
}

impl Names for Counted {
    fn build(dir: &Path, tree: &Tree) -> Result<Self, Unable> {
        Ok(Counted { cached: Dcache::build(dir, tree)?, hits: AtomicU64::new(0) })
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        self.hits.fetch_add(1, Ordering::Relaxed);
        self.cached.walk(path)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        self.cached.rename(from, to)
    }

    fn forget(&mut self) -> Result<(), Unable> {
        self.cached.forget()
    }

    fn guard(&self) {
        self.cached.guard();
    }

    fn store_calls(&self) -> Option<u64> {
        self.cached.store_calls()
    }
}

/// Looks up in the cache's table what is there.
pub trait LookUp: Sync {
    /// The number of the node, if there is one.
    fn look_up(cache: &Cache<u64>, root: &Handle<u64>, path: &[u8]) -> Option<u64>;
}

/// One of them, on a table that the cache has filled. It knows no store.
pub struct Bare<L> {
    cached: Dcache,
    how: std::marker::PhantomData<L>,
}

impl<L: LookUp> Names for Bare<L> {
    fn build(dir: &Path, tree: &Tree) -> Result<Self, Unable> {
        let cached = Dcache::build(dir, tree)?;
        tree.paths.iter().for_each(|path| _ = cached.walk(path));
        Ok(Bare { cached, how: std::marker::PhantomData })
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        L::look_up(&self.cached.cache, &self.cached.root, path.to_bytes())
    }

    fn rename(&self, _: &CStr, _: &CStr) -> Result<(), Error> {
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Unable> {
        Err(Unable::LeftOut("it only looks up what is there".to_owned()))
    }

    fn guard(&self) {
        self.cached.guard();
    }

    fn store_calls(&self) -> Option<u64> {
        self.cached.store_calls()
    }
}

/// The same guard, hash and table; nothing is checked.
pub type Floor = Bare<Unchecked>;
/// One lock for all, taken and given back for each component.
pub type GlobalLock = Bare<LockPerComponent>;
/// One lock for all, held over the walk.
pub type Fastwalk = Bare<LockPerWalk>;

/// See [`Floor`].
pub struct Unchecked;
/// See [`GlobalLock`].
pub struct LockPerComponent;
/// See [`Fastwalk`].
pub struct LockPerWalk;

impl LookUp for Unchecked {
    #[inline]
    fn look_up(cache: &Cache<u64>, root: &Handle<u64>, path: &[u8]) -> Option<u64> {
        bench::floor(cache, root, path)
    }
}

impl LookUp for LockPerComponent {
    #[inline]
    fn look_up(cache: &Cache<u64>, root: &Handle<u64>, path: &[u8]) -> Option<u64> {
        bench::lock_per_component(cache, root, path)
    }
}

impl LookUp for LockPerWalk {
    #[inline]
    fn look_up(cache: &Cache<u64>, root: &Handle<u64>, path: &[u8]) -> Option<u64> {
        bench::lock_per_walk(cache, root, path)
    }
}
