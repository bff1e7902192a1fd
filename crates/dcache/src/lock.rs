//! Locks: the standard library's; loom's under `--cfg loom`. Nobody panics while holding one, since no author's code runs under one.

#[cfg(not(loom))]
use std::sync::{Condvar as StdCondvar, Mutex as StdMutex, PoisonError};

#[cfg(loom)]
use loom::sync::{Condvar as StdCondvar, Mutex as StdMutex};
#[cfg(loom)]
use std::sync::PoisonError;

#[cfg(loom)]
pub(crate) use loom::sync::MutexGuard;
#[cfg(not(loom))]
pub(crate) use std::sync::MutexGuard;

pub(crate) struct Mutex<T>(StdMutex<T>);

impl<T> Mutex<T> {
    pub fn new(v: T) -> Self {
        Mutex(StdMutex::new(v))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) struct Condvar(StdCondvar);

impl Condvar {
    pub fn new() -> Self {
        Condvar(StdCondvar::new())
    }

    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    pub fn notify(&self) {
        self.0.notify_all();
    }
}

/// Lets others go on.
pub(crate) fn nap() {
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(50));
    #[cfg(loom)]
    loom::thread::yield_now();
}
