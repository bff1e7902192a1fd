//! Atomics: the machine's, or loom's under `--cfg loom`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicI16, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub use crate::model::{AtomicI16, AtomicI32, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

/// Tells the processor that this is a spin loop.
#[inline]
pub fn spin_hint() {
    #[cfg(not(loom))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
}
