//! Those who live: a process that contends for the semaphores and one that sleeps on them, both running while a third one is stepped and dies.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use manyway_sem::abi::{SETALL, SETVAL, SemBuf};
use manyway_sem::{Engine, Errno, OpenOptions, Thread};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

/// Whose functions the living and the dying call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// The crate's.
    Crate,
    /// C's, which the preloaded library defines.
    Library,
}

thread_local! {
    static THREAD: Thread = const { Thread::new() };
}

/// The semaphore calls of whoever is under test.
#[derive(Clone, Copy)]
pub struct Sems {
    /// The namespace; this process looks at it through the crate.
    pub engine: &'static Engine,
    /// How the others call.
    pub via: Via,
}

const fn result(r: i32) -> Result<(), ()> {
    if r == -1 { Err(()) } else { Ok(()) }
}
fn c(r: i32) -> Result<(), Errno> {
    result(r).map_err(|()| Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0)))
}

impl Sems {
    /// The namespace in `dir`.
    pub fn open(dir: &Path, via: Via) -> Sems {
        let path = CString::new(dir.as_os_str().as_bytes()).expect("no NUL in it");
        let engine = Engine::open(&path, &OpenOptions { create: true, ..Default::default() }).expect("a namespace");
        Sems { engine: Box::leak(Box::new(engine)), via }
    }
    /// The stage's set.
    pub fn find(self) -> Result<i32, Errno> {
        match self.via {
            Via::Crate => THREAD.with(|t| self.engine.semget(t, KEY, 0, 0)),
            Via::Library => {
                // SAFETY: takes numbers only.
                let id = unsafe { libc::semget(KEY, 0, 0) };
                c(id).map(|()| id)
            }
        }
    }
    /// semop.
    pub fn op(self, id: i32, ops: &[SemBuf]) -> Result<(), Errno> {
        match self.via {
            Via::Crate => THREAD.with(|t| self.engine.semop(t, id, ops, None)),
            // SAFETY: as many operations as are said; the layouts of SemBuf and sembuf are the same, and the callee only reads.
            Via::Library => c(unsafe { libc::semop(id, ops.as_ptr().cast_mut().cast(), ops.len()) }),
        }
    }
    /// SETVAL of semaphore 0.
    pub fn set_value(self, id: i32, value: i32) -> Result<(), Errno> {
        match self.via {
            Via::Crate => THREAD.with(|t| self.engine.setval(t, id, 0, value)),
            // SAFETY: SETVAL takes a number.
            Via::Library => c(unsafe { libc::semctl(id, 0, SETVAL, value) }),
        }
    }
    /// SETALL.
    pub fn set_all(self, id: i32, values: &[u16; SEMS]) -> Result<(), Errno> {
        match self.via {
            Via::Crate => THREAD.with(|t| self.engine.setall(t, id, values)),
            // SAFETY: as many values as every set here has.
            Via::Library => c(unsafe { libc::semctl(id, 0, SETALL, values.as_ptr()) }),
        }
    }
    /// IPC_RMID.
    pub fn remove(self, id: i32) -> Result<(), Errno> {
        match self.via {
            Via::Crate => THREAD.with(|t| self.engine.remove(t, id)),
            // SAFETY: takes no argument.
            Via::Library => c(unsafe { libc::semctl(id, 0, libc::IPC_RMID) }),
        }
    }
}

/// The key of the set that a stage uses.
pub const KEY: i32 = 0x0dea_d111;
/// Semaphores of each set.
pub const SEMS: usize = 4;

/// What the processes of a stage say to each other: a page that they all have.
#[derive(Default)]
pub struct Page {
    /// The set.
    pub id: AtomicI32,
    /// 1: the contender works.
    go: AtomicU32,
    /// 1: it does not.
    idle: AtomicU32,
    /// The contender's rounds.
    rounds: AtomicU64,
    /// The set of which a living one has learnt that it is gone: the contender, the sleeper.
    gone: [AtomicI32; 2],
    /// The sleeper's calls: how many were ordered, …
    ordered: AtomicU64,
    /// … and how many have returned.
    done: AtomicU64,
    /// 1: a living one had an error that it must not have.
    broken: AtomicI32,
    /// What a second thread of the dying one shall do: see [`crate::death`].
    pub second: AtomicU32,
}

impl Page {
    fn new() -> &'static Page {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let p = unsafe { libc::mmap(ptr::null_mut(), size_of::<Page>(), access, flags, -1, 0) };
        assert_ne!(p, libc::MAP_FAILED, "a page");
        // SAFETY: zero is a Page, which is made of atomics, and the mapping stays.
        unsafe { &*p.cast::<Page>() }
    }
}

