//! The workloads, a file each: the coordinator's side, and the role that its workers play.

pub mod attach;
pub mod footprint;
pub mod handoff;
pub mod kill;
pub mod lat_sem;
pub mod lockloop;
pub mod osim;
pub mod scaling;
pub mod sembench;
pub mod semop_multi;
pub mod semscale;
pub mod sets;
pub mod uncontended;
pub mod undo;
pub mod wait_undo;
pub mod waitforzero;
