//! The machine's atomics, laid out as they are, each access to shared memory a point of the schedule.

use core::fmt;

pub use core::sync::atomic::{Ordering, compiler_fence, fence};

macro_rules! atomics { ($($name:ident($int:ty)),*) => { $(
    /// An atomic integer.
    #[repr(transparent)]
    pub struct $name(core::sync::atomic::$name);

    #[allow(missing_docs, reason = "as core's")]
    impl $name {
        pub const fn new(v: $int) -> Self {
            $name(core::sync::atomic::$name::new(v))
        }
        pub fn load(&self, o: Ordering) -> $int {
            super::access(self, false);
            self.0.load(o)
        }
        pub fn store(&self, v: $int, o: Ordering) {
            super::access(self, true);
            self.0.store(v, o);
        }
        pub fn swap(&self, v: $int, o: Ordering) -> $int {
            super::access(self, true);
            self.0.swap(v, o)
        }
        pub fn compare_exchange(&self, old: $int, new: $int, ok: Ordering, err: Ordering) -> Result<$int, $int> {
            super::access(self, true);
            self.0.compare_exchange(old, new, ok, err)
        }
        pub fn compare_exchange_weak(&self, old: $int, new: $int, ok: Ordering, err: Ordering) -> Result<$int, $int> {
            super::access(self, true);
            self.0.compare_exchange_weak(old, new, ok, err)
        }
        pub fn fetch_add(&self, v: $int, o: Ordering) -> $int {
            super::access(self, true);
            self.0.fetch_add(v, o)
        }
        pub fn fetch_sub(&self, v: $int, o: Ordering) -> $int {
            super::access(self, true);
            self.0.fetch_sub(v, o)
        }
        pub fn fetch_or(&self, v: $int, o: Ordering) -> $int {
            super::access(self, true);
            self.0.fetch_or(v, o)
        }
        pub fn fetch_max(&self, v: $int, o: Ordering) -> $int {
            super::access(self, true);
            self.0.fetch_max(v, o)
        }
    }

    impl Default for $name {
        fn default() -> Self {
            $name::new(0)
        }
    }

    impl fmt::Debug for $name {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    }
)* } }
atomics!(AtomicI16(i16), AtomicI32(i32), AtomicU16(u16), AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize));

/// An atomic pointer.
#[repr(transparent)]
pub struct AtomicPtr<T>(core::sync::atomic::AtomicPtr<T>);

#[allow(missing_docs, reason = "as core's")]
impl<T> AtomicPtr<T> {
    pub const fn new(v: *mut T) -> Self {
        AtomicPtr(core::sync::atomic::AtomicPtr::new(v))
    }
    pub fn load(&self, o: Ordering) -> *mut T {
        super::access(self, false);
        self.0.load(o)
    }
    pub fn store(&self, v: *mut T, o: Ordering) {
        super::access(self, true);
        self.0.store(v, o);
    }
    pub fn swap(&self, v: *mut T, o: Ordering) -> *mut T {
        super::access(self, true);
        self.0.swap(v, o)
    }
    pub fn compare_exchange(&self, old: *mut T, new: *mut T, ok: Ordering, err: Ordering) -> Result<*mut T, *mut T> {
        super::access(self, true);
        self.0.compare_exchange(old, new, ok, err)
    }
}
