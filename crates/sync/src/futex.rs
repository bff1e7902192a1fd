//! Futexes on shared words.

use syscalls::{Sysno, syscall};

use crate::Errno;
use crate::atomic::AtomicU32;

const FUTEX_WAIT: i32 = 0;
const FUTEX_WAKE: i32 = 1;

/// Sleeps until woken, `timeout_ns` has passed (ETIMEDOUT), a signal's handler has run (EINTR), or at once (EAGAIN) when the word is not
/// `expected`. FUTEX_WAIT *with* a timeout is the one form that a handler always ends: without one, and in FUTEX_WAITV and
/// futex_wait(2), SA_RESTART restarts it silently.
pub fn wait(word: &AtomicU32, expected: u32, timeout_ns: u64) -> Result<(), Errno> {
    #[cfg(shuttle)]
    if crate::sim::is_running() {
        return crate::sim::wait(word, expected, timeout_ns);
    }
    let ts = [(timeout_ns / 1_000_000_000) as i64, (timeout_ns % 1_000_000_000) as i64];
    // SAFETY: the word and the timeout outlive the call.
    unsafe { syscall!(Sysno::futex, core::ptr::from_ref(word), FUTEX_WAIT, expected, ts.as_ptr(), 0, 0) }
        .map(drop)
        .map_err(|e| Errno(e.into_raw()))
}

/// Wakes up to `count` sleepers.
pub fn wake(word: &AtomicU32, count: u32) {
    #[cfg(shuttle)]
    if crate::sim::is_running() {
        return crate::sim::wake(word, count);
    }
    let count = count.min(i32::MAX as u32);
    // SAFETY: the word is only an address to the kernel.
    let _ = unsafe { syscall!(Sysno::futex, core::ptr::from_ref(word), FUTEX_WAKE, count, 0, 0, 0) };
}
