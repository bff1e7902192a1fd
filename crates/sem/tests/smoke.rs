//! The engine alone, in one process and over fork.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manyway_sem::abi::*;
use manyway_sem::{Engine, Errno, OpenOptions, Thread};

fn open() -> (tempfile::TempDir, Engine) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = CString::new(dir.path().as_os_str().as_bytes()).unwrap();
    let e = Engine::open(&path, &OpenOptions { create: true, ..Default::default() }).unwrap();
    (dir, e)
}

fn op(num: u16, op: i16, flg: i32) -> SemBuf {
    SemBuf { num, op, flg: flg as i16 }
}

#[test]
fn values_and_errors() {
    let (_d, e) = open();
    let t = Thread::new();
    let id = e.semget(&t, IPC_PRIVATE, 3, 0o600).unwrap();
    assert!(id > 0);
    assert_eq!(e.semop(&t, id, &[op(0, 5, 0)], None), Ok(()));
    assert_eq!(e.getval(&t, id, 0), Ok(5));
    assert_eq!(e.semop(&t, id, &[op(0, -6, IPC_NOWAIT)], None), Err(Errno::EAGAIN));
    assert_eq!(e.semop(&t, id, &[op(0, -2, SEM_UNDO)], None), Ok(()));
    assert_eq!(e.semop(&t, id, &[op(0, -2, SEM_UNDO)], None), Ok(()));
    assert_eq!(e.getval(&t, id, 0), Ok(1));
    let mut held = vec![];
    e.for_each_holder(&t, id, &mut |h| held.push((h.num, h.adj, h.alive))).unwrap();
    assert_eq!(held, [(0, 4, true)]);
    assert_eq!(e.semop(&t, id, &[op(0, -1, 0), op(1, 1, SEM_UNDO), op(2, 7, 0)], None), Ok(()));
    let mut all = [0u16; 3];
    e.getall(&t, id, &mut all).unwrap();
    assert_eq!(all, [0, 1, 7]);
    assert_eq!(e.semop(&t, id, &[op(2, 1, 0), op(0, -1, IPC_NOWAIT)], None), Err(Errno::EAGAIN));
    assert_eq!(e.getval(&t, id, 2), Ok(7));
    assert_eq!(e.setval(&t, id, 1, 40000), Err(Errno::ERANGE));
    e.setall(&t, id, &[1, 2, 3]).unwrap();
    e.getall(&t, id, &mut all).unwrap();
    assert_eq!(all, [1, 2, 3]);
    assert_eq!(e.getpid(&t, id, 1), Ok(std::process::id() as i32));
    assert_eq!(e.semop(&t, id, &[op(1, 32767, 0)], None), Err(Errno::ERANGE));
    assert_eq!(e.semop(&t, id, &[op(1, 0, 0)], Some(Timespec { sec: 0, nsec: 10_000_000 })), Err(Errno::EAGAIN));
    assert_eq!(e.remove(&t, id), Ok(()));
    assert_eq!(e.getval(&t, id, 0), Err(Errno::EINVAL));
    let again = e.semget(&t, IPC_PRIVATE, 3, 0o600).unwrap();
    assert_ne!(again, id);
}

#[test]
fn threads_hand_over() {
    let (_d, e) = open();
    let e = Arc::new(e);
    let t = Thread::new();
    let id = e.semget(&t, 77, 2, IPC_CREAT | 0o600).unwrap();
    let n = 20_000;
    let other = {
        let e = e.clone();
        std::thread::spawn(move || {
            let t = Thread::new();
            for _ in 0..n {
                e.semop(&t, id, &[op(0, -1, 0)], None).unwrap();
                e.semop(&t, id, &[op(1, 1, 0)], None).unwrap();
            }
            e.detach_thread(&t);
        })
    };
    for _ in 0..n {
        e.semop(&t, id, &[op(0, 1, 0)], None).unwrap();
        e.semop(&t, id, &[op(1, -1, 0)], None).unwrap();
    }
    other.join().unwrap();
    assert_eq!((e.getval(&t, id, 0), e.getval(&t, id, 1)), (Ok(0), Ok(0)));
}

