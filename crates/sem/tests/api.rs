//! The Rust API between threads and between processes.
#![cfg(all(feature = "std", not(loom)))]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use manyway_sem::{Errno, Error, Fairness, Key, Limits, Namespace, NamespaceError, Op, Semaphore, Set};

const KEY: Key = Key::new(0x1234);
const SOON: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(20);

/// Runs `child` in a forked process, which ends without destructors, with status 1 if `child` panics; its pid.
fn fork(child: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the child calls the API, and _exit; no other thread's locks are needed for either.
    match unsafe { libc::fork() } {
        0 => {
            let r = catch_unwind(AssertUnwindSafe(child));
            // SAFETY: ends the child.
            unsafe { libc::_exit(r.is_err() as i32) }
        }
        pid => pid,
    }
}

/// Waits for a forked child; its wait status.
fn wait(pid: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: waits for a child of ours.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

fn kill(pid: libc::pid_t) {
    // SAFETY: a child of ours that has not been waited for.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Waits, by looking, until `condition` holds.
fn until(mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LONG, "nothing happened");
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn single_operations() {
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[2]).unwrap().sem(0).unwrap();
    assert_eq!(sem.last_pid(), Ok(None));
    sem.take(2).unwrap();
    assert_eq!((sem.try_take(1), sem.value()), (Err(Error::WouldBlock), Ok(0)));
    assert_eq!(sem.last_pid(), Ok(Some(std::process::id())));
    sem.wait_zero().unwrap();
    sem.try_wait_zero().unwrap();
    sem.add(32767).unwrap();
    assert_eq!(sem.try_wait_zero(), Err(Error::WouldBlock));
    assert_eq!(sem.add(1), Err(Error::Overflow));
    for amount in [0, 32768, u16::MAX] {
        assert_eq!(sem.take(amount), Err(Error::BadAmount(amount)));
        assert_eq!(sem.add(amount), Err(Error::BadAmount(amount)));
    }
    sem.set_value(1).unwrap();
    assert_eq!(sem.set_value(32768), Err(Error::BadValue(32768)));
    let start = Instant::now();
    assert_eq!(sem.take_timeout(2, SOON), Err(Error::TimedOut));
    assert_eq!(sem.wait_zero_timeout(SOON), Err(Error::TimedOut));
    assert!(start.elapsed() >= 2 * SOON);
    sem.take_timeout(1, Duration::MAX).unwrap();
    assert_eq!(sem.value(), Ok(0));
}

#[test]
fn several_operations_are_all_or_nothing() {
    let ns = Namespace::private().unwrap();
    let set = ns.private_set(&[1, 1, 0]).unwrap();
    // One and two, by the short paths, in both orders; then with repeats, undo and more.
    set.run(&[Op::add(2, 1)]).unwrap();
    set.run(&[Op::take(2, 1).undo()]).unwrap();
    set.try_run(&[Op::add(2, 1).undo()]).unwrap();
    assert_eq!(set.try_run(&[Op::zero(2)]), Err(Error::WouldBlock));
    set.run_timeout(&[Op::take(2, 1)], SOON).unwrap();
    assert_eq!(set.run_timeout(&[Op::take(2, 1)], SOON), Err(Error::TimedOut));
    set.run(&[Op::take(0, 1), Op::take(1, 1)]).unwrap();
    set.run(&[Op::add(1, 4), Op::add(0, 3)]).unwrap();
    assert_eq!(set.values().unwrap(), [3, 4, 0]);
    set.run(&[Op::zero(2), Op::take(0, 1).undo()]).unwrap();
    set.run(&[Op::add(2, 5), Op::take(2, 5), Op::take(1, 1)]).unwrap();
    assert_eq!(set.values().unwrap(), [2, 3, 0]);
    assert_eq!(set.try_run(&[Op::take(0, 2), Op::take(1, 4)]), Err(Error::WouldBlock));
    assert_eq!(set.run(&[Op::take(0, 2), Op::take(1, 4).no_wait()]), Err(Error::WouldBlock));
    assert_eq!(set.run_timeout(&[Op::take(0, 2), Op::take(1, 4)], SOON), Err(Error::TimedOut));
    assert_eq!(set.run(&[Op::add(0, 1), Op::add(1, 32767)]), Err(Error::Overflow));
    assert_eq!(set.run(&[Op::take(0, 1), Op::take(1, 0)]), Err(Error::BadAmount(0)));
    assert_eq!(set.run(&[Op::take(0, 1), Op::add(3, 1)]), Err(Error::NoSuchSemaphore { num: 3, len: 3 }));
    assert_eq!(set.run(&[]), Err(Error::NoOperations));
    let many = vec![Op::add(0, 1); ns.limits().opm as usize + 1];
    assert_eq!(set.run(&many), Err(Error::TooManyOperations { got: many.len() as u32, limit: ns.limits().opm }));
    assert_eq!(set.values().unwrap(), [2, 3, 0]);
    set.run(&many[..many.len() - 1]).unwrap();
    assert_eq!(set.values().unwrap()[0] as u32, 2 + ns.limits().opm);
    assert_eq!(format!("{:?}", [Op::take(1, 2).undo(), Op::zero(0).no_wait()]), "[take(1, 2).undo(), zero(0).no_wait()]");
    for (op, amount) in [(Op::take(0, 0), 0), (Op::add(0, 0), 0), (Op::take(0, 32768), 32768), (Op::add(0, 65535).undo(), 65535)] {
        assert_eq!(set.run(&[op]), Err(Error::BadAmount(amount)));
        assert_eq!(set.run(&[Op::add(1, 1), op]), Err(Error::BadAmount(amount)));
    }
    set.run(&[Op::take(0, 1), Op::add(1, 32767 - 3)]).unwrap();
}

#[test]
fn keys_make_and_find() {
    let ns = Namespace::private().unwrap();
    let key = KEY.get();
    assert_eq!(ns.set(KEY).open(), Err(Error::NotFound { key }));
    let set = ns.set(KEY).mode(0o640).create(&[7, 8]).unwrap();
    assert_eq!(ns.set(KEY).create(&[1]), Ok(set));
    assert_eq!(ns.set(KEY).open(), Ok(set));
    assert_eq!(ns.set(KEY).create_new(&[1]), Err(Error::Exists { key }));
    assert_eq!(ns.set(KEY).create(&[0; 3]), Err(Error::TooSmall { key, wanted: 3 }));
    assert_eq!(ns.set_by_id(set.id()), Ok(set));
    assert_eq!((set.len(), set.values().unwrap()), (2, vec![7, 8]));
    let status = set.status().unwrap();
    assert_eq!((status.key, status.mode, status.nsems, status.otime), (key, 0o640, 2, 0));
    set.set_permissions(status.uid, status.gid, 0o600).unwrap();
    assert_eq!(set.status().unwrap().mode, 0o600);
    set.set_values(&[1, 2]).unwrap();
    assert_eq!(set.set_values(&[1]), Err(Error::WrongLength { got: 1, len: 2 }));
    assert_eq!(set.set_values(&[1, 40000]), Err(Error::BadValue(40000)));
    assert_eq!(ns.private_set(&[40000]), Err(Error::BadValue(40000)));
    assert_eq!(ns.private_set(&[]), Err(Error::BadSize { wanted: 0, limit: ns.limits().msl }));
    assert_eq!(set.sem(2).map(|s| s.num()), Err(Error::NoSuchSemaphore { num: 2, len: 2 }));
    assert_eq!(ns.sets().iter().map(|s| s.id).collect::<Vec<_>>(), [set.id()]);
}

#[test]
fn limits_are_kept() {
    let ns = Namespace::private().unwrap();
    let limits = Limits { msl: 4, mns: 6, opm: 2, mni: 2 };
    let dir = ns.dir().join("small");
    let small = Namespace::options().limits(limits).fairness(Fairness::Barging).open(&dir).unwrap();
    assert_eq!((small.limits(), small.fairness()), (limits, Fairness::Barging));
    assert_eq!(small.private_set(&[0; 5]), Err(Error::BadSize { wanted: 5, limit: 4 }));
    small.private_set(&[0; 4]).unwrap();
    assert_eq!(small.private_set(&[0; 3]), Err(Error::NoSpace));
    let last = small.private_set(&[0; 2]).unwrap();
    assert_eq!(small.private_set(&[0]), Err(Error::NoSpace));
    assert_eq!(last.run(&[Op::add(0, 1); 3]), Err(Error::TooManyOperations { got: 3, limit: 2 }));
    assert_eq!((small.info().sets, small.info().sems), (2, 6));
    let other = Namespace::options().limits(Limits { opm: 3, ..limits }).open(&dir).unwrap_err();
    assert!(other.to_string().contains("4,6,2,2") && other.to_string().contains("another directory"), "{other}");
}

#[test]
fn errors_of_namespaces_say_what_to_do() {
    let ns = Namespace::private().unwrap();
    let missing = ns.dir().join("missing");
    let e = Namespace::options().create(false).open(&missing).unwrap_err();
    assert!(e.to_string().contains(missing.to_str().unwrap()) && e.to_string().contains("Namespace::open"), "{e}");
    assert_eq!(std::io::Error::from(e).kind(), std::io::ErrorKind::NotFound);
    std::fs::create_dir(&missing).unwrap();
    std::fs::write(missing.join("arena-v1"), "something else").unwrap();
    let e = Namespace::open(&missing).unwrap_err();
    assert!(e.to_string().contains("remove it if no program uses it"), "{e}");
    assert!(matches!(Namespace::open("a\0b"), Err(NamespaceError::Directory { .. })));
    let e = std::io::Error::from(Error::TimedOut);
    assert_eq!((e.kind(), Error::TimedOut.errno()), (std::io::ErrorKind::TimedOut, Errno::EAGAIN));
}

#[test]
fn one_mapping_for_each_namespace() {
    let ns = Namespace::private().unwrap();
    let again = Namespace::open(ns.dir()).unwrap();
    assert_eq!(*ns, again);
    let other = Namespace::private().unwrap();
    assert_ne!(*ns, *other);
    // A thread in several namespaces, in turn.
    let sems: Vec<Semaphore> = [*ns, *other].iter().map(|n| n.private_set(&[1, 1]).unwrap().sem(1).unwrap()).collect();
    for _ in 0..3 {
        for sem in &sems {
            sem.with_undo().take(1).unwrap();
            sem.set().run(&[Op::take(0, 1), Op::add(1, 1).undo()]).unwrap();
            sem.set().run(&[Op::add(0, 1), Op::zero(1).no_wait()]).unwrap_err();
            sem.set().run(&[Op::add(0, 1), Op::take(1, 1)]).unwrap();
            sem.set().run(&[Op::zero(1), Op::zero(1)]).unwrap();
            sem.add(1).unwrap();
        }
    }
    for sem in &sems {
        assert_eq!((sem.set().values().unwrap(), sem.set().holders().unwrap()), (vec![1, 1], vec![]));
    }
}

#[test]
fn a_private_namespace_ends_with_its_value() {
    let ns = Namespace::private().unwrap();
    let (dir, sem) = (ns.dir(), ns.private_set(&[0]).unwrap().sem(0).unwrap());
    let mut ns = Some(ns);
    // A fork's copy ends nothing.
    assert_eq!(wait(fork(|| drop(ns.take()))), 0);
    assert!(dir.exists());
    let waiter = thread::spawn(move || sem.take(1));
    until(|| sem.takers() == Ok(1));
    drop(ns);
    assert_eq!(waiter.join().unwrap(), Err(Error::Removed { id: sem.set().id() }));
    assert!(!dir.exists());
}

#[test]
fn permits_give_back() {
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[3]).unwrap().sem(0).unwrap();
    let one = sem.acquire().unwrap();
    let two = sem.acquire_many(2).unwrap();
    assert_eq!(sem.try_acquire(1).map(|p| p.amount()), Err(Error::WouldBlock));
    assert_eq!(sem.acquire_timeout(1, SOON).map(|p| p.amount()), Err(Error::TimedOut));
    // In another thread, too.
    thread::spawn(move || drop(two)).join().unwrap();
    assert_eq!(sem.value(), Ok(2));
    one.release().unwrap();
    assert_eq!((sem.value(), sem.set().holders()), (Ok(3), Ok(vec![])));
    sem.acquire().unwrap().forget();
    assert_eq!(sem.set().holders().unwrap()[0].adj, 1);
    let permit = sem.acquire().unwrap();
    sem.set().remove().unwrap();
    assert_eq!(permit.release(), Err(Error::Removed { id: sem.set().id() }));
}

