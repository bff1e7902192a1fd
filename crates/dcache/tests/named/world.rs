//! A cache of numbers without a store: what it is told is what there is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use manyway_dcache::{Binding, Cache, Config, Error, Handle, Kind, ManualClock, Outcome, Ticket, Ttl, Walk};

/// What a walk came to, in plain values. Tickets are given up.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    Found(u64),
    Absent,
    /// A name is not known.
    Miss(String),
    Stale(String),
    /// In which directory, which name.
    Place(u64, String),
    Target(u64),
    Busy,
    Orphan(u64),
    Failed(Error),
}

fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl<'c> From<Outcome<'c, u64>> for Seen {
    fn from(outcome: Outcome<'c, u64>) -> Seen {
        match outcome {
            Outcome::Found(f) => Seen::Found(*f.inode()),
            Outcome::Absent(_) => Seen::Absent,
            Outcome::Miss(t) => Seen::Miss(text(t.name())),
            Outcome::Stale(t) => Seen::Stale(text(t.name())),
            Outcome::Place(p) => Seen::Place(*p.directory().inode(), text(p.name())),
            Outcome::Target(l) => Seen::Target(*l.link().inode()),
            Outcome::Busy(_) => Seen::Busy,
            Outcome::Orphan(h) => Seen::Orphan(*h.inode()),
            Outcome::Failed(e) => Seen::Failed(e),
        }
    }
}

pub struct World {
    pub cache: Cache<u64>,
    pub clock: Arc<ManualClock>,
}

/// The inode of the root.
pub const ROOT: u64 = 1;

impl World {
    pub fn new() -> World {
        World::with(Config::new().entries(4096).negative_percent(50))
    }

    pub fn with(config: Config<u64>) -> World {
        let clock = ManualClock::new();
        World { cache: Cache::new(ROOT, config.clock(clock.clone())), clock }
    }

    pub fn root(&self) -> Handle<u64> {
        self.cache.root()
    }

    pub fn advance(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }

    /// Walks from the root without waiting.
    pub fn see(&self, path: &str) -> Seen {
        self.see_as(path, &Walk::new().no_wait())
    }

    pub fn see_as(&self, path: &str, walk: &Walk<'_, u64>) -> Seen {
        self.see_from(&self.root(), path, walk)
    }

    pub fn see_from(&self, start: &Handle<u64>, path: &str, walk: &Walk<'_, u64>) -> Seen {
        self.cache.walk(start, path.as_bytes(), walk).into()
    }

    /// What the path leads to, which the cache must know.
    pub fn node(&self, path: &str) -> Handle<u64> {
        match self.cache.walk(&self.root(), path.as_bytes(), &Walk::new().no_follow()) {
            Outcome::Found(f) => f.handle(),
            other => panic!("{path}: {:?}", Seen::from(other)),
        }
    }

    /// The directory of a path, and its last name.
    pub fn split<'p>(&self, path: &'p str) -> (Handle<u64>, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').expect("a slash");
        let dir = if dir.is_empty() { self.root() } else { self.node(dir) };
        (dir, name.as_bytes())
    }

    /// The ticket for a name that is not known.
    pub fn ticket(&self, path: &str) -> Ticket<u64> {
        let (dir, name) = self.split(path);
        match self.cache.lookup(&dir, name) {
            Outcome::Miss(t) | Outcome::Stale(t) => t,
            other => panic!("{path}: {:?}", Seen::from(other)),
        }
    }

    /// The cache learns that the name leads to this.
    pub fn teach(&self, path: &str, kind: Kind, inode: u64) -> Handle<u64> {
        self.teach_for(path, kind, inode, Ttl::Forever)
    }

    pub fn teach_for(&self, path: &str, kind: Kind, inode: u64, ttl: Ttl) -> Handle<u64> {
        let filled = self.ticket(path).publish(Binding::new(kind, inode).id(inode), ttl);
        assert!(filled.kept(), "{path} is not kept");
        filled.node().expect("it exists").clone()
    }

    pub fn dir(&self, path: &str, inode: u64) -> Handle<u64> {
        self.teach(path, Kind::Directory, inode)
    }

    pub fn file(&self, path: &str, inode: u64) -> Handle<u64> {
        self.teach(path, Kind::File, inode)
    }

    /// A link whose target is known.
    pub fn link(&self, path: &str, inode: u64, target: &str) -> Handle<u64> {
        let filled = self.ticket(path).publish(Binding::new(Kind::Link, inode).target(target.as_bytes()), Ttl::Forever);
        assert!(filled.kept(), "{path} is not kept");
        filled.node().expect("it exists").clone()
    }

    /// The cache learns that there is no such name.
    pub fn none(&self, path: &str) {
        assert!(self.ticket(path).absent(Ttl::Forever).kept(), "{path} is not kept");
    }

    /// The cache learns names `/{prefix}{i}` until `n` were asked for; the bounds are looked at after each.
    pub fn flood(&self, prefix: &str, n: u64, entries: usize, bytes: usize) {
        let root = self.root();
        for i in 0..n {
            let name = format!("{prefix}{i}");
            match self.cache.lookup(&root, name.as_bytes()) {
                Outcome::Miss(t) if i % 3 == 0 => drop(t.absent(Ttl::Forever)),
                Outcome::Miss(t) => drop(t.publish(Binding::new(Kind::File, 1000 + i), Ttl::Forever)),
                other => panic!("{name}: {:?}", Seen::from(other)),
            }
            let s = self.cache.stats();
            assert!(s.entries <= entries && s.bytes <= bytes && s.retired <= s.entries, "{s:?}");
        }
    }

    /// A rename that the store has done.
    pub fn rename(&self, from: &str, to: &str, how: manyway_dcache::Rename) {
        let (from, to) = (self.split(from), self.split(to));
        self.cache.rename((&from.0, from.1), (&to.0, to.1), how).expect("it can begin").commit();
    }

    /// A creation that the store has done.
    pub fn create(&self, path: &str, kind: Kind, inode: u64) -> Handle<u64> {
        let (dir, name) = self.split(path);
        self.cache.create(&dir, name).expect("it can begin").commit(Binding::new(kind, inode).id(inode), Ttl::Forever, true)
    }

    pub fn unlink(&self, path: &str) {
        let (dir, name) = self.split(path);
        self.cache.unlink(&dir, name).expect("it can begin").commit();
    }

    pub fn rmdir(&self, path: &str) {
        let (dir, name) = self.split(path);
        self.cache.rmdir(&dir, name).expect("it can begin").commit();
    }
}

/// Waits until this holds, a minute at most.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}: it does not come");
        std::thread::sleep(Duration::from_micros(200));
    }
}
