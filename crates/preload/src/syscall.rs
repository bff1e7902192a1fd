//! syscall(2): programs and language runtimes that make semaphore calls by number, and the few other calls that this library
//! must know of. The entry itself is assembly (`arch`), which comes here for the numbers in [`INTERCEPTED`].

use core::ffi::{c_int, c_long};

use manyway_sync::Errno;
use syscalls::Sysno;

use crate::{credentials, errno, exec, exports, fork, procfs, signal, sys, wait};

/// Numbers at and above this are nobody's business.
pub(crate) const BITS: usize = 512;

/// One bit per number.
pub(crate) static INTERCEPTED: [u64; BITS / 64] = bits(&[
    Sysno::semget,
    Sysno::semop,
    Sysno::semtimedop,
    Sysno::semctl,
    Sysno::rt_sigaction,
    Sysno::wait4,
    Sysno::waitid,
    Sysno::unshare,
    Sysno::setuid,
    Sysno::setgid,
    Sysno::setreuid,
    Sysno::setregid,
    Sysno::setresuid,
    Sysno::setresgid,
    Sysno::setfsuid,
    Sysno::setfsgid,
    Sysno::setgroups,
    Sysno::capset,
    Sysno::setns,
    Sysno::execve,
    Sysno::execveat,
    Sysno::openat,
    #[cfg(target_arch = "x86_64")]
    Sysno::open,
]);

const fn bits(numbers: &[Sysno]) -> [u64; BITS / 64] {
    let mut set = [0; BITS / 64];
    let mut i = 0;
    while i < numbers.len() {
        let n = numbers[i] as usize;
        set[n / 64] |= 1 << (n % 64);
        i += 1;
    }
    set
}

/// A call whose number is in [`INTERCEPTED`], with syscall(2)'s arguments.
pub(crate) extern "C" fn intercepted(number: c_int, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let Some(number) = Sysno::new(number as usize) else {
        return errno::fail_long(Errno::ENOSYS.0);
    };
    let result = match number {
        Sysno::semget => return exports::semget(a as _, b as _, c as _).into(),
        Sysno::semop => return exports::semop(a as _, b as _, c).into(),
        Sysno::semtimedop => return exports::semtimedop(a as _, b as _, c, d as _).into(),
        Sysno::semctl => return exports::semctl(a as _, b as _, c as _, d as _).into(),
        Sysno::rt_sigaction => return signal::rt_sigaction(a as _, b as _, c as _, d).into(),
        Sysno::execve => return exec::execve(a as _, b as _, c as _).into(),
        Sysno::execveat => return exec::execveat(a as _, b as _, c as _, d as _, e as _).into(),
        // SAFETY: the program's own call.
        _ => match unsafe { sys::raw(number, [a, b, c, d, e, f]) } {
            Ok(r) => r as c_long,
            Err(e) => errno::fail_long(e.0),
        },
    };
    match number {
        Sysno::wait4 => wait::waited(result as c_int, a, b, c),
        Sysno::waitid => wait::waited_id(result as c_int, a, b, c as _),
        Sysno::unshare => fork::unshared(result as c_int, a, b, c),
        #[cfg(target_arch = "x86_64")]
        Sysno::open => return procfs::opened(result as c_int, a as _, b, c).into(),
        Sysno::openat => return procfs::opened_at(result as c_int, a, b as _, c).into(),
        Sysno::setfsgid => credentials::group_changed(result as c_int, a, b, c),
        _ => credentials::thread_changed(result as c_int, a, b, c),
    }
    result
}
