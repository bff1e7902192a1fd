//! The ledger of a storm: memory that all its processes share, beside the namespace. What is to be there, who is at what, what was counted.

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use std::time::Duration;

use crate::sys;

/// Sets.
pub const SETS: usize = 64;
/// Sets from here on are removed and made again over and over.
pub const DOOMED: usize = 44;
/// Processes at a time, and threads of one.
pub const CREWS: usize = 80;
pub const THREADS: usize = 3;

/// What a set is used for, and so what must hold of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Units are taken with SEM_UNDO: of each semaphore, value and adjustments together are constant.
    Undo,
    /// Units move between its semaphores, each time in one call: the sum of the values is constant.
    Moves,
    /// Units are taken without SEM_UNDO, and the ledger says who has them: the dead keep theirs, and the conductor puts others in their place.
    Plain,
}

/// Units of each semaphore at first.
pub const UNITS: u16 = 3;

/// What set number `s` is used for.
pub fn use_of(s: usize) -> Use {
    match s % 8 {
        0..=4 => Use::Undo,
        5 | 6 => Use::Moves,
        // What the dead keep is not to be mixed up with what a removal takes along.
        _ if s >= DOOMED => Use::Undo,
        _ => Use::Plain,
    }
}

/// How many semaphores it has: from one to more than a page holds, and some that many fight for.
pub fn size_of_set(s: usize) -> u16 {
    let n = [1, 2, 3, 5, 8, 13, 40, 70, 150, 300][s * 7 % 10];
    if use_of(s) == Use::Moves { n.max(3) } else { n }
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Count {
    Simple,
    Several,
    Hundreds,
    Undo,
    Plain,
    Moves,
    Zero,
    NoWait,
    Timed,
    TimedOut,
    Untimed,
    Nested,
    Queries,
    Snapshots,
    OwnSets,
    Gone,
    NoRoom,
    Forks,
    Execs,
    ThreadsStarted,
    Preloaded,
    ClockReads,
    // The conductor's.
    Kills,
    GroupKills,
    RecoverersKilled,
    WatchersKilled,
    Stops,
    PidsReused,
    Removals,
    Fills,
    ClockSteps,
    Musters,
    Audits,
    SetsJudged,
    SleepersJudged,
    OrdersJudged,
    Losses,
    Last,
}

pub const COUNTS: usize = Count::Last as usize;

impl Count {
    /// All, with their names as the last line has them.
    pub const NAMES: [&'static str; COUNTS] = [
        "simple calls",
        "calls of several operations",
        "calls of a hundred operations",
        "calls with undo",
        "plain calls",
        "moves",
        "waits for zero",
        "calls that do not wait",
        "timed calls",
        "timeouts",
        "untimed calls",
        "calls while holding",
        "queries",
        "snapshots by workers",
        "sets of one process",
        "calls on removed sets",
        "calls without room",
        "forks",
        "execs",
        "threads started",
        "calls through the library",
        "times read",
        "kills",
        "kills of groups",
        "kills of recoverers",
        "kills of watchers",
        "stops",
        "pids reused",
        "sets removed and made again",
        "times that the file system was full",
        "steps of the clock",
        "musters",
        "audits",
        "sets judged",
        "sleepers judged",
        "orders judged",
        "plain units lost by deaths",
    ];
}

/// A thread that uses the namespace.
#[repr(C)]
pub struct Hand {
    /// 0 absent, 1 at work, else the muster for which it rests.
    pub at: AtomicU32,
    _pad: u32,
    /// A plain unit that it is taking, has, or is giving back: [`Unit`].
    pub unit: AtomicU64,
    /// CLOCK_MONOTONIC, ns, when its call must be back; 0: it is in none, u64::MAX: in one without a timeout.
    pub until: AtomicU64,
}

/// A process that uses the namespace.
#[repr(C)]
pub struct Crew {
    /// 0: free.
    pub pid: AtomicU32,
    /// 1: its process has executed another image, which has another entry.
    pub ended: AtomicU32,
    pub hands: [Hand; THREADS],
}

/// A plain unit and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    /// The call that takes it, or gives it back, is on its way.
    Taking(usize, u16),
    Held(usize, u16),
    Giving(usize, u16),
}

