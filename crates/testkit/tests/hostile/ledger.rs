//! Memory that the test and its processes share apart from any namespace: who is in which call since when, and what was done.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::time::Instant;

/// Threads that make calls, over all processes of a round.
pub const THREADS: usize = 64;
/// Changes that are remembered, for a message.
pub const REMEMBERED: usize = 64;

/// A thread's line.
#[repr(C, align(64))]
pub struct Line {
    /// When the call that it is in began, by the ledger's clock; 0: it is in none.
    pub since: AtomicU64,
    /// Which call.
    pub call: AtomicU32,
    /// Its process; 0 when there is none (any more).
    pub pid: AtomicU32,
    /// The thread.
    pub tid: AtomicU32,
    /// Calls that ended well on the namespace under attack.
    pub done: AtomicU64,
    /// Calls that ended with an error that is documented.
    pub failed: AtomicU64,
    /// Of these, EIO.
    pub damaged: AtomicU64,
    /// Calls on the other namespace.
    pub other: AtomicU64,
    /// The longest call, nanoseconds.
    pub longest: AtomicU64,
    /// Which call that was.
    pub longest_call: AtomicU32,
}

/// A change that was made to the arena.
#[repr(C)]
pub struct Change {
    pub at: AtomicU64,
    pub was: AtomicU64,
    pub is: AtomicU64,
}

/// The whole.
#[repr(C)]
pub struct Ledger {
    /// 1: calls end.
    pub stop: AtomicU32,
    /// Signals that an innocent process has received.
    pub signals: AtomicU32,
    /// Counted under a lock of the other namespace, by a load and a store …
    pub counted: AtomicU64,
    /// … and once more, in one instruction.
    pub counted_well: AtomicU64,
    /// Changes made.
    pub flips: AtomicU64,
    pub lines: [Line; THREADS],
    pub changes: [Change; REMEMBERED],
}

impl Ledger {
    /// Maps the file `path`, which is made if it is not there.
    pub fn map(path: &Path) -> &'static Ledger {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).expect("the ledger's file");
        file.set_len(size_of::<Ledger>() as u64).expect("room");
        // SAFETY: a new mapping, as long as the structure, which is made of atomics and never unmapped.
        unsafe {
            let p = libc::mmap(
                std::ptr::null_mut(),
                size_of::<Ledger>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(p, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            &*p.cast::<Ledger>()
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Relaxed) != 0
    }

    /// Remembers a change.
    pub fn changed(&self, at: u64, was: u64, is: u64) {
        let n = self.flips.fetch_add(1, Relaxed);
        let c = &self.changes[n as usize % REMEMBERED];
        c.at.store(at, Relaxed);
        c.was.store(was, Relaxed);
        c.is.store(is, Relaxed);
    }

    /// The last changes, oldest first.
    pub fn last_changes(&self) -> String {
        let n = self.flips.load(Relaxed);
        let mut text = String::new();
        for i in n.saturating_sub(REMEMBERED as u64)..n {
            let c = &self.changes[i as usize % REMEMBERED];
            let [at, was, is] = [&c.at, &c.was, &c.is].map(|w| w.load(Relaxed));
            text += &format!("    {at:#x}: {was:#018x} -> {is:#018x}\n");
        }
        text
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, the same in all processes.
pub fn now() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

impl Line {
    /// The calling thread has the line from now on.
    pub fn is_mine(&self) {
        self.since.store(0, Relaxed);
        // SAFETY: has no precondition.
        self.tid.store(unsafe { libc::gettid() } as u32, Relaxed);
        self.pid.store(std::process::id(), Relaxed);
    }

    /// Notes a call from its begin to its end, and what came of it.
    pub fn during<R>(&self, call: u32, f: impl FnOnce() -> R) -> R {
        self.call.store(call, Relaxed);
        self.since.store(now(), Release);
        let began = Instant::now();
        let r = f();
        let took = began.elapsed().as_nanos() as u64;
        self.since.store(0, Release);
        if took > self.longest.load(Relaxed) {
            self.longest.store(took, Relaxed);
            self.longest_call.store(call, Relaxed);
        }
        r
    }
}
