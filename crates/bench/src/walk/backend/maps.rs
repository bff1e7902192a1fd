//! What an author of a file system puts together from a map: (number of the parent, name) → number, looked up component by component.
//!
//! The key is looked up by reference, without a copy of the name, and all maps have the same fast hash. None can say that the components
//! of one walk were there at one moment.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::ffi::CStr;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use super::model::{Model, ROOT};
use super::{Bounded, Names, Unable};
use crate::Error;
use crate::walk::tree::Tree;

type Hashing = foldhash::fast::RandomState;

/// A name in its directory, as the maps own it.
#[derive(Clone, Debug)]
pub struct Owned {
    parent: u64,
    name: Box<[u8]>,
}

/// The same as it is looked up.
pub trait Key {
    /// The directory's number, and the name.
    fn parts(&self) -> (u64, &[u8]);
}

impl Key for Owned {
    fn parts(&self) -> (u64, &[u8]) {
        (self.parent, &self.name)
    }
}

impl Key for (u64, &[u8]) {
    fn parts(&self) -> (u64, &[u8]) {
        *self
    }
}

impl<'a> Borrow<dyn Key + 'a> for Owned {
    fn borrow(&self) -> &(dyn Key + 'a) {
        self
    }
}

impl PartialEq for dyn Key + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Key + '_ {}

impl Hash for dyn Key + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (parent, name) = self.parts();
        state.write_u64(parent);
        state.write(name);
    }
}

impl PartialEq for Owned {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Owned {}

impl Hash for Owned {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let key: &dyn Key = self;
        key.hash(state);
    }
}

/// What a map says of a key: nothing, that the name is not there, or the number.
type Known = Option<Option<u64>>;

/// A map that many threads use.
pub trait Map: Sync {
    /// An empty one, for so many entries.
    fn new(entries: usize) -> Self;
    /// What it knows of a name.
    fn get(&self, key: &dyn Key) -> Known;
    /// Puts what the store said.
    fn put(&self, key: Owned, known: Option<u64>);
    /// Forgets a name.
    fn remove(&self, key: &dyn Key);
    /// How many names.
    fn entries(&self) -> usize;
}

/// A cache made of a map, and its store.
pub struct Peer<M> {
    map: M,
    store: Model,
}

/// Room for the entries of the larger trees.
const ENTRIES: usize = 1 << 17;

impl<M: Map> Names for Peer<M> {
    fn build(_: &Path, tree: &Tree) -> Result<Self, Unable> {
        Ok(Peer { map: M::new(ENTRIES), store: Model::of(tree) })
    }

    #[inline]
    fn walk(&self, path: &CStr) -> Option<u64> {
        let mut at = ROOT;
        for name in path.to_bytes().split(|&byte| byte == b'/') {
            at = match self.map.get(&(at, name)) {
                Some(known) => known?,
                None => self.fill(at, name)?,
            };
        }
        Some(at)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> Result<(), Error> {
        let (from, to) = (self.parent_of(from), self.parent_of(to));
        self.store.rename(from, to);
        // Two steps, as the map has no other: in between, the directory is at neither place.
        let moved = self.map.get(&from).flatten();
        self.map.put(Owned { parent: from.0, name: from.1.into() }, None);
        if let Some(number) = moved {
            self.map.put(Owned { parent: to.0, name: to.1.into() }, Some(number));
        } else {
            self.map.remove(&to);
        }
        Ok(())
    }

    fn forget(&mut self) -> Result<(), Unable> {
        self.map = M::new(ENTRIES);
        Ok(())
    }

    fn store_calls(&self) -> Option<u64> {
        Some(self.store.calls())
    }
}

impl<M: Map> Peer<M> {
    #[cold]
    fn fill(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let known = self.store.lookup(parent, name).map(|file| file.number);
        self.map.put(Owned { parent, name: name.into() }, known);
        known
    }

    /// The number of the directory that a path lies in, and its last name.
    fn parent_of<'a>(&self, path: &'a CStr) -> (u64, &'a [u8]) {
        self.store.parent_of(path.to_bytes())
    }
}

impl<M: Map> Bounded for Peer<M> {
    fn bounded(entries: usize) -> Self {
        Peer { map: M::new(entries), store: Model::default() }
    }

    fn fill(&mut self, names: impl Iterator<Item = String>) -> Result<(), Error> {
        for (number, name) in names.enumerate() {
            self.map.put(Owned { parent: ROOT, name: name.into_bytes().into() }, Some(number as u64));
        }
        Ok(())
    }

    fn entries(&self) -> usize {
        self.map.entries()
    }
}

type Table = HashMap<Owned, Option<u64>, Hashing>;

/// A map under a mutex, which each look-up takes.
pub struct MutexMap(Mutex<Table>);

impl Map for MutexMap {
    fn new(_: usize) -> Self {
        MutexMap(Mutex::default())
    }
    #[inline]
    fn get(&self, key: &dyn Key) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }
    fn put(&self, key: Owned, known: Option<u64>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key, known);
    }
    fn remove(&self, key: &dyn Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
    fn entries(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// A map under a lock for many readers.
pub struct RwLockMap(RwLock<Table>);

impl Map for RwLockMap {
    fn new(_: usize) -> Self {
        RwLockMap(RwLock::default())
    }
    #[inline]
    fn get(&self, key: &dyn Key) -> Known {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).copied()
    }
    fn put(&self, key: Owned, known: Option<u64>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, known);
    }
    fn remove(&self, key: &dyn Key) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
    fn entries(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// DashMap: shards, each under a lock for many readers.
pub struct Dash(dashmap::DashMap<Owned, Option<u64>, Hashing>);

impl Map for Dash {
    fn new(_: usize) -> Self {
        Dash(dashmap::DashMap::default())
    }
    #[inline]
    fn get(&self, key: &dyn Key) -> Known {
        self.0.get(key).map(|known| *known)
    }
    fn put(&self, key: Owned, known: Option<u64>) {
        self.0.insert(key, known);
    }
    fn remove(&self, key: &dyn Key) {
        self.0.remove(key);
    }
    fn entries(&self) -> usize {
        self.0.len()
    }
}

/// papaya: look-ups without a lock.
pub struct Papaya(papaya::HashMap<Owned, Option<u64>, Hashing>);

impl Map for Papaya {
    fn new(_: usize) -> Self {
        Papaya(papaya::HashMap::default())
    }
    #[inline]
    fn get(&self, key: &dyn Key) -> Known {
        self.0.pin().get(key).copied()
    }
    fn put(&self, key: Owned, known: Option<u64>) {
        self.0.pin().insert(key, known);
    }
    fn remove(&self, key: &dyn Key) {
        self.0.pin().remove(key);
    }
    fn entries(&self) -> usize {
        self.0.len()
    }
}

/// moka: a cache with a bound.
pub struct Moka(moka::sync::Cache<Owned, Option<u64>, Hashing>);

impl Map for Moka {
    fn new(entries: usize) -> Self {
        Moka(moka::sync::Cache::builder().max_capacity(entries as u64).build_with_hasher(Hashing::default()))
    }
    #[inline]
    fn get(&self, key: &dyn Key) -> Known {
        self.0.get(key)
    }
    fn put(&self, key: Owned, known: Option<u64>) {
        self.0.insert(key, known);
    }
    fn remove(&self, key: &dyn Key) {
        self.0.invalidate(key);
    }
    fn entries(&self) -> usize {
        self.0.run_pending_tasks();
        self.0.entry_count() as usize
    }
}
