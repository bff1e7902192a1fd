//! Atomics: the machine's; loom's under `--cfg loom`; the machine's with scheduling points under `--cfg shuttle`.

#[cfg(not(any(loom, shuttle)))]
pub use core::sync::atomic::{
    AtomicI16, AtomicI32, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

#[cfg(loom)]
pub use crate::model::{AtomicI16, AtomicI32, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(shuttle)]
pub use crate::sim::atomic::{
    AtomicI16, AtomicI32, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence,
};

/// Tells the processor that this is a spin loop.
#[inline]
pub fn spin_hint() {
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    crate::sim::nap(0);
}