#[test]
fn a_forks_copy_of_a_permit_gives_nothing_back() {
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[2]).unwrap().sem(0).unwrap();
    let mut permit = Some(sem.acquire().unwrap());
    let pid = fork(|| {
        // The child has places of its own.
        let own = sem.acquire().unwrap();
        drop(permit.take());
        assert_eq!(sem.value(), Ok(0));
        drop(own);
    });
    assert_eq!((wait(pid), sem.value()), (0, Ok(1)));
    drop(permit);
    assert_eq!(sem.value(), Ok(2));
}

#[test]
fn the_killed_give_back() {
    let ns = Namespace::private().unwrap();
    let set = ns.private_set(&[1, 0]).unwrap();
    let (lock, ready) = (set.sem(0).unwrap(), set.sem(1).unwrap());
    for _ in 0..20 {
        let pid = fork(|| {
            let _permit = lock.acquire().unwrap();
            ready.add(1).unwrap();
            loop {
                thread::park();
            }
        });
        ready.take(1).unwrap();
        assert_eq!(lock.try_take(1), Err(Error::WouldBlock));
        let holders = set.holders().unwrap();
        assert_eq!((holders.len(), holders[0].pid, holders[0].adj), (1, pid as u32, 1));
        // While one waits already, and when all is over.
        let waiter = thread::spawn(move || lock.acquire().map(|p| p.amount()));
        until(|| lock.takers() == Ok(1));
        kill(pid);
        assert_eq!(waiter.join().unwrap(), Ok(1));
        wait(pid);
        assert_eq!(lock.value(), Ok(1));
    }
}

