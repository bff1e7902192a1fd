//! Honest callers of every kind: processes that use the namespace under attack by the engine's functions, by the crate's types, or by C's
//! functions with the library preloaded; and another namespace by the engine's functions.
//!
//! Each checks that its own memory stays as it is, that each call ends with an error that is documented, and that the other namespace works.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::time::Duration;

use fastrand::Rng;
use libc::c_int;
use manyway_sem::abi::*;
use manyway_sem::{Engine, Errno, Namespace, OpenError, OpenOptions, Thread};

use crate::ledger::{Ledger, Line};
use crate::ways::{C, Calls, Direct, Types};

/// Keys of the sets that callers use, and their sizes.
pub const SETS: [(i32, i32); 4] = [(0x4d01, 1), (0x4d02, 4), (0x4d03, 40), (0x4d04, 300)];
/// The other namespace's set: a lock, and a semaphore for each thread.
pub const OTHER: i32 = 0x07e5;
/// Threads of a caller that lives through the round.
pub const THREADS: usize = 3;

/// Which functions a caller uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Engine,
    Types,
    Preload,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Engine => "engine",
            Kind::Types => "types",
            Kind::Preload => "preload",
        }
    }
    pub fn of(name: &str) -> Kind {
        [Kind::Engine, Kind::Types, Kind::Preload].into_iter().find(|k| k.name() == name).expect("a kind of caller")
    }
}

/// What a call may end with, besides success: docs/segment.md, "What a hostile writer can do".
pub const DOCUMENTED: [Errno; 16] = [
    Errno::EAGAIN,
    Errno::EINTR,
    Errno::EIDRM,
    Errno::EINVAL,
    Errno::EFBIG,
    Errno::E2BIG,
    Errno::ERANGE,
    Errno::EACCES,
    Errno::EPERM,
    Errno::ENOENT,
    Errno::EEXIST,
    Errno::ENOSPC,
    Errno::ENOMEM,
    Errno::EIO,
    Errno::EDEADLK,
    Errno::EBUSY,
];

pub fn open(dir: &Path) -> Engine {
    try_open(dir).expect("a namespace")
}

fn try_open(dir: &Path) -> Result<Engine, OpenError> {
    let name = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
    Engine::open(&name, &OpenOptions { create: true, ..Default::default() })
}

/// How a caller ends that finds, when it starts, that the namespace is not to be used: with the reason.
pub const REFUSED: i32 = 3;

/// What no writer outside the process can reach.
struct Canary {
    heap: Vec<u64>,
    robust: Box<libc::pthread_mutex_t>,
}

impl Canary {
    const WORDS: usize = 16 << 10;

    fn pattern(i: usize) -> u64 {
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
    fn new() -> Canary {
        // SAFETY: the attributes and the mutex are initialised by the functions that are called first; the mutex stays where it is.
        let robust = unsafe {
            let mut mutex: Box<libc::pthread_mutex_t> = Box::new(std::mem::zeroed());
            let mut attr: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut attr);
            libc::pthread_mutexattr_setrobust(&raw mut attr, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(&raw mut *mutex, &raw const attr);
            mutex
        };
        Canary { heap: (0..Self::WORDS).map(Self::pattern).collect(), robust }
    }
    /// A part of the heap is as it was, and the thread's list of robust mutexes works.
    fn check(&mut self, part: usize) {
        let from = part * 1024 % Self::WORDS;
        for i in from..from + 1024 {
            assert_eq!(self.heap[i], Self::pattern(i), "a word of the heap was overwritten");
        }
        // SAFETY: an initialised mutex that this thread alone uses.
        unsafe {
            assert_eq!(libc::pthread_mutex_lock(&raw mut *self.robust), 0);
            assert_eq!(libc::pthread_mutex_unlock(&raw mut *self.robust), 0);
        }
    }
}

/// What a caller is told.
pub struct Orders<'a> {
    pub dir: &'a Path,
    pub other: &'a Path,
    pub ledger: &'static Ledger,
    /// Its first line in the ledger.
    pub line: usize,
    pub seed: u64,
    pub kind: Kind,
    /// It is killed now and then, forks, and has one thread only.
    pub mortal: bool,
}

/// A caller's whole life.
pub fn run(o: &Orders<'_>) {
    // What it calls may end in a panic; that is the end of the process then, and seen.
    let other = open(o.other);
    let engine = (o.kind == Kind::Engine).then(|| try_open(o.dir).unwrap_or_else(|_| std::process::exit(REFUSED)));
    let namespace = (o.kind == Kind::Types).then(|| Namespace::open(o.dir).unwrap_or_else(|_| std::process::exit(REFUSED)));
    if o.kind == Kind::Preload && C.get(1, 0, 0) == Err(Errno::ENOSYS) {
        std::process::exit(REFUSED);
    }
    let calls = || -> Box<dyn Calls + '_> {
        match (&engine, namespace) {
            (Some(e), _) => Box::new(Direct(e, Thread::new())),
            (_, Some(n)) => Box::new(Types(n)),
            _ => Box::new(C),
        }
    };
    handle(NUDGE);
    if o.kind == Kind::Preload {
        handle(libc::SIGALRM);
        tick_every(Duration::from_millis(17));
    }
    if o.mortal {
        return Caller::new(o, 0, &*calls(), &other).live();
    }
    ticks_here(false);
    std::thread::scope(|s| {
        for n in 0..THREADS {
            let (calls, other) = (&calls, &other);
            s.spawn(move || {
                ticks_here(n == 0);
                let calls = calls();
                Caller::new(o, n, &*calls, other).live();
                calls.leave();
            });
        }
    });
}

