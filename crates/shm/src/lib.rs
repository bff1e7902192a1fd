//! The shared segment: the only crate that maps memory. docs/segment.md is its byte map.
//!
//! [`layout`] is what lies where, [`arena`] opens the file, if it can be trusted ([`trust`]), and hands out
//! bounds-checked references, [`alloc`] gives out and takes back
//! objects. Under `--cfg loom` there is no file, only the structures.
#![no_std]

#[cfg(not(loom))]
pub mod alloc;
#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
mod change;
pub mod layout;
#[cfg(not(loom))]
#[cfg_attr(shuttle, path = "region_sim.rs")]
pub mod region;
#[cfg(not(loom))]
pub mod trust;

#[cfg(not(loom))]
pub use arena::{Arena, Fairness, Limits, OpenError, OpenOptions, View};
#[cfg(not(loom))]
pub use trust::Share;
