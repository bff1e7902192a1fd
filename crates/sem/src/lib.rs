//! System V semaphores in shared memory: the engine and its Rust API.
//!
//! The path of one call, a file each: [`engine`] → `registry` (id → set) → `fast` (one CAS) → `slow` (locked, all or nothing) →
//! `queue` → `wake` → `undo` → `recover`. See docs/segment.md and docs/crash-model.md.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod abi;
pub mod engine;

pub use engine::{Engine, Fairness, Holder, Limits, OpenError, OpenOptions, Sleeper, Thread};
pub use manyway_sync::Errno;
