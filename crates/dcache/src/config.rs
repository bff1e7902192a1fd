//! Bounds, times and hooks of a cache.

use std::sync::Arc;
use std::time::Duration;

use manyway_sync::atomic::{AtomicU64, Ordering::Relaxed};

/// For how long a binding holds without asking the store again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ttl {
    /// Until something takes it away: a change, an invalidation, the bound.
    Forever,
    /// For so long from now, rounded down to 16 ms; then a walk gets [`Outcome::Stale`](crate::Outcome::Stale).
    For(Duration),
    /// The answer is that of its asker alone; it is not kept.
    No,
}

impl From<Duration> for Ttl {
    fn from(d: Duration) -> Ttl {
        if d.is_zero() { Ttl::No } else { Ttl::For(d) }
    }
}

/// Where a cache gets the time from, to let bindings become stale. The default is the machine's monotonic clock.
pub trait Clock: Send + Sync + 'static {
    /// The time since a fixed moment; never goes back.
    fn now(&self) -> Duration;
}

/// A clock that stands until it is set: for tests.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at zero.
    pub fn new() -> Arc<ManualClock> {
        Arc::default()
    }

    /// Lets the time go on by `d`.
    pub fn advance(&self, d: Duration) {
        self.0.fetch_add(d.as_nanos() as u64, Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// Called with a node's number and its inode when nothing refers to the node any more.
pub(crate) type Evicted<I> = Box<dyn Fn(u64, I) + Send + Sync>;

/// What a [`Cache`](crate::Cache) is made with.
///
/// ```
/// # use manyway_dcache::{Cache, Config};
/// let cache: Cache<u64> = Cache::new(1, Config::new().entries(100_000).bytes(32 << 20));
/// ```
pub struct Config<I> {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
    pub(crate) negative_percent: u8,
    pub(crate) name_max: usize,
    pub(crate) seed: Option<u64>,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) evicted: Option<Evicted<I>>,
}

impl<I> Default for Config<I> {
    fn default() -> Self {
        Config { entries: 1 << 18, bytes: usize::MAX, negative_percent: 25, name_max: 255, seed: None, clock: None, evicted: None }
    }
}

impl<I> Config<I> {
    /// The default: 262,144 entries, no bound in bytes, a quarter of the entries for names that do not exist, names of 255 bytes.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most entries there may be at any time, those included that are retired and not freed yet. At least 64.
    pub fn entries(mut self, n: usize) -> Self {
        self.entries = n.clamp(64, 1 << 31);
        self
    }

    /// The most bytes that entries, nodes and the lists of children may take, retired ones included. The table's 8 bytes for each entry of
    /// the bound are not counted in it; what the author's inode owns beyond its own size is not either.
    pub fn bytes(mut self, n: usize) -> Self {
        self.bytes = n;
        self
    }

    /// How many of a hundred entries may be of names that do not exist. Zero: none is kept.
    pub fn negative_percent(mut self, n: u8) -> Self {
        self.negative_percent = n.min(100);
        self
    }

    /// The longest name, in bytes; 255 if not said, 65,535 at most.
    pub fn name_max(mut self, n: usize) -> Self {
        self.name_max = n.clamp(1, u16::MAX as usize);
        self
    }

    /// What names are hashed with; random if not said, so that nobody can choose names that meet in one bucket.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Another clock than the machine's.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Called with a node's number and inode when the node is given up for good: no entry, handle or pin refers to it. No lock is held, and
    /// the hook may use the cache.
    pub fn evicted(mut self, f: impl Fn(u64, I) + Send + Sync + 'static) -> Self {
        self.evicted = Some(Box::new(f));
        self
    }
}
