//! A process is killed after every instruction of a call; whatever it left, the next caller works and no unit is lost or made.
//!
//! Calls of more than `SHORT` instructions are cut after every one that changed the arena and after every 7th of the others, but for later
//! rounds of a loop; `MANYWAY_STEP=all` cuts them after every one, and cuts the recovery of more cuts.

#[cfg(target_arch = "x86_64")]
mod cases;
#[cfg(target_arch = "x86_64")]
mod run;
#[cfg(target_arch = "x86_64")]
mod stage;

manyway_testkit::stepped_main!("step", run::main);
