//! System V semaphores in shared memory: the engine and its Rust API.
//!
//! The path of one call, a file each: [`engine`] → `set` (id → set) → [`fast`] (one CAS) → `slow` (locked, all or nothing) → `queue` →
//! `step` → `grant` → `wake` → `undo` → `recover`. docs/segment.md and docs/crash-model.md say what lies where and who finishes what a death leaves.
//! What the orderings hang on is in `fast`, `edges`, `node`, `id` and `slotword`, on shared structures alone: under `--cfg loom`, which leaves
//! out all that needs a mapped file, the model checker runs them (docs/memory-model.md).
#![cfg_attr(not(feature = "std"), no_std)]
#![deny(unsafe_code)]

pub mod abi;
#[cfg(all(feature = "std", not(loom)))]
pub mod api;
#[cfg(not(loom))]
mod attach;
#[cfg(all(feature = "std", not(loom)))]
pub mod check;
#[cfg(not(loom))]
mod control;
pub mod edges;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
mod eval;
pub mod fast;
#[cfg(not(loom))]
mod grant;
pub mod id;
#[cfg(not(loom))]
mod inspect;
pub mod journal;
#[cfg(not(loom))]
mod links;
#[cfg(not(loom))]
mod lock;
pub mod node;
#[cfg(not(loom))]
mod perm;
#[cfg(not(loom))]
mod queue;
#[cfg(not(loom))]
mod recover;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod set;
#[cfg(not(loom))]
mod sleep;
#[cfg(all(feature = "std", not(loom)))]
mod sleepers;
#[cfg(not(loom))]
mod slots;
pub mod slotword;
#[cfg(not(loom))]
mod slow;
#[cfg(not(loom))]
mod step;
#[cfg(not(loom))]
mod undo;
#[cfg(not(loom))]
mod wake;
pub mod word;

#[cfg(all(feature = "std", not(loom)))]
pub use api::{
    Error, Key, Namespace, NamespaceError, NamespaceOptions, Op, Permit, Prepared, PrivateNamespace, Semaphore, Set, SetOptions,
    SleepingCall,
};
#[cfg(not(loom))]
pub use engine::{Damage, DamageReport, Engine, Fairness, Holder, Limits, OpenError, OpenOptions, Share, Sleeper, Thread};
/// The version of the shared memory's layout: it is in the name of the arena's file, so that each layout has a file of its own.
#[cfg(not(loom))]
pub use manyway_shm::layout::VERSION as LAYOUT;
pub use manyway_sync::Errno;
