//! The kernel as oracle: one set of scenarios, executed by fleets of worker processes on the kernel's semaphores and on Manyway's.
//!
//! A [`World`] is one IPC namespace (a fresh kernel one where that is allowed, or a Manyway directory) with worker processes. A
//! [`scenarios::Scenario`] drives them step by step, asserts what a rule says, and leaves a trace; the trace on Manyway must equal the one on
//! the kernel.

mod agent;
mod backend;
mod command;
pub mod fuzz;
pub mod image;
pub mod invariants;
pub mod mutations;
mod preload;
mod protocol;
pub mod random;
pub mod scenarios;
pub mod small_fs;
#[cfg(target_arch = "x86_64")]
pub mod step;
mod sys;
#[cfg(target_arch = "x86_64")]
pub mod trace;
mod worker;
mod world;

pub use agent::Agent;
pub use command::manyway_command;
pub use preload::preload_library;
pub use protocol::{Clone, Command, Info, NewImage, Op, Out, Pointer, Reply, Res, Snapshot, Stat, add, dec, inc, zero};
pub use worker::become_worker_if_asked;
pub use world::{Backend, Set, Setup, World, kernel_has_semaphores, kernel_namespaces, running_as_root};

/// True when the environment asks for all of a part of the proof, whatever it costs: `NAME=all`.
pub fn asks_for_all(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| v == "all")
}

/// The main function of a test program whose processes are moved instruction by instruction, which is done on x86-64 only.
#[macro_export]
macro_rules! stepped_main {
    ($name:literal, $main:path) => {
        #[cfg(target_arch = "x86_64")]
        fn main() {
            $main();
        }
        #[cfg(not(target_arch = "x86_64"))]
        fn main() {
            println!("test {} ... ignored: single steps are taken on x86-64 only", $name);
        }
    };
}

/// Makes a function of a test program the one that the whole program, and each library in it, finds under the C library's name. Weak, as the
/// engine's references to these names are: the assembler allows one binding for a name in an object, and the compiler may put both into one.
#[macro_export]
macro_rules! in_front_of_the_c_library {
    ($name:literal, $own:path) => {
        #[cfg(target_arch = "x86_64")]
        core::arch::global_asm!(concat!(".weak ", $name), concat!(".type ", $name, ",@function"), concat!($name, ":"), "jmp {}", sym $own);
        #[cfg(target_arch = "aarch64")]
        core::arch::global_asm!(concat!(".weak ", $name), concat!(".type ", $name, ",@function"), concat!($name, ":"), "b {}", sym $own);
    };
}

/// The examples in the project's README are kept true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
