//! The shared segment: the only crate that maps memory. docs/segment.md is its byte map.
//!
//! [`layout`] is what lies where, [`arena`] opens the file and hands out bounds-checked references, [`alloc`] gives out and takes back
//! objects.
#![no_std]

pub mod alloc;
pub mod arena;
pub mod layout;
pub mod region;

pub use arena::{Arena, Fairness, Limits, OpenError, OpenOptions, View};
