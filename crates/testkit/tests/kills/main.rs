//! Real deaths: a process is stopped after every k-th instruction of a call, while another process fights for the same semaphores and a third
//! one sleeps on them, and it dies there. Both go on, and no unit is lost or made.
//!
//! Ways to die: SIGKILL; execve by another thread, into programs with and without the library; the kernel's out-of-memory killer; the same with
//! the robust list taken away first. Callers: the crate, and C's functions with the library preloaded.
//!
//! `MANYWAY_KILLS=all` takes every instruction.

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

#[cfg(target_arch = "x86_64")]
fn main() {
    trials::main();
}

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    println!("test kills ... ignored: single steps are taken on x86-64 only");
}

/// True when cost does not matter.
#[cfg(target_arch = "x86_64")]
fn everything() -> bool {
    std::env::var("MANYWAY_KILLS").is_ok_and(|v| v == "all")
}
