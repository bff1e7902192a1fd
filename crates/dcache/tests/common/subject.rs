//! The cache before the simulated store, as the tests use it: numbers go in, numbers come out.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manyway_dcache::{Answer, Config, Error, Handle, Item, Kind, ManualClock, New, Rename, Store, Tree, Ttl, Walk};

use super::fs::{Body, Flags, Fs, How, Ino, Make, No, ROOT};
use super::store::{Asked, Sim};

/// Who counts inodes.
#[derive(Default)]
pub struct Census {
    live: AtomicI64,
    evicted: Mutex<BTreeSet<u64>>,
    twice: AtomicI64,
}

impl Census {
    /// Inodes in memory.
    pub fn live(&self) -> i64 {
        self.live.load(SeqCst)
    }

    /// Nodes that the hook was called for.
    pub fn evicted(&self) -> usize {
        self.evicted.lock().unwrap().len()
    }

    /// Nodes that the hook was called for more than once.
    pub fn twice(&self) -> i64 {
        self.twice.load(SeqCst)
    }

    pub fn note(&self, number: u64) {
        if !self.evicted.lock().unwrap().insert(number) {
            self.twice.fetch_add(1, SeqCst);
        }
    }
}

/// The author's inode: a number that is counted.
pub struct Inode {
    pub ino: Ino,
    census: Arc<Census>,
}

impl Inode {
    pub fn new(ino: Ino, census: &Arc<Census>) -> Inode {
        census.live.fetch_add(1, SeqCst);
        Inode { ino, census: census.clone() }
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.census.live.fetch_sub(1, SeqCst);
    }
}

/// What a subject is made with.
#[derive(Clone, Debug)]
pub struct Setup {
    pub entries: usize,
    pub bytes: usize,
    pub negative_percent: u8,
    /// For how long answers hold; none: for ever.
    pub ttl: Option<Duration>,
    /// Whether the store tells the numbers of files too, and not of directories alone.
    pub ids: bool,
    /// Whether the store says that a stale name is as it was.
    pub revalidates: bool,
    /// Whether a listing may be believed to be complete.
    pub complete: bool,
}

impl Setup {
    /// So large that nothing is ever evicted.
    pub fn large() -> Setup {
        let bytes = usize::MAX;
        Setup { entries: 1 << 14, bytes, negative_percent: 50, ttl: None, ids: true, revalidates: true, complete: true }
    }

    /// So small that nearly everything is.
    pub fn small() -> Setup {
        Setup { entries: 64, bytes: 4096, negative_percent: 25, ..Setup::large() }
    }

    pub fn ttl(&self) -> Ttl {
        self.ttl.map_or(Ttl::Forever, Ttl::For)
    }
}

/// The simulated store behind the cache's trait.
pub struct Backend {
    pub sim: Sim,
    pub census: Arc<Census>,
    pub setup: Setup,
}

pub fn error(no: No) -> Error {
    match no {
        No::NotFound => Error::NotFound,
        No::Exists => Error::Exists,
        No::NotDirectory => Error::NotDirectory,
        No::IsDirectory => Error::IsDirectory,
        No::NotEmpty => Error::NotEmpty,
        No::Invalid => Error::Invalid,
        No::Loop => Error::Loop,
        No::Denied => Error::Denied,
        No::NotPermitted => Error::NotPermitted,
        No::Failed => Error::Os(5),
        No::Stale => Error::Stale,
        No::Busy => Error::Busy,
    }
}

pub fn no(error: Error) -> No {
    let all = [No::NotFound, No::Exists, No::NotDirectory, No::IsDirectory, No::NotEmpty, No::Invalid, No::Loop, No::Denied, No::Failed];
    let all = all.into_iter().chain([No::NotPermitted, No::Stale, No::Busy]);
    all.into_iter().find(|&n| super::subject::error(n) == error).unwrap_or_else(|| panic!("nobody has said {error:?}"))
}