/// What a contender does in a round: the first, then the second.
pub type Contest = [&'static [SemBuf]; 2];

/// How long anything may take that does not hang.
pub const HANG: Duration = Duration::from_secs(20);

/// The two of them.
pub struct Living {
    pub page: &'static Page,
    contender: Pid,
    sleeper: Pid,
}

impl Living {
    /// Starts both.
    pub fn start(sems: Sems, id: i32, contest: Contest, sleep: &'static [SemBuf]) -> Living {
        let page = Page::new();
        page.id.store(id, SeqCst);
        Living { page, contender: child(|| contend(sems, page, contest)), sleeper: child(|| sleep_on(sems, page, sleep)) }
    }

    /// Sends the sleeper into its call.
    pub fn order_sleep(&self) {
        self.page.ordered.fetch_add(1, SeqCst);
    }
    /// True when the sleeper's call has returned, and it has given back what it got.
    pub fn has_slept(&self) -> bool {
        self.page.done.load(SeqCst) == self.page.ordered.load(SeqCst)
    }
    /// The contender's rounds so far. One that has learnt that the set is gone makes progress no more.
    pub fn rounds(&self) -> u64 {
        let gone = self.page.gone[0].load(SeqCst) == self.page.id.load(SeqCst);
        if gone { u64::MAX } else { self.page.rounds.load(SeqCst) }
    }
    /// Lets the contender work, and waits until it does.
    pub fn go(&self) -> Result<(), String> {
        let before = self.rounds();
        self.page.go.store(1, SeqCst);
        self.until("the contender does not begin", || self.rounds() > before).map(drop)
    }
    /// Lets the contender pause, with nothing in its hands.
    pub fn pause(&self) -> Result<(), String> {
        self.page.go.store(0, SeqCst);
        self.until("the contender does not end its round", || self.page.idle.load(SeqCst) == 1).map(drop)
    }
    /// Waits; how long it took.
    pub fn until(&self, otherwise: &str, what: impl Fn() -> bool) -> Result<Duration, String> {
        let began = Instant::now();
        while !what() {
            if self.page.broken.load(SeqCst) != 0 {
                return Err(format!("one of the living had error {}", self.page.broken.load(SeqCst)));
            }
            if began.elapsed() > HANG {
                return Err(otherwise.to_owned());
            }
            nap(100);
        }
        Ok(began.elapsed())
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        for pid in [self.contender, self.sleeper] {
            let _ = kill(pid, Signal::SIGKILL);
            let _ = waitpid(pid, None);
        }
    }
}

pub fn nap(micros: u64) {
    std::thread::sleep(Duration::from_micros(micros));
}

fn child(work: impl FnOnce()) -> Pid {
    // SAFETY: a stage has one thread, so the child's copy is whole.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: takes numbers only.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            crate::death::go_anywhere();
            work();
            // SAFETY: ends the child without running what belongs to its parent.
            unsafe { libc::_exit(1) }
        }
    }
}

/// True: the set is gone. Any other error breaks the promise.
fn is_gone(page: &Page, who: usize, id: i32, r: Result<(), Errno>) -> bool {
    match r {
        Ok(()) => false,
        Err(Errno::EIDRM | Errno::EINVAL) => {
            page.gone[who].store(id, SeqCst);
            true
        }
        Err(e) => {
            page.broken.store(e.0, SeqCst);
            true
        }
    }
}

/// In bursts, so that others get on a processor too.
const BURST: u64 = 50;

fn contend(sems: Sems, page: &Page, contest: Contest) {
    loop {
        let id = page.id.load(SeqCst);
        if page.go.load(SeqCst) == 0 || page.gone[0].load(SeqCst) == id {
            page.idle.store(1, SeqCst);
            nap(200);
            continue;
        }
        page.idle.store(0, SeqCst);
        let calls = contest.iter().filter(|ops| !ops.is_empty());
        if calls.map(|ops| sems.op(id, ops)).any(|r| is_gone(page, 0, id, r)) {
            continue;
        }
        if page.rounds.fetch_add(1, SeqCst).is_multiple_of(BURST) {
            nap(100);
        }
    }
}

fn sleep_on(sems: Sems, page: &Page, ops: &[SemBuf]) {
    let back: Vec<_> = ops.iter().filter(|o| o.op != 0).map(|o| SemBuf { op: -o.op, ..*o }).collect();
    loop {
        let order = page.ordered.load(SeqCst);
        if order == page.done.load(SeqCst) {
            nap(200);
            continue;
        }
        let id = page.id.load(SeqCst);
        if !is_gone(page, 1, id, sems.op(id, ops)) && !back.is_empty() {
            is_gone(page, 1, id, sems.op(id, &back));
        }
        page.done.store(order, SeqCst);
    }
}
