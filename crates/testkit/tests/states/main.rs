//! Every state that a call can leave behind when it dies, and every state that its recovery can leave behind when that dies too: each is
//! recovered by the ordinary path of the next caller, and everything must hold then. docs/crash-model.md says how they are found.
//!
//! The default run samples long calls and cuts the recovery of some states; `MANYWAY_STATES=all` does all.

#[cfg(target_arch = "x86_64")]
mod cases;
#[cfg(target_arch = "x86_64")]
mod clock;
#[cfg(target_arch = "x86_64")]
mod entries;
#[cfg(target_arch = "x86_64")]
mod explore;
#[cfg(target_arch = "x86_64")]
mod next;
#[cfg(target_arch = "x86_64")]
mod robust;
#[cfg(target_arch = "x86_64")]
mod run;
#[cfg(target_arch = "x86_64")]
mod stage;

manyway_testkit::stepped_main!("states", run::main);