#[test]
fn waits_go_on_after_a_signal_unless_asked_not_to() {
    extern "C" fn ignore(_: i32) {}
    let action = ignore as extern "C" fn(i32) as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGUSR1, action) };
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[0]).unwrap().sem(0).unwrap();
    for interruptible in [true, false] {
        let over = AtomicBool::new(false);
        thread::scope(|s| {
            let (send, receive) = std::sync::mpsc::channel();
            let over = &over;
            let waiter = s.spawn(move || {
                // SAFETY: always succeeds.
                send.send(unsafe { libc::pthread_self() }).unwrap();
                let r = if interruptible { sem.interruptible().take(1) } else { sem.take(1) };
                over.store(true, Ordering::Release);
                r
            });
            let thread = receive.recv().unwrap();
            until(|| sem.takers() == Ok(1));
            for _ in 0..5 {
                if !over.load(Ordering::Acquire) {
                    // SAFETY: the thread is in its scope and has not been joined.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                }
                if interruptible {
                    until(|| over.load(Ordering::Acquire));
                }
                thread::sleep(Duration::from_millis(1));
            }
            if !interruptible {
                until(|| sem.takers() == Ok(1));
                sem.add(1).unwrap();
            }
            let expected = if interruptible { Err(Error::Interrupted) } else { Ok(()) };
            assert_eq!(waiter.join().unwrap(), expected);
        });
    }
}

