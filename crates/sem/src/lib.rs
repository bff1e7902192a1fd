//! System V semaphores in shared memory: the engine and its Rust API.
//!
//! The path of one call, a file each: [`engine`] → `set` (id → set) → [`fast`] (one CAS) → `slow` (locked, all or nothing) → `queue` →
//! `wake` → `undo` → `recover`. docs/segment.md and docs/crash-model.md say what lies where and who finishes what a death leaves.
#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_code)]

pub mod abi;
mod attach;
mod control;
pub mod engine;
mod eval;
pub mod fast;
mod inspect;
pub mod journal;
mod lock;
pub mod node;
mod perm;
mod queue;
mod recover;
mod registry;
mod set;
mod sleep;
pub mod slots;
mod slow;
mod undo;
mod wake;
pub mod word;

pub use engine::{Engine, Fairness, Holder, Limits, OpenError, OpenOptions, Sleeper, Thread};
pub use manyway_sync::Errno;
