//! Processes that begin, use the namespace and end, in whatever way; and what this program does when it is started as one of them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::time::Duration;

use manyway_sem::abi::{IPC_PRIVATE, SEM_UNDO, SemBuf, Timespec};
use manyway_sem::{Engine, Thread};
use manyway_testkit::preload_library;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

use crate::cycles::op;
use crate::footprint::{Place, c_path, how};

/// The first argument of this program when it is to be a child.
const CHILD: &str = "child-of-leaks";

/// Does what the command line says, if it is a child's.
pub fn act_if_asked() -> bool {
    let args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_none_or(|a| a != CHILD) {
        return false;
    }
    let number = |i: usize| args[i].to_str().and_then(|s| s.parse::<usize>().ok()).expect("a number");
    match args[2].to_str() {
        Some("image") => image(args[3].as_ref(), number(4) as i32),
        Some("threads") => preloaded_threads(number(3)),
        Some("process") => c_pair(number(3) as i32),
        other => panic!("no child does {other:?}"),
    }
    true
}

/// Forks; the child does `work` and ends by _exit. (Tests run one at a time on the main thread, so that the copy is whole.)
fn forked(work: impl FnOnce()) -> Pid {
    // SAFETY: this process has no other thread now; the child ends in this function.
    match unsafe { fork() }.expect("fork") {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            work();
            // SAFETY: ends the process without running what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
    }
}

fn ended_well(p: &Place, child: Pid) {
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
    p.engine.reap(&p.t, Some(child.as_raw() as u32));
}

fn give_and_take(p: &Place, t: &Thread, id: i32) {
    assert_eq!(p.engine.semop(t, id, &[op(0, 2, SEM_UNDO)], None), Ok(()));
    assert_eq!(p.engine.semop(t, id, &[op(0, -1, SEM_UNDO)], None), Ok(()));
}

/// They hold one unit at their end.
pub fn come_and_go(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        ended_well(p, forked(|| give_and_take(p, &Thread::new(), id)));
        assert_eq!(p.engine.getval(&p.t, id, 0), Ok(0));
    }
    p.remove(id);
}

/// Nothing but the process's slot is left of it; nobody waits for anything, so nobody looks for the dead.
pub fn end_unseen(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        let child = forked(|| {
            let t = Thread::new();
            assert_eq!(p.engine.semop(&t, id, &[op(0, 1, 0)], None), Ok(()));
            assert_eq!(p.engine.semop(&t, id, &[op(0, -1, 0)], None), Ok(()));
            p.engine.detach_thread(&t);
        });
        assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
    }
    p.remove(id);
}

pub fn many_records(p: &Place, n: usize) {
    let sizes = [1, 3, 20, 100, 700, 3_000];
    let ids: Vec<i32> = (0..48).map(|i| p.set(sizes[i % sizes.len()])).collect();
    for _ in 0..n {
        let child = forked(|| {
            let t = Thread::new();
            ids.iter().for_each(|id| give_and_take(p, &t, *id));
        });
        ended_well(p, child);
    }
    for id in ids {
        assert_eq!(p.engine.getval(&p.t, id, 0), Ok(0));
        p.remove(id);
    }
}

pub fn killed_asleep(p: &Place, n: usize) {
    let id = p.set(2);
    let calls: [&[SemBuf]; 2] = [&[op(0, -1, SEM_UNDO)], &[op(0, -1, SEM_UNDO), op(1, -1, 0)]];
    for i in 0..n {
        let child = forked(|| {
            let _ = p.engine.semop(&Thread::new(), id, calls[i % 2], None);
        });
        while p.engine.getncnt(&p.t, id, 0) != Ok(1) {
            std::thread::sleep(Duration::from_micros(20));
        }
        kill(child, Signal::SIGKILL).expect("the child is ours");
        assert_eq!(waitpid(child, None), Ok(WaitStatus::Signaled(child, Signal::SIGKILL, false)));
        p.engine.reap(&p.t, Some(child.as_raw() as u32));
        assert_eq!(p.engine.getncnt(&p.t, id, 0), Ok(0));
    }
    p.remove(id);
}

