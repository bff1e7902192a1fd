//! Real deaths: a process is stopped after every k-th instruction of a call, while another process fights for the same semaphores and a third
//! one sleeps on them, and it dies there. Both go on, and no unit is lost or made.
//!
//! Ways to die: SIGKILL; execve by another thread, into programs with and without the library; the kernel's out-of-memory killer; the same with
//! the robust list taken away first. Callers: the crate, and C's functions with the library preloaded.
//!
//! `MANYWAY_KILLS=N` lets N processes die at instructions all over each call, with each way to die and caller; `all` one at every instruction.

#[cfg(target_arch = "x86_64")]
mod cases;
#[cfg(target_arch = "x86_64")]
mod cgroup;
#[cfg(target_arch = "x86_64")]
mod death;
#[cfg(target_arch = "x86_64")]
mod live;
#[cfg(target_arch = "x86_64")]
mod stage;
#[cfg(target_arch = "x86_64")]
mod trials;

manyway_testkit::stepped_main!("kills", trials::main);

/// How many deaths in each call, if nothing else is asked for.
#[cfg(target_arch = "x86_64")]
const FEW: usize = 4;

/// How many deaths in each call; more than it has instructions: all of them.
#[cfg(target_arch = "x86_64")]
fn deaths() -> usize {
    match std::env::var("MANYWAY_KILLS") {
        Ok(all) if all == "all" => usize::MAX,
        Ok(n) => n.parse().ok().filter(|&n| n > 0).expect("MANYWAY_KILLS is a number or all"),
        Err(_) => FEW,
    }
}
