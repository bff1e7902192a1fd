//! A file system without a free page, and sets that are removed under whoever knows of them. Pages of what is freed stay, so that no late touch
//! of them is SIGBUS (docs/segment.md, *Pages of what is freed*): each call is stopped behind many of its instructions, its set removed and
//! the file system filled, and then it goes on. And the pages do come back when nobody can know of them any more.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use manyway_sem::abi::{IPC_CREAT, IPC_PRIVATE, SEM_UNDO, SemBuf};
use manyway_sem::{Engine, Errno, Error, Namespace, Op, OpenOptions, Prepared, Set, Thread};
use manyway_testkit::small_fs::{Filler, SmallFs};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pause};

/// Semaphores of the sets: the last one lies on their fourth page.
const SIZE: i32 = 200;
const LAST: u16 = SIZE as u16 - 1;

static STOPS: AtomicUsize = AtomicUsize::new(0);

fn main() -> ExitCode {
    // One at a time, on this thread: they fork.
    let args = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    let root = manyway_testkit::running_as_root();
    let trial = |name: &str, test: fn()| {
        let run = move || std::panic::catch_unwind(test).map_err(|e| Failed::from(e.downcast_ref::<String>().cloned().unwrap_or_default()));
        Trial::test(name, run).with_ignored_flag(!root)
    };
    let mut trials = vec![
        trial("pages_come_back_when_nobody_is_left", pages_come_back_when_nobody_is_left),
        trial("pages_stay_while_somebody_may_know_them", pages_stay_while_somebody_may_know_them),
    ];
    if cfg!(target_arch = "x86_64") {
        trials.push(trial("calls_go_on_behind_the_removal_of_their_set", stepped::calls_go_on_behind_the_removal_of_their_set));
        trials
            .push(trial("the_dead_are_recovered_who_used_a_set_that_is_gone", stepped::the_dead_are_recovered_who_used_a_set_that_is_gone));
    }
    let listing = args.list;
    let conclusion = libtest_mimic::run(&args, trials);
    if !listing {
        let stops = STOPS.load(Relaxed);
        println!("proof: full file system: {stops} calls stopped while their set was removed, {} violations", conclusion.num_failed);
    }
    conclusion.exit_code()
}

/// A file system of 4 MiB with a namespace.
struct Place {
    mounted: SmallFs,
}

impl Place {
    fn new() -> Place {
        let place = Place { mounted: SmallFs::new(4) };
        fs::create_dir(place.dir()).expect("room for a directory");
        fs::set_permissions(place.dir(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).expect("own directory");
        drop(place.open());
        place
    }
    fn dir(&self) -> PathBuf {
        self.mounted.path().join("ns")
    }
    fn open(&self) -> Engine {
        let path = CString::new(self.dir().as_os_str().as_bytes()).expect("no NUL in it");
        Engine::open(&path, &OpenOptions { create: true, ..OpenOptions::default() }).expect("a namespace")
    }
    /// Bytes that the arena occupies.
    fn cost(&self) -> u64 {
        fs::metadata(self.dir().join("arena-v1")).expect("the arena").blocks() * 512
    }
    /// Takes all room until the file is dropped.
    fn fill(&self) -> Filler {
        Filler::new(self.mounted.path())
    }
}

fn op(num: u16, op: i16, flags: i32) -> SemBuf {
    SemBuf { num, op, flg: flags as i16 }
}

/// Does `work` in a child process; the child is gone when this returns.
fn in_a_child(work: impl FnOnce()) {
    let child = begin(work);
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
}

fn begin(work: impl FnOnce()) -> Pid {
    // SAFETY: this process has one thread; the child ends here.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: a system call that concerns this process alone.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            let well = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(!well)) }
        }
    }
}