#[test]
fn removal_ends_waits() {
    let ns = Namespace::private().unwrap();
    let set = ns.private_set(&[0, 1]).unwrap();
    let (sem, id) = (set.sem(0).unwrap(), set.id());
    set.sem(1).unwrap().with_undo().take(1).unwrap();
    let waiters = [
        thread::spawn(move || sem.take(1)),
        thread::spawn(move || sem.with_undo().take_timeout(1, LONG)),
        thread::spawn(move || set.run(&[Op::take(0, 1), Op::zero(1)])),
    ];
    until(|| sem.takers() == Ok(3));
    let calls = set.sleepers().unwrap();
    assert_eq!(calls.iter().map(|c| c.operations.len()).max(), Some(2));
    assert!(calls.iter().all(|c| c.sleeper.pid == std::process::id() && c.sleeper.blocker.op == -1));
    set.remove().unwrap();
    for w in waiters {
        assert_eq!(w.join().unwrap(), Err(Error::Removed { id }));
    }
    // Handles of the dead set tell so, also when another set has its memory.
    let next = ns.private_set(&[5, 5]).unwrap();
    assert_eq!(sem.add(1), Err(Error::Removed { id }));
    assert_eq!(sem.with_undo().add(1), Err(Error::Removed { id }));
    assert_eq!(set.run(&[Op::add(0, 1), Op::add(1, 1)]), Err(Error::Removed { id }));
    assert_eq!((sem.value(), set.remove()), (Err(Error::Removed { id }), Err(Error::Removed { id })));
    assert_eq!(next.values().unwrap(), [5, 5]);
}

#[test]
fn zero_waiters() {
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[2]).unwrap().sem(0).unwrap();
    let waiter = thread::spawn(move || sem.wait_zero());
    until(|| sem.zero_waiters() == Ok(1));
    assert_eq!(sem.takers(), Ok(0));
    sem.take(2).unwrap();
    waiter.join().unwrap().unwrap();
}