static TICKS: AtomicU32 = AtomicU32::new(0);

extern "C" fn on_tick(_: c_int) {
    TICKS.fetch_add(1, Relaxed);
}

/// Whether the calling thread takes the signal.
fn ticks_here(yes: bool) {
    // SAFETY: changes the thread's signal mask only.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&raw mut set, libc::SIGALRM);
        libc::pthread_sigmask(if yes { libc::SIG_UNBLOCK } else { libc::SIG_BLOCK }, &raw const set, std::ptr::null_mut());
    }
}

/// Has a handler run so often, in the thread that takes the signal.
fn tick_every(d: Duration) {
    let every = libc::timeval { tv_sec: 0, tv_usec: d.as_micros() as libc::suseconds_t };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: reads the structure.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut()) };
}

/// Has a handler that does nothing much.
fn handle(signal: c_int) {
    // SAFETY: the handler changes an atomic only.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = on_tick as *const () as usize;
        act.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &raw const act, std::ptr::null_mut());
    }
}

/// The signal by which a call is ended that waits for a lock whose owner cannot be told from one that is stopped.
pub const NUDGE: c_int = libc::SIGUSR1;

struct Caller<'a> {
    o: &'a Orders<'a>,
    line: &'static Line,
    n: usize,
    calls: &'a dyn Calls,
    other: &'a Engine,
    other_thread: Thread,
    other_id: i32,
    rng: Rng,
    ids: [i32; SETS.len()],
    canary: Canary,
}

