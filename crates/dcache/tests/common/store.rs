//! The store behind the cache: the reference under a mutex, with a hook before and after each thing that it is asked, which may wait, fail, or
//! change what is there.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use super::fs::{Fs, How, Ino, Make, No};

/// What a store is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Lookup(Ino, Vec<u8>),
    Readlink(Ino),
    List(Ino),
    Create(Ino, Vec<u8>),
    Link(Ino, Ino, Vec<u8>),
    Unlink(Ino, Vec<u8>),
    Rmdir(Ino, Vec<u8>),
    Rename((Ino, Vec<u8>), (Ino, Vec<u8>), How),
}

/// When a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Before,
    /// It has been done, and nobody knows it yet.
    After,
}

type Hook = dyn Fn(&Asked, When) -> Result<(), No> + Send + Sync;

/// The store. Clones are the same one.
#[derive(Clone, Default)]
pub struct Sim(Arc<Inner>);

#[derive(Default)]
struct Inner {
    fs: Mutex<Fs>,
    hook: RwLock<Option<Arc<Hook>>>,
    lookups: AtomicU64,
    lists: AtomicU64,
    changes: AtomicU64,
}

impl Sim {
    pub fn new(fs: Fs) -> Sim {
        let sim = Sim::default();
        *sim.0.fs.lock().unwrap() = fs;
        sim
    }

    /// From now on this is called before and after everything.
    pub fn hook(&self, hook: impl Fn(&Asked, When) -> Result<(), No> + Send + Sync + 'static) {
        *self.0.hook.write().unwrap() = Some(Arc::new(hook));
    }

    pub fn unhook(&self) {
        *self.0.hook.write().unwrap() = None;
    }

    /// Reads, or changes beside the cache, what is there.
    pub fn with<T>(&self, f: impl FnOnce(&mut Fs) -> T) -> T {
        f(&mut self.0.fs.lock().unwrap())
    }

    /// A copy of all that is there.
    pub fn fs(&self) -> Fs {
        self.with(|fs| fs.clone())
    }

    /// How many names it was asked for.
    pub fn lookups(&self) -> u64 {
        self.0.lookups.load(Relaxed)
    }

    /// How many directories it has listed.
    pub fn lists(&self) -> u64 {
        self.0.lists.load(Relaxed)
    }

    /// How many changes it was asked for.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Relaxed)
    }

    /// All that it was asked.
    pub fn calls(&self) -> u64 {
        self.lookups() + self.lists() + self.changes()
    }

    /// Answers as the reference does, between the hooks.
    pub fn ask<T>(&self, asked: Asked, f: impl FnOnce(&mut Fs) -> Result<T, No>) -> Result<T, No> {
        let counter = match asked {
            Asked::Lookup(..) | Asked::Readlink(_) => &self.0.lookups,
            Asked::List(_) => &self.0.lists,
            _ => &self.0.changes,
        };
        counter.fetch_add(1, Relaxed);
        let hook = self.0.hook.read().unwrap().clone();
        if let Some(hook) = &hook {
            hook(&asked, When::Before)?;
        }
        let answer = self.with(f);
        if let Some(hook) = &hook {
            hook(&asked, When::After)?;
        }
        answer
    }

    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, No> {
        self.ask(Asked::Lookup(dir, name.to_vec()), |fs| fs.lookup(dir, name))
    }

    pub fn create(&self, dir: Ino, name: &[u8], make: Make) -> Result<Ino, No> {
        self.ask(Asked::Create(dir, name.to_vec()), |fs| fs.create(dir, name, make))
    }

    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), No> {
        self.ask(Asked::Link(ino, dir, name.to_vec()), |fs| fs.link(ino, dir, name))
    }

    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), No> {
        self.ask(Asked::Unlink(dir, name.to_vec()), |fs| fs.unlink(dir, name))
    }

    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), No> {
        self.ask(Asked::Rmdir(dir, name.to_vec()), |fs| fs.rmdir(dir, name))
    }

    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), how: How) -> Result<(), No> {
        let asked = Asked::Rename((from.0, from.1.to_vec()), (to.0, to.1.to_vec()), how);
        self.ask(asked, |fs| fs.rename(from, to, how))
    }
}

/// Where threads stop until they are let through. Nobody waits for ever: after a minute the test has failed.
#[derive(Default)]
pub struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    pub fn new() -> Arc<Gate> {
        Arc::default()
    }

    fn wait(&self, until: impl Fn(&(usize, bool)) -> bool, what: &str) {
        let begin = Instant::now();
        let mut state = self.state.lock().unwrap();
        while !until(&state) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}: nobody came");
            state = self.changed.wait_timeout(state, Duration::from_secs(1)).unwrap().0;
        }
    }

    /// Comes to the gate, and goes on when it is open.
    pub fn pass(&self) {
        self.state.lock().unwrap().0 += 1;
        self.changed.notify_all();
        self.wait(|s| s.1, "the gate is to be opened");
    }

    /// Waits until so many have come.
    pub fn arrived(&self, n: usize) {
        self.wait(|s| s.0 >= n, "somebody is to come to the gate");
    }

    /// How many have come.
    pub fn count(&self) -> usize {
        self.state.lock().unwrap().0
    }

    pub fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}