/// Threads that come and go give their places back: the namespace does not grow by them.
#[test]
fn threads_come_and_go() {
    let ns = Namespace::private().unwrap();
    let set = ns.private_set(&[4, 4]).unwrap();
    let sem = set.sem(0).unwrap();
    let pages = || std::os::unix::fs::MetadataExt::blocks(&ns.dir().join("arena-v1").metadata().unwrap()) / 8;
    let before = pages();
    for _ in 0..200 {
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    let permit = sem.acquire().unwrap();
                    set.run(&[Op::take(0, 1), Op::take(1, 1)]).unwrap();
                    set.run(&[Op::add(0, 1), Op::add(1, 1)]).unwrap();
                    drop(permit);
                });
            }
        });
    }
    assert_eq!((set.values().unwrap(), set.holders().unwrap()), (vec![4, 4], vec![]));
    // A thread's place has a page; 600 threads were here, some at a time.
    assert!(pages() - before < 100, "{} pages more", pages() - before);
}

/// A value of a thread that is dropped at its very end may still use semaphores.
#[test]
fn thread_local_permits() {
    thread_local!(static KEPT: std::cell::RefCell<Option<manyway_sem::Permit>> = const { std::cell::RefCell::new(None) });
    let ns = Namespace::private().unwrap();
    let sem = ns.private_set(&[1]).unwrap().sem(0).unwrap();
    thread::spawn(move || {
        // Registered before the API's own thread-local value, so destroyed after it.
        KEPT.with(|k| assert!(k.borrow().is_none()));
        KEPT.set(Some(sem.acquire().unwrap()));
    })
    .join()
    .unwrap();
    assert_eq!((sem.value(), sem.set().holders()), (Ok(1), Ok(vec![])));
}

/// Mutual exclusion and conservation while threads and forked processes mix single, undo and pair operations, and some are killed.
#[test]
fn processes_share() {
    const WORKERS: usize = 4;
    let ns = Namespace::private().unwrap();
    let set = ns.private_set(&[1, 3, 3, 0]).unwrap();
    let work = |set: Set, rounds: u32| {
        let (lock, inside) = (set.sem(0).unwrap(), set.sem(3).unwrap());
        for i in 0..rounds {
            let permit = lock.acquire().unwrap();
            inside.with_undo().add(1).unwrap();
            assert_eq!(inside.value(), Ok(1), "two in the locked part");
            inside.with_undo().take(1).unwrap();
            drop(permit);
            let (a, b) = if i % 2 == 0 { (1, 2) } else { (2, 1) };
            set.run(&[Op::take(a, 1).undo(), Op::take(b, 1).undo()]).unwrap();
            set.run(&[Op::add(a, 1).undo(), Op::add(b, 1).undo()]).unwrap();
        }
    };
    let lasting: Vec<_> = (0..WORKERS).map(|_| fork(|| work(set, 3000))).collect();
    for _ in 0..10 {
        let victim = fork(|| work(set, u32::MAX));
        thread::sleep(Duration::from_millis(3));
        kill(victim);
        wait(victim);
    }
    for pid in lasting {
        assert_eq!(wait(pid), 0);
    }
    ns.reap();
    assert_eq!((set.values().unwrap(), set.holders().unwrap()), (vec![1, 3, 3, 0], vec![]));
}

/// A started program finds the namespace by its directory, through the environment as `manyway run` hands it over.
#[test]
fn a_started_program_shares() {
    const ROLE: &str = "MANYWAY_API_TEST_CHILD";
    if std::env::var_os(ROLE).is_some() {
        let sem = Namespace::from_env().unwrap().set(KEY).open().unwrap().sem(0).unwrap();
        sem.add(1).unwrap();
        return;
    }
    let ns = Namespace::private().unwrap();
    let sem = ns.set(KEY).create(&[0]).unwrap().sem(0).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "a_started_program_shares"]).env("MANYWAY_DIR", ns.dir()).env(ROLE, "1").stdout(Stdio::null());
    let mut child = child.spawn().unwrap();
    sem.take_timeout(1, LONG).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(sem.value(), Ok(0));
    assert!(matches!(Namespace::from_env(), Err(NamespaceError::NotInEnvironment)));
}

/// What lies in the place of a removed set says nothing about the size that it had.
#[test]
fn beyond_a_removed_set_is_removed() {
    let namespace = Namespace::private().unwrap();
    let set = namespace.set(Key::new(77)).create(&[1]).unwrap();
    assert!(matches!(set.sem(5), Err(Error::NoSuchSemaphore { num: 5, len: 1 })));
    set.remove().unwrap();
    assert!(matches!(set.sem(5), Err(Error::Removed { .. })));
}
