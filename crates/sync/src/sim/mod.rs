//! A machine in one program, under `--cfg shuttle`: processes and their ends, signals, futexes and time, so that whole engines run on a
//! real arena under shuttle's schedulers. The same seed gives the same run.
//!
//! The atomics stay the machine's, since they lie in a mapped file; each access to one in a shared mapping is a point where another task may
//! go on, where a signal's handler may run, and where the task may die, as by a kill. Shuttle takes all accesses as sequentially
//! consistent: orderings are the model checker's to look at (`model`), here it is the protocols.
//!
//! **Death.** The task's robust word is marked; then, a moment later, its process is gone, if it was the last thread. The task unwinds to
//! [`spawn`]: nothing in the engine is held by a destructor.
//!
//! **Time** passes by naps, and when nobody can go on: then the wait that ends first ends by its timeout. A wait with a deadline may
//! also end early, when others are in the middle of something; one that is only a look about does so where [`Rules::early_ticks`] says it.
//! So a lost wake-up is seen: everybody sleeps, also one whose call has been completed.

extern crate std;

pub mod atomic;
mod clock;

use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};
use core::time::Duration;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::vec::Vec;

use shuttle::rand::{Rng, thread_rng};

use crate::Errno;
use crate::robust::{OWNER_DIED, WAITERS};
pub use clock::{Clocked, closing, start_clock, wait_idle};

/// Waits at least as long as this are looks about, not deadlines.
const TICK_NS: u64 = 50_000_000;

/// What may happen in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// A sleeper may look about at any time, not only when nobody else can go on. (It then finds what a lost wake-up would hide.)
    pub early_ticks: bool,
    /// The dead leave no mark in their robust words: the out-of-memory reaper was faster.
    pub no_marks: bool,
}

struct Wait {
    key: usize,
    until: u64,
    /// Ends by its timeout when so many steps have been made.
    early: Option<u64>,
    /// Only to look about.
    tick: bool,
    /// The order of arrival.
    turn: u64,
}

#[derive(Default)]
struct Task {
    pid: u32,
    tid: u32,
    /// Stores and system calls that it has left to live.
    life: Option<usize>,
    /// To die at its next point.
    doomed: bool,
    /// It has ended: what its destructors do is nobody's business.
    over: bool,
    /// Where its robust word is.
    robust: Option<usize>,
    wait: Option<Wait>,
    woken: Option<Result<(), Errno>>,
    /// A signal comes in so many points.
    signal: Option<usize>,
    handler: Option<Rc<dyn Fn() -> bool>>,
    handling: bool,
}

#[derive(Default)]
struct Process {
    inode: u64,
    threads: u32,
    doomed: bool,
}

#[derive(Default)]
struct World {
    rules: Rules,
    quiet: bool,
    told: bool,
    now: u64,
    steps: u64,
    /// {start, length} of each mapping of the arena.
    maps: Vec<(usize, usize)>,
    tasks: BTreeMap<usize, Task>,
    processes: BTreeMap<u32, Process>,
    /// Number given out last, to threads, inodes and waits.
    last: u64,
    deaths: u64,
    ends: u64,
    clock: clock::State,
}

std::thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

fn me() -> Option<usize> {
    shuttle::current::try_get_current_task().map(usize::from)
}

fn with<R>(f: impl FnOnce(&mut World) -> R) -> Option<R> {
    WORLD.with(|w| w.borrow_mut().as_mut().map(f))
}

impl World {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
    /// Where an address lies in the arena.
    fn key(&self, address: usize) -> Option<usize> {
        self.maps.iter().find(|(start, len)| address.wrapping_sub(*start) < *len).map(|(start, _)| address - start)
    }
    /// The word at a place in the arena, in whatever mapping there is.
    fn word(&self, key: usize) -> Option<&AtomicU32> {
        let (start, _) = self.maps.iter().find(|(_, len)| key < *len)?;
        // SAFETY: the mapping is there until `unmapped`; the place came from a word's address.
        Some(unsafe { &*((start + key) as *const AtomicU32) })
    }
    fn me(&mut self) -> Option<&mut Task> {
        self.tasks.get_mut(&me()?)
    }
    fn mark(&mut self, task: usize) {
        let Some(t) = self.tasks.get_mut(&task) else { return };
        let Some(key) = t.robust.take() else { return };
        // The reaper takes whole processes.
        let whole = self.processes.get(&t.pid).is_none_or(|p| p.doomed || p.threads == 1);
        if !(self.rules.no_marks && whole)
            && let Some(word) = self.word(key)
        {
            word.fetch_or(OWNER_DIED, SeqCst);
        }
    }
    /// The thread ends. What its handler holds is dropped by the caller, outside: that may be an engine, whose mapping goes.
    #[must_use]
    fn end_thread(&mut self, task: usize) -> Option<Task> {
        self.mark(task);
        let t = self.tasks.remove(&task)?;
        self.processes.get_mut(&t.pid)?.threads -= 1;
        self.ends += 1;
        Some(t)
    }
    /// True while the task waits and nothing has ended that.
    fn sleeps(&self, task: usize) -> bool {
        self.tasks
            .get(&task)
            .is_some_and(|t| t.wait.as_ref().is_some_and(|w| t.woken.is_none() && !t.doomed && w.early.is_none_or(|at| at > self.steps)))
    }
}

