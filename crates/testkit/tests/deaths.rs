//! Real deaths of real processes: what they held comes back, to whoever waits, at once and never twice.
//!
//! `MANYWAY_STORM_SECONDS` sets how long processes are killed at random (default 3). `storms` does everything else too, as root.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_sem::abi::{IPC_CREAT, IPC_NOWAIT, SEM_UNDO, SemBuf, Timespec};
use manyway_sem::{Engine, Errno, OpenOptions, Thread};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, fork};

/// The first argument of this program when it is to be a worker.
const WORKER: &str = "worker-of-deaths";
const KEY: i32 = 0x0dea_d000;
/// Semaphores of the storm, and units in each.
const SEMS: u16 = 3;
const UNITS: u16 = 4;
const DEATHS: usize = 3000;

fn main() {
    let args: Vec<_> = std::env::args_os().collect();
    if args.get(1).is_some_and(|a| a == WORKER) {
        return worker(&args[2], args[3].to_str().expect("a seed").parse().expect("a number"));
    }
    let tests = [
        ("a_killed_holder_is_followed_by_its_sleeper", killed_holder as fn(&Place)),
        ("after_wait_the_undo_is_seen_by_the_next_call", told_by_wait),
        ("after_wait_the_undo_is_found_by_the_next_call", found_by_the_call),
        ("exec_keeps_what_is_held", exec_keeps),
        ("a_thread_leaves_what_is_held_to_its_process", thread_leaves),
        ("a_fork_child_holds_nothing", fork_child),
        ("storm_of_kills", storm),
    ];
    let trials = tests.into_iter().map(|(name, test)| Trial::test(name, move || on_new_place(test)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn on_new_place(test: fn(&Place)) -> Result<(), Failed> {
    catch_unwind(AssertUnwindSafe(|| test(&Place::new()))).map_err(|e| {
        let text = e.downcast_ref::<String>().cloned().or_else(|| e.downcast_ref::<&str>().map(|s| (*s).to_owned()));
        text.unwrap_or_else(|| "panicked".to_owned()).into()
    })
}

const fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}
const HOLD: [SemBuf; 1] = [op(0, -1, SEM_UNDO)];
const TRY: [SemBuf; 1] = [op(0, -1, IPC_NOWAIT)];

fn open(dir: &OsStr) -> Engine {
    let path = CString::new(dir.as_bytes()).expect("no NUL in it");
    Engine::open(&path, &OpenOptions { create: true, ..Default::default() }).expect("a namespace")
}

/// A namespace with one set.
struct Place {
    engine: Engine,
    t: Thread,
    id: i32,
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
        let engine = open(dir.path().as_os_str());
        let t = Thread::new();
        let id = engine.semget(&t, KEY, SEMS.into(), IPC_CREAT | 0o600).expect("a set");
        Place { engine, t, id, dir }
    }
    fn op(&self, ops: &[SemBuf]) -> Result<(), Errno> {
        self.engine.semop(&self.t, self.id, ops, None)
    }
    fn value(&self) -> i32 {
        self.engine.getval(&self.t, self.id, 0).expect("GETVAL")
    }
    fn set_value(&self, value: i32) {
        self.engine.setval(&self.t, self.id, 0, value).expect("SETVAL");
    }
    fn holders(&self) -> Vec<(u32, u16, i16)> {
        let mut all = Vec::new();
        self.engine.for_each_holder(&self.t, self.id, &mut |h| all.push((h.pid, h.num, h.adj))).expect("the set is there");
        all
    }
    /// A forked process that does `work` and sleeps until it is killed. (The engine takes no lock of the C library's.)
    fn fork(&self, work: impl FnOnce(&Place, &Thread)) -> Killable {
        // SAFETY: the child calls the engine, which does not allocate, and never returns.
        match unsafe { fork() }.expect("fork") {
            ForkResult::Parent { child } => Killable(child),
            ForkResult::Child => {
                work(self, &Thread::new());
                loop {
                    nix::unistd::pause();
                }
            }
        }
    }
    /// A process that holds a unit of semaphore 0, certainly.
    fn holder(&self) -> Killable {
        let holder = self.fork(hold);
        self.until(|| self.holders().contains(&(holder.0.as_raw() as u32, 0, 1)));
        holder
    }
    fn until(&self, what: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < deadline, "does not come about");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

fn hold(p: &Place, t: &Thread) {
    let _ = p.engine.semop(t, p.id, &HOLD, None);
}

/// A child process; killed and reaped when dropped.
struct Killable(Pid);

impl Drop for Killable {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Without a watcher: the sleeper itself finds the death, at its next look.
fn killed_holder(p: &Place) {
    for round in 0..20 {
        p.set_value(1);
        let holder = p.holder();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let t = Thread::new();
                let r = p.engine.semop(&t, p.id, &HOLD, Some(Timespec { sec: 10, nsec: 0 }));
                let woken = Instant::now();
                assert_eq!(p.engine.semop(&t, p.id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
                p.engine.detach_thread(&t);
                (r, woken)
            });
            p.until(|| p.engine.getncnt(&p.t, p.id, 0) == Ok(1));
            let killed = Instant::now();
            // Not waited for yet: a zombie is dead.
            kill(holder.0, Signal::SIGKILL).expect("the child is ours");
            let (r, woken) = sleeper.join().expect("the sleeper does not panic");
            assert_eq!(r, Ok(()));
            let late = woken - killed;
            assert!(late < Duration::from_secs(1), "round {round}: the sleeper ran {late:?} after the death");
        });
        drop(holder);
        assert_eq!((p.value(), p.holders()), (1, vec![]));
    }
}

/// As the preloaded wait(2) does: it recovers whom it reports.
fn told_by_wait(p: &Place) {
    for n in 0..DEATHS {
        p.set_value(1);
        let holder = p.fork(hold);
        if n % 2 == 0 {
            p.until(|| p.value() == 0);
        }
        let pid = holder.0.as_raw() as u32;
        drop(holder);
        p.engine.reap(&p.t, Some(pid));
        assert_eq!(p.op(&TRY), Ok(()), "death {n} of {DEATHS}");
        assert_eq!(p.value(), 0);
    }
    assert_eq!(p.holders(), []);
}

/// Nobody is told: the call that would block looks at the holders itself.
fn found_by_the_call(p: &Place) {
    for n in 0..DEATHS {
        p.set_value(1);
        let holder = p.fork(hold);
        if n % 2 == 0 {
            p.until(|| p.value() == 0);
        }
        drop(holder);
        match n % 3 {
            0 => assert_eq!(p.op(&TRY), Ok(()), "death {n} of {DEATHS}"),
            1 => assert_eq!(p.value(), 1, "death {n} of {DEATHS}"),
            _ => assert_eq!(p.op(&[op(1, 1, 0), op(0, -1, IPC_NOWAIT)]), Ok(()), "death {n} of {DEATHS}"),
        }
    }
    assert_eq!(p.holders(), []);
}

fn exec_keeps(p: &Place) {
    p.set_value(1);
    let mut command = Command::new("sleep");
    command.arg("100");
    let (dir, id) = (p.dir.path().as_os_str().to_owned(), p.id);
    let hold = move || {
        let r = open(&dir).semop(&Thread::new(), id, &HOLD, None);
        r.map_err(|e| std::io::Error::from_raw_os_error(e.0))
    };
    // SAFETY: runs in the child of a process whose other threads hold no lock that it needs: the engine takes none of the C library's.
    unsafe { command.pre_exec(hold) };
    // spawn returns after the exec.
    let mut sleep = command.spawn().expect("sleep is everywhere");
    assert_eq!(p.op(&TRY), Err(Errno::EAGAIN), "exec keeps adjustments");
    assert_eq!(p.engine.reap(&p.t, None), 0, "it lives");
    assert_eq!(p.holders(), [(sleep.id(), 0, 1)]);
    sleep.kill().expect("the child is ours");
    sleep.wait().expect("the child is ours");
    assert_eq!(p.op(&TRY), Ok(()), "its end gives them back");
    assert_eq!(p.holders(), []);
}

fn thread_leaves(p: &Place) {
    p.set_value(2);
    let process = p.fork(|p, t| {
        // One ends in good order, one as if cancelled.
        std::thread::scope(|s| {
            s.spawn(|| {
                let t = Thread::new();
                hold(p, &t);
                p.engine.detach_thread(&t);
            });
            s.spawn(|| hold(p, &Thread::new()));
        });
        let _ = p.engine.semop(t, p.id, &[op(1, 1, 0)], None);
    });
    p.until(|| p.engine.getval(&p.t, p.id, 1) == Ok(1));
    assert_eq!(p.op(&TRY), Err(Errno::EAGAIN), "the threads have ended, not the process");
    p.engine.reap(&p.t, None);
    assert_eq!(p.holders(), [(process.0.as_raw() as u32, 0, 2)]);
    drop(process);
    assert_eq!(p.op(&[op(0, -2, IPC_NOWAIT)]), Ok(()));
}

fn fork_child(p: &Place) {
    p.set_value(3);
    assert_eq!(p.op(&HOLD), Ok(()));
    let mine = (std::process::id(), 0, 1);
    let idle = p.fork(|_, _| {});
    let child = p.holder();
    assert_eq!(p.holders(), [mine, (child.0.as_raw() as u32, 0, 1)], "each its own");
    drop((idle, child));
    assert_eq!((p.value(), p.holders()), (2, vec![mine]), "the children's ends give back the children's units only");
    assert_eq!(p.op(&[op(0, 1, SEM_UNDO)]), Ok(()));
    assert_eq!((p.value(), p.holders()), (3, vec![]));
}

/// Processes take and give units at random while one after the other is killed and replaced.
fn storm(p: &Place) {
    let seconds = std::env::var("MANYWAY_STORM_SECONDS").map_or(3, |s| s.parse().expect("a number"));
    p.engine.setall(&p.t, p.id, &[UNITS; SEMS as usize]).expect("SETALL");
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 0;
    let mut start = || {
        seed += 1;
        start_worker(p.dir.path(), seed)
    };
    let mut fleet: Vec<Child> = (0..7).map(|_| start()).collect();
    let mut deaths = 0;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_micros(fastrand::u64(200..20_000)));
        let victim = fastrand::usize(..fleet.len());
        assert_eq!(fleet[victim].try_wait().expect("a child of ours"), None, "a worker ended by itself");
        stop(&mut fleet[victim]);
        fleet[victim] = start();
        deaths += 1;
        // Whoever sees a state sees no unit too many.
        let (mut values, mut held) = ([0; SEMS as usize], [0i32; SEMS as usize]);
        p.engine.getall(&p.t, p.id, &mut values).expect("GETALL");
        p.engine.for_each_holder(&p.t, p.id, &mut |h| held[h.num as usize] += i32::from(h.adj)).expect("the set is there");
        assert!(values.iter().all(|&v| v <= UNITS), "after {deaths} deaths: {values:?}, held {held:?}");
    }
    let before = p.engine.operations(&p.t);
    fleet.iter_mut().for_each(stop);
    let mut values = [0; SEMS as usize];
    p.engine.getall(&p.t, p.id, &mut values).expect("GETALL");
    assert_eq!((values, p.holders()), ([UNITS; SEMS as usize], vec![]), "after {deaths} deaths");
    for num in 0..SEMS {
        assert_eq!(p.engine.getncnt(&p.t, p.id, num.into()), Ok(0));
        assert_eq!(p.op(&[op(num, -(UNITS as i16), IPC_NOWAIT), op(num, UNITS as i16, 0)]), Ok(()));
    }
    assert!(deaths > 20 && before > deaths * 20, "{deaths} deaths among {before} operations prove nothing");
    println!("storm: {deaths} deaths, about {before} operations");
}

