//! The arena's file is cut short under programs that use it: a preloaded one gets EIO from each call and lives on, threads, sleepers and robust
//! mutexes included; its own use of SIGBUS is its own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use libc::c_int;
use manyway_sem::abi::{GETALL, GETNCNT, GETVAL, IPC_CREAT, IPC_RMID, IPC_STAT, SEM_UNDO, SemBuf};
use manyway_sem::id::{INDEX_BITS, IdEntry};
use manyway_sem::{Errno, Thread};
use manyway_shm::layout::{IDS_AT, PAGE};
use manyway_testkit::preload_library;

use crate::TRUNCATED;
use crate::caller::open;
use crate::ledger::Ledger;

const KEY: i32 = 0x7204;

/// Lengths that the file is cut to: nothing is left; the header is; the tables are, but no set.
const LENGTHS: [u64; 3] = [0, 4096, 32 << 20];

fn start(dir: &Path, how: &str) -> Command {
    let mut c = Command::new(std::env::current_exe().expect("this program"));
    c.arg(TRUNCATED).arg(dir.join("ledger")).arg(how).stdin(Stdio::null()).stdout(Stdio::null());
    c.env("LD_PRELOAD", preload_library().expect("the library")).env("MANYWAY_DIR", dir.join("cut"));
    // SAFETY: a system call that concerns the child alone.
    unsafe {
        c.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        })
    };
    c
}

/// How often the file is cut to each: several threads meet the end at once, and which of them is first is chance.
const EACH: usize = 8;