/// A new world for the run that begins. All that follows is about the one of the calling thread of the machine.
fn begin() {
    WORLD.with(|w| *w.borrow_mut() = Some(World { now: 1_000_000_000_000, ..World::default() }));
}

/// True inside a run.
pub fn is_running() -> bool {
    with(|_| ()).is_some()
}

/// Says what may happen.
pub fn set_rules(rules: Rules) {
    with(|w| w.rules = rules);
}

/// Runs `f` while nobody else moves: for preparations and for looking at what came of it.
pub fn quietly<R>(f: impl FnOnce() -> R) -> R {
    let was = with(|w| core::mem::replace(&mut w.quiet, true)).unwrap_or(false);
    let r = f();
    with(|w| w.quiet = was);
    r
}

/// Tells what happens from here on, on stderr: for a run that failed.
pub fn tell() {
    with(|w| w.told = true);
}

/// Something to tell.
pub fn note(what: impl FnOnce() -> std::string::String) {
    if let Some((steps, now, who)) = with(|w| w.told.then(|| (w.steps, w.now, w.me().map(|t| (t.pid, t.tid))))).flatten() {
        std::eprintln!("{steps:6} {:9} us {who:?}: {}", now / 1000 - 1_000_000_000, what());
    }
}

/// How many have died so far.
pub fn deaths() -> u64 {
    with(|w| w.deaths).unwrap_or(0)
}

/// How many threads have ended so far, the dead among them.
pub fn ends() -> u64 {
    with(|w| w.ends).unwrap_or(0)
}

/// True while a process with this inode has a thread.
pub fn lives(inode: u64) -> bool {
    with(|w| w.processes.values().any(|p| p.inode == inode && p.threads > 0)) == Some(true)
}

/// True while the thread with this number has not ended.
pub fn thread_lives(tid: u32) -> bool {
    with(|w| w.tasks.values().any(|t| t.tid == tid && !t.over)) == Some(true)
}

/// The dead unwind with this.
struct Died;

/// A task of a process.
pub struct Thread(shuttle::thread::JoinHandle<bool>);

impl Thread {
    /// Waits for its end. True: it died.
    pub fn join(self) -> bool {
        self.0.join().expect("a task's failure ends the run")
    }
}

/// A new process with this number, which nobody has who lives. Its threads are to be spawned.
pub fn new_process(pid: u32) {
    with(|w| {
        assert!(w.processes.get(&pid).is_none_or(|p| p.threads == 0), "process {pid} lives");
        let inode = w.number();
        w.processes.insert(pid, Process { inode, ..Process::default() });
    });
}

/// Begins a thread of a process.
pub fn spawn(pid: u32, f: impl FnOnce() + Send + 'static) -> Thread {
    with(|w| w.processes.get_mut(&pid).expect("a process").threads += 1);
    Thread(shuttle::thread::spawn(move || {
        become_thread(pid);
        let died = match catch_unwind(AssertUnwindSafe(f)) {
            Ok(()) => false,
            Err(e) if e.is::<Died>() => true,
            Err(e) => resume_unwind(e),
        };
        // The kernel marks what is linked however a thread ends.
        let task = me().expect("a task");
        drop(with(|w| w.end_thread(task)));
        died
    }))
}

fn become_thread(pid: u32) {
    let task = me().expect("a task");
    with(|w| {
        let tid = w.number() as u32;
        let doomed = w.processes.get(&pid).expect("a process").doomed;
        w.tasks.insert(task, Task { pid, tid, doomed, ..Task::default() });
    });
}

/// Makes the calling task the only thread of a new process.
pub fn become_process(pid: u32) {
    new_process(pid);
    with(|w| w.processes.get_mut(&pid).expect("a process").threads = 1);
    become_thread(pid);
}