fn start_worker(dir: &Path, seed: u64) -> Child {
    let mut command = Command::new("/proc/self/exe");
    command.arg(WORKER).arg(dir).arg(seed.to_string()).stdin(Stdio::null());
    command.spawn().expect("this program can be started")
}

fn stop(worker: &mut Child) {
    worker.kill().expect("the child is ours");
    let status = worker.wait().expect("the child is ours");
    assert_eq!(status.signal(), Some(Signal::SIGKILL as i32), "a worker ended by itself");
}

/// Takes units with SEM_UNDO in every way there is, and gives back what it took.
fn worker(dir: &OsStr, seed: u64) {
    let engine = open(dir);
    let t = Thread::new();
    let id = engine.semget(&t, KEY, 0, 0).expect("the storm's set");
    // Two threads of a process share its adjustments.
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for n in 0..2 {
            let (engine, stop) = (&engine, &stop);
            s.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed * 2 + n);
                let t = Thread::new();
                while !stop.load(Ordering::Relaxed) {
                    take_and_give(engine, &t, id, &mut random);
                }
            });
        }
    });
}

fn take_and_give(engine: &Engine, t: &Thread, id: i32, random: &mut fastrand::Rng) {
    let (a, b) = (random.u16(..SEMS), random.u16(..SEMS));
    let n = random.i16(1..=2);
    let taken = if random.bool() { vec![op(a, -n, SEM_UNDO)] } else { vec![op(a, -n, SEM_UNDO), op(b, -1, SEM_UNDO)] };
    let given: Vec<_> = taken.iter().map(|o| op(o.num, -o.op, SEM_UNDO)).collect();
    let patience = Timespec { sec: 0, nsec: random.i64(1_000..5_000_000) };
    let timeout = random.bool().then_some(patience);
    match engine.semop(t, id, &taken, timeout) {
        Ok(()) => assert_eq!(engine.semop(t, id, &given, None), Ok(()), "giving back never fails"),
        Err(e) => assert_eq!((e, timeout.is_some()), (Errno::EAGAIN, true)),
    }
}
