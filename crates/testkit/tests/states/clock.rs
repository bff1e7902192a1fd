//! The clocks of this program: stopped ones for the engine, so that a call takes the same way each time and an image is the same image.
//!
//! The engine asks the C library's `time` and `clock_gettime`; those of the executable stand in front of them.

use std::ffi::{c_int, c_long};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};

manyway_testkit::in_front_of_the_c_library!("time", own_time);
manyway_testkit::in_front_of_the_c_library!("clock_gettime", own_clock_gettime);

static STOPPED: AtomicBool = AtomicBool::new(false);
static SECONDS: AtomicI64 = AtomicI64::new(1_800_000_000);
static MONOTONIC: AtomicI64 = AtomicI64::new(1_000_000_000_000);
static STEP: AtomicI64 = AtomicI64::new(1_000);

/// Stops the clocks for the rest of the process: the time of day stands, the monotonic clock goes on by a step at each look.
pub fn stop() {
    STOPPED.store(true, Relaxed);
}
/// A second passes.
pub fn next_second() {
    SECONDS.fetch_add(1, Relaxed);
}
/// So many nanoseconds pass: whoever comes next comes later. (A child's looks at the clock are its own.)
pub fn pass(ns: i64) {
    MONOTONIC.fetch_add(ns, Relaxed);
}
/// How far the monotonic clock goes on at each look, nanoseconds.
pub fn step(ns: i64) {
    STEP.store(ns, Relaxed);
}
/// The monotonic clock, to be set back to it: what is done again meets the same times.
pub fn mark() -> i64 {
    MONOTONIC.load(Relaxed)
}
/// Sets it back.
pub fn set_back(mark: i64) {
    MONOTONIC.store(mark, Relaxed);
}

/// The real monotonic clock, seconds.
pub fn real() -> f64 {
    let mut now = [0; 2];
    kernels(libc::CLOCK_MONOTONIC, &mut now);
    now[0] as f64 + now[1] as f64 / 1e9
}

fn kernels(clock: c_int, out: &mut [i64; 2]) -> c_int {
    // SAFETY: two 64-bit integers are this machine's struct timespec.
    unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), out.as_mut_ptr()) as c_int }
}

/// time(2).
///
/// # Safety
/// `out` is null or leads to a `time_t`.
unsafe extern "C" fn own_time(out: *mut i64) -> i64 {
    let mut now = [0; 2];
    if STOPPED.load(Relaxed) {
        now[0] = SECONDS.load(Relaxed);
    } else {
        kernels(libc::CLOCK_REALTIME, &mut now);
    }
    if !out.is_null() {
        // SAFETY: by the caller.
        unsafe { *out = now[0] };
    }
    now[0]
}

/// clock_gettime(2).
///
/// # Safety
/// `out` leads to a `struct timespec`.
unsafe extern "C" fn own_clock_gettime(clock: c_int, out: *mut [i64; 2]) -> c_int {
    // SAFETY: by the caller.
    let out = unsafe { &mut *out };
    if !STOPPED.load(Relaxed) {
        return kernels(clock, out);
    }
    *out = match clock {
        libc::CLOCK_REALTIME => [SECONDS.load(Relaxed), 0],
        _ => {
            let now = MONOTONIC.load(Relaxed) + STEP.load(Relaxed);
            MONOTONIC.store(now, Relaxed);
            [now / 1_000_000_000, now % 1_000_000_000]
        }
    };
    0
}