/// A child that has used the namespace forks one that uses it, too, and ends before it.
pub fn generations(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        // Closed by the last of them.
        let (ends, theirs) = nix::unistd::pipe().expect("a pipe");
        let child = forked(|| {
            let t = Thread::new();
            give_and_take(p, &t, id);
            let parent = std::process::id();
            forked(|| {
                give_and_take(p, &t, id);
                while std::os::unix::process::parent_id() == parent {
                    std::thread::sleep(Duration::from_micros(20));
                }
            });
        });
        drop(theirs);
        ended_well(p, child);
        let _ = nix::unistd::read(&ends, &mut [0]);
    }
    // The last grandchild may be a zombie, or still on its way, when its pipe is closed: it is gone when its units are back.
    let zero = Timespec { sec: 10, nsec: 0 };
    assert_eq!(p.engine.semop(&p.t, id, &[op(0, 0, 0)], Some(zero)), Ok(()));
    p.remove(id);
}

/// The adjustments outlive the image, the thread slots do not.
pub fn exec(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        let child = forked(|| {
            give_and_take(p, &Thread::new(), id);
            let e = Command::new("/proc/self/exe").args([CHILD, "image"]).arg(p.dir.path()).arg(id.to_string()).exec();
            panic!("{e}");
        });
        ended_well(p, child);
        assert_eq!(p.engine.getval(&p.t, id, 0), Ok(0));
    }
    p.remove(id);
}

fn image(dir: &std::path::Path, id: i32) {
    let engine = Engine::open(&c_path(dir), &how(false)).expect("it is there");
    let t = Thread::new();
    let mut held = 0;
    engine.for_each_holder(&t, id, &mut |h| held += i32::from(h.adj) * i32::from(h.pid == std::process::id())).expect("the set");
    assert_eq!(held, -1, "exec keeps adjustments");
    assert_eq!(engine.semop(&t, id, &[op(0, 1, SEM_UNDO)], None), Ok(()));
    exit(0);
}

/// Starts this program as a child with the library preloaded.
fn preloaded_child(p: &Place, what: &str, n: usize) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([CHILD, what, &n.to_string()]);
    command.env("LD_PRELOAD", preload_library().unwrap_or_else(|e| panic!("{e}"))).env("MANYWAY_DIR", p.dir.path());
    command
}

pub fn run_preloaded(p: &Place, what: &str, n: usize) {
    let mut child = preloaded_child(p, what, n).spawn().expect("this program can be started");
    assert!(child.wait().expect("our child").success(), "{what}: the child says why");
    p.engine.reap(&p.t, Some(child.id()));
}

/// Processes through the library: fork, use, end; each of them starts one more by exec.
pub fn preloaded(p: &Place, n: usize) {
    let id = p.set(1);
    for _ in 0..n {
        run_preloaded(p, "process", id as usize);
        assert_eq!(p.engine.getval(&p.t, id, 0), Ok(0));
    }
    p.remove(id);
}

fn c_op(id: i32, value: i16) {
    let mut op = libc::sembuf { sem_num: 0, sem_op: value, sem_flg: SEM_UNDO as i16 };
    // SAFETY: one operation that lives over the call.
    assert_eq!(unsafe { libc::semop(id, &raw mut op, 1) }, 0, "{}", std::io::Error::last_os_error());
}

fn c_pair(id: i32) {
    c_op(id, 2);
    let child = forked(|| {
        c_op(id, 2);
        c_op(id, -1);
    });
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
    c_op(id, -1);
    // SAFETY: a command without an argument.
    assert_eq!(unsafe { libc::semctl(id, 0, libc::GETVAL) }, 1, "the child's units are back, this process's are not");
}

/// How much more a process may have after many threads than after a few: what the C library keeps of them.
const KEPT_MAPPINGS: usize = 2;

/// Threads that use the C interface and end; this process's mappings and descriptors are as before.
fn preloaded_threads(n: usize) {
    // SAFETY: takes numbers only.
    let id = unsafe { libc::semget(IPC_PRIVATE, 1, 0o600) };
    assert!(id > 0, "{}", std::io::Error::last_os_error());
    let some = |n: usize| {
        for _ in 0..n {
            let work = move || {
                c_op(id, 1);
                c_op(id, -1);
            };
            std::thread::spawn(work).join().expect("it does not panic");
        }
        let count = |path: &str| fs::read_dir(path).map_or(0, Iterator::count);
        (fs::read_to_string("/proc/self/maps").expect("/proc").lines().count(), count("/proc/self/fd"))
    };
    let (before, after) = (some(10), some(n));
    assert!(after.0 <= before.0 + KEPT_MAPPINGS && after.1 <= before.1, "mappings, descriptors: {before:?}, after {n} threads {after:?}");
    // SAFETY: a command without an argument.
    assert_eq!(unsafe { libc::semctl(id, 0, libc::IPC_RMID) }, 0);
}