impl Unit {
    fn bits(self) -> u64 {
        let of = |kind: u64, s: usize, num: u16| kind << 32 | (s as u64) << 16 | u64::from(num);
        match self {
            Unit::None => 0,
            Unit::Taking(s, num) => of(1, s, num),
            Unit::Held(s, num) => of(2, s, num),
            Unit::Giving(s, num) => of(3, s, num),
        }
    }
    fn parse(w: u64) -> Unit {
        let (s, num) = ((w >> 16) as usize & 0xffff, w as u16);
        match w >> 32 {
            1 => Unit::Taking(s, num),
            2 => Unit::Held(s, num),
            3 => Unit::Giving(s, num),
            _ => Unit::None,
        }
    }
}

impl Hand {
    /// Notes what becomes of a plain unit. A death finds the notes up to some instruction in program order.
    pub fn note(&self, unit: Unit) {
        self.unit.store(unit.bits(), SeqCst);
    }
    pub fn noted(&self) -> Unit {
        Unit::parse(self.unit.load(SeqCst))
    }
}

const COMPLAINT: usize = 2000;

#[repr(C)]
pub struct Ledger {
    /// Odd: everybody comes to rest.
    pub muster: AtomicU32,
    /// 1: new processes wait before they begin.
    pub paused: AtomicU32,
    /// Odd while the file system has no room; changes with it.
    pub full: AtomicU32,
    /// 1: somebody is writing a complaint; 2: it is there.
    complained: AtomicU32,
    /// Seconds by which time(2) is wrong in all processes of the storm.
    pub clock: AtomicI64,
    /// Ids; 0: the set is being made again.
    pub sets: [AtomicI32; SETS],
    pub counts: [AtomicU64; COUNTS],
    /// The longest call without a timeout, ns, and the latest return after a timeout.
    pub longest: AtomicU64,
    pub latest: AtomicU64,
    pub crews: [Crew; CREWS],
    complaint: [AtomicU8; COMPLAINT],
}

impl Ledger {
    /// Makes it in a new file.
    pub fn create(path: &Path) -> &'static Ledger {
        let file = std::fs::File::create_new(path).expect("a new file");
        file.set_len(size_of::<Ledger>() as u64).expect("room");
        Ledger::open(path)
    }
    pub fn open(path: &Path) -> &'static Ledger {
        sys::map_ledger(path)
    }

    pub fn count(&self, what: Count) {
        self.counts[what as usize].fetch_add(1, Relaxed);
    }
    pub fn add(&self, what: Count, n: u64) {
        self.counts[what as usize].fetch_add(n, Relaxed);
    }

    /// Something that must not be. The first one stays.
    pub fn complain(&self, what: impl Display) {
        if self.complained.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            for (to, from) in self.complaint.iter().zip(what.to_string().bytes().chain([0])) {
                to.store(from, Relaxed);
            }
            self.complained.store(2, SeqCst);
        }
    }
    pub fn complaint(&self) -> Option<String> {
        if self.complained.load(SeqCst) == 0 {
            return None;
        }
        for _ in 0..100 {
            if self.complained.load(SeqCst) == 2 {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let text: Vec<u8> = self.complaint.iter().map(|b| b.load(Relaxed)).take_while(|b| *b != 0).collect();
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    /// Takes an entry for the process `pid`.
    pub fn enlist(&self, pid: u32) -> Option<usize> {
        self.crews.iter().position(|c| c.pid.compare_exchange(0, pid, SeqCst, SeqCst).is_ok())
    }
    /// Entries in use, with their pids.
    pub fn enlisted(&self) -> impl Iterator<Item = (&Crew, u32)> {
        self.crews.iter().map(|c| (c, c.pid.load(SeqCst))).filter(|(_, pid)| *pid != 0)
    }
}
