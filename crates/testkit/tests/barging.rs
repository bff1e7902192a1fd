//! A barging namespace's sleeper, met at every instruction of its way to sleep.
#![cfg(target_arch = "x86_64")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use manyway_sem::abi::{IPC_PRIVATE, SemBuf};
use manyway_sem::{Engine, Fairness, OpenOptions, Thread};
use manyway_testkit::step::{Path, Stepped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const fn op(op: i16) -> [SemBuf; 1] {
    [SemBuf { num: 0, op, flg: 0 }]
}

/// Less than a sleeper's tick where a watcher lives.
const SOON: Duration = Duration::from_millis(900);

fn namespace() -> (tempfile::TempDir, Engine) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let path = CString::new(dir.path().as_os_str().as_bytes()).expect("no NUL in it");
    let how = OpenOptions { create: true, fairness: Some(Fairness::Barging), ..OpenOptions::default() };
    let engine = Engine::open(&path, &how).expect("a namespace");
    (dir, engine)
}

/// Looks until it is so.
fn wait_until(so: impl Fn() -> bool) {
    while !so() {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A sleeper looks for itself at each tick. It must not take what an earlier one was nudged for that has not come to take it yet.
#[test]
fn a_look_about_takes_nothing_from_an_earlier_sleeper() {
    let (_dir, e) = namespace();
    let t = Thread::new();
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    let first = Stepped::start(Thread::new, |t| {
        let _ = e.semop(&t, id, &op(-1), None);
    });
    first.run(Duration::from_millis(1));
    wait_until(|| e.getncnt(&t, id, 0) == Ok(1));
    kill(Pid::from_raw(first.pid() as i32), Signal::SIGSTOP).expect("the child is ours");
    std::thread::scope(|s| {
        let second = s.spawn(|| {
            let t = Thread::new();
            let r = e.semop(&t, id, &op(-1), None);
            e.detach_thread(&t);
            r
        });
        wait_until(|| e.getncnt(&t, id, 0) == Ok(2));
        assert_eq!(e.semop(&t, id, &op(1), None), Ok(()));
        // The second one's ticks are 50 ms apart; at one of them the unit becomes the first one's.
        wait_until(|| e.getval(&t, id, 0) == Ok(0));
        // Time for a call that is done to return.
        std::thread::sleep(Duration::from_millis(100));
        let overtook = second.is_finished();
        assert_eq!(e.semop(&t, id, &op(1), None), Ok(()));
        assert_eq!(second.join().expect("it does not panic"), Ok(()));
        assert!(!overtook, "the second sleeper took the first one's unit");
    });
    drop(first);
}

/// The releaser nudges who sleeps. Who is in the queue and does not sleep yet must look by itself, or it would sleep beside a free unit until
/// its tick, which is a second where a watcher lives.
#[test]
fn a_unit_that_comes_before_the_sleeper_sleeps_is_not_missed() {
    let (_dir, e) = namespace();
    let t = Thread::new();
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).expect("a set");
    e.set_watcher(std::process::id());
    let sleeper = || {
        let setup = || {
            let t = Thread::new();
            // Attached, and the time of this second stored.
            let _ = e.semop(&t, id, &op(1), None).and_then(|()| e.semop(&t, id, &op(-1), None));
            t
        };
        Stepped::start(setup, |t| {
            let _ = e.semop(&t, id, &op(-1), None);
        })
    };
    let queued = || e.getncnt(&t, id, 0) == Ok(1);
    // GETNCNT takes locks that a stopped process may hold: only what is asked about at its end is asked of the namespace.
    let path = Path::record(sleeper(), || ());
    e.reap(&t, None);
    let mut met = 0;
    for k in 0..path.len() {
        // Once may be the machine's fault.
        let missed = (0..3).all(|_| {
            let child = sleeper();
            if !path.walk(&child, k) {
                return false;
            }
            // A thread of this process, since the child may have the cell's lock: it gives it up when it goes on.
            let missed = std::thread::scope(|s| {
                let released = s.spawn(|| {
                    let t = Thread::new();
                    let r = e.semop(&t, id, &op(1), None);
                    e.detach_thread(&t);
                    r
                });
                // Long enough for a release that has to wait for nobody.
                std::thread::sleep(Duration::from_micros(500));
                child.run(SOON);
                assert_eq!(released.join().expect("it does not panic"), Ok(()));
                queued()
            });
            drop(child);
            e.reap(&t, None);
            let left = e.getval(&t, id, 0).expect("own set");
            for _ in 0..left {
                assert_eq!(e.semop(&t, id, &op(-1), None), Ok(()));
            }
            met += 1;
            missed
        });
        assert!(!missed, "a unit that came {k} instructions into the call was missed until the tick");
    }
    assert!(met > 100, "{met} of {} instructions prove nothing", path.len());
    println!("proof: barging: {met} instructions of the way to sleep at which a unit comes, 0 violations");
}