pub fn how(how: How) -> Rename {
    match how {
        How::Replace => Rename::Replace,
        How::NoReplace => Rename::NoReplace,
        How::Exchange => Rename::Exchange,
    }
}

pub fn kind(body: &Body) -> Kind {
    match body {
        Body::Dir(_) => Kind::Directory,
        Body::File => Kind::File,
        Body::Link(_) => Kind::Link,
    }
}

fn make(new: New<'_>) -> Make {
    match new {
        New::Directory(_) => Make::Dir,
        New::Link(to) => Make::Link(to.to_vec()),
        New::File(_) | New::Node(..) => Make::File,
    }
}

impl Backend {
    /// What the cache is told of an inode.
    pub fn item(&self, ino: Ino) -> Item<Inode> {
        let kind = self.sim.with(|fs| kind(&fs.node(ino).body));
        let item = Item::new(kind, Inode::new(ino, &self.census)).ttl(self.setup.ttl());
        if self.setup.ids || kind == Kind::Directory { item.id(ino) } else { item }
    }
}

impl Store for Backend {
    type Inode = Inode;

    fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Answer<Inode>, Error> {
        match self.sim.lookup(directory.ino, name) {
            Ok(ino) => Ok(Answer::Found(self.item(ino))),
            Err(No::NotFound) => Ok(Answer::Absent(self.setup.ttl())),
            Err(n) => Err(error(n)),
        }
    }

    fn revalidate(&self, directory: &Inode, name: &[u8], inode: &Inode) -> Result<Option<Ttl>, Error> {
        if !self.setup.revalidates {
            return Ok(None);
        }
        match self.sim.lookup(directory.ino, name) {
            Ok(ino) if ino == inode.ino => Ok(Some(self.setup.ttl())),
            Err(No::Failed) => Err(error(No::Failed)),
            _ => Ok(None),
        }
    }

    fn ttl(&self) -> Ttl {
        self.setup.ttl()
    }

    fn readlink(&self, link: &Inode) -> Result<Vec<u8>, Error> {
        let read = |fs: &mut Fs| match &fs.node(link.ino).body {
            Body::Link(to) => Ok(to.clone()),
            _ => Err(No::Invalid),
        };
        self.sim.ask(Asked::Readlink(link.ino), read).map_err(error)
    }

    fn list(&self, directory: &Inode, put: &mut dyn FnMut(&[u8], Item<Inode>)) -> Result<Ttl, Error> {
        let names = self.sim.ask(Asked::List(directory.ino), |fs| fs.list(directory.ino)).map_err(error)?;
        for (name, ino) in names {
            put(&name, self.item(ino));
        }
        Ok(if self.setup.complete { self.setup.ttl() } else { Ttl::No })
    }

    fn create(&self, directory: &Inode, name: &[u8], new: New<'_>) -> Result<Item<Inode>, Error> {
        self.sim.create(directory.ino, name, make(new)).map(|ino| self.item(ino)).map_err(error)
    }

    fn link(&self, inode: &Inode, directory: &Inode, name: &[u8]) -> Result<(), Error> {
        self.sim.link(inode.ino, directory.ino, name).map_err(error)
    }

    fn unlink(&self, directory: &Inode, name: &[u8]) -> Result<(), Error> {
        self.sim.unlink(directory.ino, name).map_err(error)
    }

    fn rmdir(&self, directory: &Inode, name: &[u8]) -> Result<(), Error> {
        self.sim.rmdir(directory.ino, name).map_err(error)
    }

    fn rename(&self, from: (&Inode, &[u8]), to: (&Inode, &[u8]), how: Rename) -> Result<(), Error> {
        let how = match how {
            Rename::Replace => How::Replace,
            Rename::NoReplace => How::NoReplace,
            Rename::Exchange => How::Exchange,
        };
        self.sim.rename((from.0.ino, from.1), (to.0.ino, to.1), how).map_err(error)
    }
}

