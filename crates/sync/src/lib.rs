//! The only door to atomics, futexes, clocks, process identity and raw system calls.
//!
//! Nothing here needs a C library: system calls are made directly, and the two functions worth borrowing from one (`time` and
//! `clock_gettime`, which read the vDSO) are weak references with a system call behind them.
#![no_std]

pub mod atomic;
pub mod clock;
pub mod errno;
pub mod futex;
pub mod identity;
pub mod idmap;
pub mod memory;
#[cfg(loom)]
pub mod model;
mod path;
pub mod robust;
#[cfg(shuttle)]
pub mod sim;
pub mod sys;

pub use errno::Errno;
