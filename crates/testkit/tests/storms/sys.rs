//! The storm's unsafe code: the ledger's mapping, C's semaphores, processes, and the clock.

use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicPtr, Ordering::*};
use std::time::Duration;

use manyway_sem::Errno;
use manyway_sem::abi::{GETALL, IPC_PRIVATE, SETALL, SETVAL, SemBuf};

use crate::ledger::{Count, Ledger};

manyway_testkit::in_front_of_the_c_library!("time", own_time);

/// This process's ledger, for the clock.
static LEDGER: AtomicPtr<Ledger> = AtomicPtr::new(std::ptr::null_mut());

pub fn map_ledger(path: &Path) -> &'static Ledger {
    let file = std::fs::File::options().read(true).write(true).open(path).expect("the ledger");
    let (len, rw) = (size_of::<Ledger>(), libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping of a file of this length, which nobody cuts short.
    let p = unsafe { libc::mmap(std::ptr::null_mut(), len, rw, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    assert_ne!(p, libc::MAP_FAILED, "{}", io::Error::last_os_error());
    LEDGER.store(p.cast(), SeqCst);
    // SAFETY: mapped for good, aligned to a page, and all its fields are atomics, for which any bytes are a value.
    unsafe { &*p.cast::<Ledger>() }
}

/// time(2) for the whole program, the engine and the preloaded library included: the storm's clock steps. It is all that they ask for the
/// date; the machine's clock is everybody's.
extern "C" fn own_time(to: *mut libc::time_t) -> libc::time_t {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live local to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut ts) };
    // SAFETY: null, or mapped for good.
    let off = unsafe { LEDGER.load(Relaxed).as_ref() }.map_or(0, |l| {
        if l.clock.load(Relaxed) != 0 {
            l.count(Count::ClockReads);
        }
        l.clock.load(Relaxed)
    });
    let now = ts.tv_sec + off;
    if !to.is_null() {
        // SAFETY: time(2) asks its caller for a good pointer or none.
        unsafe { *to = now };
    }
    now
}

/// CLOCK_MONOTONIC.
pub fn now_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live local to fill.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

unsafe extern "C" {
    fn semtimedop(id: i32, ops: *mut SemBuf, nsops: usize, timeout: *const libc::timespec) -> i32;
}

fn checked(ret: i32) -> Result<i32, Errno> {
    if ret != -1 {
        return Ok(ret);
    }
    Err(Errno(io::Error::last_os_error().raw_os_error().unwrap_or(0)))
}

/// C's semop, or semtimedop.
pub fn c_op(id: i32, ops: &mut [SemBuf], timeout: Option<Duration>) -> Result<(), Errno> {
    let ts = timeout.map(|t| libc::timespec { tv_sec: t.as_secs() as _, tv_nsec: t.subsec_nanos().into() });
    let ts = ts.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `ops` and the timeout live over the call.
    checked(unsafe { semtimedop(id, ops.as_mut_ptr(), ops.len(), ts) }).map(drop)
}
/// C's semget for a new set without a key, and SETALL.
pub fn c_make(values: &[u16]) -> Result<i32, Errno> {
    // SAFETY: takes numbers only.
    let id = checked(unsafe { libc::semget(IPC_PRIVATE, values.len() as i32, 0o600) })?;
    // SAFETY: as many values as semaphores.
    checked(unsafe { libc::semctl(id, 0, SETALL, values.as_ptr()) })?;
    Ok(id)
}
/// C's semctl with a command that takes no argument.
pub fn c_ctl(id: i32, num: u16, cmd: i32) -> Result<i32, Errno> {
    // SAFETY: by the caller's choice of commands.
    checked(unsafe { libc::semctl(id, num.into(), cmd) })
}
pub fn c_set_value(id: i32, num: u16, value: u16) -> Result<(), Errno> {
    // SAFETY: the command takes a number.
    checked(unsafe { libc::semctl(id, num.into(), SETVAL, libc::c_long::from(value)) }).map(drop)
}
pub fn c_values(id: i32, values: &mut [u16]) -> Result<(), Errno> {
    // SAFETY: the set has as many semaphores, or is gone.
    checked(unsafe { libc::semctl(id, 0, GETALL, values.as_mut_ptr()) }).map(drop)
}
pub fn c_size(id: i32) -> Result<u64, Errno> {
    // SAFETY: plain numbers, for which all zeros is a value; the structure is the one that the command fills.
    unsafe {
        let mut ds: libc::semid_ds = std::mem::zeroed();
        checked(libc::semctl(id, 0, libc::IPC_STAT, &raw mut ds))?;
        Ok(ds.sem_nsems)
    }
}

/// Forks a process that is a child of the storm's first process, not of this one: 0 in it. The one in between is waited for.
pub fn fork_away() -> Result<i32, Errno> {
    // SAFETY: the child calls nothing but what may be called in a copy of a process of several threads (the C library's allocator may).
    let child = checked(unsafe { libc::fork() })?;
    if child == 0 {
        // SAFETY: as above.
        match unsafe { libc::fork() } {
            0 => return Ok(0),
            // SAFETY: ends the process without running what belongs to its parent.
            n => unsafe { libc::_exit(i32::from(n < 0)) },
        }
    }
    loop {
        // SAFETY: asks for no status.
        match checked(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }) {
            Err(Errno::EINTR) => {}
            _ => return Ok(child),
        }
    }
}
/// Ends a process without running what belongs to its parent.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: has no conditions.
    unsafe { libc::_exit(code) }
}

/// The process dies with its parent.
pub fn die_with_parent() {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}