/// A cache before a store.
pub struct Subject {
    pub tree: Tree<Backend>,
    pub sim: Sim,
    pub clock: Arc<ManualClock>,
    pub census: Arc<Census>,
    pub setup: Setup,
}

/// A handle to a node.
pub type Node = Handle<Inode>;

impl Subject {
    pub fn new(fs: Fs, setup: &Setup) -> Subject {
        Subject::with_hook(fs, setup, |_, _| ())
    }

    /// The hook is called with a number and an inode that have left, after they were counted.
    pub fn with_hook(fs: Fs, setup: &Setup, hook: impl Fn(u64, Inode) + Send + Sync + 'static) -> Subject {
        let (sim, clock, census) = (Sim::new(fs), ManualClock::new(), Arc::<Census>::default());
        let noted = census.clone();
        let config =
            Config::new().entries(setup.entries).bytes(setup.bytes).negative_percent(setup.negative_percent).clock(clock.clone()).evicted(
                move |number, inode| {
                    noted.note(number);
                    hook(number, inode);
                },
            );
        let backend = Backend { sim: sim.clone(), census: census.clone(), setup: setup.clone() };
        let tree = Tree::new(backend, Inode::new(ROOT, &census), config);
        Subject { tree, sim, clock, census, setup: setup.clone() }
    }

    /// What a path leads to, permission included.
    pub fn handle(&self, start: &Node, path: &[u8], flags: Flags) -> Result<Node, No> {
        let open = |inode: &Inode| self.sim.with(|fs| !fs.node(inode.ino).closed);
        let mut walk = Walk::new().search(&open);
        if flags.no_follow {
            walk = walk.no_follow();
        }
        if flags.directory {
            walk = walk.directory();
        }
        self.tree.walk(start, path, &walk).map_err(no)
    }

    pub fn walk(&self, start: &Node, path: &[u8], flags: Flags) -> Result<Ino, No> {
        self.handle(start, path, flags).map(|h| h.inode().ino)
    }

    /// From the root, links followed.
    pub fn resolve(&self, path: &str) -> Result<Ino, No> {
        self.walk(&self.tree.root(), path.as_bytes(), Flags::default())
    }

    /// A directory or file that is there.
    pub fn node(&self, path: &str) -> Node {
        self.handle(&self.tree.root(), path.as_bytes(), Flags { no_follow: true, directory: false })
            .unwrap_or_else(|e| panic!("{path}: {e:?}"))
    }

    pub fn create(&self, dir: &Node, name: &[u8], make: &Make) -> Result<Ino, No> {
        let new = match make {
            Make::Dir => New::Directory(0o755),
            Make::File => New::File(0o644),
            Make::Link(to) => New::Link(to),
        };
        self.tree.create(dir, name, new).map(|h| h.inode().ino).map_err(no)
    }

    pub fn rename(&self, from: (&Node, &[u8]), to: (&Node, &[u8]), by: How) -> Result<(), No> {
        self.tree.rename(from, to, how(by)).map_err(no)
    }

    /// The bounds hold at this moment.
    pub fn check_bounds(&self) {
        let s = self.tree.cache().stats();
        assert!(s.entries <= self.setup.entries.max(64), "{s:?}");
        assert!(s.bytes <= self.setup.bytes, "{s:?}");
        assert!(s.retired <= s.entries, "{s:?}");
        // Of those that ask at the same time each may have one more.
        let share = self.setup.entries.max(64) * usize::from(self.setup.negative_percent) / 100;
        assert!(s.negatives <= share + 8, "{s:?}");
        assert_eq!(self.census.twice(), 0, "the hook was called twice for one node");
    }

    /// Drops the cache: nothing may be left. The hook was called at most once for each node.
    pub fn end(self) {
        let census = self.census.clone();
        drop(self);
        assert_eq!(census.live(), 0, "inodes are left");
        assert_eq!(census.twice(), 0, "the hook was called twice for one node");
    }
}