/// The calling thread executes another image: its robust word is marked, its process stays.
pub fn exec() {
    let task = me().expect("a task");
    with(|w| {
        w.mark(task);
        let tid = w.number() as u32;
        if let Some(t) = w.me() {
            t.tid = tid;
        }
    });
}

/// The calling thread will die before its store to shared memory, or system call, number `k` from here; its process with it, when it has no other
/// thread.
pub fn dies_before(k: usize) {
    with(|w| w.me().expect("a thread").life = Some(k));
}

/// Kills a process: each of its threads dies at its next point, also when it sleeps.
pub fn kill(pid: u32) {
    with(|w| {
        if let Some(p) = w.processes.get_mut(&pid) {
            p.doomed = true;
        }
        w.tasks.values_mut().filter(|t| t.pid == pid).for_each(|t| t.doomed = true);
    });
}

/// Sets what a signal does to the calling thread. A handler that says false was not let in: it comes again at the next point.
pub fn set_handler(handler: impl Fn() -> bool + 'static) {
    drop(with(|w| w.me().expect("a thread").handler.replace(Rc::new(handler))));
}

/// A signal comes to the calling thread before its access to shared memory, or system call, number `k` from here.
pub fn signal_before(k: usize) {
    with(|w| w.me().expect("a thread").signal = Some(k));
}

/// Sends a signal to the threads of a process; who waits wakes.
pub fn signal(pid: u32) {
    with(|w| {
        for t in w.tasks.values_mut().filter(|t| t.pid == pid && t.handler.is_some() && !t.over) {
            t.signal = Some(0);
            if t.wait.is_some() && t.woken.is_none() {
                t.woken = Some(Err(Errno::EINTR));
            }
        }
    });
}

fn access<T>(word: &T, writes: bool) {
    let address = core::ptr::from_ref(word) as usize;
    if with(|w| !w.quiet && w.key(address).is_some()) == Some(true) {
        pass(writes);
    }
}

/// A point of the schedule: others may go on, a handler may run, the task may die.
fn point() {
    pass(true);
}

/// A point that counts towards the task's death, or one that does not: who dies before a load leaves what it would have left before its next
/// store.
fn pass(counts: bool) {
    if with(|w| !w.quiet && !w.me().is_some_and(|t| t.over)) == Some(true) {
        shuttle::thread::sleep(Duration::ZERO);
        arrive(counts);
    }
}

/// What becomes of a task that goes on.
fn arrive(counts: bool) {
    enum Next {
        Go,
        Die,
        Handle(Rc<dyn Fn() -> bool>),
    }
    let next = with(|w| {
        let Some(t) = w.me().filter(|t| !t.over) else { return Next::Go };
        if t.doomed || counts && t.life == Some(0) {
            return Next::Die;
        }
        t.life = t.life.map(|n| n - counts as usize);
        match (t.signal, &t.handler) {
            (Some(0), Some(h)) if !t.handling => return Next::Handle(h.clone()),
            (s, _) => t.signal = s.map(|n| n.saturating_sub(1)),
        }
        Next::Go
    });
    match next {
        None | Some(Next::Go) => {}
        Some(Next::Die) => die(),
        Some(Next::Handle(h)) => handle(&*h),
    }
}

fn handle(handler: &dyn Fn() -> bool) {
    note(|| "handler".into());
    with(|w| w.me().expect("a thread").handling = true);
    let done = handler();
    with(|w| {
        let t = w.me().expect("a thread");
        t.handling = false;
        if done {
            t.signal = None;
        }
    });
}

fn die() -> ! {
    note(|| "dies".into());
    let task = me().expect("a task");
    with(|w| {
        w.deaths += 1;
        let t = w.me().expect("a thread");
        (t.over, t.wait) = (true, None);
        w.mark(task);
    });
    // Marked, and not yet reported.
    shuttle::thread::sleep(Duration::ZERO);
    resume_unwind(Box::new(Died));
}

// What the rest of this crate asks instead of the kernel.

pub(crate) fn mapped(start: usize, len: usize) {
    with(|w| w.maps.push((start, len)));
}
pub(crate) fn unmapped(start: usize) {
    with(|w| w.maps.retain(|m| m.0 != start));
}

/// Makes the word at the end of the page at this address the calling thread's robust word.
pub fn link_robust(page: usize) -> bool {
    let address = page + crate::memory::PAGE - crate::robust::WORD_BEFORE_END;
    point();
    with(|w| {
        let key = w.key(address).expect("a page of the arena");
        let tid = w.me().map_or(0, |t| {
            t.robust = Some(key);
            t.tid
        });
        w.word(key).expect("a page of the arena").store(tid | WAITERS, SeqCst);
    });
    true
}
/// Takes it out again.
pub fn unlink_robust() {
    with(|w| {
        if let Some(t) = w.me() {
            t.robust = None;
        }
    });
}

