//! loom's atomics with crash points: a thread may be made to die before its k-th access to shared memory, as a kill would.

extern crate std;

use core::cell::Cell;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub use loom::sync::atomic::{Ordering, fence};

loom::thread_local! {
    /// Accesses that the thread has left to live; none: it does not die.
    static LEFT: Cell<Option<usize>> = Cell::new(None);
}

struct Died;

/// Runs `f`, which dies before its access number `k` (from 0) to an atomic. True: it died; false: it was done by then.
pub fn dies_before(k: usize, f: impl FnOnce()) -> bool {
    LEFT.with(|left| left.set(Some(k)));
    let died = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(()) => false,
        Err(e) if e.is::<Died>() => true,
        Err(e) => resume_unwind(e),
    };
    LEFT.with(|left| left.set(None));
    died
}

std::thread_local! {
    /// Whether the models that this thread runs explore the order of all accesses.
    static THOROUGH: Cell<bool> = const { Cell::new(false) };
}

loom::lazy_static! {
    static ref TURN: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
}

/// Runs the model `f` so that all accesses are tried in all orders (up to the preemption bound). By itself loom tries another order of two
/// accesses when they meet in one object, and knows only the last access to each, so that a thread's load hides another one's before
/// it. Here all accesses meet in one more word. For small models only.
pub fn thoroughly(f: impl FnOnce()) {
    THOROUGH.set(true);
    f();
    THOROUGH.set(false);
}

fn access() {
    if THOROUGH.get() {
        TURN.fetch_add(1, Ordering::Relaxed);
    }
    LEFT.with(|left| match left.get() {
        None => {}
        // Without the panic hook: a death is not a failure.
        Some(0) => resume_unwind(Box::new(Died)),
        Some(n) => left.set(Some(n - 1)),
    });
}

/// loom knows no signal handlers; a compiler fence orders only against those.
pub fn compiler_fence(_: Ordering) {}

macro_rules! atomics { ($($name:ident($int:ty)),*) => { $(
    /// An atomic integer.
    #[derive(Debug)]
    pub struct $name(loom::sync::atomic::$name);

    #[allow(missing_docs, reason = "as core's")]
    impl $name {
        pub fn new(v: $int) -> Self {
            $name(loom::sync::atomic::$name::new(v))
        }
        pub fn load(&self, o: Ordering) -> $int {
            access();
            self.0.load(o)
        }
        pub fn store(&self, v: $int, o: Ordering) {
            access();
            self.0.store(v, o);
        }
        pub fn swap(&self, v: $int, o: Ordering) -> $int {
            access();
            self.0.swap(v, o)
        }
        pub fn compare_exchange(&self, old: $int, new: $int, ok: Ordering, err: Ordering) -> Result<$int, $int> {
            access();
            self.0.compare_exchange(old, new, ok, err)
        }
        pub fn compare_exchange_weak(&self, old: $int, new: $int, ok: Ordering, err: Ordering) -> Result<$int, $int> {
            access();
            self.0.compare_exchange_weak(old, new, ok, err)
        }
        pub fn fetch_add(&self, v: $int, o: Ordering) -> $int {
            access();
            self.0.fetch_add(v, o)
        }
        pub fn fetch_sub(&self, v: $int, o: Ordering) -> $int {
            access();
            self.0.fetch_sub(v, o)
        }
        pub fn fetch_or(&self, v: $int, o: Ordering) -> $int {
            access();
            self.0.fetch_or(v, o)
        }
        pub fn fetch_max(&self, v: $int, o: Ordering) -> $int {
            access();
            self.0.fetch_max(v, o)
        }
    }

    impl Default for $name {
        fn default() -> Self {
            $name::new(0)
        }
    }
)* } }
atomics!(AtomicI16(i16), AtomicI32(i32), AtomicU16(u16), AtomicU32(u32), AtomicU64(u64), AtomicUsize(usize));

/// An atomic pointer.
#[derive(Debug)]
pub struct AtomicPtr<T>(loom::sync::atomic::AtomicPtr<T>);

#[allow(missing_docs, reason = "as core's")]
impl<T> AtomicPtr<T> {
    pub fn new(v: *mut T) -> Self {
        AtomicPtr(loom::sync::atomic::AtomicPtr::new(v))
    }
    pub fn load(&self, o: Ordering) -> *mut T {
        access();
        self.0.load(o)
    }
    pub fn store(&self, v: *mut T, o: Ordering) {
        access();
        self.0.store(v, o);
    }
    pub fn swap(&self, v: *mut T, o: Ordering) -> *mut T {
        access();
        self.0.swap(v, o)
    }
    pub fn compare_exchange(&self, old: *mut T, new: *mut T, ok: Ordering, err: Ordering) -> Result<*mut T, *mut T> {
        access();
        self.0.compare_exchange(old, new, ok, err)
    }
}
