//! The workloads, a file each: the coordinator's side, and the role that its workers play.

pub mod footprint;
pub mod kill;
pub mod scaling;
pub mod sets;
pub mod uncontended;
pub mod wait_undo;