impl<'a> Caller<'a> {
    fn new(o: &'a Orders<'a>, n: usize, calls: &'a dyn Calls, other: &'a Engine) -> Caller<'a> {
        let line = &o.ledger.lines[o.line + n];
        line.is_mine();
        let other_thread = Thread::new();
        let other_id = other.semget(&other_thread, OTHER, 0, 0).expect("the other namespace's set");
        let rng = Rng::with_seed(o.seed ^ (n as u64 + 1) << 32);
        Caller { o, line, n, calls, other, other_thread, other_id, rng, ids: [-1; SETS.len()], canary: Canary::new() }
    }

    fn live(mut self) {
        let mut round = 0;
        while !self.o.ledger.stopped() {
            self.one_call();
            round += 1;
            if round % 8 == 0 {
                self.elsewhere();
                self.canary.check(round / 8);
            }
            if self.o.mortal && self.rng.u8(0..50) == 0 {
                self.fork();
            }
        }
        (0..16).for_each(|part| self.canary.check(part));
        self.other.detach_thread(&self.other_thread);
    }

    /// The other namespace works: its lock excludes, and nothing fails.
    fn elsewhere(&mut self) {
        let (e, t, id) = (self.other, &self.other_thread, self.other_id);
        let op = |num, op, flags: i32| {
            let op = SemBuf { num, op, flg: flags as i16 };
            // A handler ends a sleep, there too.
            let r = loop {
                match e.semop(t, id, &[op], None) {
                    Err(Errno::EINTR) => {}
                    r => break r,
                }
            };
            assert_eq!(r, Ok(()), "{op:?} on the other namespace");
        };
        op(0, -1, SEM_UNDO);
        if !self.o.mortal {
            let n = self.o.ledger.counted.load(Relaxed);
            self.o.ledger.counted.store(n + 1, Relaxed);
            self.o.ledger.counted_well.fetch_add(1, Relaxed);
        }
        op(0, 1, SEM_UNDO);
        let own = 1 + (self.o.line + self.n) as u16;
        op(own, 1, 0);
        assert!(e.getval(t, id, own.into()).is_ok_and(|v| v > 0), "what was added is there");
        op(own, -1, 0);
        self.line.other.fetch_add(1, Relaxed);
    }

    /// A child makes calls and ends, holding what it holds.
    fn fork(&mut self) {
        // SAFETY: this process has one thread; the child ends by _exit or by a signal.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: concerns this process alone.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            self.line.is_mine();
            for _ in 0..self.rng.u8(1..20) {
                self.one_call();
            }
            // SAFETY: as above.
            unsafe {
                if self.rng.bool() {
                    libc::kill(libc::getpid(), libc::SIGKILL);
                }
                libc::_exit(0)
            }
        }
        let mut status = 0;
        // SAFETY: waits for the child.
        while unsafe { libc::waitpid(pid, &raw mut status, 0) } == -1 {}
        self.line.is_mine();
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        assert!(killed || (libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0), "a child ended with {status:#x}");
    }

    /// One random call.
    fn one_call(&mut self) {
        let which = self.rng.usize(0..SETS.len());
        let (key, nsems) = SETS[which];
        if self.ids[which] < 0 {
            let flags = IPC_CREAT | 0o666;
            match self.judge(1, |c| c.get(key, nsems, flags)) {
                Some(id) => self.ids[which] = id,
                None => return,
            }
            if self.rng.bool() {
                let id = self.ids[which];
                self.judge(2, |c| c.set_all(id, 2));
            }
        }
        let id = self.ids[which];
        let num = self.rng.i32(0..nsems.min(4));
        let value = self.rng.i32(0..4);
        let gone = match self.rng.u8(0..100) {
            0..55 => {
                let (mut ops, timeout) = self.operations(nsems);
                self.judge(3, |c| c.op(id, &mut ops, timeout)).is_none()
            }
            55..62 => self.judge(4, |c| c.ctl(id, num, SETVAL, value).map(drop)).is_none(),
            62..66 => self.judge(5, |c| c.set_all(id, value as u16)).is_none(),
            66..72 => self.judge(6, |c| c.get_all(id)).is_none(),
            72..76 => self.judge(7, |c| c.ctl(id, num, GETVAL, 0)).is_none(),
            76..80 => self.judge(8, |c| c.ctl(id, num, GETNCNT, 0)).is_none(),
            80..83 => self.judge(9, |c| c.ctl(id, num, GETZCNT, 0)).is_none(),
            83..86 => self.judge(10, |c| c.ctl(id, num, GETPID, 0)).is_none(),
            86..89 => self.judge(11, |c| c.stat(id, false)).is_none(),
            89..91 => self.judge(12, |c| c.stat(id, true)).is_none(),
            91..93 => self.judge(13, |c| c.set_perm(id)).is_none(),
            93..95 => self.judge(14, |c| c.info()).is_none(),
            95..97 => {
                // A set of its own that goes at once.
                let size = [1, 70, 300, 2000][self.rng.usize(0..4)];
                if let Some(own) =
                    self.judge(1, |c| c.get(if self.o.kind == Kind::Types { 0x7001 } else { IPC_PRIVATE }, size, IPC_CREAT | 0o600))
                {
                    self.judge(15, |c| c.ctl(own, 0, IPC_RMID, 0));
                }
                false
            }
            97..98 => {
                self.judge(15, |c| c.ctl(id, 0, IPC_RMID, 0));
                true
            }
            _ => self.judge(16, |c| c.get(key, nsems, IPC_CREAT | 0o666)).is_none(),
        };
        if gone && self.rng.u8(0..4) == 0 {
            self.ids[which] = -1;
        }
    }

    fn operations(&mut self, nsems: i32) -> (Vec<SemBuf>, Option<Timespec>) {
        let r = &mut self.rng;
        let len = [1, 1, 1, 1, 2, 2, 3, 8, 20][r.usize(0..9)];
        let flags = [0, 0, SEM_UNDO, SEM_UNDO, IPC_NOWAIT, IPC_NOWAIT | SEM_UNDO];
        let op = |r: &mut Rng| SemBuf { num: r.u16(0..nsems.min(6) as u16), op: r.i16(-2..=2), flg: flags[r.usize(0..6)] as i16 };
        let mut ops: Vec<_> = (0..len).map(|_| op(r)).collect();
        let ms = [1, 5, 20, 60][r.usize(0..4)];
        if r.u8(0..12) == 0 {
            // To sleep whatever comes.
            ops[0] = SemBuf { num: ops[0].num, op: -20_000, flg: ops[0].flg & SEM_UNDO as i16 };
        }
        // A handler ends a sleep without a timeout, where one runs.
        let ticks = self.o.kind == Kind::Preload && self.n == 0;
        let timeout = (!ticks || self.rng.bool()).then_some(Timespec { sec: 0, nsec: ms * 1_000_000 });
        (ops, timeout)
    }

    /// Makes a call and judges how it ended. None: with an error.
    fn judge<R>(&self, call: u32, f: impl FnOnce(&dyn Calls) -> Result<R, Errno>) -> Option<R> {
        let calls = self.calls;
        let r = self.line.during(call, || f(calls));
        match r {
            Ok(r) => {
                self.line.done.fetch_add(1, Relaxed);
                Some(r)
            }
            Err(e) => {
                assert!(DOCUMENTED.contains(&e), "call {call} ended with {e:?}");
                self.line.failed.fetch_add(1, Relaxed);
                if e == Errno::EIO {
                    self.line.damaged.fetch_add(1, Relaxed);
                    // It does not mend by being asked over and over.
                    std::thread::sleep(Duration::from_millis(1));
                }
                None
            }
        }
    }
}
