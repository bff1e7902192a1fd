//! The shared segment: the only crate that maps memory. See docs/segment.md.
#![no_std]