/// The calling thread's process and thread numbers.
pub fn who() -> Option<(u32, u32)> {
    with(|w| w.me().map(|t| (t.pid, t.tid))).flatten()
}
pub(crate) fn has_threads() -> bool {
    with(|w| {
        let pid = w.me().map_or(0, |t| t.pid);
        w.processes.get(&pid).is_some_and(|p| p.threads > 1)
    }) == Some(true)
}
pub(crate) fn thread_exists(pid: u32, tid: u32) -> bool {
    point();
    with(|w| w.tasks.values().any(|t| t.pid == pid && t.tid == tid)) == Some(true)
}
/// The inode of the process that has this number, or had it last.
pub fn inode_of(pid: u32) -> Option<u64> {
    with(|w| w.processes.get(&pid).map(|p| p.inode)).flatten()
}
pub(crate) fn is_gone(pid: u32, inode: u64) -> bool {
    point();
    with(|w| w.processes.get(&pid).is_none_or(|p| p.threads == 0 || inode != 0 && inode != p.inode)) == Some(true)
}
/// Nanoseconds. Time goes on a little at each look.
pub(crate) fn now() -> Option<u64> {
    with(|w| {
        w.now += 1_000;
        w.now
    })
}

pub(crate) fn nap(ns: u64) {
    if with(|w| {
        w.now += ns;
        !w.quiet && !w.me().is_some_and(|t| t.over)
    }) == Some(true)
    {
        shuttle::thread::yield_now();
        arrive(false);
    }
}

pub(crate) fn wait(word: &atomic::AtomicU32, expected: u32, timeout_ns: u64) -> Result<(), Errno> {
    point();
    let address = core::ptr::from_ref(word) as usize;
    let tick = timeout_ns >= TICK_NS;
    let early = with(|w| !tick || w.rules.early_ticks) == Some(true) && thread_rng().gen_range(0..3) == 0;
    let early = early.then(|| thread_rng().gen_range(0..400));
    // The kernel compares and queues under a lock that the waker takes too.
    let queued = with(|w| {
        let key = w.key(address).expect("a word of the arena");
        if w.word(key).expect("a word of the arena").load(SeqCst) != expected {
            return Err(Errno::EAGAIN);
        }
        let (until, early, turn) = (w.now + timeout_ns, early.map(|n: u64| w.steps + n), w.number());
        let t = w.me().filter(|t| !t.over).ok_or(Errno::ETIMEDOUT)?;
        t.wait = Some(Wait { key, until, early, tick, turn });
        t.woken = None;
        Ok(())
    });
    note(|| std::format!("waits at {:x?} while {expected:x}: {queued:?}", with(|w| w.key(address))));
    queued.unwrap_or(Err(Errno::ETIMEDOUT))?;
    let result = loop {
        shuttle::thread::sleep(Duration::ZERO);
        let ended = with(|w| {
            let (now, steps) = (w.now, w.steps);
            let t = w.me().expect("a thread");
            let wait = t.wait.as_ref().expect("a wait");
            let early = wait.early.is_some_and(|at| at <= steps);
            let (until, doomed) = (wait.until, t.doomed);
            let r = t.woken.take().or_else(|| (early || doomed).then_some(Err(Errno::ETIMEDOUT)))?;
            t.wait = None;
            if r == Err(Errno::ETIMEDOUT) {
                w.now = now.max(until);
            }
            Some(r)
        });
        if let Some(r) = ended.flatten() {
            break r;
        }
    };
    note(|| std::format!("wakes: {result:?}"));
    arrive(true);
    result
}

pub(crate) fn wake(word: &atomic::AtomicU32, count: u32) {
    point();
    let address = core::ptr::from_ref(word) as usize;
    note(|| std::format!("wakes {count} at {:x?}", with(|w| w.key(address))));
    with(|w| {
        let Some(key) = w.key(address) else { return };
        let mut sleepers: Vec<_> =
            w.tasks.values_mut().filter(|t| t.woken.is_none() && t.wait.as_ref().is_some_and(|wait| wait.key == key)).collect();
        sleepers.sort_by_key(|t| t.wait.as_ref().map(|w| w.turn));
        sleepers.into_iter().take(count as usize).for_each(|t| t.woken = Some(Ok(())));
    });
}