/// Makes sets with adjustments in them, and removes them.
fn hundred_sets(place: &Place) {
    let (e, t) = (place.open(), Thread::new());
    let ids: Vec<i32> = (0..100).map(|_| e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set")).collect();
    let large = e.semget(&t, IPC_PRIVATE, 9_000, 0o600).expect("a set");
    for id in ids.iter().chain([&large]) {
        assert_eq!(e.semop(&t, *id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
    }
    let cost = place.cost();
    for id in ids.into_iter().chain([large]) {
        assert_eq!(e.remove(&t, id), Ok(()));
    }
    assert_eq!(place.cost(), cost, "the next ones have the pages");
}

/// Takes a place in the namespace.
fn look_in(place: &Place) -> Engine {
    let e = place.open();
    assert_eq!(e.getval(&Thread::new(), 7, 0), Err(Errno::EINVAL));
    e
}

/// An empty namespace costs so much at most.
const EMPTY: u64 = 256 << 10;

fn pages_come_back_when_nobody_is_left() {
    let place = Place::new();
    for _ in 0..3 {
        in_a_child(|| hundred_sets(&place));
        assert!(place.cost() > EMPTY, "they stay at first");
        in_a_child(|| drop(look_in(&place)));
        assert!(place.cost() <= EMPTY, "an emptied namespace costs {} bytes", place.cost());
    }
    // What lives is not among them.
    in_a_child(|| {
        let (e, t) = (place.open(), Thread::new());
        let id = e.semget(&t, 42, SIZE, IPC_CREAT | 0o600).expect("a set");
        assert_eq!(e.semop(&t, id, &[op(LAST, 5, 0)], None), Ok(()));
        hundred_sets(&place);
    });
    in_a_child(|| {
        let (e, t) = (look_in(&place), Thread::new());
        let id = e.semget(&t, 42, SIZE, 0).expect("it is there");
        assert_eq!(e.getval(&t, id, LAST.into()), Ok(5));
        assert!(place.cost() <= EMPTY);
    });
}

fn pages_stay_while_somebody_may_know_them() {
    let place = Place::new();
    let (told, tell) = nix::unistd::pipe().expect("a pipe");
    let other = begin(|| {
        let _e = look_in(&place);
        let _ = nix::unistd::write(&tell, &[1]);
        loop {
            pause();
        }
    });
    nix::unistd::read(&told, &mut [0]).expect("its word");
    in_a_child(|| hundred_sets(&place));
    let cost = place.cost();
    in_a_child(|| drop(look_in(&place)));
    assert!(place.cost() >= cost, "a process is here that was when they were removed");
    kill(other, Signal::SIGKILL).expect("own child");
    waitpid(other, None).expect("own child");
    in_a_child(|| drop(look_in(&place)));
    assert!(place.cost() <= EMPTY, "{}", place.cost());
}

#[cfg(target_arch = "x86_64")]
mod stepped {
    use manyway_testkit::step::{At, Stepped};
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;

    /// How a process calls.
    enum Caller {
        /// By the set's id: what the C interface does.
        ById(Box<Engine>, Box<Thread>, i32),
        /// By handles of the Rust API.
        ByHandle(Set, Prepared),
    }

    type Call = fn(&Caller) -> Result<(), Errno>;
    const ALL: [Call; 10] = [
        |c| c.semop(&[op(LAST, 1, 0)]),
        |c| c.semop(&[op(LAST, 1, SEM_UNDO)]),
        |c| c.semop(&[op(0, 0, 0)]),
        |c| c.semop(&[op(0, 1, 0), op(LAST, 1, 0)]),
        |c| c.semop(&[op(0, 1, 0), op(100, 1, SEM_UNDO), op(LAST, 1, 0)]),
        |c| match c {
            Caller::ById(e, t, id) => e.set_perm(t, *id, 0, 0, 0o600),
            Caller::ByHandle(_, pair) => told(pair.run()),
        },
        |c| match c {
            Caller::ById(e, t, id) => e.getval(t, *id, LAST.into()).map(drop),
            Caller::ByHandle(set, _) => told(set.sem(LAST).and_then(|s| s.value().map(drop))),
        },
        |c| match c {
            Caller::ById(e, t, id) => e.setval(t, *id, LAST.into(), 3),
            Caller::ByHandle(set, _) => told(set.sem(LAST).and_then(|s| s.set_value(3))),
        },
        |c| match c {
            Caller::ById(e, t, id) => e.stat(t, *id).map(drop),
            Caller::ByHandle(set, _) => told(set.status().map(drop)),
        },
        |c| match c {
            Caller::ById(e, t, id) => e.getncnt(t, *id, LAST.into()).map(drop),
            Caller::ByHandle(set, _) => told(set.set_permissions(0, 0, 0o600)),
        },
    ];

    fn told(r: Result<(), Error>) -> Result<(), Errno> {
        r.map_err(|e| e.errno())
    }

    impl Caller {
        fn new(place: &Path, by_handle: bool, id: i32) -> Caller {
            if by_handle {
                let namespace = Namespace::options().create(false).open(place).expect("it is there");
                let set = namespace.set_by_id(id).expect("it is there");
                Caller::ByHandle(set, set.prepare(&[Op::add(0, 1), Op::add(LAST, 1)]).expect("two operations"))
            } else {
                let path = CString::new(place.as_os_str().as_bytes()).expect("no NUL in it");
                Caller::ById(Box::new(Engine::open(&path, &OpenOptions::default()).expect("it is there")), Box::default(), id)
            }
        }
        fn semop(&self, ops: &[SemBuf]) -> Result<(), Errno> {
            match (self, ops) {
                (Caller::ById(e, t, id), _) => e.semop(t, *id, ops, None),
                (Caller::ByHandle(set, _), [one]) => told(set.sem(one.num).and_then(|s| {
                    let s = if one.flg as i32 & SEM_UNDO != 0 { s.with_undo() } else { s };
                    if one.op == 0 { s.wait_zero() } else { s.add(one.op as u16) }
                })),
                (Caller::ByHandle(set, _), several) => {
                    let as_op = |o: &SemBuf| {
                        let op = Op::add(o.num, o.op as u16);
                        if o.flg as i32 & SEM_UNDO != 0 { op.undo() } else { op }
                    };
                    let [a, b] = [as_op(&several[0]), as_op(&several[1])];
                    told(match several.get(2) {
                        Some(c) => set.run(&[a, b, as_op(c)]),
                        None => set.run(&[a, b]),
                    })
                }
            }
        }
    }

    /// How many places of a call it is stopped in, about; all when `MANYWAY_STEP=all`.
    const FEW: usize = 8;

    pub fn calls_go_on_behind_the_removal_of_their_set() {
        let place = Place::new();
        let (e, t) = (place.open(), Thread::new());
        let all = manyway_testkit::asks_for_all("MANYWAY_STEP");
        let mut random = fastrand::Rng::with_seed(7);
        for (n, call) in ALL.iter().enumerate() {
            for by_handle in [false, true] {
                let mut k = 0;
                let mut stride = 1;
                loop {
                    let id = e.semget(&t, IPC_PRIVATE, SIZE, 0o600).expect("a set");
                    let setup = || {
                        let caller = Caller::new(&place.dir(), by_handle, id);
                        if n != 2 {
                            // The second time it knows its way.
                            assert_eq!(call(&caller), Ok(()));
                        }
                        caller
                    };
                    let child = Stepped::start(setup, |caller| {
                        let r = call(&caller);
                        // The set is gone before the call, or in the middle, or behind its end.
                        let done = r == Ok(()) || matches!(r, Err(Errno::EIDRM | Errno::EINVAL));
                        // A first call of several operations wants a page for them.
                        let done = done || n == 4 && r == Err(Errno::ENOMEM);
                        assert!(done, "{r:?}");
                    });
                    if stride == 1 && !all {
                        // Its length, by a look at a first one.
                        stride = (child.advance(usize::MAX).1 / FEW).max(2);
                        assert_eq!(e.remove(&t, id), Ok(()));
                        continue;
                    }
                    let (at, _) = child.advance(k);
                    assert_ne!(at, At::Asleep, "call {n}");
                    if at == At::End {
                        assert_eq!(e.remove(&t, id), Ok(()));
                        break;
                    }
                    let remover = begin(|| assert_eq!(e.remove(&t, id), Ok(())));
                    // A lock that the call has is waited for.
                    let removed = ended_soon(remover);
                    let filler = removed.then(|| place.fill());
                    child.run(Duration::from_secs(60));
                    drop(filler);
                    if removed {
                        STOPS.fetch_add(1, Relaxed);
                    } else {
                        assert_eq!(waitpid(remover, None), Ok(WaitStatus::Exited(remover, 0)));
                    }
                    drop(child);
                    k += if all { 1 } else { random.usize(1..2 * stride) };
                }
            }
        }
    }

    /// True when the process has ended by now, or does so in a moment.
    fn ended_soon(child: Pid) -> bool {
        for _ in 0..300 {
            match waitpid(child, Some(WaitPidFlag::WNOHANG)).expect("own child") {
                WaitStatus::StillAlive => std::thread::sleep(Duration::from_micros(100)),
                ended => {
                    assert_eq!(ended, WaitStatus::Exited(child, 0));
                    return true;
                }
            }
        }
        false
    }

    pub fn the_dead_are_recovered_who_used_a_set_that_is_gone() {
        let place = Place::new();
        let (e, t) = (place.open(), Thread::new());
        for call in ALL {
            let id = e.semget(&t, IPC_PRIVATE, SIZE, 0o600).expect("a set");
            // Its journal still says what it did last: on the fast path, the third time at the latest.
            let user = Stepped::start(
                || Caller::new(&place.dir(), false, id),
                |caller| {
                    for _ in 0..3 {
                        assert_eq!(call(&caller), Ok(()));
                    }
                },
            );
            user.run(Duration::from_secs(60));
            let dir = place.dir();
            let setup = || {
                let caller = Caller::new(&dir, false, id);
                assert_eq!(caller.semop(&[op(1, 1, 0)]), Ok(()));
                caller
            };
            let recoverer = Stepped::start(setup, |caller| {
                let Caller::ById(e, t, _) = caller else { unreachable!("as asked for") };
                assert_eq!(e.reap(&t, Some(user.pid())), 1);
            });
            assert_eq!(e.remove(&t, id), Ok(()));
            let filler = place.fill();
            user.kill();
            let dead = Id::Pid(Pid::from_raw(user.pid() as i32));
            waitid(dead, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("own child");
            recoverer.run(Duration::from_secs(60));
            drop(filler);
            STOPS.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod stepped {
    pub fn calls_go_on_behind_the_removal_of_their_set() {}
    pub fn the_dead_are_recovered_who_used_a_set_that_is_gone() {}
}
