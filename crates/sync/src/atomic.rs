//! Atomics: the machine's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicI16, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicI16, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// loom knows no signal handlers; a compiler fence orders only against those.
#[cfg(loom)]
pub fn compiler_fence(_: Ordering) {}

/// Tells the processor that this is a spin loop.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