#[test]
fn complex_and_simple_contend() {
    let (_d, e) = open();
    let e = Arc::new(e);
    let t = Thread::new();
    let id = e.semget(&t, 78, 3, IPC_CREAT | 0o600).unwrap();
    e.setall(&t, id, &[2, 2, 2]).unwrap();
    let threads: Vec<_> = (0..6u16)
        .map(|k| {
            let e = e.clone();
            std::thread::spawn(move || {
                let t = Thread::new();
                let (a, b) = (k % 3, (k + 1) % 3);
                for i in 0..3000 {
                    if (i + k) % 3 == 0 {
                        e.semop(&t, id, &[op(a, -2, SEM_UNDO), op(b, -1, 0)], None).unwrap();
                        e.semop(&t, id, &[op(b, 1, 0), op(a, 2, SEM_UNDO)], None).unwrap();
                    } else {
                        e.semop(&t, id, &[op(a, -1, SEM_UNDO)], None).unwrap();
                        e.semop(&t, id, &[op(a, 1, SEM_UNDO)], None).unwrap();
                    }
                }
                e.detach_thread(&t);
            })
        })
        .collect();
    threads.into_iter().for_each(|h| h.join().unwrap());
    let mut all = [0u16; 3];
    e.getall(&t, id, &mut all).unwrap();
    assert_eq!(all, [2, 2, 2]);
    e.for_each_holder(&t, id, &mut |h| panic!("{h:?}")).unwrap();
}

#[test]
fn the_dead_give_back() {
    let (_d, e) = open();
    let t = Thread::new();
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).unwrap();
    e.setval(&t, id, 0, 1).unwrap();
    for round in 0..50 {
        // SAFETY: the child only uses the engine and _exit.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ok = e.semop(&t, id, &[op(0, -1, SEM_UNDO)], None).is_ok();
            // SAFETY: ends the child.
            unsafe { libc::_exit(!ok as i32) };
        }
        let start = Instant::now();
        if round % 2 == 0 {
            let mut st = 0;
            // SAFETY: waits for our child.
            unsafe { libc::waitpid(pid, &mut st, 0) };
            assert_eq!(st, 0);
            assert_eq!(e.semop(&t, id, &[op(0, -1, IPC_NOWAIT)], None), Ok(()), "round {round}");
        } else {
            // May come before the child: then it waits for us and we must not hold on.
            while e.semop(&t, id, &[op(0, -1, IPC_NOWAIT)], None).is_err() {}
        }
        e.semop(&t, id, &[op(0, 1, 0)], None).unwrap();
        if round % 2 == 1 {
            // SAFETY: waits for our child.
            unsafe { libc::waitpid(pid, core::ptr::null_mut(), 0) };
        }
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    assert_eq!(e.getval(&t, id, 0), Ok(1));
}

/// Threads that end without giving their slots back: slots and regions are used again.
#[test]
fn threads_come_and_go() {
    let (_d, e) = open();
    let t = Thread::new();
    let id = e.semget(&t, IPC_PRIVATE, 1, 0o600).unwrap();
    let mappings = || std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let mut after_warm_up = 0;
    for round in 0..600 {
        std::thread::scope(|s| {
            s.spawn(|| {
                let t = Thread::new();
                e.semop(&t, id, &[op(0, 1, SEM_UNDO)], None).unwrap();
                e.semop(&t, id, &[op(0, -1, SEM_UNDO)], None).unwrap();
            });
        });
        if round == 100 {
            after_warm_up = mappings();
        }
    }
    assert!(mappings() < after_warm_up + 100, "{} mappings, then {}", after_warm_up, mappings());
    assert_eq!(e.getval(&t, id, 0), Ok(0));
}
