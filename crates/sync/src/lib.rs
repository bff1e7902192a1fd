//! The only door to atomics, futexes, clocks, process identity and raw system calls.
#![no_std]

pub mod errno;
pub use errno::Errno;