pub fn cut_short() {
    let mut ended = 0;
    for length in LENGTHS.into_iter().cycle().take(LENGTHS.len() * EACH) {
        let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
        let ledger = Ledger::map(&dir.path().join("ledger"));
        let engine = open(&dir.path().join("cut"));
        engine.semget(&Thread::new(), KEY, 2, IPC_CREAT | 0o600).expect("a set");
        drop(engine);
        let mut program = start(dir.path(), "works").spawn().expect("this program starts");
        let began = Instant::now();
        while ledger.signals.load(Acquire) == 0 {
            assert!(
                began.elapsed() < Duration::from_secs(60) && program.try_wait().expect("own child").is_none(),
                "it does not work at all"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        File::options().write(true).open(dir.path().join("cut/arena-v1")).and_then(|f| f.set_len(length)).expect("own file");
        let status = program.wait().expect("own child");
        assert!(status.success(), "cut to {length} bytes: {status}");
        ended += 1;
        if ended <= LENGTHS.len() {
            for how in ["killed", "faults"] {
                let status = start(dir.path(), how).status().expect("this program starts");
                assert_eq!(status.signal(), Some(libc::SIGBUS), "a program that {how}");
            }
        }
    }
    cut_in_a_set();
    ended += 1;
    println!("proof: truncation: {ended} files cut short under preloaded programs, each call EIO, 0 crashes, 0 violations");
}

/// Semaphores of a set of several pages.
const LARGE: c_int = 200;

/// The file is cut behind the first page of a set: a call that finds the set, and meets the end only when it has begun to read what it is to return.
fn cut_in_a_set() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("/dev/shm is writable");
    let ledger = Ledger::map(&dir.path().join("ledger"));
    let engine = open(&dir.path().join("cut"));
    let id = engine.semget(&Thread::new(), KEY, LARGE, IPC_CREAT | 0o600).expect("a set");
    let arena = dir.path().join("cut/arena-v1");
    let mut entry = [0; 8];
    let at = IDS_AT + (id as u64 & ((1 << INDEX_BITS) - 1)) * 8;
    File::open(&arena).and_then(|f| f.read_exact_at(&mut entry, at)).expect("the id table");
    let set = IdEntry(u64::from_le_bytes(entry)).at();
    drop(engine);
    let mut program = start(dir.path(), "reads").spawn().expect("this program starts");
    let began = Instant::now();
    while ledger.signals.load(Acquire) == 0 && began.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
    File::options().write(true).open(&arena).and_then(|f| f.set_len(set + PAGE)).expect("own file");
    ledger.stop.store(1, Release);
    let status = program.wait().expect("own child");
    assert!(status.success(), "cut in the middle of a set: {status}");
}

/// The program that reads a set once it has been cut.
fn reads(ledger: &Ledger) {
    // SAFETY: takes numbers only.
    let id = unsafe { libc::semget(KEY, LARGE, 0o600) };
    assert!(id >= 0, "{:?}", errno());
    assert_eq!(ctl(id, 0, IPC_STAT), Ok(0));
    ledger.signals.store(1, Release);
    while ledger.stop.load(Acquire) == 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(ctl(id, 0, IPC_STAT), Err(Errno::EIO), "it has met the end in its midst");
}

fn errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
fn op(id: c_int, num: u16, op: i16, flags: i32) -> Result<(), Errno> {
    let mut op = SemBuf { num, op, flg: flags as i16 };
    // SAFETY: one operation that lives over the call.
    if unsafe { libc::semop(id, (&raw mut op).cast(), 1) } == -1 { Err(errno()) } else { Ok(()) }
}
fn ctl(id: c_int, num: c_int, cmd: c_int) -> Result<c_int, Errno> {
    let mut room = [0u64; 64];
    // SAFETY: room for what the command fills or reads.
    match unsafe { libc::semctl(id, num, cmd, room.as_mut_ptr()) } {
        -1 => Err(errno()),
        r => Ok(r),
    }
}

static FAULT: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_bus(_: c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the fault's address, in a page of this test's own, which gets memory now.
    unsafe {
        let at = (*info).si_addr();
        FAULT.store(at as usize, Relaxed);
        let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(at.map_addr(|a| a & !4095), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
    }
}

/// A byte behind the end of a file of the program's own.
fn behind_the_end(ledger: &Path) -> *mut u8 {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(ledger.with_extension("own")).expect("a file");
    // SAFETY: a new mapping, which is never looked at but by the caller.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file.as_raw_fd(), 0).cast() }
}

/// The program.
pub fn program(ledger_path: &Path, how: &str) {
    if matches!(how, "killed" | "faults") {
        // Rust's runtime has a handler of its own.
        // SAFETY: the default action needs nothing.
        unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    }
    match how {
        // SAFETY: sends this process a signal.
        "killed" => unsafe { _ = libc::kill(libc::getpid(), libc::SIGBUS) },
        // SAFETY: the access faults, which is what is wanted.
        "faults" => unsafe { behind_the_end(ledger_path).write_volatile(1) },
        "reads" => reads(Ledger::map(ledger_path)),
        _ => works(ledger_path),
    }
}

fn works(ledger_path: &Path) {
    let ledger = Ledger::map(ledger_path);
    // SAFETY: takes numbers only.
    let id = unsafe { libc::semget(KEY, 2, 0o600) };
    assert!(id >= 0, "{:?}", errno());
    let sleeper = std::thread::spawn(move || op(id, 1, -1, 0));
    // One thread's handler puts zeros over what others look at.
    let others = [(); 3].map(|()| {
        std::thread::spawn(move || {
            loop {
                match op(id, 0, 1, 0).and_then(|()| op(id, 0, -1, 0)) {
                    // It takes its place at its first call that is not simple; now there is no room for one, as on a full file system.
                    Ok(()) | Err(Errno::ENOSPC) => {}
                    Err(e) => break e,
                }
            }
        })
    });
    let mut n = 0u64;
    let first = loop {
        let flags = if n.is_multiple_of(2) { SEM_UNDO } else { 0 };
        if let Err(e) = op(id, 0, 1, flags).and_then(|()| op(id, 0, -1, flags)) {
            break e;
        }
        n += 1;
        if n.is_multiple_of(1000) && ctl(id, 1, GETNCNT) == Ok(1) {
            ledger.signals.store(1, Release);
        }
    };
    assert_eq!(first, Errno::EIO, "after {n} operations");
    let all = move || {
        for flags in [0, SEM_UNDO] {
            assert_eq!(op(id, 0, 1, flags), Err(Errno::EIO));
        }
        for cmd in [GETVAL, GETALL, IPC_STAT, IPC_RMID] {
            assert_eq!(ctl(id, 0, cmd), Err(Errno::EIO), "command {cmd}");
        }
        // SAFETY: takes numbers only.
        assert_eq!((unsafe { libc::semget(KEY, 1, IPC_CREAT | 0o600) }, errno()), (-1, Errno::EIO));
    };
    for other in others {
        assert_eq!(other.join().expect("it lives"), Errno::EIO, "another thread");
    }
    all();
    assert_eq!(sleeper.join().expect("it lives"), Err(Errno::EIO));
    std::thread::spawn(all).join().expect("a thread that begins later");
    // The program's own use of the signal.
    // SAFETY: the handler gives the page memory; the access is repeated then.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        // (Rust's runtime has a handler of its own.) A default action is told as it was set.
        act.sa_sigaction = libc::SIG_DFL;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const act, std::ptr::null_mut()), 0);
        assert_eq!(libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut act), 0);
        let restorer = 0x0400_0000;
        assert_eq!((act.sa_sigaction, act.sa_flags & !restorer), (libc::SIG_DFL, 0), "what a program finds");
        act.sa_sigaction = on_bus as *const () as usize;
        act.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGBUS, &raw const act, std::ptr::null_mut()), 0);
        let p = behind_the_end(ledger_path);
        p.write_volatile(7);
        assert_eq!((FAULT.load(Relaxed), p.read_volatile()), (p as usize, 7));
    }
    all();
}
