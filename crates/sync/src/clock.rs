//! Clocks.

use core::arch::asm;

use syscalls::{Sysno, syscall};

/// A function of the C library, which reads the vDSO: 1 ns instead of a system call. Weak, so that a program without one still works.
/// (The directive is in each use: another object file may hold it.)
macro_rules! weak {
    ($name:literal, $ty:ty) => {{
        let p: usize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads the symbol's address from the global offset table; null when nobody defines it.
        unsafe {
            asm!(concat!(".weak ", $name), concat!("mov {}, qword ptr [rip + ", $name, "@GOTPCREL]"), out(reg) p, options(pure, nomem, nostack, preserves_flags));
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!(concat!(".weak ", $name), concat!("adrp {0}, :got:", $name), concat!("ldr {0}, [{0}, :got_lo12:", $name, "]"), out(reg) p, options(pure, nomem, nostack, preserves_flags));
        }
        // SAFETY: a function pointer's Option has null as None, and the symbol has this C signature.
        unsafe { core::mem::transmute::<usize, Option<$ty>>(p) }
    }};
}

const CLOCK_REALTIME: i32 = 0;
const CLOCK_MONOTONIC: i32 = 1;
const CLOCK_MONOTONIC_COARSE: i32 = 6;

fn gettime(clock: i32) -> [i64; 2] {
    let mut ts = [0i64; 2];
    match weak!("clock_gettime", unsafe extern "C" fn(i32, *mut i64) -> i32) {
        // SAFETY: two 64-bit integers are this machine's struct timespec.
        Some(f) => unsafe {
            f(clock, ts.as_mut_ptr());
        },
        // SAFETY: as above.
        None => unsafe {
            let _ = syscall!(Sysno::clock_gettime, clock, ts.as_mut_ptr());
        },
    }
    ts
}

/// Seconds since 1970, as time(2) gives.
#[inline(always)]
pub fn realtime_secs() -> u64 {
    if cfg!(loom) {
        // A model must take the same way each time.
        return 1;
    }
    #[cfg(shuttle)]
    if let Some(now) = crate::sim::now() {
        return now / 1_000_000_000;
    }
    match weak!("time", unsafe extern "C" fn(*mut i64) -> i64) {
        // SAFETY: a null argument is allowed by time(2).
        Some(f) => unsafe { f(core::ptr::null_mut()) as u64 },
        None => realtime_secs_slow(),
    }
}

#[cold]
#[inline(never)]
fn realtime_secs_slow() -> u64 {
    gettime(CLOCK_REALTIME)[0] as u64
}

/// CLOCK_MONOTONIC as it was at the last tick of the system's clock, some milliseconds ago at most: a fifth of the cost.
pub fn monotonic_coarse_ns() -> u64 {
    #[cfg(shuttle)]
    if let Some(now) = crate::sim::now() {
        return now;
    }
    let [s, ns] = gettime(CLOCK_MONOTONIC_COARSE);
    s as u64 * 1_000_000_000 + ns as u64
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub fn monotonic_ns() -> u64 {
    #[cfg(shuttle)]
    if let Some(now) = crate::sim::now() {
        return now;
    }
    let [s, ns] = gettime(CLOCK_MONOTONIC);
    s as u64 * 1_000_000_000 + ns as u64
}
